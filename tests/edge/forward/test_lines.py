"""Connections to other nodes: kept while they are good, used by one at a time, ended with their node."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack

import pytest

from tabherd.cluster.peer import Peer
from tabherd.edge.forward import lines as lines_module
from tabherd.edge.forward.http_line import HttpLine
from tabherd.edge.forward.lines import KEPT_MAX, Count
from tabherd.edge.forward.links import Links
from tabherd.errors import NodeUnreachable

from .nodes import LIMIT_S, OK, Wire, peer_at, scripted, until


async def echoing(wire: Wire) -> None:
    """Answers as long as it is asked."""
    while True:
        await wire.request()
        wire.write(OK)


async def test_one_connection_serves_request_after_request(links: Links) -> None:
    async with scripted(echoing) as node:
        for _ in range(5):
            await links.ask(node.peer, "POST", b"/x", b"body")
        assert node.connections == 1
        assert links.counts() == {"nod_b": Count(in_use=0, kept=1)}


async def test_two_requests_at_once_have_a_connection_each(links: Links) -> None:
    arrived = asyncio.Barrier(3)

    async def together(wire: Wire) -> None:
        await wire.request()
        await arrived.wait()
        wire.write(OK)
        await wire.gone()

    async with scripted(together) as node:
        asking = [asyncio.create_task(links.ask(node.peer, "GET", b"/x")) for _ in range(2)]
        await until(lambda: arrived.n_waiting == 2)
        assert links.counts() == {"nod_b": Count(in_use=2, kept=0)}
        await arrived.wait()
        await asyncio.gather(*asking)


async def test_no_more_connections_are_kept_than_may_be(links: Links) -> None:
    async with scripted(echoing) as node:
        taken = [await links.lines.take(node.peer, is_fresh=True) for _ in range(KEPT_MAX + 3)]
        for line in taken:
            line.begin(b"GET /x HTTP/1.1\r\n\r\n", is_head=False, is_whole=True)
            await line.head()
        for line in taken:
            links.lines.give_back(line)
        assert links.counts() == {"nod_b": Count(in_use=0, kept=KEPT_MAX)}


async def test_a_connection_that_was_idle_for_long_is_not_used(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted(echoing) as node:
        await links.ask(node.peer, "GET", b"/x")
        monkeypatch.setattr(lines_module, "IDLE_MAX_S", -1.0)
        await links.ask(node.peer, "GET", b"/x")
        assert node.connections == 2


async def test_another_life_of_a_node_gets_connections_of_its_own(links: Links) -> None:
    async with scripted(echoing) as node:
        await links.ask(node.peer, "GET", b"/x")
        await links.ask(Peer(node.peer.node_id, node.peer.epoch + 1, node.peer.url), "GET", b"/x")
        assert node.connections == 2


async def test_that_the_other_side_has_closed_is_known_before_anything_is_written(links: Links) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        line = await links.lines.dial(HttpLine(peer_at(listener.getsockname()[1])))
        other, _ = listener.accept()
        assert line.is_quiet()
        other.close()
        # The event loop has not had a chance to tell.
        assert line.failure is None
        assert not line.is_quiet()


async def test_a_kept_connection_that_ends_is_forgotten(links: Links) -> None:
    async def once(wire: Wire) -> None:
        await wire.request()
        wire.write(OK)

    async with scripted(once) as node:
        await links.ask(node.peer, "GET", b"/x")
        await until(lambda: not links.counts())
        await links.ask(node.peer, "POST", b"/x")
        assert node.connections == 2


async def test_small_packets_are_not_held_back(links: Links) -> None:
    async with scripted(echoing) as node:
        line = await links.lines.take(node.peer, is_fresh=True)
        assert line.transport is not None
        assert line.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        links.lines.give_back(line)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://a:1",
        "http://",
        "http://host",
        "http://host:99999",
        "https://host:1",
        "http://[",
        "http://h\u00f6st:1",
    ],
)
async def test_an_address_that_is_none_is_unreachable(links: Links, url: str) -> None:
    with pytest.raises(NodeUnreachable):
        await links.ask(Peer("nod_b", 1, url), "GET", b"/x")


async def test_a_port_where_nobody_listens_is_unreachable(links: Links) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NodeUnreachable, match="nod_b"):
        await links.ask(peer_at(port), "POST", b"/x")
    assert links.counts() == {}


async def deaf(stack: AsyncExitStack) -> Peer:
    """A node that takes no connection: its backlog is full."""
    listener = stack.enter_context(socket.socket())
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    for _ in range(4):
        waiting = stack.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(listener.getsockname())
    return peer_at(listener.getsockname()[1])


async def test_a_node_that_takes_no_connection_in_time_is_unreachable(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "CONNECT_LIMIT_S", 0.01)
    async with AsyncExitStack() as stack:
        peer = await deaf(stack)
        with pytest.raises(NodeUnreachable, match="within the time"):
            await links.ask(peer, "POST", b"/x")
    assert links.counts() == {}


async def test_whoever_dials_a_node_that_is_declared_dead_waits_no_longer(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "CONNECT_LIMIT_S", 10 * LIMIT_S)
    async with AsyncExitStack() as stack, asyncio.timeout(LIMIT_S):
        asking = asyncio.create_task(links.ask(await deaf(stack), "POST", b"/x"))
        await until(lambda: bool(links.lines._dialling))
        links.drop("nod_b")
        links.drop("nod_b")
        with pytest.raises(NodeUnreachable, match="declared dead"):
            await asking


async def test_a_connection_that_came_about_as_its_node_was_declared_dead_is_not_used(links: Links) -> None:
    class Dropping(HttpLine):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            # When it is there, and before whoever dialled it can know.
            asyncio.get_running_loop().call_soon(links.drop, "nod_b")

    async with scripted(echoing) as node:
        with pytest.raises(NodeUnreachable, match="declared dead"):
            await links.lines.dial(Dropping(node.peer))
        assert links.counts() == {}


async def test_nothing_is_left_of_a_connection_whose_dialler_was_cancelled(links: Links) -> None:
    left = asyncio.Event()

    async def talk(wire: Wire) -> None:
        await wire.gone()
        left.set()

    class Made(HttpLine):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            dialling.cancel()

    async with scripted(talk) as node, asyncio.timeout(LIMIT_S):
        dialling = asyncio.create_task(links.lines.dial(Made(node.peer)))
        with pytest.raises(asyncio.CancelledError):
            await dialling
        await left.wait()
        assert links.counts() == {}


async def test_dropping_a_node_leaves_the_others_alone(links: Links) -> None:
    async with scripted(echoing) as node:
        await links.ask(node.peer, "GET", b"/x")
        links.drop("nod_c")
        assert links.counts() == {"nod_b": Count(in_use=0, kept=1)}
        links.drop("nod_b")
        assert links.counts() == {}


async def test_after_the_end_there_are_no_connections_and_no_new_ones(links: Links) -> None:
    async with scripted(echoing) as node:
        await links.ask(node.peer, "GET", b"/x")
        await links.close()
        assert links.counts() == {}
        with pytest.raises(NodeUnreachable):
            await links.ask(node.peer, "GET", b"/x")
