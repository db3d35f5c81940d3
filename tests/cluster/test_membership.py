"""Beats, trust and death, in virtual time: several nodes on one store, each of which can be cut off from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from unittest.mock import patch

import pytest
from tests.sim.virtual_loop import VirtualLoop

from tabherd.cluster import membership
from tabherd.cluster.clock import ClusterClock
from tabherd.cluster.membership import Load, Membership, join
from tabherd.config import Cluster
from tabherd.core.lifecycle import NodeState
from tabherd.core.model import Beat, Node, RowT, changed
from tabherd.errors import StateConflict, StoreUnavailable
from tabherd.store.base import Op, Outcome, Scalar, Update
from tabherd.store.memory import MemoryStore

CONFIG = Cluster()
BORN_MS = 1_000_000


class Line:
    """One node's way to the store: it can be cut."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.is_cut = False
        # Whoever asks for the time hears nothing before this is set.
        self.may_tell = asyncio.Event()
        self.may_tell.set()

    def _check(self) -> None:
        if self.is_cut:
            raise StoreUnavailable("cut off", cause="away")

    async def apply(self, *ops: Op) -> Outcome:
        self._check()
        return await self._store.apply(*ops)

    async def get(self, table: type[RowT], id: str) -> RowT | None:
        self._check()
        return await self._store.get(table, id)

    async def select(
        self,
        table: type[RowT],
        where: Mapping[str, Scalar | tuple[Scalar, ...]] | None = None,
        *,
        after: str = "",
        limit: int = 1_000,
        newest_first: bool = False,
    ) -> list[RowT]:
        self._check()
        return await self._store.select(table, where, after=after, limit=limit, newest_first=newest_first)

    async def counter(self, name: str) -> int:
        self._check()
        return await self._store.counter(name)

    async def now(self) -> int:
        self._check()
        await self.may_tell.wait()
        return await self._store.now()

    async def close(self) -> None: ...


class Town:
    """Nodes on one store, and its clock."""

    def __init__(self) -> None:
        self.store = MemoryStore(self.now)
        self.nodes: dict[str, Membership] = {}
        self.lines: dict[str, Line] = {}

    def now(self) -> int:
        return BORN_MS + int(self.steady())

    @staticmethod
    def steady() -> float:
        return asyncio.get_running_loop().time() * 1000

    async def join(self, name: str, pid: int = 1, boot_id: str = "here", *, age_ms: int | None = None) -> Membership:
        """`age_ms`: how long a process has been there that has the number of the life before."""
        line = self.lines[name] = Line(self.store)
        node = Node(id=name, epoch=0, url=f"http://{name}.test", pid=pid, started_at=self.now(), boot_id=boot_id)
        stored = await join(line, node, CONFIG.dead_after_s, lambda _: age_ms)
        clock = ClusterClock(self.steady)
        member = Membership(config=CONFIG, store=line, node=stored, clock=clock, steady=self.steady)
        await member.start()
        self.nodes[name] = member
        return member

    async def row(self, name: str) -> Node | None:
        return await self.store.get(Node, name)

    async def state(self, name: str) -> NodeState:
        row = await self.row(name)
        assert row is not None
        return row.state

    async def close(self) -> None:
        for member in self.nodes.values():
            await member.stop()


def in_town(test: Callable[[Town], Awaitable[None]]) -> Callable[[], None]:
    async def run() -> None:
        town = Town()
        try:
            await test(town)
        finally:
            await town.close()

    def wrapper() -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(run())

    wrapper.__name__ = test.__name__
    return wrapper


@in_town
async def test_nodes_see_each_other_and_go_on_for_as_long_as_they_beat(town: Town) -> None:
    a, b = await town.join("a"), await town.join("b")
    await asyncio.sleep(600)
    assert (set(a.peers), set(b.peers)) == ({"b"}, {"a"})
    assert a.is_trusted
    assert b.is_trusted
    assert a.node.epoch != b.node.epoch


@in_town
async def test_a_node_that_is_cut_off_distrusts_itself_before_others_declare_it_dead(town: Town) -> None:
    a, _ = await town.join("a"), await town.join("b")
    await asyncio.sleep(30)
    town.lines["a"].is_cut = True
    while a.is_trusted:
        await asyncio.sleep(0.1)
    assert await town.state("a") is NodeState.UP
    with pytest.raises(StoreUnavailable):
        a.refuse_untrusted()
    while await town.state("a") is NodeState.UP:
        await asyncio.sleep(0.1)
    assert not a.is_trusted


@in_town
async def test_the_dead_one_is_missed_within_twelve_seconds_of_its_last_beat(town: Town) -> None:
    b = await town.join("b")
    a = await town.join("a")
    gone: list[str] = []
    b.on_gone = lambda node: _noted(gone, node)
    await asyncio.sleep(30)
    town.lines["a"].is_cut = True
    at = town.steady()
    while "a" not in gone:
        await asyncio.sleep(0.1)
    assert town.steady() - at <= 10_200, "it is not left to the next beat"
    assert "a" not in b.peers
    assert not a.is_trusted


@in_town
async def test_one_that_comes_back_in_time_is_trusted_again_and_nothing_has_happened(town: Town) -> None:
    a, b = await town.join("a"), await town.join("b")
    # Some time after a beat, then for longer than it trusts itself and shorter than others wait.
    await asyncio.sleep(31)
    town.lines["a"].is_cut = True
    await asyncio.sleep(7)
    assert not a.is_trusted
    town.lines["a"].is_cut = False
    await asyncio.sleep(1)
    assert a.is_trusted
    await asyncio.sleep(30)
    assert await town.state("a") is NodeState.UP
    assert "a" in b.peers


