"""What can be done in `top` to the thing that is selected, and what is asked before it is done. Pure.

Invariants: a deed names what it is done to by id, so that it never hits what came in its place; a session is released,
and a lock taken from its holder, only if it is still the same lease or holder that was on the screen.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from .. import wire
from .snapshot import Snapshot
from .top_lists import Kind, Ref, SessionLoad, Thing, find


class Act(StrEnum):
    RELEASE = "release"
    CANCEL_TASK = "cancel_task"
    CANCEL_COMMAND = "cancel_command"
    HAND_OFF = "hand_off"
    GIVE_BACK = "give_back"
    FREE_TAB = "free_tab"
    FREE_LOCK = "free_lock"
    RESTART = "restart"
    DRAIN = "drain"


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """One call to the server that a person is about to make."""

    act: Act
    # Of the session, task, command, tab, lock or browser.
    id: str
    # Of the session's or lock's lease that is meant, where the credential may see it.
    fence: int | None = None
    # Who has the tab's lock that is meant.
    holder: str | None = None
    # What is asked before, said meanwhile, and said afterwards.
    question: str
    meanwhile: str
    outcome: str


# What each key does, where it does something.
ACT_KEYS: Final = {"x": "release", "c": "cancel", "h": "hand off", "u": "unlock", "r": "restart", "d": "drain"}


def deeds(ref: Ref | None, snapshot: Snapshot) -> dict[str, Deed]:
    """By its key, each deed that the thing is open to now; whether the caller may do it, the server says."""
    thing = None if ref is None else find(ref, snapshot)
    match thing:
        case SessionLoad(view):
            return {"x": _release(view.session_id, view.agent_id, view.fence)}
        case wire.TabView():
            return _on_tab(thing, snapshot)
        case wire.TaskView():
            return {"c": _cancel_task(thing)}
        case wire.HeldLock(held=True):
            return {"u": _free_lock(thing)}
        case wire.BrowserView():
            return {"r": _restart(thing), "d": _drain(thing)}
        case _:
            return {}


def label(key: str, deed: Deed) -> str:
    """What the footer calls it."""
    return "give back" if deed.act is Act.GIVE_BACK else ACT_KEYS[key]


def missing(key: str, thing: Thing | None) -> str:
    """Why a key that does something elsewhere does nothing to this."""
    match key, thing:
        case "c", wire.TabView(tab_id=tab_id):
            return f"No command runs on {tab_id}."
        case _:
            return f"There is nothing to {ACT_KEYS[key]} here."


def _on_tab(tab: wire.TabView, snapshot: Snapshot) -> dict[str, Deed]:
    session = find(Ref(Kind.SESSION, tab.session_id), snapshot)
    fence = session.view.fence if isinstance(session, SessionLoad) else None
    found = {"x": _release(tab.session_id, tab.agent_id, fence)}
    if tab.holder is not None and tab.holder.command_id is not None:
        found["c"] = _cancel_command(tab, tab.holder.command_id, tab.holder.kind or "command")
    found["h"] = _give_back(tab) if tab.state == "paused" else _hand_off(tab)
    if tab.holder is not None and tab.holder.reason == "tab_lock":
        found["u"] = _free_tab(tab, tab.holder.controller_id)
    return found


def _release(session_id: str, agent_id: str, fence: int | None) -> Deed:
    return Deed(
        act=Act.RELEASE,
        id=session_id,
        fence=fence,
        question=f"Release session {session_id} of {agent_id}?",
        meanwhile=f"Releasing {session_id}",
        outcome=f"Released {session_id}.",
    )


def _cancel_task(task: wire.TaskView) -> Deed:
    return Deed(
        act=Act.CANCEL_TASK,
        id=task.task_id,
        question=f"Cancel task {task.task_id} ({task.action}) of {task.agent_id}?",
        meanwhile=f"Cancelling {task.task_id}",
        outcome=f"Cancelled {task.task_id}.",
    )


def _cancel_command(tab: wire.TabView, command_id: str, kind: str) -> Deed:
    return Deed(
        act=Act.CANCEL_COMMAND,
        id=command_id,
        question=f"Cancel the {kind} that runs on {tab.tab_id}?",
        meanwhile=f"Cancelling the {kind} on {tab.tab_id}",
        outcome=f"Cancelled the {kind} on {tab.tab_id}.",
    )


def _hand_off(tab: wire.TabView) -> Deed:
    return Deed(
        act=Act.HAND_OFF,
        id=tab.tab_id,
        question=f"Pause agents on {tab.tab_id}, for a person?",
        meanwhile=f"Handing {tab.tab_id} off",
        outcome=f"Agents are paused on {tab.tab_id}.",
    )


def _give_back(tab: wire.TabView) -> Deed:
    return Deed(
        act=Act.GIVE_BACK,
        id=tab.tab_id,
        question=f"Give {tab.tab_id} back to agents?",
        meanwhile=f"Giving {tab.tab_id} back",
        outcome=f"{tab.tab_id} is back with its agents.",
    )


def _free_tab(tab: wire.TabView, holder: str) -> Deed:
    return Deed(
        act=Act.FREE_TAB,
        id=tab.tab_id,
        holder=holder,
        question=f"Take the lock of {tab.tab_id} from {holder}?",
        meanwhile=f"Unlocking {tab.tab_id}",
        outcome=f"Unlocked {tab.tab_id}.",
    )


def _free_lock(lock: wire.HeldLock) -> Deed:
    return Deed(
        act=Act.FREE_LOCK,
        id=lock.name,
        fence=lock.fence,
        question=f"Take the lock {lock.name} from {lock.holder or 'its holder'}?",
        meanwhile=f"Unlocking {lock.name}",
        outcome=f"Unlocked {lock.name}.",
    )


def _restart(browser: wire.BrowserView) -> Deed:
    return Deed(
        act=Act.RESTART,
        id=browser.browser_id,
        question=f"Restart {browser.browser_id} with {_count(browser.sessions)}?",
        meanwhile=f"Restarting {browser.browser_id}",
        outcome=f"{browser.browser_id} is being restarted.",
    )


def _drain(browser: wire.BrowserView) -> Deed:
    return Deed(
        act=Act.DRAIN,
        id=browser.browser_id,
        question=f"Drain {browser.browser_id} with {_count(browser.sessions)}?",
        meanwhile=f"Draining {browser.browser_id}",
        outcome=f"{browser.browser_id} ends with its last session.",
    )


def _count(sessions: int) -> str:
    return f"{sessions} session{'' if sessions == 1 else 's'}"
