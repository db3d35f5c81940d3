"""`handover`: from one holder's letting go to the next one's being there, for a tab and for a session.

- *turn*: the gate alone, as `asyncio.Lock` is taken and released; *command*: the whole way of a command, from the end
  of one in the page to the beginning of the next. In this process, with pages that take no time, beside the lock.
- *lease*: sessions acquired and released through the broker, on SQLite and, as the limit, on a store in memory, with
  browsers that take no time.
- *http*: a session that another caller waits for, over HTTP with Chromium, beside what Chromium itself needs for a
  context, on the same build.
- *crowd*: 200 controllers on 50 tabs. That they took turns, in the order in which they came, is proved by the logs that
  the pages themselves kept.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections import deque
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import uvloop

from bench import Figure, percentile
from bench.rig.baton import Carry, Hold, gaps_us
from bench.rig.caller import now_ms
from bench.rig.contention import Contention, contend
from bench.rig.direct import DirectBrowser, launched
from bench.rig.instant import ADMIN, agent, as_in_the_server, instant_broker
from bench.rig.server import running
from bench.rig.waiter import WAIT_MS, Waiter
from tabherd import wire
from tabherd.actions.progress import Progress
from tabherd.broker.broker import Broker, wall_clock_ms
from tabherd.broker.claim import Claim
from tabherd.broker.events import EventBus
from tabherd.broker.registry import LiveSession, LiveTab, Registry
from tabherd.broker.turns import Turns
from tabherd.browsers.port import TabPort
from tabherd.core.gate import Gate, GateLimits, Ticket
from tabherd.core.lifecycle import LeaseState, TabState
from tabherd.core.model import Session, Tab
from tabherd.store.memory import MemoryStore
from tabherd.store.sqlite import SqliteStore

# How many wait behind the holder.
WAITING: Final = (1, 20)
GATE_ROUNDS: Final = 10
HANDOVERS: Final = 400
BAR_GATE_US: Final = 100.0
LIMITS: Final = GateLimits(tickets_per_tab=100, tickets_per_controller=100)
FAR_MS: Final = 600_000

CALLERS: Final = 64
LEASE_ROUNDS: Final = 4
LEASE_S: Final = 1.0
ALONE: Final = 100
BAR_PAIRS_PER_S: Final = 3_000.0
# The pool in which there is room for one.
SINGLE: Final = "single"

HTTP_ROUNDS: Final = 40
# Until the stock is refilled and the context before is disposed of.
PAUSE_S: Final = 0.15

TABS: Final = 50
CONTROLLERS: Final = 200
CROWD_S: Final = 60.0
CROWD_SHORT_S: Final = 10.0


def run() -> dict[str, Figure]:
    with as_in_the_server():
        figures = uvloop.run(_gate_figures()) | uvloop.run(_lease_figures())
    return figures | uvloop.run(_http_figures())


def run_long() -> dict[str, Figure]:
    return _crowd_figures(CROWD_S)


def run_short() -> dict[str, Figure]:
    return _crowd_figures(CROWD_SHORT_S)


# --- The gate -----------------------------------------------------------------------------------------------------


async def _gate_figures() -> dict[str, Figure]:
    async with AsyncExitStack() as stack:
        holds = {
            "turn": _turn_of_a_gate(),
            "command": await _command_on_a_tab(stack),
            "asyncio.Lock": _turn_of_a_lock(),
        }
        figures: dict[str, Figure] = {}
        for waiting in WAITING:
            gaps: dict[str, list[float]] = {name: [] for name in holds}
            for _ in range(GATE_ROUNDS):
                for name, hold in holds.items():
                    gaps[name] += await gaps_us(hold, waiting, HANDOVERS)
            lock = gaps["asyncio.Lock"]
            for name in ("turn", "command"):
                figures[f"{name}_p50_{waiting}_waiting"] = Figure.median_of(
                    gaps[name], "us", others={"asyncio.Lock": lock}, at_most=BAR_GATE_US
                )
                figures[f"{name}_p99_{waiting}_waiting"] = Figure(
                    ours=percentile(gaps[name], 99), unit="us", others={"asyncio.Lock": percentile(lock, 99)}
                )
        return figures


def _turn_of_a_lock() -> Hold:
    lock = asyncio.Lock()

    async def hold(number: int, carry: Carry) -> None:
        async with lock:
            await carry()

    return hold


def _turn_of_a_gate() -> Hold:
    turns = Turns(registry=Registry(), events=EventBus(epoch=1, ring=16), clock=wall_clock_ms)
    session = Session(id="ses_bench", state=LeaseState.ACTIVE, agent_id="bench", pool="default", created_at=0)
    live = LiveSession(session, None, Claim(session.id, session.agent_id, "", None))
    row = Tab(id="tab_bench", session_id=session.id, node_id="", browser_id="", state=TabState.READY, created_at=0)
    tab = LiveTab(row, None, Gate(LIMITS), live)

    async def hold(number: int, carry: Carry) -> None:
        now = wall_clock_ms()
        ticket = Ticket(
            id=f"cmd_{number}",
            controller_id=f"controller-{number}",
            agent_id="bench",
            label="evaluate",
            entered_at=now,
            deadline_at=now + FAR_MS,
        )
        turns.enter(tab, ticket, may_wait=True)
        try:
            await turns.wait(tab, ticket)
            await carry()
        finally:
            turns.leave(tab, ticket)

    return hold


async def _command_on_a_tab(stack: AsyncExitStack) -> Hold:
    # What the commands that wait or run will do, by their expression.
    carries: dict[str, Carry] = {}

    async def perform(page: TabPort, action: wire.AnyAction, progress: Progress) -> None:
        assert isinstance(action, wire.Evaluate)
        await carries[action.expression]()

    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tabherd-bench-"))
    store = SqliteStore(Path(directory) / "bench.db")
    stack.push_async_callback(store.close)
    gate = {"tickets_per_tab": LIMITS.tickets_per_tab}
    broker = await stack.enter_async_context(instant_broker(store, perform, gate=gate))
    owner = agent("bench")
    session = await broker.sessions.open(owner, wire.OpenSession(access="shared", keep_alive=True))
    (tab,) = session.tabs

    async def hold(number: int, carry: Carry) -> None:
        carries[str(number)] = carry
        action = wire.Evaluate(expression=str(number), wait_policy="wait_with_timeout", timeout_ms=FAR_MS)
        await broker.commands.run(agent(f"agent-{number}"), tab.tab_id, action)

    return hold


# --- The lease, in process ----------------------------------------------------------------------------------------


async def _lease_figures() -> dict[str, Figure]:
    with tempfile.TemporaryDirectory(prefix="tabherd-bench-") as directory:
        async with AsyncExitStack() as stack:
            brokers: dict[str, Broker] = {}
            for name, store in (("sqlite", SqliteStore(Path(directory) / "bench.db")), ("memory", MemoryStore())):
                stack.push_async_callback(store.close)
                pools = {SINGLE: {"max_active": 1}}
                brokers[name] = await stack.enter_async_context(instant_broker(store, _nothing, pools=pools))
            per_s, acquires, releases, handed = ({name: list[float]() for name in brokers} for _ in range(4))
            for _ in range(LEASE_ROUNDS):
                for name, broker in brokers.items():
                    per_s[name].append(await _pairs_per_s(broker))
                    for acquire_ms, release_ms in await _pairs_alone(broker):
                        acquires[name].append(acquire_ms)
                        releases[name].append(release_ms)
                    handed[name] += await _handed_over(broker)
    return {
        f"lease_pairs_per_s_{CALLERS}_callers": Figure(
            ours=statistics.median(per_s["sqlite"]),
            unit="/s",
            others={"in memory": statistics.median(per_s["memory"])},
            at_least=BAR_PAIRS_PER_S,
        ),
        "lease_acquire_p50_alone": _beside_memory(acquires),
        "lease_release_p50_alone": _beside_memory(releases),
        "lease_handover_p50": _beside_memory(handed),
    }


def _beside_memory(samples: dict[str, list[float]]) -> Figure:
    return Figure.median_of(samples["sqlite"], "ms", others={"in memory": samples["memory"]})


async def _nothing(page: TabPort, action: wire.AnyAction, progress: Progress) -> None:
    """No page is asked for anything here."""


async def _pairs_per_s(broker: Broker) -> float:
    done = 0
    until_ms = now_ms() + LEASE_S * 1000

    async def holder(number: int) -> None:
        nonlocal done
        caller = agent(f"agent-{number}")
        while now_ms() < until_ms:
            session = await broker.sessions.open(caller, wire.OpenSession())
            await broker.sessions.release(caller, session.session_id, session.fence)
            done += 1

    began = now_ms()
    await asyncio.gather(*(holder(number) for number in range(CALLERS)))
    return done / (now_ms() - began) * 1000


async def _pairs_alone(broker: Broker) -> list[tuple[float, float]]:
    """Milliseconds for acquiring and for releasing a session, with nobody else there."""
    caller, samples = agent("alone"), []
    for _ in range(ALONE):
        began = now_ms()
        session = await broker.sessions.open(caller, wire.OpenSession())
        acquired = now_ms()
        await broker.sessions.release(caller, session.session_id, session.fence)
        samples.append((acquired - began, now_ms() - acquired))
    return samples


async def _handed_over(broker: Broker) -> list[float]:
    """Milliseconds from asking for the release of the only session there can be to having the next one."""
    callers = [agent("one"), agent("other")]
    request = wire.OpenSession(pool=SINGLE, wait_ms=WAIT_MS)
    samples: list[float] = []

    async def next_one(turn: int) -> tuple[wire.SessionView, float]:
        return await broker.sessions.open(callers[turn % 2], request), now_ms()

    held, _ = await next_one(0)
    for turn in range(1, ALONE):
        waiting = asyncio.create_task(next_one(turn))
        # Nothing on the way into the queue takes longer than a turn of the loop.
        await asyncio.sleep(0)
        assert broker.operations.stats(ADMIN).pools[SINGLE].waiting == 1
        began = now_ms()
        await broker.sessions.release(callers[(turn - 1) % 2], held.session_id, held.fence)
        held, had_ms = await waiting
        samples.append(had_ms - began)
    await broker.sessions.release(callers[(ALONE - 1) % 2], held.session_id, held.fence)
    return samples


# --- The lease, over HTTP -----------------------------------------------------------------------------------------


async def _http_figures() -> dict[str, Figure]:
    handed: dict[str, list[float]] = {"close": [], "pool": []}
    made: list[float] = []
    replaced: list[float] = []
    with running(pools__default__max_active=1) as server, Waiter(server) as one, Waiter(server) as other:
        one.wait()
        one.taken()
        # Who has the only session that is admitted, and who waits for it.
        waiters = deque((one, other))
        async with launched() as browser:
            for _ in range(HTTP_ROUNDS):
                for disposition, samples in handed.items():
                    samples.append(_hand_over(waiters, disposition))
                replaced_ms, made_ms = await _replace_directly(browser)
                replaced.append(replaced_ms)
                made.append(made_ms)
    others = {"direct new context": made, "direct, the one before disposed of": replaced}
    return {
        "http_close_to_next_p50": Figure.median_of(handed["close"], "ms", others=others),
        "http_pool_to_next_p50": Figure.median_of(handed["pool"], "ms", others=others),
    }


def _hand_over(waiters: deque[Waiter], disposition: str) -> float:
    """Milliseconds from asking for the release to the waiting caller's having a page that answers."""
    holder, waiter = waiters
    time.sleep(PAUSE_S)
    waiter.wait()
    time.sleep(PAUSE_S)
    began = now_ms()
    holder.give_back(disposition)
    _, had_ms = waiter.taken()
    waiters.rotate()
    return had_ms - began


