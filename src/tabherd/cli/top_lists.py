"""What each view of `top` lists, in which order, and what a search finds. Pure.

Invariants: whatever is listed has one reference that stays the same for as long as it exists, and no two things of one
list have the same.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias, assert_never

import msgspec

from .. import wire
from .snapshot import AgentLoad, Snapshot


class Kind(StrEnum):
    """What a thing is; as people read it."""

    BROWSER = "browser"
    SESSION = "session"
    TAB = "tab"
    TASK = "task"
    LOCK = "lock"
    AGENT = "agent"
    EVENT = "event"


class Ref(NamedTuple):
    """Which thing; names of locks are chosen by callers, so an id alone does not say it."""

    kind: Kind
    id: str


class View(StrEnum):
    """What is on the screen; the values are titles."""

    OVERVIEW = "overview"
    BROWSERS = "browsers"
    SESSIONS = "sessions"
    TABS = "tabs"
    TASKS = "tasks"
    LOCKS = "locks"
    AGENTS = "agents"
    EVENTS = "events"
    # The sessions and tabs of one agent, and the tabs that it waits for.
    AGENT = "agent"
    # Everything about one thing.
    DETAIL = "detail"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A view that was gone to, and where in it one is."""

    view: View
    # What was drilled into: only what belongs to it is listed, or it is what is told of.
    of: Ref | None = None
    selected: Ref | None = None
    # Where the selection was last seen; in a detail, the first line that is shown.
    row: int = 0
    # Only what contains this is listed.
    sought: str = ""


class Agent(NamedTuple):
    name: str
    load: AgentLoad


class SessionLoad(NamedTuple):
    view: wire.SessionView
    # Of its tabs, those that somebody has just now.
    held: int
    # Who waits for its tabs.
    waiting: int


class Awaited(NamedTuple):
    """A tab, for an agent that waits for it."""

    tab: wire.TabView
    # Of the first of its callers that wait there.
    position: int


class Event(NamedTuple):
    fields: dict[str, Any]


Thing: TypeAlias = (
    wire.BrowserView | SessionLoad | wire.TabView | Awaited | wire.TaskView | wire.HeldLock | Agent | Event
)


def things(place: Place, snapshot: Snapshot) -> dict[Ref, Thing]:
    """What the place lists, in its order; nothing in the overview and in details."""
    listed = _listed(place, snapshot)
    if not place.sought:
        return listed
    sought = place.sought.casefold()
    return {ref: thing for ref, thing in listed.items() if sought in _words(thing).casefold()}


def find(ref: Ref, snapshot: Snapshot) -> Thing | None:
    """The thing itself; None once it is gone."""
    return _all_of(ref.kind, snapshot).get(ref)


def busiest_first(tabs: list[wire.TabView]) -> list[wire.TabView]:
    """Those that are waited for most come first, then those that somebody has."""
    return sorted(tabs, key=lambda tab: (-len(tab.waiters), tab.holder is None, tab.tab_id))


def locked(snapshot: Snapshot) -> dict[Ref, Thing]:
    """Named locks, and tabs that are locked; those that are waited for most come first."""
    tabs = {ref: tab for ref, tab in _tabs(snapshot).items() if tab.holder and tab.holder.reason == "tab_lock"}
    found: dict[Ref, tuple[int, Thing]] = {ref: (len(tab.waiters), tab) for ref, tab in tabs.items()}
    found |= {Ref(Kind.LOCK, lock.name): (lock.waiters, lock) for lock in snapshot.locks}
    order = sorted(found, key=lambda ref: (-found[ref][0], ref.kind, ref.id))
    return {ref: found[ref][1] for ref in order}


def _listed(place: Place, snapshot: Snapshot) -> dict[Ref, Thing]:
    match place.view:
        case View.OVERVIEW | View.DETAIL:
            return {}
        case View.BROWSERS:
            return _all_of(Kind.BROWSER, snapshot)
        case View.SESSIONS:
            sessions = _sessions(snapshot)
            of = place.of
            return {ref: it for ref, it in sessions.items() if of is None or it.view.browser_id == of.id}
        case View.TABS:
            of = place.of
            return {ref: tab for ref, tab in _tabs(snapshot).items() if of is None or tab.session_id == of.id}
        case View.TASKS:
            return _all_of(Kind.TASK, snapshot)
        case View.LOCKS:
            return locked(snapshot)
        case View.AGENTS:
            return _all_of(Kind.AGENT, snapshot)
        case View.EVENTS:
            return _all_of(Kind.EVENT, snapshot)
        case View.AGENT:
            assert place.of is not None, "an agent's view is one agent's"
            return _of_agent(place.of.id, snapshot)
        case _:
            assert_never(place.view)


