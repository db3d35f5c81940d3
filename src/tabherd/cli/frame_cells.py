"""The columns of each list of `top`, and a thing as cells of a row. Pure.

Invariants: a cell is one line, and nothing in it commands the terminal, whoever wrote it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple, TypeAlias, assert_never

from rich.text import Text

from .. import wire
from .output import one_line
from .snapshot import Snapshot
from .top_lists import Agent, Awaited, Event, SessionLoad, Thing, View

GOOD, BAD, BUSY, QUIET, HEADING = "green", "bold red", "yellow", "dim", "bold cyan"
MINUTE_S: Final = 60
HOUR_S: Final = 3_600
DAY_S: Final = 86_400

Cells: TypeAlias = tuple[Text | str, ...]


class Column(NamedTuple):
    """A heading, and what happens to the column where there is not room for all."""

    heading: str
    # How much of the width that is left over it gets, where it may be cut; 0: it keeps its own.
    share: int = 0
    # In which turn it is left out, from 1; 0: never.
    spare: int = 0


def _columns(*headings: str, spare: tuple[str, ...] = ()) -> tuple[Column, ...]:
    """A star is a share of what is left over; spare ones go where there is little room, the first one first."""
    turns = {heading: turn for turn, heading in enumerate(spare, 1)}
    names = [(heading.rstrip("*"), heading.count("*")) for heading in headings]
    return tuple(Column(name, share, turns.get(name, 0)) for name, share in names)


POOL_COLUMNS: Final = _columns(
    "pool*", "active", "capacity", "waiting", "pooled", "warm", "browsers", spare=("warm", "pooled", "browsers")
)
WAITER_COLUMNS: Final = _columns(
    "waits for a session*", "place", "pool*", "key*", "waited", "expected", spare=("key", "pool", "expected")
)
COLUMNS: Final = {
    View.BROWSERS: _columns(
        "browser",
        "pool*",
        "state",
        "pid",
        "sessions",
        "memory",
        "CPU",
        spare=("pid", "pool", "CPU", "memory", "sessions"),
    ),
    View.SESSIONS: _columns(
        "session",
        "agent*",
        "state",
        "pool*",
        "tabs",
        "held",
        "waiting",
        "heard",
        "ends in",
        spare=("pool", "tabs", "held", "ends in", "heard", "waiting", "state"),
    ),
    View.TABS: _columns("tab", "agent*", "held by", "waiting", "page*", spare=("page", "waiting", "agent")),
    View.TASKS: _columns(
        "task",
        "agent*",
        "state",
        "place",
        "action",
        "waited",
        "on*",
        spare=("on", "waited", "place", "action", "state"),
    ),
    View.LOCKS: _columns("lock**", "held by*", "since", "ends in", "waiting", spare=("ends in", "since")),
    View.AGENTS: _columns(
        "agent*",
        "sessions",
        "tabs",
        "held",
        "waiting",
        "tasks queued",
        "running",
        spare=("tabs", "held", "running", "tasks queued"),
    ),
    View.EVENTS: _columns("at", "event", "what*"),
    View.AGENT: _columns(
        "session, tab", "state", "held by", "waiting", "page*", spare=("page", "waiting", "state", "held by")
    ),
}


def cells(view: View, thing: Thing, now: datetime) -> Cells:
    """The thing as a row of that view's list."""
    match thing:
        case wire.BrowserView():
            return _browser(thing)
        case SessionLoad():
            return _session_above(thing) if view is View.AGENT else _session(thing, now)
        case wire.TabView():
            if view is View.LOCKS:
                return _tab_lock(thing, now)
            return _tab_below(thing, now) if view is View.AGENT else _tab(thing, now)
        case Awaited(tab, position):
            waits = Text(f"waits ({position})", BUSY)
            return tab.tab_id, waits, holder_of(tab, now), alarming(len(tab.waiters)), one_line(tab.url)
        case wire.TaskView():
            return _task(thing, now)
        case wire.HeldLock():
            return _named_lock(thing, now)
        case Agent(name, load):
            counts = (load.sessions, load.tabs, load.held)
            return (
                one_line(name),
                *map(str, counts),
                alarming(load.waiting),
                alarming(load.queued),
                str(load.inflight),
            )
        case Event(fields):
            rest = " ".join(f"{name}={fields[name]}" for name in fields if name not in ("id", "type", "at"))
            at = Text(one_line(str(fields.get("at", ""))[11:19]), QUIET)
            return at, one_line(str(fields.get("type", ""))), one_line(rest)
        case _:
            assert_never(thing)


def pool_rows(snapshot: Snapshot) -> list[Cells]:
    return [
        (
            one_line(name),
            Text(str(pool.active), BUSY if pool.active >= pool.capacity else ""),
            str(pool.capacity),
            alarming(pool.waiting),
            str(pool.pooled),
            str(pool.stock),
            str(pool.browsers),
        )
        for name, pool in snapshot.pools.items()
    ]


