"""The overview of `top`: a snapshot as sections that share the lines of a terminal. Pure.

Invariants: never more lines than the height, never a line wider than the width, and a section that is cut says by how
much. When there is little room, every section gets a row before one of them gets two.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .frame_cells import (
    BAD,
    BUSY,
    COLUMNS,
    GOOD,
    HEADING,
    POOL_COLUMNS,
    QUIET,
    WAITER_COLUMNS,
    Cells,
    Column,
    cells,
    pool_rows,
    waiter_rows,
)
from .output import one_line
from .snapshot import Snapshot
from .top_lists import Place, View, things

HEADER_LINES: Final = 2
# A heading and one row.
SECTION_LEAST_LINES: Final = 2
# Between two columns.
GAP: Final = 2
# With less a column that may be cut says nothing.
ELASTIC_LEAST: Final = 12
# The lists that are part of the overview, besides pools and who waits for a session.
LISTED: Final = (View.BROWSERS, View.AGENTS, View.LOCKS, View.TABS, View.EVENTS)


class Section(NamedTuple):
    columns: tuple[Column, ...]
    rows: list[Cells]


def draw(snapshot: Snapshot, now: datetime, *, width: int | None, height: int | None) -> RenderableType:
    """The frame; without a height all its rows, and without a width all of each of them."""
    room = None if height is None else height - HEADER_LINES
    return Group(*header(snapshot, now), *overview(snapshot, now, width, room))


def overview(snapshot: Snapshot, now: datetime, width: int | None, height: int | None) -> list[Table]:
    """The sections of which something can be shown."""
    sections = _sections(snapshot, now)
    counts = [len(section.rows) for section in sections]
    shown = counts if height is None else deal(counts, height)
    return [
        table(section.columns, section.rows[:rows], width, more=len(section.rows) - rows)
        for section, rows in zip(sections, shown, strict=True)
        if rows
    ]


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


def header(snapshot: Snapshot, now: datetime) -> tuple[Text, Text]:
    """Which server, how it is, and how much there is of everything."""
    clock = f"{now.astimezone():%H:%M:%S}"
    condition, style = _condition(snapshot)
    first = Text.assemble(
        (f"tabherd {one_line(snapshot.version)}", "bold"), f"  {snapshot.url}  ", (condition, style), f"  {clock}"
    )
    if snapshot.problem:
        # What matters most comes first: the line may be cut.
        second = Text(f"What is shown is from before; trying again. {one_line(snapshot.problem)}", BAD)
    else:
        waiting = sum(pool.waiting for pool in snapshot.pools.values())
        sessions = sum(pool.active for pool in snapshot.pools.values())
        in_line = sum(len(tab.waiters) for tab in snapshot.tabs)
        running, queued = snapshot.queue.total_inflight, snapshot.queue.total_queued
        second = Text(
            f"sessions {sessions} ({waiting} waiting)  tabs {len(snapshot.tabs)} ({in_line} waiting)  "
            f"tasks {running} ({queued} waiting)  agents {len(snapshot.agents)}",
            QUIET,
        )
    return on_one_line(first), on_one_line(second)


def on_one_line(line: Text) -> Text:
    """The same, cut where it does not fit."""
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def table(
    columns: Sequence[Column], rows: Sequence[Cells], width: int | None, *, more: int = 0, marked: int | None = None
) -> Table:
    """The rows, one line each, with the columns that have room; the first heading says how many more there are."""
    headings = [column.heading for column in columns]
    if more:
        headings[0] += f" ({more} more)"
    kept = range(len(columns)) if width is None else fitting(columns, [headings, *rows], width)
    drawn = Table(box=None, pad_edge=False, header_style=HEADING, expand=width is not None)
    for each in kept:
        ratio = columns[each].share or None if width is not None else None
        drawn.add_column(headings[each], no_wrap=True, overflow="ellipsis", ratio=ratio)
    for number, row in enumerate(rows):
        # As texts, because brackets in a string would be markup.
        cells = (Text(cell) if isinstance(cell, str) else cell for cell in (row[each] for each in kept))
        drawn.add_row(*cells, style="reverse" if number == marked else "")
    return drawn


def fitting(columns: Sequence[Column], rows: Sequence[Sequence[Text | str]], width: int) -> list[int]:
    """Which columns are shown: spare ones go, one after the other, until there is room for the rest."""
    widths = [max(cell_len(str(row[each])) for row in rows) for each in range(len(columns))]
    needs = [min(need, ELASTIC_LEAST) if columns[each].share else need for each, need in enumerate(widths)]
    kept = list(range(len(columns)))
    for each in sorted((each for each in kept if columns[each].spare), key=lambda each: columns[each].spare):
        if sum(needs[each] for each in kept) + GAP * (len(kept) - 1) <= width:
            break
        kept.remove(each)
    return kept


def _condition(snapshot: Snapshot) -> tuple[str, str]:
    if not snapshot.is_connected:
        return "no answer", BAD
    if snapshot.is_draining:
        return "draining", BUSY
    return ("ready", GOOD) if snapshot.is_ready else ("no browser is ready", BAD)


def _sections(snapshot: Snapshot, now: datetime) -> list[Section]:
    lists = [
        Section(COLUMNS[view], [cells(view, thing, now) for thing in things(Place(view=view), snapshot).values()])
        for view in LISTED
    ]
    waiters = Section(WAITER_COLUMNS, waiter_rows(snapshot, now))
    return [Section(POOL_COLUMNS, pool_rows(snapshot)), waiters, *lists]
