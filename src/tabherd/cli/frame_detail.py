"""Everything that `top` knows of one thing, as lines. Pure.

Invariants: no line is wider than the width, and what is too long for one goes on in the next; what a caller wrote is
shown without what a terminal would obey, and at most so much of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec
from rich.cells import chop_cells
from rich.text import Text

from .. import wire
from .frame_cells import BAD, BUSY, QUIET, ago, span, until
from .output import one_line
from .snapshot import Snapshot
from .top_lists import Event, Ref, find

# Of one value; an address may be a whole document.
VALUE_MAX: Final = 2_000
NAME_WIDTH: Final = 12
# From here on what a command was expected to take says nothing about it any more, once it has taken longer.
OVERDUE_S: Final = 5.0
# What is narrower has no room for names beside the values.
VALUE_WIDTH_LEAST: Final = 10

# A name and a value, and the value's style.
Fact: TypeAlias = tuple[str, str, str]


def detail(ref: Ref, snapshot: Snapshot, now: datetime, width: int) -> list[Text]:
    """The lines about it; one of them once it is gone."""
    thing = find(ref, snapshot)
    match thing:
        case wire.TabView():
            facts = _tab(thing, now)
        case wire.TaskView():
            facts = _task(thing, now)
        case wire.HeldLock():
            facts = _lock(thing, now)
        case Event(fields):
            facts = ((name, str(value), "") for name, value in fields.items())
        case _:
            return [Text(f"{one_line(ref.id)} is gone.", BAD, no_wrap=True, overflow="ellipsis")]
    return [line for fact in facts for line in _lines(fact, max(1, width))]


def _lines(fact: Fact, width: int) -> list[Text]:
    name, value, style = fact
    shown = one_line(value[:VALUE_MAX]) + ("…" if len(value) > VALUE_MAX else "")
    beside = NAME_WIDTH + 1 if width >= NAME_WIDTH + 1 + VALUE_WIDTH_LEAST else 0
    pieces = chop_cells(shown, width - beside) or [""]
    names = [f"{one_line(name)[:NAME_WIDTH]:<{NAME_WIDTH}} "] + [" " * beside] * (len(pieces) - 1)
    return [
        Text.assemble((before if beside else "", QUIET), (piece, style), no_wrap=True, overflow="crop")
        for before, piece in zip(names, pieces, strict=True)
    ]


def _next_turn(tab: wire.TabView, now: datetime) -> str:
    """When a newcomer is on; nobody can tell behind a person, or a command that outlasts what was expected of it."""
    holder, expected_s = tab.holder, tab.expected_wait_ms / 1_000
    if holder is not None and holder.reason in ("command", "handoff"):
        held_s = (now - datetime.fromisoformat(holder.since)).total_seconds()
        if holder.reason == "handoff" or held_s > max(OVERDUE_S, expected_s):
            return "cannot be told"
    return f"in about {span(expected_s)}"


def _tab(tab: wire.TabView, now: datetime) -> Iterator[Fact]:
    yield "tab", tab.tab_id, "bold"
    yield "agent", tab.agent_id, ""
    yield "session", tab.session_id, ""
    yield "state", tab.state, "" if tab.state == "ready" else BAD
    yield from _holder(tab, now)
    for waiter in tab.waiters:
        waited = f"{waiter.kind} of {waiter.agent_id} ({waiter.controller_id}), {ago(waiter.since, now)}"
        yield f"waiting {waiter.position}", waited, BUSY
    if tab.waiters:
        yield "next turn", _next_turn(tab, now), ""
    yield "page", tab.url, ""
    yield "title", tab.title, ""
    yield "opened", f"{ago(tab.created_at, now)} ago, {tab.provenance}, generation {tab.generation}", ""
    if tab.opener_tab_id is not None:
        yield "opened by", tab.opener_tab_id, ""


def _holder(tab: wire.TabView, now: datetime) -> Iterator[Fact]:
    holder = tab.holder
    if holder is None:
        yield "held by", "nobody", QUIET
        return
    since = f"for {ago(holder.since, now)}"
    who = holder.controller_id if holder.agent_id is None else f"{holder.agent_id} ({holder.controller_id})"
    match holder.reason:
        case "tab_lock":
            ends = f", ends in {until(holder.expires_at, now)}" if holder.expires_at else ""
            yield "locked by", f"{who}, {since}{ends}", BUSY
        case "quarantine":
            yield "quarantine", f"{since}: what ran here before has not been proven stopped", BAD
        case "rebuild":
            yield "rebuilt", f"{since}: another page is put in the place of this one", BUSY
        case "handoff":
            yield "handed to", f"{holder.controller_id}, {since}", BUSY
        case _:
            yield "held by", f"{who}, {since}", BUSY
    if holder.command_id is not None:
        yield "runs", f"{holder.kind or 'command'} {holder.command_id}", BUSY


def _task(task: wire.TaskView, now: datetime) -> Iterator[Fact]:
    yield "task", task.task_id, "bold"
    yield "agent", task.agent_id, ""
    yield "state", task.state, BUSY
    if task.position is not None:
        expected = "" if task.eta_ms is None else f", starts in about {span(task.eta_ms / 1_000)}"
        yield "place", f"{task.position}{expected}", ""
    yield "action", task.action, ""
    for name, value in (("selector", task.selector), ("ref", task.ref), ("tab", task.tab_id)):
        if value is not None:
            yield name, value, ""
    if task.session_id is not None:
        yield "session", task.session_id, ""
    if task.params:
        yield "params", _json(task.params), ""
    for number, step in enumerate(task.steps or (), 1):
        yield f"step {number}", _json(step), ""
    yield "priority", str(task.priority), ""
    yield "submitted", f"{ago(task.created_at, now)} ago", ""
    if task.started_at is not None:
        yield "started", f"{ago(task.started_at, now)} ago, attempt {task.attempts}", ""
    yield "deadline", f"in {until(task.deadline, now)}", ""
    if task.callback_url is not None:
        yield "callback", task.callback_url, ""


def _lock(lock: wire.HeldLock, now: datetime) -> Iterator[Fact]:
    yield "lock", lock.name, "bold"
    yield "held by", lock.holder or ("somebody else" if lock.held else "nobody through a server"), BUSY
    if lock.agent_id is not None:
        yield "agent", lock.agent_id, ""
    if lock.fence is not None:
        yield "fence", str(lock.fence), ""
    if lock.acquired_at is not None:
        yield "since", f"{ago(lock.acquired_at, now)} ago", ""
    if lock.expires_at is not None:
        yield "ends", f"in {until(lock.expires_at, now)} unless it is renewed", ""
    yield "waiting", str(lock.waiters), BUSY if lock.waiters else ""


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
