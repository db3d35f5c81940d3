"""The proxy in conversation: with clients that speak HTTP or not, and with origins that behave or not."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Any

import pytest

from tabherd.egress.policy import Address, Judge, Policy
from tabherd.egress.proxy import Proxy

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
# A test that is not answered shall fail, not hang.
LIMIT_S = 60
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class House:
    """A proxy, what its name server answers, and who was asked what."""

    def __init__(self, **settings: Any) -> None:
        self.port = 0
        self.names: dict[str, list[str]] = {}
        self.lookups: list[str] = []
        self.connections_max = settings.pop("connections_max", 100)
        self._judge = Judge(Policy(**settings))
        self._writers: list[asyncio.StreamWriter] = []

    async def resolve(self, name: str) -> Sequence[Address]:
        self.lookups.append(name)
        if name not in self.names:
            raise OSError("no such name")
        return [ip_address(address) for address in self.names[name]]

    async def start(self) -> asyncio.Server:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        proxy = Proxy(self._judge, lambda name: self.resolve(name), connections_max=self.connections_max)
        return await proxy.serve(listener)

    async def open(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        self._writers.append(writer)
        return reader, writer

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        """Status and body of the answer, on a connection of its own."""
        reader, writer = await self.open(data)
        try:
            return await read_answer(reader)
        finally:
            writer.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def proxying(**settings: Any) -> AsyncIterator[House]:
    house = House(**settings)
    server = await house.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            yield house
    finally:
        house.close()
        server.close()


class Site:
    """An origin that counts its connections."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0
        # Set whenever one of them is over.
        self.over = asyncio.Event()

    def get(self, path: str = "/", host: str = "127.0.0.1", *headers: str) -> bytes:
        lines = (f"GET http://{host}:{self.port}{path} HTTP/1.1", f"Host: {host}:{self.port}", *headers, "", "")
        return "\r\n".join(lines).encode()


@asynccontextmanager
async def answering(answer: Answer, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Site]:
    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        site.connections += 1
        try:
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            # The proxy hung up, which is what some tests wait for.
            site.over.set()
        finally:
            writer.close()
            site.over.set()

    server = await asyncio.start_server(count, host, port)
    site = Site(server.sockets[0].getsockname()[1])
    try:
        yield site
    finally:
        server.close()


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of an answer that says its length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next((line for line in head.splitlines() if line.startswith("content-length: ")), "content-length: 0")
    return int(head.split(" ")[1]), await reader.readexactly(int(length.split(" ")[1]))


async def always_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)