@in_town
async def test_when_the_store_is_away_everybody_pauses_and_nobody_dies(town: Town) -> None:
    members = [await town.join(name) for name in "abc"]
    await asyncio.sleep(30)
    for line in town.lines.values():
        line.is_cut = True
    await asyncio.sleep(60)
    assert not any(member.is_trusted for member in members)
    # They come back one after the other, the last one long after its beats have become too old.
    for name in "abc":
        town.lines[name].is_cut = False
        await asyncio.sleep(3)
    await asyncio.sleep(30)
    assert [await town.state(name) for name in "abc"] == [NodeState.UP] * 3
    assert all(member.is_trusted for member in members)


@in_town
async def test_a_node_finds_out_by_its_next_beat_that_it_was_declared_dead(town: Town) -> None:
    a, _ = await town.join("a"), await town.join("b")
    await asyncio.sleep(30)
    town.lines["a"].is_cut = True
    await asyncio.sleep(20)
    town.lines["a"].is_cut = False
    async with asyncio.timeout(5):
        await a.is_fenced.wait()
    assert not a.is_trusted


@in_town
async def test_its_next_life_has_a_new_epoch_and_is_believed(town: Town) -> None:
    a, b = await town.join("a"), await town.join("b")
    await asyncio.sleep(30)
    town.lines["a"].is_cut = True
    await asyncio.sleep(20)
    await a.stop()
    again = await town.join("a")
    await asyncio.sleep(4)
    assert again.is_trusted
    assert again.node.epoch > a.node.epoch
    assert b.peers["a"].epoch == again.node.epoch


@in_town
async def test_a_beat_at_the_last_moment_keeps_it_alive(town: Town) -> None:
    a, b = await town.join("a"), await town.join("b")
    await asyncio.sleep(30)
    read = await town.row("a")
    seen = await town.store.get(Beat, "a")
    assert read is not None
    await asyncio.sleep(4)
    # As if b had looked before a's latest beat, which has changed what b rests on.
    await b._declare_dead(read, seen)
    assert await town.state("a") is NodeState.UP
    assert a.is_trusted


@in_town
async def test_who_leaves_in_order_is_over_at_once(town: Town) -> None:
    a, b = await town.join("a"), await town.join("b")
    gone: list[str] = []
    b.on_gone = lambda node: _noted(gone, node)
    await a.stop()
    await a.leave()
    await asyncio.sleep(3.1)
    assert gone[:1] == ["a"]
    assert not b.peers


@in_town
async def test_what_is_left_of_a_node_is_seen_to_until_it_is_forgotten(town: Town) -> None:
    a, b = await town.join("a"), await town.join("b")
    gone: list[str] = []

    async def inherit(node: Node) -> None:
        gone.append(node.id)
        if len(gone) == 1:
            raise StoreUnavailable("away", cause="away")
        if len(gone) == 3:
            await town.store.apply(Update(changed(node, state=NodeState.GONE)))

    b.on_gone = inherit
    await a.stop()
    await a.leave()
    await asyncio.sleep(60)
    assert gone == ["a", "a", "a"]
    assert await town.row("a") is not None
    with patch.object(membership, "FORGET_AFTER_MS", 100_000):
        await asyncio.sleep(60)
    assert await town.row("a") is None
    assert await town.store.get(Beat, "a") is None


@in_town
async def test_a_twin_on_another_machine_is_refused_while_the_first_one_lives(town: Town) -> None:
    await town.join("a")
    with pytest.raises(StateConflict, match="same identity"):
        await town.join("a", pid=2, boot_id="elsewhere")
    with pytest.raises(StateConflict, match="same identity"):
        await town.join("a", pid=2, age_ms=100)


@in_town
async def test_one_that_was_killed_may_start_again_at_once(town: Town) -> None:
    first = await town.join("a")
    await first.stop()
    second = await town.join("a", pid=2)
    assert second.node.epoch > first.node.epoch


@in_town
async def test_one_that_was_killed_may_start_again_also_if_its_number_is_somebody_elses_by_now(town: Town) -> None:
    first = await town.join("a")
    await asyncio.sleep(30)
    await first.stop()
    with pytest.raises(StateConflict, match="same identity"):
        await town.join("a", pid=2, age_ms=30_000)
    assert (await town.join("a", pid=2, age_ms=5_000)).node.epoch > first.node.epoch


@in_town
async def test_a_beat_tells_how_it_goes(town: Town) -> None:
    a = await town.join("a")
    a.load = lambda: Load(is_draining=True, sessions=3, free_seats=4)
    await asyncio.sleep(4)
    beat = await town.store.get(Beat, "a")
    assert beat is not None
    assert (beat.is_draining, beat.sessions, beat.free_seats) == (True, 3, 4)


async def _noted(gone: list[str], node: Node) -> None:
    gone.append(node.id)


@in_town
async def test_a_node_that_slept_through_an_outage_gives_the_others_time_to_say_that_they_live(town: Town) -> None:
    _, b = await town.join("a"), await town.join("b")
    await asyncio.sleep(30)
    # What it asks is not refused, as it is when the process is stopped: it never hears that anything is wrong.
    town.lines["a"].may_tell.clear()
    town.lines["b"].is_cut = True
    await asyncio.sleep(20)
    town.lines["a"].may_tell.set()
    # The first one notices a moment before the other that the database is back.
    await asyncio.sleep(0.1)
    town.lines["b"].is_cut = False
    await asyncio.sleep(30)
    assert await town.state("b") is NodeState.UP
    assert b.is_trusted