def _all_of(kind: Kind, snapshot: Snapshot) -> dict[Ref, Thing]:
    match kind:
        case Kind.BROWSER:
            return {Ref(kind, browser.browser_id): browser for browser in snapshot.browsers}
        case Kind.SESSION:
            return {**_sessions(snapshot)}
        case Kind.TAB:
            return {**_tabs(snapshot)}
        case Kind.TASK:
            return {Ref(kind, task.task_id): task for task in snapshot.tasks}
        case Kind.LOCK:
            return {Ref(kind, lock.name): lock for lock in snapshot.locks}
        case Kind.AGENT:
            return {Ref(kind, name): Agent(name, load) for name, load in snapshot.agents.items()}
        case Kind.EVENT:
            # The newest first: what is cut is the oldest.
            return {Ref(kind, str(event.get("id", ""))): Event(event) for event in reversed(snapshot.events)}
        case _:
            assert_never(kind)


def _sessions(snapshot: Snapshot) -> dict[Ref, SessionLoad]:
    held = Counter(tab.session_id for tab in snapshot.tabs if tab.holder is not None)
    waiting: Counter[str] = Counter()
    for tab in snapshot.tabs:
        waiting[tab.session_id] += len(tab.waiters)
    return {
        Ref(Kind.SESSION, view.session_id): SessionLoad(view, held[view.session_id], waiting[view.session_id])
        for view in snapshot.sessions
    }


def _tabs(snapshot: Snapshot) -> dict[Ref, wire.TabView]:
    return {Ref(Kind.TAB, tab.tab_id): tab for tab in busiest_first(snapshot.tabs)}


def _of_agent(agent_id: str, snapshot: Snapshot) -> dict[Ref, Thing]:
    """Each session with its tabs below it, and then the tabs of others that the agent waits for."""
    by_session: dict[str, dict[Ref, Thing]] = {}
    for ref, tab in _tabs(snapshot).items():
        if tab.agent_id == agent_id:
            by_session.setdefault(tab.session_id, {})[ref] = tab
    found: dict[Ref, Thing] = {}
    for ref, session in _sessions(snapshot).items():
        if session.view.agent_id == agent_id:
            found[ref] = session
            found |= by_session.pop(ref.id, {})
    # The session of a tab may be too new, or not for this credential to be listed.
    for orphans in by_session.values():
        found |= orphans
    for ref, tab in _tabs(snapshot).items():
        positions = [waiter.position for waiter in tab.waiters if waiter.agent_id == agent_id]
        if positions and ref not in found:
            found[ref] = Awaited(tab, min(positions))
    return found


def _words(thing: Thing) -> str:
    """What a search looks through."""
    match thing:
        case wire.BrowserView():
            words = [thing.browser_id, thing.pool, thing.node, thing.state, str(thing.pid), thing.product]
        case SessionLoad(view):
            pages = [text for tab in view.tabs for text in (tab.tab_id, tab.url, tab.title)]
            words = [view.session_id, view.agent_id, view.state, view.pool, view.key, view.tier, view.node, *pages]
        case wire.TabView() | Awaited():
            tab = thing.tab if isinstance(thing, Awaited) else thing
            words = [tab.tab_id, tab.session_id, tab.agent_id, tab.state, tab.url, tab.title]
            if tab.holder is not None:
                words += [tab.holder.reason, tab.holder.kind or "", tab.holder.controller_id]
            words += [waiter.agent_id for waiter in tab.waiters]
        case wire.TaskView():
            words = [thing.task_id, thing.agent_id, thing.action, thing.state, thing.tab_id or "", thing.selector or ""]
        case wire.HeldLock():
            words = [thing.name, thing.holder or "", thing.agent_id or ""]
        case Agent(name):
            words = [name]
        case Event(fields):
            words = [str(value) for value in fields.values()]
        case _:
            assert_never(thing)
    return "\n".join(words)