def saying(data: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()

    return answer


# --- Requests -------------------------------------------------------------------------------------------------------


async def test_requests_on_one_connection_share_one_to_the_origin() -> None:
    async with proxying() as house, answering(always_ok) as site:
        reader, writer = await house.open()
        for _ in range(3):
            writer.write(site.get())
            assert await read_answer(reader) == (200, b"ok")
        assert site.connections == 1


async def test_each_request_on_a_connection_goes_to_its_own_host() -> None:
    async def name(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            host = head.partition("Host: ")[2].partition(":")[0]
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(host)}\r\n\r\n{host}".encode())

    async with proxying() as house, answering(name) as site:
        house.names = {"a.test": ["127.0.0.1"], "b.test": ["127.0.0.1"]}
        reader, writer = await house.open()
        for host in ("a.test", "b.test", "a.test"):
            writer.write(site.get(host=host))
            assert await read_answer(reader) == (200, host.encode())


async def test_each_request_on_a_connection_is_judged() -> None:
    async with proxying(deny_hosts=("bad.test",)) as house, answering(always_ok) as site:
        house.names = {"good.test": ["127.0.0.1"], "bad.test": ["127.0.0.1"]}
        reader, writer = await house.open(site.get(host="good.test"))
        assert (await read_answer(reader))[0] == 200
        writer.write(site.get(host="bad.test"))
        assert (await read_answer(reader))[0] == 403


@pytest.mark.parametrize("framing", ["Content-Length: 11", "Transfer-Encoding: chunked"])
async def test_a_body_arrives_whole(framing: str) -> None:
    body = b"hello world" if "Length" in framing else b"5\r\nhello\r\n6;x=1\r\n world\r\n0\r\nTrailer: x\r\n\r\n"
    got = asyncio.get_running_loop().create_future()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        got.set_result(await reader.readexactly(len(body)))
        writer.write(OK)

    async with proxying() as house, answering(take) as site:
        head = f"POST http://127.0.0.1:{site.port}/ HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode()
        assert await house.ask(head + body) == (200, b"ok")
        assert await got == body


async def test_an_answer_is_passed_on_piece_by_piece() -> None:
    go_on = asyncio.Event()

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await go_on.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
        await reader.read()

    async with proxying() as house, answering(slowly) as site:
        reader, _ = await house.open(site.get())
        assert (await reader.readuntil(b"one\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        go_on.set()
        assert await reader.readuntil(b"0\r\n\r\n") == b"3\r\ntwo\r\n0\r\n\r\n"


async def test_an_answer_without_an_end_ends_with_its_connection() -> None:
    async with proxying() as house, answering(saying(b"HTTP/1.0 200 OK\r\n\r\nall there is")) as site:
        reader, _ = await house.open(site.get())
        assert await reader.read() == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall there is"


async def test_early_hints_come_before_the_answer() -> None:
    async with proxying() as house, answering(saying(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK)) as site:
        reader, _ = await house.open(site.get())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        assert await read_answer(reader) == (200, b"ok")


async def test_an_answer_before_the_end_of_the_upload_is_passed_on() -> None:
    async with proxying() as house, answering(saying(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")) as site:
        head = f"POST http://127.0.0.1:{site.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n".encode()
        assert await house.ask(head + b"x" * 10) == (413, b"no")


async def test_a_kept_connection_that_the_origin_closed_is_replaced() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)

    async with proxying() as house, answering(once) as site:
        reader, writer = await house.open()
        for _ in range(3):
            writer.write(site.get())
            assert await read_answer(reader) == (200, b"ok")
        assert site.connections == 3


async def test_what_must_not_be_sent_twice_is_never_sent_on_a_kept_connection() -> None:
    async with proxying() as house, answering(always_ok) as site:
        reader, writer = await house.open(site.get())
        await read_answer(reader)
        writer.write(f"POST http://127.0.0.1:{site.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (await read_answer(reader))[0] == 200
        assert site.connections == 2


async def test_a_client_that_leaves_takes_the_connection_to_the_origin_along() -> None:
    asked = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()

    async with proxying() as house, answering(never) as site:
        _, writer = await house.open(site.get())
        await asked.wait()
        writer.close()
        await site.over.wait()


async def test_a_client_that_does_not_read_slows_the_origin_down() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(2_000):
            writer.write(bytes(64 << 10))
            await writer.drain()

    async with proxying() as house, answering(flood) as site:
        reader, writer = await house.open(site.get())
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(site.over.wait(), 0.3)


# --- Tunnels --------------------------------------------------------------------------------------------------------


def connect(host: str, port: int) -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()


async def test_a_tunnel_carries_both_directions_and_what_came_with_the_request() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1_000):
            writer.write(data)

    async with proxying() as house, answering(echo) as site:
        reader, writer = await house.open(connect("127.0.0.1", site.port) + b"early")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await reader.readexactly(5) == b"early"
        writer.write(b"late")
        assert await reader.readexactly(4) == b"late"


async def test_one_direction_of_a_tunnel_may_end_before_the_other() -> None:
    async def sum_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"you said: " + await reader.read())

    async with proxying() as house, answering(sum_up) as site:
        reader, writer = await house.open(connect("127.0.0.1", site.port))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"all")
        writer.write_eof()
        assert await reader.read() == b"you said: all"


async def test_a_tunnel_whose_origin_is_cut_off_is_over() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async with proxying() as house, answering(cut) as site:
        reader, writer = await house.open(connect("127.0.0.1", site.port))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"xy")
        with suppress(ConnectionError):
            assert await reader.read() == b""


async def test_a_tunnel_ends_when_its_client_does() -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with proxying() as house, answering(wait) as site:
        reader, writer = await house.open(connect("127.0.0.1", site.port))
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await site.over.wait()


# --- Refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_tunnel", [False, True])
async def test_a_refused_host_is_answered_with_the_reason_and_never_contacted_or_looked_up(is_tunnel: bool) -> None:
    async with proxying(deny_hosts=("bad.test",)) as house, answering(always_ok) as site:
        house.names = {"bad.test": ["127.0.0.1"]}
        status, body = await house.ask(connect("bad.test", site.port) if is_tunnel else site.get(host="bad.test"))
        assert (status, json.loads(body)["code"]) == (403, "policy_denied")
        assert json.loads(body)["details"] == {"host": "bad.test", "reason": "denied_host"}
        assert (site.connections, house.lookups) == (0, [])


async def test_a_name_that_leads_to_a_private_address_is_refused() -> None:
    async with proxying(deny_private_networks=True) as house, answering(always_ok) as site:
        house.names = {"inside.test": ["127.0.0.1"]}
        status, body = await house.ask(site.get(host="inside.test"))
        assert (status, json.loads(body)["details"]["reason"]) == (403, "private_network")
        assert site.connections == 0


async def test_a_name_server_that_changes_its_answer_changes_nothing_after_the_verdict() -> None:
    async with (
        proxying(deny_hosts=("127.0.0.2",)) as house,
        answering(saying(OK)) as good,
        answering(saying(OK), "127.0.0.2", good.port) as bad,
    ):
        answers = [["127.0.0.1"], ["127.0.0.2"]]

        async def rebinding(name: str) -> Sequence[Address]:
            house.lookups.append(name)
            return [ip_address(address) for address in answers[min(len(house.lookups), 2) - 1]]

        house.resolve = rebinding  # type: ignore[method-assign]
        assert (await house.ask(good.get(host="x.test")))[0] == 200
        assert house.lookups == ["x.test"]
        assert (await house.ask(good.get(host="x.test")))[0] == 403
        assert (good.connections, bad.connections) == (1, 0)


async def test_a_post_to_a_refused_host_is_answered_although_its_body_is_not_read() -> None:
    async with proxying(deny_hosts=("bad.test",)) as house:
        head = b"POST http://bad.test/ HTTP/1.1\r\nHost: bad.test\r\nContent-Length: 500000\r\n\r\n"
        assert (await house.ask(head + bytes(500_000)))[0] == 403


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
        b"GET http://a.test/ HTTP/1.1\r\n" + b"a" * 200_000,
    ],
)
async def test_what_is_not_meant_for_a_proxy_is_answered_with_400(data: bytes) -> None:
    async with proxying() as house:
        status, body = await house.ask(data)
        assert (status, json.loads(body)["code"]) == (400, "invalid_request")


