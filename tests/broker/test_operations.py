"""Restarting, draining and looking, on a whole broker with fake browsers and virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any

import pytest
from tests.sim.fakes import Life, Process, SimBrowser, SimLauncher, SimMarks, SimTab, sim_perform
from tests.sim.virtual_loop import VirtualLoop

from tabherd import errors, wire
from tabherd.broker.broker import Broker
from tabherd.broker.caller import AGENT_SCOPES, Caller
from tabherd.broker.credentials import Credentials
from tabherd.broker.events import EventBus
from tabherd.browsers.port import Usage
from tabherd.config import Config, Pool
from tabherd.core.model import Node
from tabherd.metrics import Metrics
from tabherd.store.memory import MemoryStore

ADMIN = Caller(agent_id="root", scopes=frozenset({"admin"}), controller_id="root")
ADA = Caller(agent_id="ada", scopes=AGENT_SCOPES, controller_id="ada")


class House:
    """One broker with everything it touches."""

    def __init__(self, **settings: Any) -> None:
        self.loop = VirtualLoop()
        self.processes: dict[str, Process] = {}
        self._minted = 0
        store = MemoryStore()
        life = Life(Random(1), lambda _: None)
        self.launcher = SimLauncher(self.processes, life, self._mint, fail_rate=0.0)
        self.events = EventBus(epoch=1, ring=1_000, clock=self.loop.clock_ms)
        self.told = self.events.subscribe()
        self.broker = Broker(
            config=Config(pools={"default": Pool(**{"browsers_max": 1, "warm": 0, **settings})}),
            node=Node(id="nod_1", epoch=1, url="", pid=1, started_at=0),
            store=store,
            launcher=self.launcher,
            events=self.events,
            metrics=Metrics(),
            credentials=Credentials(store),
            marks=SimMarks({}, life),
            memory_bytes=1 << 34,
            clock=self.loop.clock_ms,
            chance=Random(1),
            perform=self._perform,
        )
        self.operations = self.broker.operations

    async def _perform(self, tab: SimTab, action: wire.AnyAction) -> Any:
        return await sim_perform(tab, action)

    def _mint(self, what: str) -> str:
        self._minted += 1
        return f"{what}-{self._minted}"

    @property
    def browsers(self) -> list[wire.BrowserView]:
        return self.operations.browsers(ADMIN).browsers

    @property
    def ready_id(self) -> str:
        return next(browser.browser_id for browser in self.browsers if browser.state == "ready")

    async def open(self, wait_ms: int = 5_000) -> wire.SessionView:
        return await self.broker.sessions.open(ADA, wire.OpenSession(wait_ms=wait_ms))

    async def act(self, session: wire.SessionView, label: str = "one") -> wire.CommandView:
        return await self.broker.commands.run(ADA, session.tabs[0].tab_id, wire.Evaluate(expression=label))

    async def until(self, is_so: Callable[[], bool]) -> int:
        """Let time pass until something is so; how many milliseconds that took."""
        began = self.loop.clock_ms()
        while not is_so():
            assert self.loop.clock_ms() - began < 1_000_000, "it never comes to be"
            await asyncio.sleep(0.001)
        return self.loop.clock_ms() - began

    def news(self) -> Iterator[tuple[str, Any]]:
        """What was told since the last look: the type and the reason."""
        while (event := self.told.take()) is not None:
            yield event.type, event.fields.get("reason")

    def metric(self, name: str, **labels: str) -> float | None:
        return self.broker.metrics.registry.get_sample_value(f"tabherd_{name}", labels)


def in_house(play: Callable[[House], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a scene to its end on virtual time."""
    house = House(**settings)

    async def scene() -> None:
        await house.broker.start()
        list(house.news())
        try:
            await play(house)
        finally:
            await house.broker.stop()

    asyncio.set_event_loop(house.loop)
    try:
        house.loop.run_until_complete(scene())
    finally:
        house.loop.close()
        asyncio.set_event_loop(None)
    assert not any(process.is_alive for process in house.processes.values())


# --- Restarting one browser -------------------------------------------------------------------------------------


def test_a_restart_loses_the_sessions_with_its_own_reason_and_the_pool_serves_on() -> None:
    async def play(house: House) -> None:
        session = await house.open()
        old = house.ready_id
        answer = house.operations.restart_browser(ADMIN, old)
        assert (answer.browser_id, answer.state, answer.sessions) == (old, "draining", 1)
        fresh = await house.open()
        assert (await house.act(fresh)).ok
        assert house.ready_id != old
        with pytest.raises(errors.LeaseLost) as lost:
            await house.act(session)
        assert lost.value.details["reason"] == "browser_restarted"
        assert (await house.broker.sessions.get(ADA, session.session_id)).state == "lost"
        told = list(house.news())
        assert ("browser.stopped", "restarted") in told
        assert ("session_lost", "browser_restarted") in told
        assert "browser.crashed" not in [kind for kind, _ in told]

    in_house(play)


