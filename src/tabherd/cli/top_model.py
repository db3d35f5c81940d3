"""What a key does in `top`: a state and a key make the next state, or a deed that is to be carried out. Pure.

Invariants: the selection sticks to a thing, not to a row, and is nobody's once that thing is gone until a person moves
it; nothing is done to anything before its own question was answered with y; one deed is under way at a time.
"""

from __future__ import annotations

from typing import Final, NamedTuple, assert_never

import msgspec

from . import top_keys as k
from .snapshot import Snapshot
from .top_deeds import ACT_KEYS, Deed, deeds, missing
from .top_lists import Kind, Place, Ref, View, find, things

# The key that goes to each view, from everywhere; k does in the overview what T does, where it moves nothing.
VIEW_KEYS: Final = {
    "b": View.BROWSERS,
    "s": View.SESSIONS,
    "t": View.TABS,
    "T": View.TASKS,
    "l": View.LOCKS,
    "a": View.AGENTS,
    "e": View.EVENTS,
}
LEAVE_KEYS: Final = ("q", "Q")
SOUGHT_MAX: Final = 100
OVERVIEW: Final = Place(view=View.OVERVIEW)


class Said(NamedTuple):
    """One line about what was done, or why it was not."""

    text: str
    is_bad: bool = False


class Room(NamedTuple):
    """What fits on the screen."""

    # Rows of a list, or lines of a detail, that are shown at once.
    rows: int
    # Lines that the detail has; 0 in lists.
    lines: int = 0


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Where a person is; together with a snapshot, all that a screen shows."""

    # The way here; the last one is on the screen. Drilling down ends with a detail, so it is never long.
    places: tuple[Place, ...] = (OVERVIEW,)
    # What is typed goes into the search.
    is_searching: bool = False
    # The keys are shown instead of the place.
    is_helping: bool = False
    # Waits for y.
    question: Deed | None = None
    under_way: Deed | None = None
    said: Said | None = None
    is_leaving: bool = False

    @property
    def place(self) -> Place:
        return self.places[-1]


def subject(state: State, snapshot: Snapshot) -> Ref | None:
    """What a deed would be done to: what is told of, or what is selected for as long as it is listed."""
    place = state.place
    if place.view is View.DETAIL:
        return place.of
    return place.selected if place.selected in things(place, snapshot) else None


def press(state: State, key: str, snapshot: Snapshot, room: Room) -> tuple[State, Deed | None]:
    """The state after that key, and what is to be done now."""
    if state.question is not None:
        return _answer(state, state.question, key)
    state = msgspec.structs.replace(state, said=None)
    if state.is_helping:
        # Whichever key it was, it was pressed to see the rest again.
        return msgspec.structs.replace(state, is_helping=False), None
    if state.is_searching:
        return settle(_search(state, key, snapshot), snapshot), None
    return settle(_browse(state, key, snapshot, room), snapshot), None


def settle(state: State, snapshot: Snapshot) -> State:
    """The state as it is with what is there now: the selection is found again wherever it has moved to."""
    refs = list(things(state.place, snapshot))
    selected = state.place.selected
    if selected is None and refs:
        return _here(state, selected=refs[0], row=0)
    if selected in refs:
        return _here(state, row=refs.index(selected))
    # It is gone, or there is nothing to select: who moves on moves on from where it was.
    return state


def carried_out(state: State, said: Said) -> State:
    """The state once the deed that was under way is done, or has failed."""
    return msgspec.structs.replace(state, under_way=None, said=said)


# --- Parts ------------------------------------------------------------------------------------------------------


def _answer(state: State, deed: Deed, key: str) -> tuple[State, Deed | None]:
    if key in ("y", "Y"):
        return msgspec.structs.replace(state, question=None, under_way=deed, said=None), deed
    return msgspec.structs.replace(state, question=None, said=Said("Nothing was done.")), None


def _search(state: State, key: str, snapshot: Snapshot) -> State:
    sought = state.place.sought
    match key:
        case k.ENTER:
            return msgspec.structs.replace(state, is_searching=False)
        case k.ESCAPE:
            return _sought(msgspec.structs.replace(state, is_searching=False), "", snapshot)
        case k.BACKSPACE if not sought:
            return msgspec.structs.replace(state, is_searching=False)
        case k.BACKSPACE:
            return _sought(state, sought[:-1], snapshot)
        case _ if len(key) == 1 and len(sought) < SOUGHT_MAX:
            return _sought(state, sought + key, snapshot)
        case _:
            return state


def _browse(state: State, key: str, snapshot: Snapshot, room: Room) -> State:
    if key in LEAVE_KEYS:
        return msgspec.structs.replace(state, is_leaving=True)
    if key == "?":
        return msgspec.structs.replace(state, is_helping=True)
    view = state.place.view
    if key in VIEW_KEYS or (view is View.OVERVIEW and key == "k"):
        there = Place(view=VIEW_KEYS.get(key, View.TASKS))
        return msgspec.structs.replace(state, places=(OVERVIEW, there))
    if key in ACT_KEYS:
        return _ask(state, key, snapshot)
    if key in (k.ESCAPE, k.BACKSPACE):
        return _go_back(state, snapshot)
    if view is View.OVERVIEW:
        return state
    if key == "/" and view is not View.DETAIL:
        return msgspec.structs.replace(state, is_searching=True)
    if key == k.ENTER:
        return _drill_down(state, snapshot)
    return _move(state, key, snapshot, room)


def _ask(state: State, key: str, snapshot: Snapshot) -> State:
    ref = subject(state, snapshot)
    deed = deeds(ref, snapshot).get(key)
    if state.under_way is not None:
        return msgspec.structs.replace(state, said=Said(f"{state.under_way.meanwhile} goes on; wait for it."))
    if deed is None:
        thing = None if ref is None else find(ref, snapshot)
        return msgspec.structs.replace(state, said=Said(missing(key, thing)))
    return msgspec.structs.replace(state, question=deed)


def _go_back(state: State, snapshot: Snapshot) -> State:
    if state.place.sought:
        return _sought(state, "", snapshot)
    return state if len(state.places) == 1 else msgspec.structs.replace(state, places=state.places[:-1])


def _drill_down(state: State, snapshot: Snapshot) -> State:
    ref = None if state.place.view is View.DETAIL else subject(state, snapshot)
    if ref is None:
        return state
    return msgspec.structs.replace(state, places=(*state.places, Place(view=_inside(ref.kind), of=ref)))


def _inside(kind: Kind) -> View:
    match kind:
        case Kind.BROWSER:
            return View.SESSIONS
        case Kind.SESSION:
            return View.TABS
        case Kind.AGENT:
            return View.AGENT
        case Kind.TAB | Kind.TASK | Kind.LOCK | Kind.EVENT:
            return View.DETAIL
        case _:
            assert_never(kind)


def _move(state: State, key: str, snapshot: Snapshot, room: Room) -> State:
    place = state.place
    refs = list(things(place, snapshot))
    last = room.lines - room.rows if place.view is View.DETAIL else len(refs) - 1
    is_gone = place.selected is not None and place.selected not in refs
    # What has come into the place of something that is gone is the next one already.
    down = 0 if is_gone else 1
    steps = {
        k.UP: -1,
        "k": -1,
        k.DOWN: down,
        "j": down,
        k.PAGE_UP: -room.rows,
        k.PAGE_DOWN: room.rows,
        k.HOME: -place.row,
        k.END: max(0, last - place.row),
    }
    if key not in steps:
        return state
    row = max(0, min(place.row + steps[key], last))
    return _here(state, row=row, selected=refs[row] if refs else place.selected)


def _sought(state: State, sought: str, snapshot: Snapshot) -> State:
    """Another search selects what it finds first, unless it finds what was selected before."""
    there = _here(state, sought=sought)
    return there if there.place.selected in things(there.place, snapshot) else _here(there, selected=None, row=0)


def _here(state: State, **changes: object) -> State:
    place = msgspec.structs.replace(state.place, **changes)
    return msgspec.structs.replace(state, places=(*state.places[:-1], place))
