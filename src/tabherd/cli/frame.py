"""One frame of `top`: a snapshot as lines that fit a terminal. Pure.

Invariants: never more lines than the height, never a line wider than the width, and a section that is cut says by how
much. When there is little room, every section gets a row before one of them gets two.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .. import wire
from .output import printable
from .snapshot import Snapshot

HEADER_LINES: Final = 2
# A heading and one row.
SECTION_LEAST_LINES: Final = 2
GOOD, BAD, BUSY, QUIET, HEADING = "green", "bold red", "yellow", "dim", "bold cyan"


class Column(NamedTuple):
    """A heading, and how a cell that does not fit is treated."""

    heading: str
    # Shares what is left of the width and may be cut; the others keep theirs.
    is_elastic: bool = False


class Section(NamedTuple):
    columns: tuple[Column, ...]
    rows: list[tuple[Text | str, ...]]


def draw(snapshot: Snapshot, now: datetime, *, height: int | None, is_cut: bool) -> RenderableType:
    """The frame; without a height all its rows, and uncut all of each of them."""
    sections = _sections(snapshot, now)
    counts = [len(section.rows) for section in sections]
    shown = counts if height is None else deal(counts, height - HEADER_LINES)
    tables = [_table(section, rows, is_cut) for section, rows in zip(sections, shown, strict=True) if rows]
    return Group(*_header(snapshot, now), *tables)


def deal(wanted: Sequence[int], lines: int) -> list[int]:
    """How many rows each section shows: one after the other gets one more, until no line is left or none is wanted.

    The first row of a section costs two lines, for its heading.
    """
    dealt = [0] * len(wanted)
    is_hungry = True
    while is_hungry:
        is_hungry = False
        for each, want in enumerate(wanted):
            cost = 1 if dealt[each] else SECTION_LEAST_LINES
            if dealt[each] < want and cost <= lines:
                dealt[each] += 1
                lines -= cost
                is_hungry = True
    return dealt


def _header(snapshot: Snapshot, now: datetime) -> tuple[Text, Text]:
    clock = f"{now.astimezone():%H:%M:%S}"
    condition, style = _condition(snapshot)
    first = Text.assemble(
        (f"tabherd {snapshot.version}", "bold"), f"  {snapshot.url}  ", (condition, style), f"  {clock}"
    )
    if snapshot.problem:
        # What matters most comes first: the line may be cut.
        second = Text(f"What is shown is from before; trying again. {printable(snapshot.problem)}", BAD)
    else:
        waiting = sum(pool.waiting for pool in snapshot.pools.values())
        sessions = sum(load.sessions for load in snapshot.agents.values())
        in_line = sum(len(tab.waiters) for tab in snapshot.tabs)
        second = Text(
            f"agents {len(snapshot.agents)}  sessions {sessions}  tabs {len(snapshot.tabs)}  "
            f"waiting for a session {waiting}, for a tab {in_line}",
            QUIET,
        )
    for line in (first, second):
        line.no_wrap, line.overflow = True, "ellipsis"
    return first, second


def _condition(snapshot: Snapshot) -> tuple[str, str]:
    if not snapshot.is_connected:
        return "no answer", BAD
    if snapshot.is_draining:
        return "draining", BUSY
    return ("ready", GOOD) if snapshot.is_ready else ("no browser is ready", BAD)


def _sections(snapshot: Snapshot, now: datetime) -> list[Section]:
    return [
        Section(_columns("pool*", "active", "capacity", "waiting", "pooled", "warm", "browsers"), _pools(snapshot)),
        Section(_columns("browser", "pool*", "state", "pid", "sessions", "memory", "CPU"), _browsers(snapshot)),
        Section(_columns("agent*", "sessions", "tabs", "held", "waiting"), _agents(snapshot)),
        Section(_columns("tab", "agent*", "held by", "waiting", "page*"), _tabs(snapshot, now)),
        Section(_columns("at", "event", "what*"), _events(snapshot)),
    ]


def _columns(*headings: str) -> tuple[Column, ...]:
    return tuple(Column(heading.removesuffix("*"), heading.endswith("*")) for heading in headings)


def _pools(snapshot: Snapshot) -> list[tuple[Text | str, ...]]:
    return [
        (
            name,
            _full(pool.active, pool.capacity),
            str(pool.capacity),
            _alarming(pool.waiting),
            str(pool.pooled),
            str(pool.stock),
            str(pool.browsers),
        )
        for name, pool in snapshot.pools.items()
    ]


def _browsers(snapshot: Snapshot) -> list[tuple[Text | str, ...]]:
    return [
        (
            browser.browser_id,
            browser.pool,
            _browser_state(browser),
            str(browser.pid),
            str(browser.sessions),
            "-" if browser.memory_bytes is None else f"{browser.memory_bytes >> 20} MB",
            "-" if browser.cpu_percent is None else f"{browser.cpu_percent:.0f} %",
        )
        for browser in snapshot.browsers
    ]


def _browser_state(browser: wire.BrowserView) -> Text:
    if browser.suspect:
        return Text("suspect", BAD)
    return Text(browser.state, {"ready": GOOD, "crashed": BAD, "broken": BAD}.get(browser.state, BUSY))


def _agents(snapshot: Snapshot) -> list[tuple[Text | str, ...]]:
    return [
        (agent, str(load.sessions), str(load.tabs), str(load.held), _alarming(load.waiting))
        for agent, load in snapshot.agents.items()
    ]


def _tabs(snapshot: Snapshot, now: datetime) -> list[tuple[Text | str, ...]]:
    """Those that are waited for most come first, then those that somebody has."""
    tabs = sorted(snapshot.tabs, key=lambda tab: (-len(tab.waiters), tab.holder is None, tab.tab_id))
    return [
        (tab.tab_id, tab.agent_id, _holder(tab, now), _alarming(len(tab.waiters)), printable(tab.url)) for tab in tabs
    ]


def _holder(tab: wire.TabView, now: datetime) -> Text:
    if tab.holder is None:
        return Text("" if tab.state == "ready" else tab.state, QUIET if tab.state == "ready" else BAD)
    held_s = max(0, int((now - datetime.fromisoformat(tab.holder.since)).total_seconds()))
    what = tab.holder.kind or tab.holder.reason
    return Text(f"{printable(what)} {held_s}s", BAD if tab.holder.reason == "quarantine" else BUSY)


def _events(snapshot: Snapshot) -> list[tuple[Text | str, ...]]:
    """The newest first: what is cut is the oldest."""
    return [
        (
            Text(str(event.get("at", ""))[11:19], QUIET),
            str(event.get("type", "")),
            printable(" ".join(f"{name}={event[name]}" for name in event if name not in ("id", "type", "at"))),
        )
        for event in reversed(snapshot.events)
    ]


def _alarming(count: int) -> Text:
    return Text(str(count), BUSY if count else "")


def _full(active: int, capacity: int) -> Text:
    return Text(str(active), BUSY if active >= capacity else "")


def _table(section: Section, shown: int, is_cut: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style=HEADING, expand=is_cut)
    for column in section.columns:
        heading = column.heading
        if column is section.columns[-1] and shown < len(section.rows):
            heading += f" ({len(section.rows) - shown} more)"
        ratio = 1 if is_cut and column.is_elastic else None
        table.add_column(heading, no_wrap=True, overflow="ellipsis", ratio=ratio)
    for row in section.rows[:shown]:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table