@pytest.mark.parametrize("label", ["short", "hang"], ids=["that hears of it", "that does not hear of it"])
def test_a_command_that_runs_in_a_restarted_browser_has_an_unknown_outcome(label: str) -> None:
    async def play(house: House) -> None:
        session = await house.open()
        running = asyncio.ensure_future(house.act(session, label))
        await house.until(lambda: any(t.active for t in _targets(house)))
        house.operations.restart_browser(ADMIN, house.ready_id)
        with pytest.raises(errors.OutcomeUnknown):
            await running

    in_house(play)


def test_a_browser_that_is_restarted_takes_no_session_from_the_first_moment() -> None:
    async def play(house: House) -> None:
        house.operations.restart_browser(ADMIN, house.ready_id)
        assert house.operations.stats(ADMIN).pools["default"].free_seats == 0
        await house.open()
        # Nobody was sent there and then served elsewhere.
        assert house.browsers[0].sessions_served == 1

    in_house(play)


def test_restarts_are_no_crashes() -> None:
    async def play(house: House) -> None:
        for _ in range(6):
            house.operations.restart_browser(ADMIN, house.ready_id)
            assert await house.until(lambda: not house.broker.is_ready) <= 50
            # A start takes up to 100 ms here: nothing waits for a breaker.
            assert await house.until(lambda: house.broker.is_ready) <= 300
        (browser,) = house.browsers
        assert (browser.circuit, browser.last_failure) == ("closed", "")
        assert house.metric("browser_crashes_total") == 0

    in_house(play)


def test_a_restart_does_not_wait_for_an_open_circuit() -> None:
    async def play(house: House) -> None:
        house.launcher._fail_rate = 1.0
        next(iter(house.processes.values())).die("killed")
        await house.until(lambda: house.browsers[0].state == "broken")
        (broken,) = house.browsers
        assert broken.circuit == "open"
        assert "exits at once" in broken.last_failure
        house.launcher._fail_rate = 0.0
        house.operations.restart_browser(ADMIN, broken.browser_id)
        assert await house.until(lambda: house.broker.is_ready) <= 300
        assert house.browsers[0].circuit == "closed"

    in_house(play)


def test_a_browser_that_just_starts_is_neither_restarted_nor_drained() -> None:
    async def play(house: House) -> None:
        next(iter(house.processes.values())).die("killed")
        await house.until(lambda: house.browsers[0].state == "starting")
        (starting,) = house.browsers
        for verb in (house.operations.restart_browser, house.operations.drain_browser):
            with pytest.raises(errors.StateConflict) as refused:
                verb(ADMIN, starting.browser_id)
            assert refused.value.details["state"] == "starting"

    in_house(play)


# --- Draining one browser ---------------------------------------------------------------------------------------


def test_a_drained_browser_keeps_its_sessions_and_is_replaced_at_once() -> None:
    async def play(house: House) -> None:
        session = await house.open()
        old = house.ready_id
        assert house.operations.drain_browser(ADMIN, old).state == "draining"
        fresh = await house.open()
        assert house.broker._registry.session(fresh.session_id).row.browser_id != old
        assert (await house.act(session)).ok
        assert house.processes[old].is_alive
        await house.broker.sessions.release(ADA, session.session_id)
        await house.until(lambda: not house.processes[old].is_alive)
        assert [browser.state for browser in house.browsers] == ["ready"]
        assert [news for news in house.news() if news[0] in ("browser.draining", "browser.stopped")] == [
            ("browser.draining", None),
            ("browser.stopped", "drained"),
        ]

    in_house(play)


def test_draining_a_browser_again_changes_nothing() -> None:
    async def play(house: House) -> None:
        await house.open()
        old = house.ready_id
        for _ in range(3):
            assert house.operations.drain_browser(ADMIN, old).state == "draining"
        await house.until(lambda: house.broker.is_ready)
        assert len(house.browsers) == 2
        assert [kind for kind, _ in house.news()].count("browser.draining") == 1

    in_house(play)


