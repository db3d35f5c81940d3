"""The recount of a demo: a clean record holds in every row, and each row notices what it is there to notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tabherd.cli.demo.record import (
    BOARD,
    AgentDeath,
    Answer,
    BrokerDeath,
    BrowserDeath,
    Granted,
    Happening,
    Held,
    Hit,
    Left,
    Line,
    Reading,
    Record,
    Remains,
    Told,
)
from tabherd.cli.demo.recount import PASSED_OVER_MAX, jain, recount
from tabherd.cli.demo.verdict import Verdict

AGENTS = ("a01", "a02")
# Two visits each, one after the other on one tab each; the shared session is open all the time.
CAP = 3
BROWSER_KILLED_MS = 3_800.0
BROKER_KILLED_MS = 8_000.0

Doctor = Callable[[Record], Record]


def clean() -> Record:
    """Two agents that visit twice each, in the same time, and take turns at the board; everybody dies once."""
    hits: list[Hit] = []
    told: list[Told] = []
    audit: list[tuple[str, str]] = []
    for number, agent in enumerate(AGENTS):
        for turn in (1, 2):
            visit, start = f"{agent}.{turn}", 1_000.0 + 5_000 * (turn - 1)
            tab, session = f"tab-{visit}", f"ses-{visit}"
            mine: dict[str, Any] = {"agent": agent, "visit": visit, "document": f"doc-{visit}"}
            cookies = {"cookie_agent": agent, "cookie_visit": visit}
            told.append(Granted(agent=agent, visit=visit, session=session, tab=tab, wanted_ms=start - 90, at_ms=start))
            hits.append(Hit(at_ms=start + 1, what="arrive", agent=agent, visit=visit))
            for line in (1, 2):
                at = start + 500 + 3_000 * (line - 1)
                command = f"cmd_00001{int(at):010}{agent}{line}"
                work = {"tab": tab, "id": f"work-{visit}.{line}"}
                hits.append(Hit(at_ms=at, what="begin", page_ms=at, **mine, **cookies, **work))
                hits.append(Hit(at_ms=at + 50, what="end", page_ms=at + 50, **mine, **cookies, **work))
                hits.append(Hit(at_ms=at + 60, what="add", id=f"{visit}.{line}", **mine, **cookies))
                told.append(Line(agent=agent, visit=visit, id=f"{visit}.{line}"))
                told.append(answer(agent, visit, command, at, at + 55))
                audit.append((command, "completed"))
            told.append(Reading(agent=agent, visit=visit, ids=[f"{visit}.1", f"{visit}.2"]))
            told.append(Left(agent=agent, visit=visit, at_ms=start + 4_000))
        turn_at = 2_000.0 + 100 * number
        command, mark = f"cmd_00001{int(turn_at):010}board", f"turn-{agent}"
        at_board = {"agent": agent, "visit": BOARD, "tab": "tab-board", "id": mark, "document": "doc-board"}
        hits.append(Hit(at_ms=turn_at, what="begin", page_ms=turn_at, **at_board))
        hits.append(Hit(at_ms=turn_at + 40, what="end", page_ms=turn_at + 40, **at_board))
        told.append(answer(agent, BOARD, command, turn_at, turn_at + 45, mark))
        audit.append((command, "completed"))
    hits.sort(key=lambda hit: hit.at_ms)
    hits.append(Hit(at_ms=11_900, what="pulse", agent="a02", visit="a02.2", cookie_agent="a02", cookie_visit="a02.2"))
    held = [Held(session="ses-a01.2", state="active", fence=7, tabs=["tab-a01.2"])]
    return Record(
        agents=list(AGENTS),
        cap=CAP,
        board_session="ses-board",
        hits=hits,
        told=told,
        happenings=[
            Happening(at_ms=BROWSER_KILLED_MS + 10, type="session.recovering", session="ses-a01.1", reason="crashed"),
            Happening(at_ms=BROWSER_KILLED_MS + 30, type="session_recovered", session="ses-a01.1", reason="crashed"),
            Happening(at_ms=12_000, type="session.closed", session="ses-a02.2", reason="owner_dead"),
        ],
        audit=audit,
        outcomes=dict(audit),
        remains=Remains(processes_before=9, processes_after=0, leases=0, directories=0),
        agent_death=AgentDeath(agent="a02", visit="a02.2", session="ses-a02.2", killed_ms=10_000),
        browser_death=BrowserDeath(pid=42, killed_ms=BROWSER_KILLED_MS),
        broker_death=BrokerDeath(
            killed_ms=BROKER_KILLED_MS,
            started_ms=BROKER_KILLED_MS + 1,
            ready_ms=BROKER_KILLED_MS + 900,
            before=held,
            after=held,
        ),
    )


def answer(agent: str, visit: str, command: str, sent_ms: float, heard_ms: float, mark: str = "") -> Answer:
    return Answer(
        agent=agent,
        visit=visit,
        kind="evaluate",
        command=command,
        outcome="completed",
        sent_ms=sent_ms,
        heard_ms=heard_ms,
        mark=mark,
    )


# --- Ways to doctor a record ----------------------------------------------------------------------------------------


def hit_changed(is_it: Callable[[Hit], bool], **fields: Any) -> Doctor:
    """Change the first hit of which that is true."""

    def change(record: Record) -> Record:
        index = next(index for index, hit in enumerate(record.hits) if is_it(hit))
        hits = [*record.hits]
        hits[index] = replace(hits[index], **fields)
        return replace(record, hits=hits)

    return change


def without_hits(is_it: Callable[[Hit], bool]) -> Doctor:
    return lambda record: replace(record, hits=[hit for hit in record.hits if not is_it(hit)])


def told_changed(kind: type, **fields: Any) -> Doctor:
    """Change the last thing of that kind that was told."""

    def change(record: Record) -> Record:
        index = max(index for index, each in enumerate(record.told) if isinstance(each, kind))
        told = [*record.told]
        told[index] = replace(told[index], **fields)
        return replace(record, told=told)

    return change


def without_told(is_it: Callable[[Told], bool]) -> Doctor:
    return lambda record: replace(record, told=[each for each in record.told if not is_it(each)])


def happening_changed(kind: str, /, **fields: Any) -> Doctor:
    def change(record: Record) -> Record:
        return replace(
            record,
            happenings=[replace(each, **fields) if each.type == kind else each for each in record.happenings],
        )

    return change


def broker_after(*after: Held) -> Doctor:
    def change(record: Record) -> Record:
        assert record.broker_death is not None
        return replace(record, broker_death=replace(record.broker_death, after=list(after)))

    return change


def remaining(**fields: int) -> Doctor:
    return lambda record: replace(record, remains=replace(record.remains, **fields))


def is_work(number: int) -> Callable[[Hit], bool]:
    return lambda hit: hit.what == "begin" and hit.id == f"work-a01.1.{number}"


def is_cookie_after_crash(hit: Hit) -> bool:
    return hit.visit == "a01.1" and hit.at_ms > BROWSER_KILLED_MS


DOCTORED: dict[str, tuple[str, Doctor]] = {
    "work that begins before the last has ended": (
        "no two agents in one tab",
        hit_changed(is_work(2), page_ms=1_510.0),
    ),
    "turns that overlap on the shared tab": (
        "no two agents in one tab",
        hit_changed(lambda hit: hit.what == "begin" and hit.id == "turn-a02", page_ms=2_039.0),
    ),
    "a page that serves two agents": (
        "no two agents in one tab",
        hit_changed(lambda hit: hit.what == "begin" and hit.visit == "a02.1", document="doc-a01.1"),
    ),
    "no work at all": ("no two agents in one tab", without_hits(lambda hit: hit.what == "begin")),
    "a page with another agent's login": (
        "isolation",
        hit_changed(is_work(1), cookie_agent="a02", cookie_visit="a02.1"),
    ),
    "a new session with the cookies of its agent's last one": (
        "isolation",
        hit_changed(lambda hit: hit.what == "arrive" and hit.visit == "a01.2", cookie_visit="a01.1"),
    ),
    "a page that shows another agent's line": ("isolation", told_changed(Reading, ids=["a02.2.1", "a01.1.1"])),
    "a line that arrives before an earlier one": (
        "in order",
        hit_changed(lambda hit: hit.what == "add" and hit.id == "a01.1.1", id="a01.1.3"),
    ),
    "a turn before that of somebody who came earlier": (
        "in order",
        told_changed(Answer, command="cmd_000010000000001late"),
    ),
    "a command without an outcome": (
        "exactly one outcome per command",
        lambda record: replace(record, outcomes=dict(list(record.outcomes.items())[1:])),
    ),
    "a command that still runs": (
        "exactly one outcome per command",
        lambda record: replace(record, outcomes=record.outcomes | {record.audit[0][0]: "running"}),
    ),
    "a command with two outcomes": (
        "exactly one outcome per command",
        lambda record: replace(record, audit=[*record.audit, (record.audit[0][0], "completed")]),
    ),
    "an agent that heard another outcome": (
        "exactly one outcome per command",
        told_changed(Answer, outcome="outcome_unknown"),
    ),
    "a line that arrived twice": (
        "side effects at most once",
        lambda record: replace(record, hits=[*record.hits, next(hit for hit in record.hits if hit.what == "add")]),
    ),
    "a line that was seen and never arrived": (
        "side effects at most once",
        without_hits(lambda hit: hit.id == "a01.1.2"),
    ),
    "an agent without a session": (
        "nobody starved",
        without_told(lambda each: isinstance(each, Granted) and each.agent == "a02"),
    ),
    "an agent that gets one session after the other while another waits": (
        "nobody starved",
        lambda record: replace(
            record,
            told=[
                *(replace(each, wanted_ms=1.0) if is_grant_of(each, "a02") else each for each in record.told),
                *(each for each in record.told * PASSED_OVER_MAX if is_grant_of(each, "a01")),
            ],
        ),
    ),
    "more sessions at once than there may be": ("cap kept", lambda record: replace(record, cap=CAP - 1)),
    "more sessions at once than agents tell": (
        "cap kept",
        hit_changed(lambda hit: hit.what == "arrive" and hit.visit == "a01.2", at_ms=1_000.0),
    ),
    "a dead agent's session that stays": (
        "agent killed: session reclaimed",
        lambda record: replace(record, happenings=record.happenings[:-1]),
    ),
    "a dead agent's session that ends for another reason": (
        "agent killed: session reclaimed",
        happening_changed("session.closed", reason="stale"),
    ),
    "a dead agent's page that lives on": (
        "agent killed: session reclaimed",
        hit_changed(lambda hit: hit.what == "pulse", at_ms=19_000.0),
    ),
    "a session that is lost with its browser": (
        "browser killed: sessions recovered",
        happening_changed("session_recovered", type="session_lost"),
    ),
    "a login that is gone with its browser": (
        "browser killed: sessions recovered",
        lambda record: replace(
            record,
            hits=[
                replace(hit, cookie_visit="", cookie_agent="") if is_cookie_after_crash(hit) else hit
                for hit in record.hits
            ],
        ),
    ),
    "a session that never runs a command again after its browser died": (
        "browser killed: sessions recovered",
        lambda record: replace(
            record,
            told=[replace(each, outcome="failed") if isinstance(each, Answer) else each for each in record.told],
        ),
    ),
    "a session that is not there after a restart": ("server killed: sessions back", broker_after()),
    "a session with another fence after a restart": (
        "server killed: sessions back",
        broker_after(Held(session="ses-a01.2", state="active", fence=8, tabs=["tab-a01.2"])),
    ),
    "a session with another tab after a restart": (
        "server killed: sessions back",
        broker_after(Held(session="ses-a01.2", state="active", fence=7, tabs=["tab-other"])),
    ),
    "a session that ended in a restart": (
        "server killed: sessions back",
        broker_after(Held(session="ses-a01.2", state="lost", fence=7, tabs=[], end_reason="recovery_failed")),
    ),
    "no command after a restart": (
        "server killed: sessions back",
        without_told(lambda each: isinstance(each, Answer) and each.heard_ms > BROKER_KILLED_MS),
    ),
    "a lease that is left": ("nothing left", remaining(leases=1)),
    "a process that is left": ("nothing left", remaining(processes_after=1)),
    "a directory that is left": ("nothing left", remaining(directories=1)),
    "processes that were never seen": ("nothing left", remaining(processes_before=0)),
}


def is_grant_of(each: Told, agent: str) -> bool:
    return isinstance(each, Granted) and each.agent == agent


def test_a_clean_record_holds_in_every_row() -> None:
    assert [row.evidence for row in recount(clean()) if not row.held] == []


@pytest.mark.parametrize(("guarantee", "doctor"), DOCTORED.values(), ids=DOCTORED)
def test_a_doctored_record_breaks_the_row_it_was_doctored_for(guarantee: str, doctor: Doctor) -> None:
    assert rows(doctor(clean()))[guarantee].held is False


def test_every_row_is_shown_to_be_able_to_fail() -> None:
    assert {guarantee for guarantee, _ in DOCTORED.values()} == set(rows(clean()))


def test_without_deaths_there_is_nothing_to_say_about_them() -> None:
    peaceful = replace(clean(), agent_death=None, browser_death=None, broker_death=None)
    assert [row.guarantee for row in recount(peaceful) if "killed" in row.guarantee] == []


def test_work_whose_page_died_overlaps_with_nothing() -> None:
    unfinished = without_hits(lambda hit: hit.what == "end" and hit.id == "work-a01.1.1")(clean())
    assert rows(unfinished)["no two agents in one tab"].held


def test_a_session_that_its_agent_gave_back_meanwhile_is_not_lost() -> None:
    record = clean()
    assert record.broker_death is not None
    both = [*record.broker_death.before, Held(session="ses-x", state="active", fence=1, tabs=["tab-x"])]
    released = replace(both[1], state="closed", tabs=[], end_reason="released")
    death = replace(record.broker_death, before=both, after=[both[0], released])
    row = rows(replace(record, broker_death=death))["server killed: sessions back"]
    assert (row.held, row.numbers["given_back"], row.numbers["lost"]) == (True, 1, 0)


def test_outcomes_add_up_to_what_was_accepted() -> None:
    numbers = rows(clean())["exactly one outcome per command"].numbers
    outcomes = ("completed", "failed", "timed_out", "cancelled", "outcome_unknown")
    assert numbers["accepted"] == sum(numbers[outcome] for outcome in outcomes) == 10


@pytest.mark.parametrize(("shares", "index"), [([3, 3, 3], 1.0), ([9, 0, 0], 1 / 3), ([], 0.0), ([0, 0], 0.0)], ids=str)
def test_jains_index_tells_even_shares_from_uneven_ones(shares: list[int], index: float) -> None:
    assert jain(shares) == pytest.approx(index)


def rows(record: Record) -> dict[str, Verdict]:
    return {row.guarantee: row for row in recount(record)}


def test_a_browser_whose_death_hit_nobody_proves_nothing_and_says_so() -> None:
    row = rows(happening_changed("session.recovering", type="session.opened")(clean()))[
        "browser killed: sessions recovered"
    ]
    assert (row.held, "nothing to judge" in row.evidence) == (True, True)