async def test_more_connections_than_there_may_be_are_turned_away_until_one_ends() -> None:
    async with proxying(connections_max=1) as house, answering(always_ok) as site:
        reader, writer = await house.open(site.get())
        assert (await read_answer(reader))[0] == 200
        assert (await house.ask(site.get()))[0] == 503
        writer.close()
        await site.over.wait()
        while (await house.ask(site.get()))[0] == 503:
            pass


# --- Origins --------------------------------------------------------------------------------------------------------


async def test_a_name_that_does_not_exist_is_answered_with_502() -> None:
    async with proxying() as house:
        status, body = await house.ask(connect("nowhere.test", 443))
        assert (status, json.loads(body)["code"]) == (502, "navigation_failed")


async def test_an_origin_that_does_not_listen_is_answered_with_502() -> None:
    async with proxying() as house:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        assert (await house.ask(connect("127.0.0.1", port)))[0] == 502


@pytest.mark.parametrize("data", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
async def test_an_origin_that_does_not_speak_http_is_answered_with_502(data: bytes) -> None:
    async with proxying() as house, answering(saying(data)) as site:
        assert (await house.ask(site.get()))[0] == 502


async def test_the_next_address_is_tried_when_one_does_not_listen() -> None:
    async with proxying() as house, answering(always_ok) as site:
        house.names = {"two.test": ["127.0.0.3", "127.0.0.1"]}
        assert (await house.ask(site.get(host="two.test")))[0] == 200


@pytest.mark.parametrize(
    "data",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nless", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz"],
)
async def test_an_answer_that_breaks_off_does_not_look_whole(data: bytes) -> None:
    async with proxying() as house, answering(saying(data + b"\r\n")) as site:
        reader, _ = await house.open(site.get())
        await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            assert await reader.read() in (b"", b"less\r\n")