def test_a_drained_browser_can_still_be_restarted_and_leaves_no_second_replacement() -> None:
    async def play(house: House) -> None:
        session = await house.open()
        old = house.ready_id
        house.operations.drain_browser(ADMIN, old)
        await house.until(lambda: house.broker.is_ready)
        house.operations.restart_browser(ADMIN, old)
        await house.until(lambda: old not in [browser.browser_id for browser in house.browsers])
        assert [browser.state for browser in house.browsers] == ["ready"]
        assert (await house.broker.sessions.get(ADA, session.session_id)).state == "lost"

    in_house(play)


def test_a_recycled_browser_is_told_with_the_reason_and_ends_as_planned() -> None:
    async def play(house: House) -> None:
        session = await house.open()
        await house.until(lambda: len(house.browsers) == 2)
        await house.broker.sessions.release(ADA, session.session_id)
        await house.until(lambda: len(house.browsers) == 1)
        told = list(house.news())
        assert ("browser.recycled", "sessions") in told
        assert ("browser.stopped", "recycled") in told

    in_house(play, recycle_sessions=1)


# --- Who may ----------------------------------------------------------------------------------------------------


def test_a_browser_that_does_not_exist_is_not_found() -> None:
    async def play(house: House) -> None:
        for verb in (house.operations.restart_browser, house.operations.drain_browser):
            with pytest.raises(errors.BrowserNotFound):
                verb(ADMIN, "brw_none")

    in_house(play)


def test_only_an_admin_may_restart_and_drain() -> None:
    async def play(house: House) -> None:
        verbs: list[Callable[[Caller], Any]] = [
            lambda caller: house.operations.restart_browser(caller, house.ready_id),
            lambda caller: house.operations.drain_browser(caller, house.ready_id),
            house.operations.drain,
            house.operations.resume,
        ]
        for verb in verbs:
            with pytest.raises(errors.Forbidden):
                verb(ADA)
        assert house.broker.is_ready
        assert list(house.news()) == []

    in_house(play)


# --- Draining the node ------------------------------------------------------------------------------------------


def test_a_draining_node_admits_no_session_while_open_ones_go_on_until_it_is_taken_back() -> None:
    async def play(house: House) -> None:
        session = await house.open()
        assert house.operations.drain(ADMIN) == wire.NodeDrain(draining=True, sessions=1)
        assert not house.broker.is_ready
        with pytest.raises(errors.Draining) as refused:
            await house.open()
        assert refused.value.retry_after_ms
        assert (await house.act(session)).ok
        house.operations.drain(ADMIN)
        assert house.operations.resume(ADMIN) == wire.NodeDrain(draining=False, sessions=1)
        house.operations.resume(ADMIN)
        assert house.broker.is_ready
        await house.open()
        assert [kind for kind, _ in house.news() if kind.startswith("node.")] == ["node.draining", "node.ready"]

    in_house(play)


def test_whoever_waits_for_a_session_when_the_drain_begins_is_turned_away_at_once() -> None:
    async def play(house: House) -> None:
        await house.open()
        waiting = [asyncio.ensure_future(house.open(wait_ms=100_000)) for _ in range(3)]
        await asyncio.sleep(1)
        began = house.loop.clock_ms()
        house.operations.drain(ADMIN)
        for answer in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(answer, errors.Draining)
        assert house.loop.clock_ms() - began < 10
        assert house.operations.stats(ADMIN).pools["default"].waiting == 0

    in_house(play, max_active=1)


def test_a_place_that_is_given_back_during_a_drain_goes_to_nobody() -> None:
    async def play(house: House) -> None:
        session = await house.open()
        waiting = asyncio.ensure_future(house.open(wait_ms=100_000))
        await asyncio.sleep(1)
        live = house.broker._registry.session(session.session_id)
        assert live is not None
        house.operations.drain(ADMIN)
        # In the same turn of the loop, before the waiter could leave the queue by itself.
        house.broker._admissions["default"].give_back(live.claim)
        with pytest.raises(errors.Draining):
            await waiting
        assert house.operations.stats(ADMIN).pools["default"].active == 0

    in_house(play, max_active=1)


def test_a_waiter_that_leaves_in_the_moment_of_the_drain_just_leaves() -> None:
    async def play(house: House) -> None:
        await house.open()
        waiting = asyncio.ensure_future(house.open(wait_ms=100_000))
        await asyncio.sleep(1)
        house.operations.drain(ADMIN)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    in_house(play, max_active=1)


def test_a_stopping_node_takes_no_command_either_and_does_not_come_back() -> None:
    async def play(house: House) -> None:
        session = await house.open()
        await house.broker.drain()
        with pytest.raises(errors.Draining):
            await house.act(session)
        with pytest.raises(errors.Draining):
            house.operations.resume(ADMIN)
        assert house.broker.is_draining

    in_house(play)


