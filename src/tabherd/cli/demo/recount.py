"""The judgement of a demo: each guarantee, counted again from what was recorded, and whether it held.

Pure: a record goes in, rows come out. What the site, the agents and the operating system saw decides; what the server
says about itself is compared with that. A guarantee for which there is no evidence at all has not held.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final, TypeVar

import msgspec

from .record import BOARD, Answer, Granted, Hit, Left, Line, Reading, Record
from .recount_deaths import dead_agent, dead_broker, dead_browser
from .verdict import Verdict, told, verdict

# The outcomes that a command can have; each has exactly one.
OUTCOMES: Final = ("completed", "failed", "timed_out", "cancelled", "outcome_unknown")
# The first characters of a command's id are the moment at which it was accepted: prefix, epoch, milliseconds.
ACCEPTED_CHARS: Final = len("cmd_") + 5 + 10
# How often one agent may get a session while another waits for one: once if it came first, once more if it comes back
# while the other's request is still on its way, and once more if the server dies, since then everybody asks anew.
PASSED_OVER_MAX: Final = 3


# What things are ordered by.
Place = TypeVar("Place", int, str)


class _Span(msgspec.Struct, frozen=True):
    """From when to when."""

    start_ms: float
    end_ms: float


def recount(record: Record) -> list[Verdict]:
    """Every guarantee, in the order in which it is shown; those about deaths only if somebody died."""
    judges: tuple[Callable[[Record], Verdict | None], ...] = (
        one_at_a_time,
        isolated,
        in_order,
        one_outcome,
        at_most_once,
        nobody_starved,
        cap_kept,
        dead_agent,
        dead_browser,
        dead_broker,
        nothing_left,
    )
    return [found for judge in judges if (found := judge(record)) is not None]


# --- What the site saw --------------------------------------------------------------------------------------------


def one_at_a_time(record: Record) -> Verdict:
    """Commands on one tab never overlap, by the marks that the pages made; a page serves one agent."""
    work = defaultdict[str, list[_Span]](list)
    ends = {hit.id: hit.page_ms for hit in record.hits if hit.what == "end"}
    for hit in _of(record, "begin"):
        # Work whose page died has no end; where it began, it was alone all the same.
        work[hit.tab].append(_Span(hit.page_ms, ends.get(hit.id, hit.page_ms)))
    overlaps = sum(_overlaps(spans) for spans in work.values())
    visits = defaultdict[str, set[str]](set)
    for hit in record.hits:
        if hit.document and hit.visit != BOARD:
            visits[hit.document].add(hit.visit)
    crowded = sum(len(each) > 1 for each in visits.values())
    total = sum(map(len, work.values()))
    return verdict(
        "no two agents in one tab",
        f"{overlaps} of {total} pieces of work overlapped, on {len(work)} tabs; "
        f"{crowded} of {len(visits)} pages served two agents",
        total > 0 and overlaps == 0 and crowded == 0,
        works=total,
        overlaps=overlaps,
        tabs=len(work),
        pages=len(visits),
        crowded=crowded,
    )


def isolated(record: Record) -> Verdict:
    """No page carries the cookies, or shows the lines, of another visit."""
    hits = [hit for hit in record.hits if hit.visit != BOARD]
    foreign = sum(
        hit.cookie_visit not in ("", hit.visit) or hit.cookie_agent not in ("", hit.agent)  # none is no stranger's
        for hit in hits
    )
    readings = told(record, Reading)
    shown = sum(any(not line.startswith(f"{each.visit}.") for line in each.ids) for each in readings)
    return verdict(
        "isolation",
        f"{foreign} of {len(hits)} requests with a foreign cookie; {shown} of {len(readings)} pages with foreign lines",
        bool(hits) and bool(readings) and foreign == 0 and shown == 0,
        requests=len(hits),
        foreign=foreign,
        readings=len(readings),
        shown=shown,
    )


def in_order(record: Record) -> Verdict:
    """Lines arrive in the order in which they were written, and turns are taken in the order of arrival."""
    lines = defaultdict[str, list[int]](list)
    for hit in _of(record, "add"):
        lines[hit.visit].append(int(hit.id.rpartition(".")[2]))
    jumbled = sum(_backward(numbers) for numbers in lines.values())
    accepted = {each.mark: each.command[:ACCEPTED_CHARS] for each in told(record, Answer) if each.mark and each.command}
    turns = [accepted[hit.id] for hit in _of(record, "begin") if hit.visit == BOARD and hit.id in accepted]
    early = _backward(turns)
    total = sum(map(len, lines.values()))
    return verdict(
        "in order",
        f"{jumbled} of {total} lines out of order; {early} of {len(turns)} turns on the shared tab out of turn",
        total > 0 and jumbled == 0 and early == 0,
        lines=total,
        jumbled=jumbled,
        turns=len(turns),
        early=early,
    )


def at_most_once(record: Record) -> Verdict:
    """Nothing is done twice, and what an agent saw done was done."""
    arrived = Counter(hit.id for hit in _of(record, "add"))
    twice = sum(count > 1 for count in arrived.values())
    seen = {line.id for line in told(record, Line)}
    missing = len(seen - arrived.keys())
    return verdict(
        "side effects at most once",
        f"{len(arrived)} lines at the site, {twice} twice; {len(seen)} seen by their agents, {missing} missing",
        bool(seen) and twice == 0 and missing == 0,
        arrived=len(arrived),
        twice=twice,
        seen=len(seen),
        missing=missing,
    )


# --- What the agents heard ----------------------------------------------------------------------------------------


def one_outcome(record: Record) -> Verdict:
    """Every accepted command has exactly one outcome: in the audit trail, when asked for, and as its agent heard."""
    heard = [(each.command, each.outcome) for each in told(record, Answer) if each.command]
    accepted = {command for command, _ in (*record.audit, *heard)}
    ends = Counter(command for command, _ in record.audit)
    twice = sum(count > 1 for count in ends.values())
    otherwise = {command for command, outcome in (*record.audit, *heard) if record.outcomes.get(command) != outcome}
    sums = Counter(record.outcomes.get(command, "") for command in accepted)
    ended = sum(sums[outcome] for outcome in OUTCOMES)
    parts = " + ".join(f"{sums[outcome]} {outcome.removeprefix('outcome_')}" for outcome in OUTCOMES if sums[outcome])
    return verdict(
        "exactly one outcome per command",
        f"{len(accepted)} accepted = {parts or 0}; {len(accepted) - ended} without, {twice} with two, "
        f"{len(otherwise)} heard otherwise",
        bool(accepted) and ended == len(accepted) and twice == 0 and not otherwise,
        accepted=len(accepted),
        without=len(accepted) - ended,
        twice=twice,
        otherwise=len(otherwise),
        **{outcome: sums[outcome] for outcome in OUTCOMES},
    )


def nobody_starved(record: Record) -> Verdict:
    """Everybody gets sessions, and nobody gets one again and again while another waits.

    How many each had says less: who starts or thinks more slowly asks less often, and a short demo has few sessions.
    """
    granted = told(record, Granted)
    counts = Counter(each.agent for each in granted)
    visits = [counts[agent] for agent in record.agents]
    longest_ms = max((each.at_ms - each.wanted_ms for each in granted), default=0.0)
    passed_over = max((_passed_over(waiting, granted) for waiting in granted), default=0)
    index = jain(visits)
    fewest, most = min(visits, default=0), max(visits, default=0)
    return verdict(
        "nobody starved",
        f"{len(granted)} sessions for {len(visits)} agents, {fewest} to {most} each, Jain index {index:.2f}; "
        f"longest wait {longest_ms:.0f} ms, passed over at most {passed_over} times by the same agent",
        fewest > 0 and passed_over <= PASSED_OVER_MAX,
        sessions=len(granted),
        fewest=fewest,
        most=most,
        jain=round(index, 3),
        longest_wait_ms=round(longest_ms),
        passed_over=passed_over,
    )


def _passed_over(waiting: Granted, granted: list[Granted]) -> int:
    """How many sessions the same agent got, at the most, while this one was waited for."""
    others = Counter(each.agent for each in granted if waiting.wanted_ms < each.at_ms < waiting.at_ms)
    return max(others.values(), default=0)


def cap_kept(record: Record) -> Verdict:
    """No more sessions at once than there may be: by the agents' clocks, and by what the site saw of them."""
    left = {each.visit: each.at_ms for each in told(record, Left)}
    if record.agent_death is not None:
        left[record.agent_death.visit] = record.agent_death.killed_ms
    held = [_Span(each.at_ms, left.get(each.visit, each.at_ms)) for each in told(record, Granted)]
    seen: dict[str, _Span] = {}
    for hit in record.hits:
        # A pulse may be on its way when its page is closed; all else is waited for by whoever caused it.
        if hit.visit != BOARD and hit.what != "pulse":
            seen[hit.visit] = _Span(seen[hit.visit].start_ms if hit.visit in seen else hit.at_ms, hit.at_ms)
    # The shared session is open all the time.
    by_agents, by_site = 1 + _most_at_once(held), 1 + _most_at_once(seen.values())
    return verdict(
        "cap kept",
        f"at most {by_agents} sessions at once as agents saw it, {by_site} as the site did; the cap is {record.cap}",
        bool(held) and bool(seen) and max(by_agents, by_site) <= record.cap,
        by_agents=by_agents,
        by_site=by_site,
        cap=record.cap,
    )