def waiter_rows(snapshot: Snapshot, now: datetime) -> list[Cells]:
    """Who waits for a session, pool after pool, the next one first."""
    return [
        (
            one_line(waiter.agent_id),
            str(waiter.position),
            one_line(name),
            one_line(waiter.key),
            ago(waiter.since, now),
            span(waiter.expected_wait_ms // 1_000),
        )
        for name, pool in snapshot.pools.items()
        for waiter in pool.waiters
    ]


def alarming(count: int) -> Text:
    return Text(str(count), BUSY if count else "")


def holder_of(tab: wire.TabView, now: datetime) -> Text:
    """Who has it, or what else there is to say about it, in two words."""
    if tab.holder is None:
        is_ready = tab.state == "ready"
        return Text("" if is_ready else one_line(tab.state), QUIET if is_ready else BAD)
    held_s = max(0, int((now - datetime.fromisoformat(tab.holder.since)).total_seconds()))
    what = tab.holder.kind or tab.holder.reason
    return Text(f"{one_line(what)} {held_s}s", BAD if tab.holder.reason == "quarantine" else BUSY)


def ago(moment: str | None, now: datetime) -> str:
    """How long it is since then; empty if that is not known."""
    return span((now - datetime.fromisoformat(moment)).total_seconds()) if moment else ""


def until(moment: str | None, now: datetime) -> str:
    """How long it is until then; empty if there is no such moment."""
    return span((datetime.fromisoformat(moment) - now).total_seconds()) if moment else ""


def span(seconds: float) -> str:
    """A time that is read at a glance: 7s, 3m, 2h, 5d. What is over has none left."""
    whole_s = max(0, int(seconds))
    for unit_s, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "m")):
        if whole_s >= 2 * unit_s:
            return f"{whole_s // unit_s}{unit}"
    return f"{whole_s}s"


# --- Rows -------------------------------------------------------------------------------------------------------


def _browser(browser: wire.BrowserView) -> Cells:
    style = {"ready": GOOD, "crashed": BAD, "broken": BAD}.get(browser.state, BUSY)
    return (
        browser.browser_id,
        one_line(browser.pool),
        Text("suspect", BAD) if browser.suspect else Text(browser.state, style),
        str(browser.pid),
        str(browser.sessions),
        "-" if browser.memory_bytes is None else f"{browser.memory_bytes >> 20} MB",
        "-" if browser.cpu_percent is None else f"{browser.cpu_percent:.0f} %",
    )


def _session(session: SessionLoad, now: datetime) -> Cells:
    view = session.view
    return (
        view.session_id,
        one_line(view.agent_id),
        _session_state(view),
        one_line(view.pool),
        str(len(view.tabs)),
        str(session.held),
        alarming(session.waiting),
        ago(view.seen_at, now),
        until(view.expires_at, now),
    )


def _session_above(session: SessionLoad) -> Cells:
    view = session.view
    return view.session_id, _session_state(view), f"{session.held} held", alarming(session.waiting), ""


def _session_state(view: wire.SessionView) -> Text:
    return Text(view.state, GOOD if view.state == "active" else BUSY)


def _tab(tab: wire.TabView, now: datetime) -> Cells:
    page = one_line(tab.url)
    return tab.tab_id, one_line(tab.agent_id), holder_of(tab, now), alarming(len(tab.waiters)), page


def _tab_below(tab: wire.TabView, now: datetime) -> Cells:
    return f"  {tab.tab_id}", tab.state, holder_of(tab, now), alarming(len(tab.waiters)), one_line(tab.url)


def _task(task: wire.TaskView, now: datetime) -> Cells:
    return (
        task.task_id,
        one_line(task.agent_id),
        Text(task.state, GOOD if task.state == "running" else ""),
        "" if task.position is None else str(task.position),
        one_line(task.action),
        ago(task.created_at, now),
        one_line(task.tab_id or task.session_id or ""),
    )


def _tab_lock(tab: wire.TabView, now: datetime) -> Cells:
    assert tab.holder is not None, "a tab that is listed among the locks is locked"
    return (
        tab.tab_id,
        # The agent is a name that people know; a credential's id is none.
        one_line(tab.holder.agent_id or tab.holder.controller_id),
        ago(tab.holder.since, now),
        until(tab.holder.expires_at, now),
        alarming(len(tab.waiters)),
    )


def _named_lock(lock: wire.HeldLock, now: datetime) -> Cells:
    holder = one_line(lock.holder or "somebody") if lock.held else Text("nobody here", QUIET)
    return (
        one_line(lock.name),
        holder,
        ago(lock.acquired_at, now),
        until(lock.expires_at, now),
        alarming(lock.waiters),
    )
