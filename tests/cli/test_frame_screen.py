"""The screen of `top` fits its terminal in every state, and says what is asked, what was done, and which keys work."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.console import Console
from tests.cli.top_crowd import HOLDER, LOCKED, NOW, crowd, lock, session, snapshot, tab, task

from tabherd.cli import top_keys as k
from tabherd.cli.frame_detail import VALUE_MAX, detail
from tabherd.cli.frame_screen import room, screen
from tabherd.cli.snapshot import Snapshot
from tabherd.cli.top_deeds import ACT_KEYS
from tabherd.cli.top_lists import Kind, Ref, View
from tabherd.cli.top_model import VIEW_KEYS, Said, State, carried_out, press, settle

SIZES = [(80, 24), (200, 60), (20, 5), (10, 7), (80, 1)]
# One way to each kind of place and state.
WAYS = [
    [],
    *([key] for key in VIEW_KEYS),
    ["b", k.ENTER],
    ["a", k.DOWN, k.ENTER],
    ["a", k.ENTER],
    ["t", k.ENTER],
    ["t", k.ENTER, k.END],
    ["T", k.ENTER],
    ["l", k.ENTER],
    ["e", k.ENTER],
    ["s", k.END],
    ["s", "x"],
    ["s", "x", "y"],
    ["s", "x", "n"],
    ["s", "/", *"agent-3"],
    ["s", "/", *"agent-3", k.ENTER],
    ["t", "/", *"nothing"],
    ["?"],
]
EVIL = "\x1b]0;owned\x07\x1b[2J\r\n\t日本\u202e[bold]"


def state_after(keys: list[str], shown: Snapshot, width: int = 80, height: int = 24) -> State:
    state = settle(State(), shown)
    for key in keys:
        state, _ = press(state, key, shown, room(state, shown, NOW, width, height))
    return state


def drawn(state: State, shown: Snapshot, width: int = 80, height: int = 24) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as frame:
        console.print(screen(state, shown, NOW, width, height))
    return [line.rstrip() for line in frame.get().split("\n")[:-1]]


def seen(keys: list[str], shown: Snapshot, width: int = 80, height: int = 24) -> list[str]:
    return drawn(state_after(keys, shown, width, height), shown, width, height)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_state_fills_the_terminal_and_never_exceeds_it(width: int, height: int) -> None:
    # What has no limit of its own is long here: addresses, names, and the lists.
    evil = [
        tab(90, EVIL * 20, url=EVIL * 100, waiters=["bob", "bob", "bob"], holder=HOLDER | {"kind": EVIL}),
        tab(91, url="日" * 300),
    ]
    crowded = crowd(10)
    shown = crowd(
        10,
        tabs=[*evil, *crowded.tabs],
        locks=[lock(EVIL * 3, holder=EVIL, waiters=9), *crowded.locks],
        tasks=[task(99, action=EVIL, selector="日" * 200, params={EVIL: EVIL}), *crowded.tasks],
        has_more_tasks=True,
    )
    for keys in WAYS:
        console = Console(width=width, color_system=None)
        with console.capture() as frame:
            console.print(screen(state_after(keys, shown, width, height), shown, NOW, width, height))
        lines = frame.get().split("\n")[:-1]
        assert len(lines) == height, keys
        assert max(map(cell_len, lines)) <= width, keys
        assert not any("\x1b" in line or "\x07" in line or "\r" in line for line in lines), keys


def test_every_state_of_an_empty_server_is_drawn() -> None:
    empty = snapshot([], browsers=0, events=[])
    assert [keys for keys in WAYS if len(seen(keys, empty)) != 24] == []


# --- Lists ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("down", "height"), [(0, 24), (7, 10), (28, 24)])
def test_the_selected_row_is_on_the_screen_and_marked(down: int, height: int) -> None:
    lines = seen(["s", *[k.DOWN] * down], crowd(), height=height)
    assert [line.split()[1] for line in lines if line.startswith(">")] == [f"ses_{down:023}"]


def test_the_title_says_what_is_listed_of_what_and_how_much() -> None:
    assert seen(["s"], crowd())[2] == "sessions: 30"
    assert seen(["b", k.ENTER], crowd())[2] == f"sessions of browser brw_{0:023}: 15"
    assert seen(["a", k.DOWN, k.ENTER], crowd())[2] == "agent agent-0: 10"
    assert seen(["s", "/", *"agent-3", k.ENTER], crowd())[2] == "sessions: 4 with 'agent-3'"


def test_a_list_of_tasks_that_is_cut_says_so() -> None:
    assert "there are more" in seen(["T"], crowd(has_more_tasks=True), width=120)[2]
    assert "there are more" not in seen(["T"], crowd(), width=120)[2]


def test_a_list_that_is_empty_says_why() -> None:
    assert seen(["T"], snapshot([]))[3] == "There is none."
    assert seen(["T", "/", "x"], crowd(tasks=[]))[3] == "Nothing in this list contains that."
    refused = snapshot([], refused={"tasks": "This credential lacks the scope 'tasks'."})
    assert seen(["T"], refused)[3] == "This credential lacks the scope 'tasks'."


def test_what_is_gone_is_said_and_no_row_is_marked() -> None:
    state = state_after(["s", k.DOWN], crowd())
    lines = drawn(state, crowd(sessions=[session(0), session(2)]))
    assert lines[-2] == f"session ses_{1:023} is gone."
    assert not any(line.startswith(">") for line in lines)


def test_what_is_still_there_but_not_in_this_list_is_not_said_to_be_gone() -> None:
    state = state_after(["l"], snapshot([tab(1, holder=LOCKED)]))
    assert drawn(state, snapshot([tab(1)]))[-2] == f"tab tab_{1:023} is no longer in this list."


def test_ids_are_whole_in_80_columns_in_every_list() -> None:
    lines = [line for key in "bstTla" for line in seen([key], crowd(locks=[]))]
    marked = [line.split()[1] for line in lines if line.startswith(">")]
    assert [len(each) for each in marked] == [27, 27, 27, 27, 27, 3]


def test_what_an_agent_waits_for_is_among_its_things() -> None:
    shown = snapshot([tab(1, waiters=["zoe", "bob"], holder=HOLDER)])
    # bob and zoe come before alice: they wait.
    (row,) = [line for line in seen(["a", k.ENTER], shown) if line.startswith("> tab_")]
    assert row.split()[2:] == ["waits", "(2)", "click", "7s", "2", "https://x.test/"]


# --- Details ----------------------------------------------------------------------------------------------------


def facts(lines: list[str]) -> dict[str, str]:
    """Names and values of a detail."""
    return {line[:12].rstrip(): line[13:] for line in lines[3:-2] if line}


def test_a_tab_is_told_with_its_holder_its_waiters_and_their_places() -> None:
    told = facts(seen(["t", k.ENTER], snapshot([tab(1, waiters=["bob", "bob"], holder=HOLDER, title="Shop")])))
    assert told["held by"] == "c, for 7s"
    assert told["runs"] == "click cmd_1"
    assert told["waiting 1"] == "text of bob (c), 7s"
    assert told["waiting 2"] == "text of bob (c), 7s"
    assert (told["page"], told["title"], told["session"]) == ("https://x.test/", "Shop", f"ses_{1:023}")


@pytest.mark.parametrize(
    ("holder", "name", "value"),
    [
        (LOCKED, "locked by", "c, for 7s, ends in 60s"),
        (HOLDER | {"reason": "quarantine"}, "quarantine", "for 7s: what ran here before has not been proven stopped"),
        (HOLDER | {"agentId": "bob"}, "held by", "bob (c), for 7s"),
        (HOLDER | {"reason": "rebuild"}, "rebuilt", "for 7s: another page is put in the place of this one"),
        (HOLDER | {"reason": "handoff"}, "handed to", "c, for 7s"),
        (None, "held by", "nobody"),
    ],
)
def test_a_tab_says_why_nobody_else_gets_it(holder: dict[str, str] | None, name: str, value: str) -> None:
    assert facts(seen(["t", k.ENTER], snapshot([tab(1, holder=holder)])))[name] == value


def test_a_task_is_told_with_its_place_and_what_it_does() -> None:
    told = facts(seen(["T", k.ENTER], snapshot([], tasks=[task(1, params={"url": "https://x.test/"})])))
    assert told["place"] == "3, starts in about 4s"
    assert told["params"] == '{"url":"https://x.test/"}'
    assert told["deadline"] == "in 50s"


def test_a_named_lock_is_told_with_who_has_it_and_how_many_wait() -> None:
    told = facts(seen(["l", k.ENTER], snapshot([], locks=[lock("deploy", waiters=3, fence=4)])))
    assert (told["held by"], told["waiting"], told["fence"], told["since"]) == ("bob/ci", "3", "4", "7s ago")


def test_a_value_that_is_too_long_for_a_line_goes_on_in_the_next_and_ends_somewhere() -> None:
    shown = snapshot([tab(1, url="x" * (2 * VALUE_MAX))])
    lines = seen(["t", k.ENTER], shown, height=100)
    assert sum(line.count("x") for line in lines if "xxx" in line) == VALUE_MAX


def test_a_detail_that_is_longer_than_the_screen_is_scrolled() -> None:
    shown = snapshot([tab(1, url="x" * 1_500, title="at the end")])
    assert not any("at the end" in line for line in seen(["t", k.ENTER], shown))
    assert any("at the end" in line for line in seen(["t", k.ENTER, k.END], shown))


def test_what_was_looked_into_and_is_gone_says_so() -> None:
    state = state_after(["t", k.ENTER], crowd())
    assert drawn(state, snapshot([]))[3].endswith("is gone.")


# --- The last lines ---------------------------------------------------------------------------------------------


def test_a_question_is_asked_above_its_answers() -> None:
    lines = seen(["s", "x"], crowd())
    assert lines[-2:] == [f"Release session ses_{0:023} of agent-0? y/N", "y yes  any other key no"]


def test_what_is_under_way_and_what_came_of_it_are_said() -> None:
    state = state_after(["s", "x", "y"], crowd())
    assert drawn(state, crowd())[-2] == f"Releasing ses_{0:023} …"
    assert drawn(carried_out(state, Said("Released it.")), crowd())[-2] == "Released it."


def test_what_is_searched_for_is_shown_while_it_is_typed() -> None:
    assert seen(["s", "/", "a", "b"], crowd())[-2] == "/ab_"


@pytest.mark.parametrize(
    ("keys", "works"),
    [
        ([], "b browsers s sessions t tabs T tasks l locks a agents e events ? keys q leave"),
        (["s"], "x release Esc back Enter open / search jk move bstTlae views ? keys q leave"),
        (["T"], "c cancel Esc back Enter open / search jk move bstTlae views ? keys q leave"),
        (["b"], "r restart d drain Esc back Enter open / search jk move ? keys q leave"),
        (["t", k.ENTER], "x release c cancel h hand off Esc back jk move bstTlae views ? keys q leave"),
        (["e"], "Esc back Enter open / search jk move bstTlae views ? keys q leave"),
        (["s", "/"], "Enter keep Esc clear Backspace delete"),
        (["s", "/", "a", k.ENTER], "x release Esc all Enter open / search jk move bstTlae views ? keys q leave"),
        (["?"], "any key goes back"),
    ],
)
def test_the_last_line_says_which_keys_work_here(keys: list[str], works: str) -> None:
    assert " ".join(seen(keys, crowd())[-1].split()) == works


def test_where_there_is_little_room_help_and_leaving_stay_in_the_last_line() -> None:
    assert seen(["t"], crowd(), width=40)[-1].endswith("? keys q leave")
    assert seen(["t"], crowd(), width=15)[-1] == "? keys q leave"


def test_a_tab_that_a_person_has_is_offered_to_be_given_back() -> None:
    paused = snapshot([tab(1, state="paused", holder=HOLDER | {"reason": "handoff"})])
    assert "h give back" in seen(["t"], paused)[-1]


def test_help_tells_every_key_of_a_view_and_of_a_deed() -> None:
    lines = seen(["?"], crowd())
    first_words = {word for line in lines[3:-2] for word in line[:14].split()}
    assert {*VIEW_KEYS, *ACT_KEYS, "/", "q", "Enter", "Esc"} <= first_words


def test_a_server_that_does_not_answer_is_said_in_every_view() -> None:
    away = crowd(is_connected=False, problem="No answer.")
    for keys in ([], ["s"], ["t", k.ENTER], ["?"]):
        lines = seen(keys, away)
        assert "no answer" in lines[0]
        assert lines[1].startswith("What is shown is from before")


def test_every_view_is_reached_by_one_way_at_least() -> None:
    assert {place.view for keys in WAYS for place in state_after(keys, crowd()).places} == set(View)


@pytest.mark.parametrize(
    ("holder", "told"),
    [
        (HOLDER | {"since": "2026-01-01T00:00:09.000Z"}, "in about 2s"),
        (HOLDER, "cannot be told"),
        (HOLDER | {"reason": "handoff", "commandId": None}, "cannot be told"),
        (LOCKED, "in about 2s"),
    ],
)
def test_nobody_is_promised_a_turn_behind_a_person_or_a_command_that_hangs(holder: dict[str, str], told: str) -> None:
    held = tab(holder=holder, waiters=["bob"], expectedWaitMs=2_000)
    lines = [line.plain for line in detail(Ref(Kind.TAB, held.tab_id), snapshot([held]), NOW, 80)]
    assert next(line for line in lines if line.startswith("next turn")).split(maxsplit=2)[2] == told
