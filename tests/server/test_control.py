"""The control channel of a real server with a real page: one queue for sockets and HTTP, and locks that die with their
holder.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import pytest
from picows.websockets import ClientConnection, ConnectionClosed, connect
from tests.shared_server import unique

from .conftest import Server, open_session

pytestmark = [pytest.mark.server, pytest.mark.browser]

LIMIT_S = 60
_numbers = itertools.count(1)

# A program that takes a tab's lock over a connection of its own, says so, and then only answers pings.
HOLDER = """
import asyncio, json, sys, time
from picows.websockets import connect

async def main(url, tab_id):
    async with connect(url, ping_interval=None) as connection:
        asked = [("hello", {"heartbeatMs": 1000}), ("tab_lock", {"tabSessionId": tab_id, "lockLeaseMs": 600_000})]
        for kind, payload in asked:
            await connection.send(json.dumps({
                "protocolVersion": "1.0", "messageType": kind, "requestId": kind, "nonce": kind,
                "timestamp": int(time.time() * 1000), "payload": payload,
            }))
        while True:
            answer = json.loads(await connection.recv())
            if answer.get("requestId") == "tab_lock":
                print(json.dumps(answer), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@contextmanager
def holder(url: str, tab_id: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the tab's lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, url, tab_id], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["messageType"] == "result"
        yield process
    finally:
        process.kill()
        process.communicate()


class Speaker:
    """A control connection."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._inbox: list[dict[str, Any]] = []

    async def send(self, message_type: str, payload: dict[str, Any]) -> str:
        number = f"{os.getpid()}-{next(_numbers)}"
        message = {"protocolVersion": "1.0", "messageType": message_type, "requestId": number, "nonce": number}
        message |= {"timestamp": int(time.time() * 1000), "payload": payload}
        await self._connection.send(json.dumps(message))
        return number

    async def next(self, request_id: str, *kinds: str) -> dict[str, Any]:
        """The first message of these kinds that belongs to the request."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                for message in self._inbox:
                    if message.get("requestId") == request_id and message["messageType"] in kinds:
                        self._inbox.remove(message)
                        return message
                self._inbox.append(json.loads(await self._connection.recv()))

    async def answer(self, request_id: str) -> dict[str, Any]:
        return await self.next(request_id, "result", "error", "hello_ack")


@asynccontextmanager
async def speaker(url: str) -> AsyncIterator[Speaker]:
    async with connect(url, ping_interval=None) as connection:
        speaking = Speaker(connection)
        assert (await speaking.answer(await speaking.send("hello", {})))["messageType"] == "hello_ack"
        yield speaking


def note(name: str) -> dict[str, Any]:
    """An action of which the page keeps a record."""
    return {"kind": "evaluate", "expression": f"(window.log ??= []).push('{name}'), log.length"}


async def waiters(client: httpx.AsyncClient, tab_id: str, count: int) -> None:
    """Until so many commands wait for the tab."""
    async with asyncio.timeout(LIMIT_S):
        while len((await client.get(f"/tabs/{tab_id}")).json()["waiters"]) != count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_a_lock_binds_everybody_and_when_its_holder_is_gone_they_run_as_they_came(
    server: Server, how: signal.Signals
) -> None:
    token = server.token_of(unique("ada"))
    with server.client(token) as opening:
        # Its session is the page's: it must not end with the first connection that does.
        session = open_session(opening, keepAlive=True)
    tab_id = session["tabs"][0]["tabId"]
    url = server.record["url"].replace("http://", "ws://") + f"/ws?token={token}"
    bearer = {"Authorization": f"Bearer {token}"}
    async with (
        speaker(url) as other,
        httpx.AsyncClient(base_url=server.record["url"], headers=bearer, timeout=LIMIT_S) as http,
    ):
        with holder(url, tab_id) as process:
            at_once = {"tabSessionId": tab_id, "payload": note("never")}
            refused = await other.answer(await other.send("command", at_once))
            assert refused["payload"]["code"] == "tab_locked"
            assert (await http.post(f"/tabs/{tab_id}/action", json=note("never"))).json()["code"] == "tab_locked"

            patient = {"waitPolicy": "wait_with_timeout", "timeoutMs": 60_000}
            sent: list[Any] = []
            for turn in range(2):
                body = note(f"http-{turn}") | patient
                sent.append(asyncio.create_task(http.post(f"/tabs/{tab_id}/action", json=body)))
                await waiters(http, tab_id, 2 * turn + 1)
                payload = {"tabSessionId": tab_id, "payload": note(f"ws-{turn}"), **patient}
                sent.append(await other.send("command", payload))
                queued = await other.next(sent[-1], "event")
                assert (queued["payload"]["type"], queued["payload"]["position"]) == ("queued", 2 * turn + 2)

            process.send_signal(how)
            for number, one in enumerate(sent, start=1):
                result = (await other.answer(one))["payload"] if isinstance(one, str) else (await one).json()
                assert (result["ok"], result["result"]) == (True, number)

        log = (await http.post(f"/tabs/{tab_id}/action", json={"kind": "evaluate", "expression": "log"})).json()
        assert log["result"] == ["http-0", "ws-0", "http-1", "ws-1"]
        assert (await http.delete(f"/sessions/{session['sessionId']}")).status_code == 204


async def test_a_server_that_is_told_to_stop_says_goodbye(own_server: Server) -> None:
    url = own_server.record["url"].replace("http://", "ws://") + f"/ws?token={own_server.token_of('ada')}"
    async with connect(url, ping_interval=None) as connection:
        stopping = asyncio.create_task(asyncio.to_thread(own_server.stop))
        speaking = Speaker(connection)
        with pytest.raises(ConnectionClosed):
            await speaking.next("never", "event")
        await stopping
    assert connection.close_code == 1001
    assert [m["payload"]["type"] for m in speaking._inbox] == ["node.draining"]
