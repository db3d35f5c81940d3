"""`bench`: a short measurement of the running server, as a client of it sees it.

It needs nothing but the installed package. Every session that it leases is given back, also after Ctrl-C. What it says
depends on this machine and on who else uses the server; it compares nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Final

import msgspec

from ..client.aio import AsyncSession, AsyncTabherd
from .output import Tell, Voice

# The first ones pay for what is made only once.
WARM_UP: Final = 3
EXPRESSION: Final = "1 + 1"
WHAT_IT_IS: Final = (
    "Measured over HTTP by the Python SDK in this one process, its own cost included; the server was also serving "
    "whoever else uses it. These are figures of this machine now, and no comparison with anything."
)


class Plan(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """What is measured, and for how long."""

    rounds: int
    tabs: int
    seconds: float
    # Whose sessions; the credential's own agent when absent.
    agent: str | None
    pool: str | None


class RoundTrips(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """How long one took, of so many."""

    count: int
    p50_ms: float
    p95_ms: float


class Throughput(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """Commands of all tabs together."""

    count: int
    tabs: int
    per_second: float


class Measured(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """What `--json` prints."""

    url: str
    plan: Plan
    acquire_and_release: RoundTrips
    evaluate: RoundTrips
    throughput: Throughput
    note: str = WHAT_IT_IS


def measure(voice: Voice, plan: Plan) -> None:
    """Run the plan and print what came out."""
    with voice.progress("Measuring") as tell:
        measured = asyncio.run(_run(plan, tell))
    if voice.as_json:
        voice.dump(measured)
        return
    lease, evaluate, throughput = measured.acquire_and_release, measured.evaluate, measured.throughput
    rows = [
        ("lease a session and give it back", str(lease.count), _ms(lease.p50_ms), _ms(lease.p95_ms), ""),
        ("evaluate on one tab", str(evaluate.count), _ms(evaluate.p50_ms), _ms(evaluate.p95_ms), ""),
        (f"evaluate on {throughput.tabs} tabs at once", str(throughput.count), "", "", f"{throughput.per_second:.0f}"),
    ]
    voice.table(measured, ("what", "count", "p50", "p95", "per second"), rows, empty="")
    voice.say(f"\n{measured.url}: {measured.note}")


def round_trips(times_s: list[float]) -> RoundTrips:
    """The median, and what nineteen of twenty did not exceed (nearest rank)."""
    ordered = sorted(times_s)
    return RoundTrips(count=len(ordered), p50_ms=_rank(ordered, 50), p95_ms=_rank(ordered, 95))


async def _run(plan: Plan, tell: Tell) -> Measured:
    async with AsyncTabherd() as herd:
        tell(f"Leasing and giving back {plan.rounds} sessions")
        leases = await _timed_leases(herd, plan)
        async with _session(herd, plan) as session:
            tell(f"Evaluating {plan.rounds} times on one tab")
            evaluations = await _timed_evaluations(session, plan.rounds)
        tell(f"Leasing {plan.tabs} sessions")
        throughput = await _throughput(herd, plan, tell)
        return Measured(
            url=herd.url,
            plan=plan,
            acquire_and_release=round_trips(leases),
            evaluate=round_trips(evaluations),
            throughput=throughput,
        )


async def _timed_leases(herd: AsyncTabherd, plan: Plan) -> list[float]:
    times_s: list[float] = []
    for _ in range(WARM_UP + plan.rounds):
        began_s = perf_counter()
        async with _session(herd, plan):
            pass
        times_s.append(perf_counter() - began_s)
    return times_s[WARM_UP:]


async def _timed_evaluations(session: AsyncSession, rounds: int) -> list[float]:
    times_s: list[float] = []
    for _ in range(WARM_UP + rounds):
        began_s = perf_counter()
        await session.tab.evaluate(EXPRESSION)
        times_s.append(perf_counter() - began_s)
    return times_s[WARM_UP:]


async def _throughput(herd: AsyncTabherd, plan: Plan, tell: Tell) -> Throughput:
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(_session(herd, plan)) for _ in range(plan.tabs)]
        tell(f"Driving {plan.tabs} tabs for {plan.seconds:g} s")
        began_s = perf_counter()
        counts = await asyncio.gather(*(_drive(session, began_s + plan.seconds) for session in sessions))
        took_s = perf_counter() - began_s
    return Throughput(count=sum(counts), tabs=plan.tabs, per_second=sum(counts) / took_s)


async def _drive(session: AsyncSession, until_s: float) -> int:
    count = 0
    while perf_counter() < until_s:
        await session.tab.evaluate(EXPRESSION)
        count += 1
    return count


def _session(herd: AsyncTabherd, plan: Plan) -> AsyncSession:
    return herd.session(agent=plan.agent, pool=plan.pool)


def _rank(ordered: list[float], percent: int) -> float:
    """In milliseconds."""
    return ordered[-(-len(ordered) * percent // 100) - 1] * 1000


def _ms(value: float) -> str:
    return f"{value:.1f} ms"