def test_a_stopping_node_waits_for_the_commands_that_run() -> None:
    async def play(house: House) -> None:
        session = await house.open()
        running = asyncio.ensure_future(house.act(session))
        await asyncio.sleep(0)
        await house.broker.drain()
        assert running.done()
        assert running.result().ok

    in_house(play)


# --- Looking ----------------------------------------------------------------------------------------------------


def test_every_browser_is_shown_with_what_it_has() -> None:
    async def play(house: House) -> None:
        await house.until(lambda: house.browsers[0].stock == 2)
        await house.open()
        (browser,) = house.browsers
        assert (browser.pool, browser.state, browser.circuit, browser.suspect) == ("default", "ready", "closed", False)
        assert (browser.sessions, browser.sessions_served, browser.last_failure) == (1, 1, "")
        assert browser.memory_bytes is None

    in_house(play, warm=2)


def test_a_browser_that_misses_a_probe_is_shown_as_suspect() -> None:
    async def play(house: House) -> None:
        next(iter(house.processes.values())).is_hung = True
        await house.until(lambda: house.browsers[0].suspect)
        assert house.browsers[0].state == "ready"

    in_house(play)


def test_memory_and_processor_time_are_those_of_the_last_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([Usage(pss_bytes=5, cpu_ms=1_000, processes=2), Usage(pss_bytes=7, cpu_ms=1_500, processes=3)])
    latest = Usage()

    async def probe(browser: SimBrowser) -> Usage:
        return latest

    monkeypatch.setattr(SimBrowser, "probe", probe)

    async def play(house: House) -> None:
        nonlocal latest
        await asyncio.sleep(3)
        assert house.browsers[0].memory_bytes is None
        assert house.browsers[0].cpu_percent is None
        latest = next(readings)
        await asyncio.sleep(5)
        latest = next(readings)
        await asyncio.sleep(5)
        (browser,) = house.browsers
        assert (browser.memory_bytes, browser.cpu_ms, browser.processes) == (7, 1_500, 3)
        # Half a second of work in the five seconds between the two.
        assert browser.cpu_percent == pytest.approx(10, abs=0.5)
        next(iter(house.processes.values())).die("killed")
        latest = Usage()
        await house.until(lambda: house.browsers[0].browser_id != browser.browser_id and house.broker.is_ready)
        assert house.browsers[0].memory_bytes is None
        assert house.browsers[0].cpu_percent is None

    in_house(play)


def test_stats_count_what_each_pool_has() -> None:
    async def play(house: House) -> None:
        await house.open()
        waiting = [asyncio.ensure_future(house.open(wait_ms=100_000)) for _ in range(3)]
        await house.until(lambda: house.operations.stats(ADA).pools["default"].stock == 1)
        assert house.operations.stats(ADA) == wire.Stats(
            node="nod_1",
            draining=False,
            sessions=1,
            pools={
                "default": wire.PoolStats(active=1, waiting=3, capacity=1, free_seats=4, stock=1, browsers=1),
            },
        )
        for waiter in waiting:
            waiter.cancel()

    in_house(play, max_active=1, sessions_per_browser=5, warm=1)


def test_gauges_say_what_is_there_when_they_are_read() -> None:
    async def play(house: House) -> None:
        session = await house.open()
        waiting = asyncio.ensure_future(house.open(wait_ms=100_000))
        await asyncio.sleep(1)
        assert house.metric("sessions", pool="default", state="active") == 1
        assert house.metric("acquire_waiters", pool="default") == 1
        assert house.metric("pool_capacity", pool="default") == 1
        assert house.metric("browser_circuit", state="closed") == 1
        assert house.metric("browsers", state="ready") == 1
        waiting.cancel()
        ending = asyncio.ensure_future(house.broker.sessions.release(ADA, session.session_id))
        await house.until(lambda: house.metric("sessions", pool="default", state="closing") == 1)
        await ending
        opening = asyncio.ensure_future(house.open())
        await house.until(lambda: house.metric("sessions", pool="default", state="reserved") == 1)
        await opening
        assert house.metric("sessions", pool="default", state="closing") == 0
        assert house.metric("acquire_waiters", pool="default") == 0

    in_house(play, max_active=1)


def _targets(house: House) -> list[Any]:
    return [
        target
        for process in house.processes.values()
        for targets in process.contexts.values()
        for target in targets.values()
    ]
