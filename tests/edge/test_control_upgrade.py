"""How a control connection is let in: by whom, from where, and what a refusal looks like to a plain HTTP client."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import pytest
import uvloop
from picows.websockets import InvalidStatus, connect

from tabherd.edge.conversation import Conversation
from tabherd.edge.sockets import Socket
from tabherd.edge.upgrade import Doors, Upgrade, Upgrading

from .control_house import LIMIT_S, House, client, envelope, house, until

KEY = base64.b64encode(b"0123456789abcdef").decode()


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """The loop that the server has; its transports are not those of asyncio."""
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def here() -> AsyncIterator[House]:
    async with house() as running:
        yield running


@pytest.fixture
async def token(here: House) -> str:
    return await here.token("ada")


class Raw:
    """A client that writes bytes, whatever the protocol says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def dial(cls, here: House) -> Raw:
        return cls(*await asyncio.open_connection("127.0.0.1", here.port))

    async def upgrade(self, here: House, target: str = "/ws", method: str = "GET", **headers: str) -> int:
        """Ask for a socket: the status."""
        fields = {
            "Host": f"127.0.0.1:{here.port}",
            "Upgrade": "websocket",
            "Connection": "keep-alive, Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": KEY,
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value)]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), LIMIT_S)
        self.head = head.decode().lower()
        return int(head.split()[1])

    async def body(self) -> Any:
        return json.loads(await asyncio.wait_for(self.reader.read(), LIMIT_S))

    def frame(self, opcode: int, payload: bytes = b"", *, first: int = 0x80, masked: bool = True) -> None:
        """One short frame, masked with zeros."""
        size = bytes([len(payload) | (0x80 if masked else 0)])
        if len(payload) > 125:
            size = bytes([126 | 0x80]) + struct.pack(">H", len(payload))
        self.writer.write(bytes([first | opcode]) + size + (bytes(4) if masked else b"") + payload)

    async def close_code(self) -> int:
        """The code with which the other side closes; what came before is skipped."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                first, size = await self.reader.readexactly(2)
                length = size if size < 126 else int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8))
                payload = await self.reader.readexactly(length)
                if first & 15 == 8:
                    return int.from_bytes(payload[:2])


@pytest.fixture
async def raw(here: House) -> AsyncIterator[Raw]:
    dialled = await Raw.dial(here)
    yield dialled
    dialled.writer.close()


# --- Credentials and addresses ----------------------------------------------------------------------------------


async def test_a_token_is_taken_from_the_header_or_the_query(here: House, token: str) -> None:
    for url, headers in ((here.url, {"Authorization": f"Bearer {token}"}), (f"{here.url}?token={token}", {})):
        async with connect(url, additional_headers=headers) as connection:
            assert connection.response.headers["x-request-id"]


REFUSED: Final = (
    ("/ws", {}, 401, "unauthenticated"),
    ("/ws?token=th_wrong", {}, 401, "unauthenticated"),
    ("/ws?tokn=x", {}, 400, "unknown_field"),
    ("/ws/", {}, 404, "not_found"),
    ("/sessions", {}, 404, "not_found"),
    ("/ws", {"Host": "evil.test"}, 403, "forbidden"),
    ("/ws", {"Origin": "http://evil.test"}, 403, "forbidden"),
    ("/ws", {"Origin": "null"}, 403, "forbidden"),
    ("/ws", {"Sec_WebSocket_Version": "8"}, 400, "invalid_request"),
    ("/ws", {"Sec_WebSocket_Key": "short"}, 400, "invalid_request"),
    ("/ws", {"Sec_WebSocket_Key": ""}, 400, "invalid_request"),
)


async def test_a_refusal_is_a_typed_error_before_the_upgrade(here: House) -> None:
    for target, headers, status, code in REFUSED:
        raw = await Raw.dial(here)
        assert await raw.upgrade(here, target, **headers) == status, target
        assert "connection: close" in raw.head
        # To its end: nothing comes after a refusal.
        body = await raw.body()
        assert (body["code"], bool(body["action"])) == (code, True), target
        raw.writer.close()
    assert here.events._subscribers == 0


async def test_a_socket_is_opened_with_get(here: House, raw: Raw) -> None:
    assert await raw.upgrade(here, method="POST") == 405


async def test_a_page_of_the_servers_own_origin_may_open_it(here: House, raw: Raw, token: str) -> None:
    origin = f"http://127.0.0.1:{here.port}"
    assert await raw.upgrade(here, f"/ws?token={token}", Origin=origin) == 101


async def test_a_good_token_does_not_excuse_a_foreign_origin(here: House, raw: Raw, token: str) -> None:
    assert await raw.upgrade(here, f"/ws?token={token}", Origin="http://evil.test") == 403


async def test_a_client_library_sees_the_refusal(here: House) -> None:
    with pytest.raises(InvalidStatus) as caught:
        async with connect(here.url):
            pass
    assert caught.value.response.status_code == 401


async def test_more_connections_than_the_bus_has_places_for_are_refused_with_a_time_to_come_again(
    here: House, raw: Raw, token: str
) -> None:
    here.events._subscribers = 1_000
    assert await raw.upgrade(here, f"/ws?token={token}") == 429
    assert "retry-after: 5" in raw.head
    here.events._subscribers = 0


async def test_plain_requests_go_on_beside_sockets(here: House, token: str) -> None:
    async with client(here, token), httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}", timeout=60) as plain:
        assert (await plain.get("/health")).json()["status"] == "ok"


# --- While it is decided ----------------------------------------------------------------------------------------


async def test_what_is_sent_before_the_answer_is_not_lost(here: House, raw: Raw, token: str) -> None:
    door = asyncio.Event()
    doors: Doors = here.front.config.ws.__self__  # type: ignore[union-attr]
    admit = doors._doors["/ws"]

    async def slow(upgrade: Upgrade) -> Socket:
        await door.wait()
        return await admit(upgrade)

    doors._doors = {"/ws": slow}
    asking = asyncio.create_task(raw.upgrade(here, f"/ws?token={token}"))
    await until(lambda: any(isinstance(each, Upgrading) for each in here.front.server_state.connections))
    raw.frame(1, json.dumps(envelope("hello")).encode())
    await raw.writer.drain()
    door.set()
    assert await asking == 101
    assert (await raw.reader.readexactly(2))[0] == 0x81


async def test_a_client_that_leaves_while_it_waits_is_not_let_in(here: House) -> None:
    waiting, cancelled = asyncio.Event(), asyncio.Event()

    async def never(upgrade: Upgrade) -> Socket:
        try:
            waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    doors: Doors = here.front.config.ws.__self__  # type: ignore[union-attr]
    doors._doors = {"/ws": never}
    raw = await Raw.dial(here)
    asking = asyncio.create_task(raw.upgrade(here))
    await asyncio.wait_for(waiting.wait(), LIMIT_S)
    raw.writer.close()
    await asyncio.wait_for(cancelled.wait(), LIMIT_S)
    asking.cancel()
    await until(lambda: not here.front.server_state.connections)


async def test_a_bug_in_a_door_is_answered_as_one(here: House, raw: Raw) -> None:
    async def broken(upgrade: Upgrade) -> Socket:
        raise ZeroDivisionError

    doors: Doors = here.front.config.ws.__self__  # type: ignore[union-attr]
    doors._doors = {"/ws": broken}
    assert await raw.upgrade(here) == 500
    assert (await raw.body())["code"] == "internal_error"


# --- Frames -----------------------------------------------------------------------------------------------------


BROKEN: Final[dict[str, list[tuple[int, bytes, dict[str, Any]]]]] = {
    "reserved bit": [(1, b"{}", {"first": 0xC0})],
    "nothing to continue": [(0, b"{}", {})],
    "a message in another": [(1, b"{", {"first": 0}), (1, b"}", {})],
    "unmasked": [(1, b"{}", {"masked": False})],
    "opcode": [(3, b"", {})],
    "ping in pieces": [(9, b"", {"first": 0})],
    "close": [(8, b"\x00", {})],
}


async def test_frames_that_break_the_protocol_close_with_1002(here: House, token: str) -> None:
    for kind, frames in BROKEN.items():
        raw = await Raw.dial(here)
        assert await raw.upgrade(here, f"/ws?token={token}") == 101
        for opcode, payload, how in frames:
            raw.frame(opcode, payload, **how)
        assert await raw.close_code() == 1002, kind
        raw.writer.close()
        await until(lambda: not here.front.server_state.connections)


async def test_a_close_is_answered_and_ends_the_connection(here: House, raw: Raw, token: str) -> None:
    assert await raw.upgrade(here, f"/ws?token={token}") == 101
    raw.frame(8, b"\x03\xe8")
    assert await raw.close_code() == 1000
    assert await asyncio.wait_for(raw.reader.read(), LIMIT_S) == b""
    await until(lambda: not here.front.server_state.connections)


async def test_a_ping_frame_is_answered(here: House, raw: Raw, token: str) -> None:
    assert await raw.upgrade(here, f"/ws?token={token}") == 101
    raw.frame(9, b"hi")
    assert await asyncio.wait_for(raw.reader.readexactly(4), LIMIT_S) == b"\x8a\x02hi"


# --- Beats ------------------------------------------------------------------------------------------------------


def the_conversation(here: House) -> Conversation:
    (found,) = [each for each in here.front.server_state.connections if isinstance(each, Conversation)]
    return found


async def test_a_client_that_answers_pings_is_kept(here: House, token: str) -> None:
    async with client(here, token) as ada:
        conversation = the_conversation(here)
        for _ in range(5):
            conversation.beat()
            assert (await ada.ask("ping"))["messageType"] == "pong"
        assert not conversation.is_closed


async def test_a_client_that_misses_two_beats_is_cut_off_and_what_it_held_is_free(
    here: House, raw: Raw, token: str
) -> None:
    tab_id = await here.open_tab("ada")
    assert await raw.upgrade(here, f"/ws?token={token}") == 101
    for kind, payload in (("hello", {}), ("tab_lock", {"tabSessionId": tab_id})):
        raw.frame(1, json.dumps(envelope(kind, payload, requestId=kind)).encode())
    await until(lambda: here.gate(tab_id).tab_lock is not None)
    conversation = the_conversation(here)
    # The first notes what was heard so far; the next two hear nothing.
    for _ in range(3):
        conversation.beat()
    await until(lambda: conversation.is_closed and here.gate(tab_id).tab_lock is None)


async def test_the_pings_are_sent_as_often_as_was_asked_for(here: House, raw: Raw, token: str) -> None:
    assert await raw.upgrade(here, f"/ws?token={token}") == 101
    raw.frame(1, json.dumps(envelope("hello", {"heartbeatMs": 1_000})).encode())
    await until(lambda: the_conversation(here).heartbeat_ms == 1_000)
    conversation = the_conversation(here)
    assert conversation._beating is not None
    assert conversation._beating.when() <= asyncio.get_running_loop().time() + 1


async def test_a_slow_reader_that_reads_on_is_not_missed(here: House, token: str) -> None:
    tab_id = await here.open_tab("ada")
    async with client(here, token, is_slow=True) as ada:
        conversation = the_conversation(here)
        ids = [await ada.run(tab_id, f"big-4000000-{n}", waitPolicy="wait_with_timeout") for n in range(5)]
        await until(lambda: len(here.pages.begun) == 5 and conversation.is_paused)
        conversation.beat()
        for request_id in ids:
            await ada.answer(request_id)
            conversation.beat()
        assert not conversation.is_closed


async def test_a_client_that_talks_but_does_not_read_is_missed(here: House, token: str) -> None:
    tab_id = await here.open_tab("ada")
    async with client(here, token, is_slow=True) as ada:
        conversation = the_conversation(here)
        for n in range(5):
            await ada.run(tab_id, f"big-4000000-{n}", waitPolicy="wait_with_timeout")
        await until(lambda: len(here.pages.begun) == 5 and conversation.is_paused)
        for _ in range(3):
            await ada.send("pong")
            await until(lambda: conversation._pulse._is_heard)
            conversation.beat()
        await until(lambda: conversation.is_closed)
