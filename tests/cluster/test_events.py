"""Events of all nodes on any of them: in each node's order, none missing without a reset, resumed anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tabherd.broker.event_mirror import EventMirror
from tabherd.broker.events import Event, EventBus, EventId
from tabherd.cluster.peer import Peer
from tabherd.edge import cluster_events, peer_events, sse
from tabherd.edge.cluster_events import ClusterEvents
from tabherd.edge.merged_events import NODES_MAX, NOWHERE, MergedSubscription, Place
from tabherd.errors import NodeUnreachable

RING = 16


class Node:
    """One life of a node: its own events, and those of the others."""

    def __init__(self, net: Net, node_id: str, epoch: int) -> None:
        self.node_id = node_id
        self.bus = EventBus(epoch=epoch, ring=RING, clock=lambda: 1_000)
        self.peers: dict[str, Peer] = {}
        self.on_change: list[Callable[[], None]] = []
        self.events = ClusterEvents(bus=self.bus, peers=self, open=net.open, ring=RING, clock=lambda: 1_000)

    def tell(self, *names: str) -> None:
        for name in names:
            self.bus.publish("browser.ready", browserId=name)


class Net:
    """Nodes that know each other, and the lines between them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        # Streams that are open, by the node that tells.
        self.open_streams: list[str] = []
        # Nodes that cannot be reached.
        self.cut_off: set[str] = set()
        # Where each stream that was opened began.
        self.opened: list[str] = []
        self._breaking: dict[str, asyncio.Event] = {}
        self._epoch = 0

    def join(self, node_id: str) -> Node:
        self._epoch += 1
        node = self.nodes[node_id] = Node(self, node_id, self._epoch)
        self._tell_all()
        return node

    def leave(self, node_id: str) -> None:
        del self.nodes[node_id]
        self.break_off(node_id)
        self._tell_all()

    def break_off(self, node_id: str) -> None:
        """End the streams of that node."""
        self._breaking.pop(node_id, asyncio.Event()).set()

    async def open(self, peer: Peer, target: bytes, after: EventId) -> AsyncGenerator[bytes]:
        if peer.node_id in self.cut_off or peer.node_id not in self.nodes:
            raise NodeUnreachable("No way.")
        self.opened.append(str(after))
        chunks, subscription = peer_events.told(self.nodes[peer.node_id].bus, after)
        breaking = self._breaking.setdefault(peer.node_id, asyncio.Event())
        self.open_streams.append(peer.node_id)
        try:
            async for chunk in _until(chunks, breaking):
                # However it is cut on its way.
                yield chunk[:7]
                yield chunk[7:]
        finally:
            self.open_streams.remove(peer.node_id)
            subscription.close()
        raise NodeUnreachable("It broke.")

    def _tell_all(self) -> None:
        for node in self.nodes.values():
            node.peers = {
                other.node_id: Peer(other.node_id, other.bus.epoch, "")
                for other in self.nodes.values()
                if other is not node
            }
            for told in node.on_change:
                told()


