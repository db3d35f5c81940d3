"""A client that sends as fast as it can and never reads, and messages that are huge, nested or no messages at all, to
the control channel and to MCP: whoever is beside it is served as ever, and nothing of it is taken for a bug of ours."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Iterator, MutableMapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from structlog.testing import capture_logs
from tests.edge.control_house import LIMIT_S, House, client, command, envelope, house

from tabherd.wire import control as wire_types

from .raw import Wire, get, wire
from .rig import ALICE, BOB, Rig, rig
from .test_connections import UPGRADE
from .test_sockets import Model

# As deep as a message of a few hundred thousand bytes can be; a parser that calls itself gives up far earlier.
DEEP: Final = 100_000
# How often the one beside it asks while it goes on.
ASKED: Final = 5


@pytest.fixture(autouse=True)
def no_bugs() -> Iterator[None]:
    logs: list[MutableMapping[str, Any]]
    with capture_logs() as logs:
        yield
    assert [line for line in logs if line["event"].startswith("bug")] == []


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as one:
        yield one


def frame(payload: bytes, first: int = 0x81) -> bytes:
    """A message in one frame, masked with zeros."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size) if size < 1 << 16 else (
        b"\xff" + struct.pack(">Q", size)
    )  # fmt: skip
    return bytes([first]) + length + bytes(4) + payload


async def opened(here: House, hostile: Wire, token: str) -> None:
    """Have a control connection that has said hello."""
    await hostile.send(get(here, b"/ws", UPGRADE + f"Authorization: Bearer {token}\r\n".encode()))
    assert (await hostile.answer()).status == 101
    await hostile.send(frame(json.dumps(envelope("hello", {"heartbeatMs": wire_types.HEARTBEAT_MIN_MS})).encode()))


async def works(here: House, token: str, tab_id: str) -> None:
    """Commands are answered, each with its own result."""
    async with client(here, token) as bob:
        for number in range(ASKED):
            said = command(tab_id, f"{number}", waitPolicy="wait_with_timeout")
            assert (await bob.ask("command", said))["payload"].get("result") == f"{number}"


FLOODS: Final = {
    "pings": lambda: json.dumps(envelope("ping")).encode(),
    "commands for a tab that is not there": lambda: json.dumps(
        envelope("command", command("tab_" + "0" * 25, "1"))
    ).encode(),
    "messages without a shape": lambda: b'{"messageType":"command"}',
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == "pings" else [pytest.mark.soak]) for kind in FLOODS]
)
async def test_one_that_floods_and_never_reads_is_cut_off_and_keeps_nobody_waiting(kind: str) -> None:
    async with house() as here, wire(here) as hostile:
        tab_id, token = await here.open_tab(BOB, keep_alive=True), await here.token(BOB)
        await opened(here, hostile, await here.token(ALICE))
        hostile.stop_reading()
        piece = b"".join(frame(FLOODS[kind]()) for _ in range(50))
        flooding = asyncio.create_task(hostile.is_cut_off(piece, 20_000))
        await works(here, token, tab_id)
        # Held up by then, since nobody takes what it is answered; and cut off when it has missed two beats.
        assert await asyncio.wait_for(flooding, 3 * LIMIT_S), "it was let send without an end"
        await works(here, token, tab_id)


NO_MESSAGES: Final = {
    "nested lists": b"[" * DEEP,
    "nested lists that end": b"[" * DEEP + b"]" * DEEP,
    "nested objects": b'{"a":' * DEEP,
    "a nested payload": b'{"messageType":"command","payload":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "a number of many digits": b'{"timestamp":' + b"9" * DEEP + b"}",
    "half a letter": b'{"messageType":"\xc3"}',
    "a lone surrogate": b'{"messageType":"\\ud800"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
}


async def test_what_is_no_message_is_refused_on_the_control_channel(here: Rig) -> None:
    for kind, message in NO_MESSAGES.items():
        async with wire(here.here) as hostile:
            await opened(here.here, hostile, here.tokens[ALICE])
            await hostile.send(frame(message) + frame(b"", 0x88))
            told = await hostile.ended()
            # The answer to hello, a refusal or the reason of the close, and the close.
            assert b"Traceback" not in told, kind
            assert b"internal_error" not in told, kind
        async with client(here.here, here.tokens[BOB]) as bob:
            assert (await bob.ask("ping"))["messageType"] == "pong", kind


async def test_what_is_no_message_is_refused_by_mcp_with_and_without_a_session(here: Rig) -> None:
    async with here.client() as http:
        model = Model(http, here.tokens[ALICE])
        for _ in range(2):
            for kind, message in NO_MESSAGES.items():
                answer = await http.post(
                    "/mcp", content=message, headers=model._headers | {"Content-Type": "application/json"}
                )
                assert 400 <= answer.status_code < 500, (kind, answer.text)
                assert "Traceback" not in answer.text, kind
            # The second time within one.
            await model.open()
        assert "browser_lease" in await model.tools()
        await model.close()


async def test_one_that_floods_mcp_is_bounded_and_keeps_nobody_waiting() -> None:
    cap = 4
    async with (
        house({"server": {"mcp_sessions_per_credential": cap}}) as here,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}", timeout=120, verify=False, trust_env=False) as http,
    ):
        alice = await here.token(ALICE)
        victim, hostile = Model(http, await here.token(BOB)), Model(http, alice)
        await victim.open()
        await hostile.open()
        lists = [{"jsonrpc": "2.0", "id": 100 + n, "method": "tools/list", "params": {}} for n in range(20)]
        flooding = [asyncio.create_task(http.post("/mcp", json=each, headers=hostile._headers)) for each in lists]
        opening = [asyncio.create_task(Model(http, alice).open()) for _ in range(2 * cap)]
        assert "browser_lease" in await victim.tools()
        assert {answer.status_code for answer in await asyncio.gather(*flooding)} <= {200, 409, 429}
        statuses = [answer.status_code for answer in await asyncio.gather(*opening)]
        assert statuses.count(200) == cap - 1
        assert set(statuses) == {200, 429}
        assert "browser_lease" in await victim.tools()
