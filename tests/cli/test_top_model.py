"""What keys do in `top`: where they lead, what they ask, and that nothing is done before its question was answered."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from tests.cli.top_crowd import HOLDER, LOCKED, crowd, lock, session, snapshot, tab, task

from tabherd.cli import top_keys as k
from tabherd.cli.snapshot import Snapshot
from tabherd.cli.top_deeds import Act, Deed
from tabherd.cli.top_lists import Kind, Place, Ref, View, things
from tabherd.cli.top_model import SOUGHT_MAX, VIEW_KEYS, Room, Said, State, carried_out, press, settle

ROOM = Room(rows=10)


def after(keys: Iterable[str], shown: Snapshot, state: State | None = None, room: Room = ROOM) -> State:
    state = settle(state or State(), shown)
    for key in keys:
        state, deed = press(state, key, shown, room)
        assert deed is None, f"{key} did {deed}"
    return state


def asked(keys: Iterable[str], shown: Snapshot) -> Deed:
    question = after(keys, shown).question
    assert question is not None
    return question


def selected(state: State) -> str:
    assert state.place.selected is not None
    return state.place.selected.id


# --- Going places -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "view"), [*VIEW_KEYS.items(), ("k", View.TASKS)])
def test_a_key_goes_from_the_overview_to_a_list_and_escape_back(key: str, view: View) -> None:
    there = after(key, crowd())
    assert there.place.view is view
    assert after([k.ESCAPE], crowd(), there).place.view is View.OVERVIEW


@pytest.mark.parametrize("key", VIEW_KEYS)
def test_a_list_is_reached_from_everywhere_and_is_one_step_from_the_overview(key: str) -> None:
    state = after(["a", k.DOWN, k.ENTER, k.ENTER, k.ENTER, key], crowd())
    assert [place.view for place in state.places] == [View.OVERVIEW, VIEW_KEYS[key]]


def test_escape_in_the_overview_stays_there() -> None:
    assert after([k.ESCAPE, k.BACKSPACE, k.ENTER, k.DOWN, "/"], crowd()) == State()


@pytest.mark.parametrize(
    ("keys", "views"),
    [
        (["b", k.ENTER], [View.BROWSERS, View.SESSIONS]),
        (["b", k.ENTER, k.ENTER, k.ENTER], [View.BROWSERS, View.SESSIONS, View.TABS, View.DETAIL]),
        (["a", k.ENTER], [View.AGENTS, View.AGENT]),
        (["a", k.DOWN, k.ENTER, k.ENTER], [View.AGENTS, View.AGENT, View.TABS]),
        (["a", k.DOWN, k.ENTER, k.DOWN, k.ENTER], [View.AGENTS, View.AGENT, View.DETAIL]),
        (["T", k.ENTER], [View.TASKS, View.DETAIL]),
        (["l", k.ENTER], [View.LOCKS, View.DETAIL]),
        (["e", k.ENTER], [View.EVENTS, View.DETAIL]),
    ],
)
def test_enter_looks_into_what_is_selected(keys: list[str], views: list[View]) -> None:
    assert [place.view for place in after(keys, crowd()).places] == [View.OVERVIEW, *views]


def test_a_browser_has_its_sessions_and_a_session_its_tabs() -> None:
    inside = after(["b", k.DOWN, k.ENTER], crowd(6))
    assert [ref.id[-1] for ref in things(inside.place, crowd(6))] == ["1", "3", "5"]
    deeper = after([k.DOWN, k.ENTER], crowd(6), inside)
    assert list(things(deeper.place, crowd(6))) == [Ref(Kind.TAB, f"tab_{3:023}")]


def test_an_agent_has_its_sessions_with_their_tabs_and_then_what_it_waits_for() -> None:
    shown = snapshot(
        [tab(1), tab(2), tab(3, "carol", waiters=["bob", "bob"])],
        sessions=[session(1), session(2), session(3, "carol")],
    )
    alice = Place(view=View.AGENT, of=Ref(Kind.AGENT, "alice"))
    assert [ref.id.replace("0", "") for ref in things(alice, shown)] == ["ses_1", "tab_1", "ses_2", "tab_2"]
    bob = Place(view=View.AGENT, of=Ref(Kind.AGENT, "bob"))
    assert [ref.id.replace("0", "") for ref in things(bob, shown)] == ["tab_3"]


def test_the_selection_is_where_it_was_after_coming_back() -> None:
    state = after(["s", k.DOWN, k.DOWN, k.ENTER, k.ESCAPE], crowd())
    assert selected(state) == f"ses_{2:023}"


@pytest.mark.parametrize("key", ["q", "Q"])
def test_q_leaves_from_everywhere(key: str) -> None:
    assert after(["t", k.ENTER, key], crowd()).is_leaving
    assert after([key], crowd()).is_leaving


def test_help_is_shown_until_the_next_key_which_does_nothing_else() -> None:
    state = after(["s", "?"], crowd())
    assert state.is_helping
    assert after(["q"], crowd(), state) == after(["s"], crowd())


# --- The selection ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "row"),
    [
        ([], 0),
        (["j", k.DOWN], 2),
        (["j", "k", "k"], 0),
        ([k.PAGE_DOWN], 10),
        ([k.PAGE_DOWN] * 9, 29),
        ([k.END], 29),
        ([k.END, k.PAGE_UP, k.UP], 18),
        ([k.END, k.HOME], 0),
    ],
)
def test_keys_move_the_selection_and_never_beyond_the_ends(keys: list[str], row: int) -> None:
    assert selected(after(["s", *keys], crowd())) == f"ses_{row:023}"


def test_the_selection_sticks_to_the_thing_when_rows_come_and_go_above_it() -> None:
    state = after(["s", k.DOWN, k.DOWN], crowd())
    fewer = msgspec.structs.replace(crowd(), sessions=[session(n) for n in (2, 5)])
    assert selected(settle(state, fewer)) == f"ses_{2:023}"
    assert selected(after([k.DOWN], fewer, state)) == f"ses_{5:023}"
    # And with the things that another order has put elsewhere.
    tabs = after(["t", k.END], snapshot([tab(1), tab(2)]))
    assert selected(settle(tabs, snapshot([tab(1), tab(2, waiters=["bob"])]))) == f"tab_{2:023}"


def test_what_is_gone_stays_selected_and_nothing_can_be_done_to_what_took_its_row() -> None:
    state = after(["s", k.DOWN], crowd())
    without = msgspec.structs.replace(crowd(), sessions=[session(n) for n in (0, 2, 3)])
    gone = settle(state, without)
    assert selected(gone) == f"ses_{1:023}"
    told = after(["x"], without, gone)
    assert (told.question, told.said) == (None, Said("There is nothing to release here."))
    assert after([k.ENTER], without, gone).place.view is View.SESSIONS


def test_nothing_is_done_to_a_tab_from_the_list_of_locks_once_it_is_not_locked_any_more() -> None:
    state = after(["l"], snapshot([tab(1, holder=LOCKED)]))
    unlocked = snapshot([tab(1)])
    told = after(["x"], unlocked, state)
    assert (told.question, told.said) == (None, Said("There is nothing to release here."))
    assert after([k.ENTER], unlocked, state).place.view is View.LOCKS


@pytest.mark.parametrize(("key", "number"), [(k.DOWN, 2), (k.UP, 0)])
def test_from_what_is_gone_one_moves_on_to_its_neighbours(key: str, number: int) -> None:
    gone = after(["s", k.DOWN], crowd())
    without = msgspec.structs.replace(crowd(), sessions=[session(n) for n in (0, 2, 3)])
    assert selected(after([key], without, gone)) == f"ses_{number:023}"


def test_a_list_that_was_empty_selects_what_comes_first() -> None:
    empty = after(["s", k.DOWN, k.END, k.ENTER], snapshot([]))
    assert empty.place.selected is None
    assert selected(settle(empty, crowd())) == f"ses_{0:023}"


def test_a_lock_that_is_called_like_a_tab_is_not_that_tab() -> None:
    name = f"tab_{1:023}"
    shown = snapshot([tab(1, holder=LOCKED)], locks=[lock(name)])
    assert {ref.kind for ref in things(Place(view=View.LOCKS), shown)} == {Kind.TAB, Kind.LOCK}


def test_a_detail_is_scrolled_no_further_than_its_last_line() -> None:
    room = Room(rows=5, lines=12)
    detail = after(["t", k.ENTER], crowd())
    assert after([k.DOWN, k.PAGE_DOWN], crowd(), detail, room).place.row == 6
    assert after([k.PAGE_DOWN] * 5, crowd(), detail, room).place.row == 7
    assert after([k.END, k.UP], crowd(), detail, room).place.row == 6
    assert after([k.DOWN], crowd(), detail, Room(rows=20, lines=12)).place.row == 0


# --- Searching --------------------------------------------------------------------------------------------------


def test_a_search_lists_only_what_contains_it_and_selects_the_first_of_it() -> None:
    shown = snapshot([tab(1), tab(2, url="https://Shop.test/"), tab(3, title="shop")])
    state = after(["t", "/", *"SHOP", k.ENTER], shown)
    assert [ref.id[-1] for ref in things(state.place, shown)] == ["2", "3"]
    assert (selected(state)[-1], state.is_searching) == ("2", False)


def test_the_selection_is_kept_by_a_search_that_finds_it_and_when_it_is_ended() -> None:
    state = after(["t", k.END, "/", *"x.test"], snapshot([tab(1), tab(2)]))
    assert selected(state)[-1] == "2"
    assert selected(after([k.ENTER, k.ESCAPE], snapshot([tab(1), tab(2)]), state))[-1] == "2"


def test_keys_are_letters_while_one_searches() -> None:
    state = after(["s", "/", *"qxy?"], crowd())
    assert (state.place.sought, state.is_leaving, state.question) == ("qxy?", False, None)


@pytest.mark.parametrize(
    ("keys", "sought", "is_searching"),
    [
        ([k.BACKSPACE], "a", True),
        ([k.BACKSPACE, k.BACKSPACE], "", True),
        ([k.BACKSPACE, k.BACKSPACE, k.BACKSPACE], "", False),
        ([k.ESCAPE], "", False),
        ([k.ENTER, k.ESCAPE], "", False),
        ([k.UP], "ab", True),
    ],
)
def test_what_is_searched_for_can_be_taken_back(keys: list[str], sought: str, is_searching: bool) -> None:
    state = after(["s", "/", "a", "b", *keys], crowd())
    assert (state.place.sought, state.is_searching, state.place.view) == (sought, is_searching, View.SESSIONS)


def test_what_is_searched_for_is_bounded() -> None:
    assert len(after(["s", "/", *"a" * 1_000], crowd()).place.sought) == SOUGHT_MAX


# --- Deeds ------------------------------------------------------------------------------------------------------

HELD = snapshot([tab(1, holder=HOLDER)], sessions=[session(1)], tasks=[task(9)], locks=[lock(fence=5)])


@pytest.mark.parametrize(
    ("keys", "act", "target"),
    [
        (["s", "x"], Act.RELEASE, f"ses_{1:023}"),
        (["t", "x"], Act.RELEASE, f"ses_{1:023}"),
        (["t", k.ENTER, "x"], Act.RELEASE, f"ses_{1:023}"),
        (["a", k.ENTER, "x"], Act.RELEASE, f"ses_{1:023}"),
        (["T", "c"], Act.CANCEL_TASK, f"tsk_{9:023}"),
        (["T", k.ENTER, "c"], Act.CANCEL_TASK, f"tsk_{9:023}"),
        (["t", "c"], Act.CANCEL_COMMAND, "cmd_1"),
        (["t", "h"], Act.HAND_OFF, f"tab_{1:023}"),
        (["l", "u"], Act.FREE_LOCK, "deploy"),
        (["b", "r"], Act.RESTART, f"brw_{0:023}"),
        (["b", "d"], Act.DRAIN, f"brw_{0:023}"),
    ],
)
def test_a_deed_is_asked_about_and_done_with_y_only(keys: list[str], act: Act, target: str) -> None:
    state = after(keys, HELD)
    deed = state.question
    assert deed is not None
    assert (deed.act, deed.id) == (act, target)
    done, doing = press(state, "y", HELD, ROOM)
    assert (doing, done.under_way, done.question) == (deed, deed, None)


@pytest.mark.parametrize("key", ["n", "N", k.ENTER, k.ESCAPE, "q", "x", " "])
def test_any_other_key_means_no(key: str) -> None:
    state, deed = press(after(["s", "x"], HELD), key, HELD, ROOM)
    assert (deed, state.question, state.under_way, state.is_leaving) == (None, None, None, False)
    assert state.said == Said("Nothing was done.")


def test_the_question_names_the_thing_and_whose_it_is() -> None:
    assert asked(["s", "x"], HELD).question == f"Release session ses_{1:023} of alice?"
    assert asked(["T", "c"], HELD).question == f"Cancel task tsk_{9:023} (text) of alice?"
    assert asked(["t", "c"], HELD).question == f"Cancel the click that runs on tab_{1:023}?"
    assert asked(["l", "u"], HELD).question == "Take the lock deploy from bob/ci?"
    assert asked(["b", "r"], HELD).question == f"Restart brw_{0:023} with 1 session?"


@pytest.mark.parametrize("keys", [["s", "x"], ["t", "x"]])
def test_only_the_lease_that_was_shown_is_released(keys: list[str]) -> None:
    assert asked(keys, HELD).fence == 7


def test_a_lock_is_taken_from_the_holder_that_was_shown_only() -> None:
    locked = snapshot([tab(1, holder=LOCKED)])
    for keys in (["l", "u"], ["t", "u"]):
        deed = asked(keys, locked)
        assert (deed.act, deed.id, deed.holder) == (Act.FREE_TAB, f"tab_{1:023}", "c")
    assert asked(["l", "u"], HELD).fence == 5


def test_a_lock_that_nobody_has_through_a_server_is_taken_from_nobody() -> None:
    state = after(["l", "u"], snapshot([], locks=[lock(held=False, waiters=1)]))
    assert state.said == Said("There is nothing to unlock here.")


def test_a_session_that_is_not_listed_is_released_without_its_fence() -> None:
    assert asked(["t", "x"], snapshot([tab(1)])).fence is None


def test_what_is_asked_about_stays_the_same_when_the_list_changes() -> None:
    state = after(["s", "x"], HELD)
    changed = settle(state, crowd())
    assert press(changed, "y", crowd(), ROOM)[1] == state.question


def test_a_tab_that_a_person_has_is_given_back() -> None:
    paused = snapshot([tab(1, state="paused", holder=HOLDER | {"reason": "handoff"})])
    assert asked(["t", "h"], paused).act is Act.GIVE_BACK


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["x"], "There is nothing to release here."),
        (["b", "c"], "There is nothing to cancel here."),
        (["T", "r"], "There is nothing to restart here."),
        (["t", "c"], f"No command runs on tab_{1:023}."),
        (["e", "d"], "There is nothing to drain here."),
    ],
)
def test_where_a_deed_makes_no_sense_that_is_said(keys: list[str], said: str) -> None:
    state = after(keys, snapshot([tab(1)], tasks=[task(1)]))
    assert (state.said, state.question) == (Said(said), None)


def test_one_deed_is_under_way_at_a_time() -> None:
    busy, _ = press(after(["s", "x"], HELD), "y", HELD, ROOM)
    second = after(["x"], HELD, busy)
    assert second.question is None
    assert second.said is not None
    over = carried_out(second, Said("Released."))
    assert (over.said, over.under_way) == (Said("Released."), None)
    assert after(["x"], HELD, over).question is not None


def test_what_was_said_is_gone_with_the_next_key() -> None:
    assert after([k.DOWN], HELD, carried_out(after(["s"], HELD), Said("Released."))).said is None