async def _until(chunks: AsyncGenerator[bytes], breaking: asyncio.Event) -> AsyncIterator[bytes]:
    broken = asyncio.ensure_future(breaking.wait())
    try:
        while True:
            chunk = asyncio.ensure_future(anext(chunks))
            try:
                await asyncio.wait((chunk, broken), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not chunk.done():
                    chunk.cancel()
                    await asyncio.wait((chunk,))
            if broken.done():
                return
            yield chunk.result()
    finally:
        broken.cancel()
        await chunks.aclose()


@pytest.fixture
async def net(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Net]:
    monkeypatch.setattr(cluster_events, "SYNC_LIMIT_S", 60)
    monkeypatch.setattr(cluster_events, "PAUSE_MIN_S", 0.001)
    monkeypatch.setattr(cluster_events, "PAUSE_MAX_S", 0.01)
    made: list[Node] = []
    net, join = Net(), Net.join

    def joined(node_id: str) -> Node:
        made.append(join(net, node_id))
        return made[-1]

    net.join = joined  # type: ignore[method-assign]
    yield net
    for node in made:
        await node.events.close()


@asynccontextmanager
async def listening(node: Node, after: str | None = None, **filter: Any) -> AsyncIterator[MergedSubscription]:
    listener = await node.events.subscribe(after=None if after is None else Place.parse(after), **filter)
    try:
        yield listener
    finally:
        listener.close()


async def heard(listener: MergedSubscription, count: int) -> list[str]:
    """The next so many: what became ready, or that there was a reset and why."""
    found: list[str] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            event = listener.take()
            if event is None:
                await listener.wait()
            else:
                found.append(_said(event))
    return found


def _said(event: Event) -> str:
    return f"reset {event.fields['reason']}" if event.type == "reset" else event.fields["browserId"]


def rest(listener: MergedSubscription) -> Iterator[str]:
    while (event := listener.take()) is not None:
        yield _said(event)


async def settled(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.001)


# --- Listening --------------------------------------------------------------------------------------------------


async def test_a_listener_hears_every_node_each_in_its_order(net: Net) -> None:
    a, b, c = (net.join(name) for name in "abc")
    async with listening(a) as listener:
        b.tell("b1", "b2")
        a.tell("a1", "a2")
        c.tell("c1", "c2")
        found = await heard(listener, 6)
    assert sorted(found) == ["a1", "a2", "b1", "b2", "c1", "c2"]
    assert [[name for name in found if name[0] == node] for node in "abc"] == [
        [f"{node}1", f"{node}2"] for node in "abc"
    ]


async def test_what_happened_before_a_listener_came_is_not_told(net: Net) -> None:
    a, b = net.join("a"), net.join("b")
    b.tell("before")
    async with listening(a) as listener:
        b.tell("after")
        assert await heard(listener, 1) == ["after"]


async def test_an_event_keeps_its_id_and_its_time(net: Net) -> None:
    a, b = net.join("a"), net.join("b")
    async with listening(a) as listener:
        event = b.bus.publish("browser.ready", browserId="x", pool="é")
        async with asyncio.timeout(30):
            while (told := listener.take()) is None:
                await listener.wait()
    assert told.to_wire() == event.to_wire()


async def test_filters_hold_for_other_nodes(net: Net) -> None:
    a, b = net.join("a"), net.join("b")
    async with listening(a, types={"browser.ready"}, agent_id="ada") as listener:
        b.bus.publish("browser.ready", browserId="not ada's")
        b.bus.publish("browser.stopped", browserId="not wanted", agentId="ada")
        b.bus.publish("browser.ready", browserId="hers", agentId="ada")
        assert await heard(listener, 1) == ["hers"]
        assert list(rest(listener)) == []


async def test_all_listeners_share_one_stream_to_each_node(net: Net) -> None:
    a, _, _ = (net.join(name) for name in "abc")
    async with listening(a), listening(a), listening(a):
        assert sorted(net.open_streams) == ["b", "c"]


async def test_nobody_is_followed_before_somebody_listens_and_a_while_after(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_events, "LINGER_S", 0.0)
    a, _ = net.join("a"), net.join("b")
    assert net.open_streams == []
    async with listening(a):
        assert net.open_streams == ["b"]
    await settled(lambda: net.open_streams == [])


async def test_a_busy_node_does_not_drown_another(net: Net) -> None:
    a, b = net.join("a"), net.join("b")
    async with listening(a) as listener:
        b.tell("b1")
        mirror = a.events._links[b.bus.epoch].mirror
        await settled(lambda: mirror.last_id.seq == 1)
        a.tell(*(f"a{number}" for number in range(RING - 1)))
        assert "b1" in await heard(listener, 2)


# --- Coming back ------------------------------------------------------------------------------------------------


async def test_a_place_is_good_on_every_node(net: Net) -> None:
    a, b, c = (net.join(name) for name in "abc")
    async with listening(a) as listener:
        b.tell("b1")
        assert await heard(listener, 1) == ["b1"]
        place = str(listener.position)
    a.tell("a1")
    b.tell("b2")
    c.tell("c1")
    async with listening(c, place) as listener:
        assert sorted(await heard(listener, 3)) == ["a1", "b2", "c1"]
        assert list(rest(listener)) == []


async def test_a_place_of_one_node_is_its_plain_id(net: Net) -> None:
    a = net.join("a")
    async with listening(a) as listener:
        a.tell("a1")
        await heard(listener, 1)
        assert str(listener.position) == str(a.bus.last_id)


async def test_a_listener_that_has_heard_more_than_this_node_waits_for_it_to_catch_up(net: Net) -> None:
    a, b = net.join("a"), net.join("b")
    async with listening(a):
        net.cut_off.add("b")
        net.break_off("b")
        b.tell("b1")
        place = f"{a.bus.epoch}-0,{b.bus.epoch}-1"
        coming = asyncio.ensure_future(a.events.subscribe(after=Place.parse(place)))
        await asyncio.sleep(0.02)
        assert not coming.done()
        net.cut_off.clear()
        listener = await coming
        assert list(rest(listener)) == []
        listener.close()


async def test_what_the_ring_of_a_node_has_lost_is_a_reset(net: Net) -> None:
    a, b = net.join("a"), net.join("b")
    async with listening(a) as listener:
        place = str(listener.position)
    b.tell(*(f"b{number}" for number in range(RING + 1)))
    async with listening(net.join("c"), place) as listener:
        assert (await heard(listener, 1)) == ["reset ring"]
        b.tell("next")
        assert await heard(listener, 1) == ["next"]


async def test_a_node_that_is_gone_when_a_listener_comes_back_is_a_reset(net: Net) -> None:
    a, _ = net.join("a"), net.join("b")
    async with listening(a) as listener:
        place = str(listener.position)
    net.leave("b")
    async with listening(a, place) as listener:
        a.tell("a1")
        assert await heard(listener, 2) == ["reset epoch", "a1"]


async def test_a_node_that_has_begun_since_is_heard_from_its_beginning(net: Net) -> None:
    a = net.join("a")
    async with listening(a) as listener:
        place = str(listener.position)
    b = net.join("b")
    b.tell("b1")
    async with listening(a, place) as listener:
        assert await heard(listener, 1) == ["b1"]


@pytest.mark.parametrize("place", ["nonsense", "1-2,", "1-1;2-2", "-", "9" * 5_000])
async def test_a_place_that_is_none_of_ours_is_a_reset(net: Net, place: str) -> None:
    a, _ = net.join("a"), net.join("b")
    a.tell("before")
    async with listening(a, place) as listener:
        assert list(rest(listener)) == ["reset epoch"]


# --- Nodes that come and go -------------------------------------------------------------------------------------


async def test_a_node_that_joins_is_heard_from_its_first_event(net: Net) -> None:
    a = net.join("a")
    async with listening(a) as listener:
        b = net.join("b")
        b.tell("b1")
        assert await heard(listener, 1) == ["b1"]


async def test_a_node_that_goes_is_a_reset_and_leaves_the_place(net: Net) -> None:
    a, b = net.join("a"), net.join("b")
    async with listening(a) as listener:
        assert b.bus.epoch in listener.position.seqs
        net.leave("b")
        assert await heard(listener, 1) == ["reset node_gone"]
        assert str(listener.position) == str(a.bus.last_id)


async def test_a_node_that_starts_again_is_another(net: Net) -> None:
    a, _ = net.join("a"), net.join("b")
    async with listening(a) as listener:
        again = net.join("b")
        again.tell("again")
        assert await heard(listener, 2) == ["reset node_gone", "again"]


async def test_a_stream_that_breaks_goes_on_where_it_was(net: Net) -> None:
    a, b = net.join("a"), net.join("b")
    async with listening(a) as listener:
        b.tell("b1")
        assert await heard(listener, 1) == ["b1"]
        net.cut_off.add("b")
        net.break_off("b")
        b.tell("b2", "b3")
        net.cut_off.clear()
        assert await heard(listener, 2) == ["b2", "b3"]
    assert net.opened[-1] == f"{b.bus.epoch}-1"


async def test_a_stream_that_was_away_for_longer_than_the_ring_is_a_reset(net: Net) -> None:
    a, b = net.join("a"), net.join("b")
    async with listening(a) as listener:
        net.cut_off.add("b")
        net.break_off("b")
        b.tell(*(f"b{number}" for number in range(RING + 1)))
        net.cut_off.clear()
        assert await heard(listener, 1) == ["reset ring"]


async def test_a_node_that_does_not_answer_holds_nobody_up_and_is_heard_later_after_a_reset(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_events, "SYNC_LIMIT_S", 0.02)
    a, b = net.join("a"), net.join("b")
    net.cut_off.add("b")
    async with listening(a) as listener:
        a.tell("a1")
        assert await heard(listener, 1) == ["a1"]
        b.tell("unheard")
        net.cut_off.clear()
        assert await heard(listener, 1) == ["reset unheard"]
        b.tell("b1")
        assert await heard(listener, 1) == ["b1"]


# --- The parts --------------------------------------------------------------------------------------------------


def mirror_with(*seqs: int) -> EventMirror:
    mirror = EventMirror(epoch=2, ring=RING, clock=lambda: 1_000, bus=EventBus(epoch=1, ring=RING))
    for seq in seqs:
        mirror.accept(Event(2, seq, "browser.ready", 1_000, {"browserId": str(seq)}))
    return mirror


@pytest.mark.parametrize("seq", range(4))
async def test_who_had_read_up_to_before_a_gap_is_told_reset(seq: int) -> None:
    # Four and five are missing.
    event = mirror_with(1, 2, 3, 6, 7).subscribe(after=EventId(2, seq)).take()
    assert event is not None
    assert event.type == "reset"


async def test_who_had_read_up_to_behind_a_gap_misses_nothing() -> None:
    listener = mirror_with(1, 2, 3, 6, 7).subscribe(after=EventId(2, 5))
    assert [_said(event) for event in (listener.take(), listener.take()) if event is not None] == ["6", "7"]


async def test_what_comes_twice_is_heard_once() -> None:
    mirror = mirror_with(1, 2)
    listener = mirror.subscribe(after=EventId(2, 0))
    assert [listener.take() is None for _ in range(3)] == [False, False, True]
    mirror.accept(Event(2, 1, "browser.ready", 1_000, {"browserId": "1"}))
    assert listener.take() is None


async def test_a_way_that_was_too_slow_begins_anew_behind_the_reset() -> None:
    mirror = mirror_with(1, 2)
    listener = mirror.subscribe(after=EventId(2, 2))
    mirror.accept(Event(2, 9, "reset", 1_000, {"reason": "ring"}))
    mirror.accept(Event(2, 10, "browser.ready", 1_000, {"browserId": "10"}))
    found = [listener.take(), mirror.subscribe(after=EventId(2, 9)).take()]
    assert [event and _said(event) for event in found] == ["reset ring", "10"]


def test_a_place_is_read_as_it_was_written() -> None:
    place = Place({7: 1, 3: 20, 12: 0})
    assert str(place) == "3-20,7-1,12-0"
    assert Place.parse(str(place)) == place


def test_a_place_is_bounded() -> None:
    assert Place.parse(",".join(f"{number}-1" for number in range(1, NODES_MAX + 1))) != NOWHERE
    assert Place.parse(",".join(f"{number}-1" for number in range(1, NODES_MAX + 2))) is NOWHERE


async def test_the_stream_says_with_each_event_the_place_behind_it(net: Net) -> None:
    a, b = net.join("a"), net.join("b")
    async with listening(a) as listener:
        chunks = sse.stream(listener)
        begin = f"{a.bus.epoch}-0,{b.bus.epoch}-0"
        assert f"id: {begin}\n".encode() in await anext(chunks)
        b.tell("b1")
        assert f"id: {a.bus.epoch}-0,{b.bus.epoch}-1\n".encode() in await anext(chunks)
        await chunks.aclose()


@pytest.mark.parametrize("frame", [b"id: 2-1\ndata: [1]\n\n", b"id: 2-1\ndata: {}\n\n", b"id: 2-1\ndata: x\n\n"])
async def test_a_stream_that_is_none_of_ours_is_given_up(frame: bytes) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield frame

    with pytest.raises(NodeUnreachable):
        async for _ in peer_events.read(chunks(), 2):
            pass


async def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * peer_events.FRAME_MAX_BYTES

    with pytest.raises(NodeUnreachable):
        async for _ in peer_events.read(chunks(), 2):
            pass