# --- What the operating system saw --------------------------------------------------------------------------------


def nothing_left(record: Record) -> Verdict:
    """No process, no directory and no lease is left."""
    remains = record.remains
    return verdict(
        "nothing left",
        f"{remains.leases} leases, {remains.processes_after} of {remains.processes_before} processes, "
        f"{remains.directories} directories",
        remains.processes_before > 0 and not (remains.leases or remains.processes_after or remains.directories),
        leases=remains.leases,
        processes_before=remains.processes_before,
        processes_after=remains.processes_after,
        directories=remains.directories,
    )


# --- Arithmetic ---------------------------------------------------------------------------------------------------


def jain(values: Iterable[float]) -> float:
    """How evenly something is shared: 1 when equally, 1/n when one has it all, 0 when there is nothing."""
    numbers = list(values)
    squares = sum(number * number for number in numbers)
    return sum(numbers) ** 2 / (len(numbers) * squares) if squares else 0.0


def _overlaps(spans: list[_Span]) -> int:
    """How many began before an earlier one had ended."""
    overlaps, busy_until = 0, float("-inf")
    for span in sorted(spans, key=lambda each: (each.start_ms, each.end_ms)):
        overlaps += span.start_ms < busy_until
        busy_until = max(busy_until, span.end_ms)
    return overlaps


def _most_at_once(spans: Iterable[_Span]) -> int:
    """The largest number of them that share a moment; one that ends when another starts shares none with it."""
    steps = sorted(step for span in spans for step in ((span.end_ms, -1), (span.start_ms, 1)) if _has_length(span))
    most = at_once = 0
    for _, change in steps:
        at_once += change
        most = max(most, at_once)
    return most


def _has_length(span: _Span) -> bool:
    return span.end_ms > span.start_ms


def _backward(order: list[Place]) -> int:
    """How many come after one that should have come later."""
    return sum(later < earlier for earlier, later in pairwise(order))


def _of(record: Record, what: str) -> Iterator[Hit]:
    return (hit for hit in record.hits if hit.what == what)
