"""The whole screen of `top` on a terminal: the server, the place one is at, a line to talk, and the keys. Pure.

Invariants: as many lines as the height, never one wider than the width, whatever there is to show; the last line says
which keys work here, and the one above it what is asked or was done.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from .frame import header, on_one_line, overview, table
from .frame_cells import BAD, BUSY, COLUMNS, QUIET, Cells, cells
from .frame_detail import detail
from .output import one_line
from .snapshot import TASKS_MAX, Snapshot
from .top_deeds import deeds, label
from .top_lists import Place, View, find, things
from .top_model import VIEW_KEYS, Room, State, subject

# The two lines about the server, the title, the line to talk and the keys.
TOP_LINES: Final = 3
BOTTOM_LINES: Final = 2
# The headings and one row.
LIST_LEAST_LINES: Final = 2
# Where the selection is, also where there are no colours.
MARK: Final = ">"
HELP: Final = (
    ("b s t T l a e", "browsers, sessions, tabs, tasks, locks, agents, events"),
    ("k", "in the overview: tasks"),
    ("up down j k", "move the selection; also PgUp, PgDn, Home, End"),
    ("Enter", "look into it: browser, session, agent, tab, task, lock, event"),
    ("Esc Backspace", "end the search; go back"),
    ("/", "search the list"),
    ("x", "release the session, or that of the tab"),
    ("c", "cancel the task, or the command that runs on the tab"),
    ("h", "hand the tab off to a person; give it back"),
    ("u", "take the lock from its holder, also that of a tab"),
    ("r d", "restart the browser; drain it"),
    ("q Ctrl-C", "leave"),
)
HELP_KEYS_WIDTH: Final = 14


def screen(state: State, snapshot: Snapshot, now: datetime, width: int, height: int) -> RenderableType:
    """The frame that a person sees in that state."""
    bottom = [_talk(state, snapshot), _footer(state, snapshot, width)][-max(0, height) :]
    top = [*header(snapshot, now), *_title(state, snapshot)][: max(0, height - len(bottom))]
    lines = height - len(top) - len(bottom)
    body, used = _body(state, snapshot, now, width, lines)
    return Group(*map(on_one_line, top), *body, *[Text("")] * (lines - used), *map(on_one_line, bottom))


def room(state: State, snapshot: Snapshot, now: datetime, width: int, height: int) -> Room:
    """What of the place is on such a screen at once."""
    lines = height - TOP_LINES - BOTTOM_LINES
    if state.place.view is View.DETAIL:
        return Room(max(1, lines), len(_detail(state.place, snapshot, now, width)))
    # One line is for the headings.
    return Room(max(1, lines - 1))


# --- The place --------------------------------------------------------------------------------------------------


def _title(state: State, snapshot: Snapshot) -> list[Text]:
    """One line; none in the overview, which speaks for itself."""
    place = state.place
    if state.is_helping:
        return [Text("keys", "bold")]
    if place.view is View.OVERVIEW:
        return []
    of = "" if place.of is None else f"{place.of.kind} {place.of.id}"
    if place.view is View.DETAIL:
        return [Text(one_line(of), "bold")]
    name = of if place.view is View.AGENT else f"{place.view} of {of}" if of else place.view
    title = Text(one_line(f"{name}: {len(things(place, snapshot))}"), "bold")
    if place.sought and not state.is_searching:
        title.append(one_line(f" with '{place.sought}'"), BUSY)
    if place.view is View.TASKS and snapshot.has_more_tasks:
        title.append(f" (those that run and the newest that wait, {TASKS_MAX} at most; there are more)", BUSY)
    return [title]


def _body(state: State, snapshot: Snapshot, now: datetime, width: int, lines: int) -> tuple[list[RenderableType], int]:
    """What is between the title and the line to talk, and how many lines it has."""
    place = state.place
    if state.is_helping:
        shown: list[RenderableType] = [_help_line(keys, what) for keys, what in HELP[:lines]]
        return shown, len(shown)
    if place.view is View.OVERVIEW:
        tables = overview(snapshot, now, width, lines)
        return [*tables], sum(1 + drawn.row_count for drawn in tables)
    if place.view is View.DETAIL:
        told = _detail(place, snapshot, now, width)
        first = max(0, min(place.row, len(told) - lines))
        shown = [*told[first : first + lines]]
        return shown, len(shown)
    return _list(place, snapshot, now, width, lines)


def _list(place: Place, snapshot: Snapshot, now: datetime, width: int, lines: int) -> tuple[list[RenderableType], int]:
    listed = things(place, snapshot)
    if lines < LIST_LEAST_LINES:
        return [], 0
    if not listed:
        return [on_one_line(Text(one_line(_why_empty(place, snapshot)), QUIET))], 1
    first = _first_row(place.row, len(listed), lines - 1)
    shown = list(listed.items())[first : first + lines - 1]
    marked = next((number for number, (ref, _) in enumerate(shown) if ref == place.selected), None)
    rows = [_marked(cells(place.view, thing, now), number == marked) for number, (_, thing) in enumerate(shown)]
    columns = COLUMNS[place.view]
    indented = (columns[0]._replace(heading=f"  {columns[0].heading}"), *columns[1:])
    return [table(indented, rows, width, marked=marked)], 1 + len(shown)


def _marked(row: Cells, is_marked: bool) -> Cells:
    return Text.assemble(MARK if is_marked else " ", " ", row[0]), *row[1:]


def _first_row(selected: int, count: int, rows: int) -> int:
    """The selection is in the middle, except near both ends."""
    return max(0, min(selected - rows // 2, count - rows))


def _why_empty(place: Place, snapshot: Snapshot) -> str:
    if place.sought:
        return "Nothing in this list contains that."
    if refused := snapshot.refused.get(place.view):
        return refused
    return "There is none."


def _detail(place: Place, snapshot: Snapshot, now: datetime, width: int) -> list[Text]:
    assert place.of is not None, "a detail is one thing's"
    return detail(place.of, snapshot, now, width)


def _help_line(keys: str, what: str) -> Text:
    return on_one_line(Text.assemble((f"{keys:<{HELP_KEYS_WIDTH}} ", "bold"), what))


# --- The last lines ---------------------------------------------------------------------------------------------


def _talk(state: State, snapshot: Snapshot) -> Text:
    """What is asked, typed, under way, or was said last; the most pressing of these."""
    if state.question is not None:
        return Text.assemble((one_line(state.question.question), BUSY), (" y/N", "bold"))
    if state.is_searching:
        return Text(one_line(f"/{state.place.sought}_"), "bold")
    if state.said is not None:
        return Text(one_line(state.said.text), BAD if state.said.is_bad else "")
    if state.under_way is not None:
        return Text(one_line(f"{state.under_way.meanwhile} …"), BUSY)
    selected = state.place.selected
    if selected is not None and selected not in things(state.place, snapshot):
        what = "is gone" if find(selected, snapshot) is None else "is no longer in this list"
        return Text(one_line(f"{selected.kind} {selected.id} {what}."), BAD)
    return Text("")


def _footer(state: State, snapshot: Snapshot, width: int) -> Text:
    """The keys that work here; where not all fit, the last ones before help and leaving are left out."""
    here, always = _keys(state, snapshot)
    for gap in (2, 1):
        if _width(here + always, gap) <= width:
            return _keys_line(here + always, gap)
    while here and _width(here + always, 1) > width:
        here = here[:-1]
    return _keys_line(here + always, 1)


def _keys(state: State, snapshot: Snapshot) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    if state.question is not None:
        return [], [("y", "yes"), ("any other key", "no")]
    if state.is_searching:
        return [], [("Enter", "keep"), ("Esc", "clear"), ("Backspace", "delete")]
    if state.is_helping:
        return [], [("any key", "goes back")]
    always = [("?", "keys"), ("q", "leave")]
    if state.place.view is View.OVERVIEW:
        return [(key, view.value) for key, view in VIEW_KEYS.items()], always
    acts = [(key, label(key, deed)) for key, deed in deeds(subject(state, snapshot), snapshot).items()]
    back = ("Esc", "all" if state.place.sought else "back")
    moves = [] if state.place.view is View.DETAIL else [("Enter", "open"), ("/", "search")]
    return [*acts, back, *moves, ("jk", "move"), ("".join(VIEW_KEYS), "views")], always


def _width(keys: list[tuple[str, str]], gap: int) -> int:
    return sum(len(key) + 1 + len(what) for key, what in keys) + gap * (len(keys) - 1)


def _keys_line(keys: list[tuple[str, str]], gap: int) -> Text:
    line = Text(style=QUIET)
    for each, (key, what) in enumerate(keys):
        line.append(" " * gap if each else "").append(key, "bold not dim").append(f" {what}")
    return line