async def _replace_directly(browser: DirectBrowser) -> tuple[float, float]:
    """Milliseconds for disposing of a context and making another one that answers, and for the latter alone."""
    before = await browser.new_page()
    await before.evaluate()
    time.sleep(PAUSE_S)
    began = now_ms()
    await browser.dispose(before)
    disposed = now_ms()
    page = await browser.new_page()
    await page.evaluate()
    answered = now_ms()
    await browser.dispose(page)
    return answered - began, answered - disposed


# --- The crowd ----------------------------------------------------------------------------------------------------


def _crowd_figures(seconds: float) -> dict[str, Figure]:
    settings: dict[str, Any] = {"pools__default__sessions_per_browser": TABS // 2, "pools__default__browsers_max": 2}
    with running(**settings) as server:
        found: Contention = uvloop.run(contend(server, tabs=TABS, controllers=CONTROLLERS, seconds=seconds))
    return {
        "crowd_commands_per_s": Figure(ours=found.per_s, unit="/s"),
        "crowd_wait_p50": Figure.median_of(found.waits_ms, "ms"),
        "crowd_wait_p99": Figure(ours=percentile(found.waits_ms, 99), unit="ms"),
        "crowd_answer_p50": Figure.median_of(found.answers_ms, "ms"),
        "crowd_answer_p99": Figure(ours=percentile(found.answers_ms, 99), unit="ms"),
        "crowd_overlaps": Figure(ours=found.judgement.overlaps, unit="commands", at_most=0),
        "crowd_out_of_order": Figure(ours=found.judgement.out_of_order, unit="commands", at_most=0),
        "crowd_not_exactly_once": Figure(ours=found.judgement.not_once, unit="commands", at_most=0),
        "crowd_same_millisecond": Figure(ours=found.judgement.undecided, unit="commands"),
    }
