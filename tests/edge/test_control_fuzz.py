"""Whatever is sent to the control channel, the server goes on, no tab hangs, and every good command has one answer.

A failing seed is in the test's name: `pytest tests/edge/test_control_fuzz.py -k SEED` replays it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import uvloop
from picows.websockets import ConnectionClosed
from structlog.testing import capture_logs

from tabherd import wire

from .control_house import LIMIT_S, Client, House, client, command, envelope, house, until

# The first of them are played always, the others in long runs.
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 60))]
MESSAGES = 120
# Values that are wrong almost everywhere.
JUNK: list[Any] = [None, True, -1, 0, 1 << 80, 1.5, "", "x", "tab_0", "\x00", "💥" * 30, "y" * 5_000, [], [[]], {}]
JUNK += [{"kind": "evaluate"}, {"steps": []}, {"steps": [{"kind": "close"}] * 200}, ["command"], {"payload": {}}]


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """The loop that the server has; its transports are not those of asyncio."""
    return uvloop.EventLoopPolicy()


class Fuzzer:
    """One hostile client's ideas, reproducible from its seed."""

    def __init__(self, chance: Random, tabs: list[str]) -> None:
        self.chance = chance
        self.tabs = tabs
        # Ids that the server gave out, which make the best lies.
        self.seen = ["cmd_0", "lck_0"]

    def good_command(self) -> dict[str, Any]:
        return command(self.chance.choice(self.tabs), f"f{self.chance.random()}", waitPolicy="wait_with_timeout")

    def frame(self) -> str | bytes:
        """Something between random bytes and a message with one thing wrong."""
        roll = self.chance.random()
        if roll < 0.04:
            return self.chance.randbytes(self.chance.randrange(50))
        if roll < 0.08:
            return "".join(chr(self.chance.randrange(0xD800)) for _ in range(self.chance.randrange(30)))
        message = self.message()
        for _ in range(self.chance.randrange(3)):
            self.spoil(message)
        text = json.dumps(message)
        if roll < 0.12:
            cut = self.chance.randrange(len(text))
            return text[:cut] + self.chance.choice(["", "}", '"', "\\u12", "null"]) + text[cut + 1 :]
        return text

    def message(self) -> dict[str, Any]:
        tab = self.chance.choice(self.tabs)
        payload: dict[str, Any]
        match kind := self.chance.choice([*wire.CLIENT_PAYLOADS, "hello_ack", "result", "nonsense"]):
            case "command":
                payload = self.good_command() | {"timeoutMs": self.chance.choice([1, 100, 500])}
            case "command_cancel":
                payload = {"commandId": self.chance.choice(self.seen)}
            case "tab_lock":
                policy = self.chance.choice(["fail_fast", "wait_with_timeout"])
                payload = {"tabSessionId": tab, "lockLeaseMs": 100, "waitPolicy": policy, "timeoutMs": 200}
            case "tab_renew" | "tab_unlock":
                payload = {"tabSessionId": tab, "ticket": self.chance.choice(self.seen)}
            case _:
                payload = {}
        return envelope(kind, payload, requestId=f"q{self.chance.randrange(20)}")

    def spoil(self, message: dict[str, Any]) -> None:
        """Change, remove or add a field, at any depth."""
        places = [message]
        while isinstance(places[-1].get("payload"), dict) and self.chance.random() < 0.7:
            places.append(places[-1]["payload"])
        place = places[-1]
        name = self.chance.choice([*place, "surprise", "fence", "controllerId"])
        if self.chance.random() < 0.3:
            place.pop(name, None)
        else:
            place[name] = self.chance.choice(JUNK)

    def learn(self, message: dict[str, Any]) -> None:
        known = message["payload"].get("commandId") or message["payload"].get("ticket")
        if isinstance(known, str):
            self.seen.append(known)


async def attack(here: House, token: str, fuzzer: Fuzzer) -> None:
    """Send nonsense over connection after connection, leaving each in some rude way."""
    left = MESSAGES
    while left > 0:
        async with client(here, token, is_greeting=fuzzer.chance.random() < 0.8) as hostile:
            with contextlib.suppress(ConnectionClosed):
                while left > 0 and fuzzer.chance.random() < 0.97:
                    left -= 1
                    await hostile.connection.send(fuzzer.frame())
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.001):
                            fuzzer.learn(json.loads(await hostile.connection.recv()))
            if fuzzer.chance.random() < 0.5:
                # It may have been closed already.
                with contextlib.suppress(OSError):
                    hostile.drop()
            left -= 1


async def work(ada: Client, next_command: Callable[[], dict[str, Any]]) -> None:
    """An honest client in the middle of it: every command has exactly one answer."""
    asked = [await ada.send("command", next_command()) for _ in range(8)]
    answers = [await ada.answer(request_id) for request_id in asked]
    assert {answer["messageType"] for answer in answers} <= {"result", "error"}
    assert (await ada.ask("ping"))["messageType"] == "pong"
    again = [m for m in ada.inbox if m.get("requestId") in asked and m["messageType"] != "event"]
    assert again == [], "answered twice"
    ada.inbox.clear()


@pytest.mark.parametrize("seed", SEEDS)
async def test_nonsense_harms_nobody(seed: int) -> None:
    chance = Random(seed)
    with capture_logs() as logs:
        async with house({"auth": {"rate_per_s": 100_000, "rate_burst": 100_000}}) as here:
            token = await here.token("ada")
            tabs = [await here.open_tab("ada", keep_alive=True) for _ in range(3)]
            fuzzer = Fuzzer(chance, tabs)
            async with client(here, token) as ada:
                attacks = [asyncio.create_task(attack(here, token, fuzzer)) for _ in range(2)]
                honest = Fuzzer(Random(-seed), tabs)
                while not all(task.done() for task in attacks):
                    await work(ada, honest.good_command)
                await asyncio.gather(*attacks)
                # Locks and commands of those who left are gone, so that nobody has to wait for a lease to expire.
                await until(lambda: not here.broker._registry.tickets)
                # A page that is being replaced is waited for.
                patient = {"waitPolicy": "wait_with_timeout"}
                for tab_id in [tab for tab in tabs if here.broker._registry.tab(tab) is not None]:
                    assert (await ada.ask("command", command(tab_id, "alive", **patient)))["payload"][
                        "result"
                    ] == "alive"
        assert here.events._subscribers == 0
    assert [line for line in logs if line["event"].startswith("bug")] == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_bytes_that_are_no_frames_harm_nobody(seed: int) -> None:
    chance = Random(seed)
    with capture_logs() as logs:
        async with house() as here:
            token = await here.token("ada")
            key = base64.b64encode(chance.randbytes(16)).decode()
            head = (
                f"GET /ws?token={token} HTTP/1.1\r\nHost: 127.0.0.1:{here.port}\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
            )
            for _ in range(15):
                reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
                writer.write(head.encode())
                assert b" 101 " in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LIMIT_S)
                for _ in range(chance.randrange(1, 6)):
                    first = bytes([chance.choice([0x81, 0x01, 0x80, 0x82, 0x88, 0x89, chance.randrange(256)])])
                    writer.write(first + chance.randbytes(chance.randrange(40)))
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
            await until(lambda: not here.front.server_state.connections)
            async with client(here, token) as ada:
                assert (await ada.ask("ping"))["messageType"] == "pong"
        assert here.events._subscribers == 0
    assert [line for line in logs if line["event"].startswith("bug")] == []
