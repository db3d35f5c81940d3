"""With the keys of `top` a person finds what holds things up on a real server, and steps in."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.running import environment, running_server
from tests.cli.terminal import Terminal, on_terminal
from tests.cli.test_top import COLD, FAST, is_restored

from tabherd.client import Session, Tabherd
from tabherd.errors import LockLost, LockNotFound

pytestmark = pytest.mark.server

# Runs until it is cancelled.
ENDLESS = "new Promise(() => {})"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("top-live") / "state", COLD) as started:
        yield started.state


@pytest.fixture
def herd(server: Path) -> Iterator[Tabherd]:
    """What the server says to somebody else."""
    with Tabherd(environ=environment(server), patience_s=0) as client:
        yield client


@pytest.fixture
def session(herd: Tabherd) -> Iterator[Session]:
    """Alice's; the only one there is."""
    with herd.session(agent="alice") as leased:
        yield leased


@contextmanager
def watching(server: Path, **env: str) -> Iterator[Terminal]:
    """`top`, without colours, so that what is shown is found as it reads."""
    with on_terminal(server, "top", *FAST, env={"NO_COLOR": "1", **env}) as terminal:
        terminal.read_until("q leave")
        yield terminal
    assert "Traceback" not in terminal.raw


def press(terminal: Terminal, keys: str, *wanted: str) -> None:
    """Type, and wait until all of that was shown afterwards."""
    seen = len(terminal.raw)
    terminal.type(keys)
    for each in wanted:
        terminal.read_until(each, after=seen)


@contextmanager
def acting(server: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on while the test does."""
    with subprocess.Popen(
        [sys.executable, "-m", "tabherd", *words],
        env=environment(server),
        # What it runs ends with it: nobody holds the other end then.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


# --- Looking ----------------------------------------------------------------------------------------------------


def test_one_goes_from_an_agent_to_its_session_and_its_tab_and_back(server: Path, session: Session) -> None:
    session_id, tab_id = session.id, session.tab.id
    with watching(server) as terminal:
        press(terminal, "a", "agents: 1", "> alice")
        press(terminal, "\r", "agent alice: 2", f"> {session_id}", tab_id)
        press(terminal, "\r", f"tabs of session {session_id}: 1", f"> {tab_id}")
        press(terminal, "\r", "held by      nobody", "about:blank")
        # Escape alone is Escape, and no beginning of something else.
        press(terminal, "\x1b", f"tabs of session {session_id}: 1")
        press(terminal, "\x7f", "agent alice: 2")
        press(terminal, "\x1b[B", f">   {tab_id}")
        press(terminal, "b", "browsers: 1")
        press(terminal, "\r", "sessions of browser", f"> {session_id}")


def test_a_search_finds_what_contains_it(server: Path, session: Session) -> None:
    with watching(server) as terminal:
        press(terminal, "s/nobody-has-this", "/nobody-has-this_", "Nothing in this list contains that.")
        press(terminal, "\x1b", f"> {session.id}")
        press(terminal, "/ALICE\r", "sessions: 1 with 'ALICE'")


def test_named_locks_are_listed_with_who_has_them(server: Path) -> None:
    with acting(server, "lock", "run", "deploy", "--", "cat"), watching(server) as terminal:
        press(terminal, "l", "> deploy")
        press(terminal, "\r", "lock deploy", "held by      admin", "waiting      0")


# --- Stepping in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", ["s", "t", "t\r"])
def test_a_session_is_released_with_x_and_y(server: Path, herd: Tabherd, session: Session, keys: str) -> None:
    with watching(server) as terminal:
        press(terminal, keys, session.id if keys == "s" else session.tab.id)
        press(terminal, "x", f"Release session {session.id} of alice? y/N")
        press(terminal, "y", f"Released {session.id}.")
        # Any key takes the outcome away; then the screen says that what was selected is not there any more.
        press(terminal, "z", "is gone.")
        press(terminal, "x", "There is nothing to release here.")
    assert herd.sessions(state="active") == []
    assert herd.session_view(session.id).end_reason == "released"


@pytest.mark.parametrize("answer", ["n", "\r"])
def test_any_other_answer_than_y_does_nothing(server: Path, herd: Tabherd, session: Session, answer: str) -> None:
    with watching(server) as terminal:
        press(terminal, "s", f"> {session.id}")
        press(terminal, "x", "y/N")
        press(terminal, answer, "Nothing was done.")
        press(terminal, "j", f"> {session.id}")
    assert [view.session_id for view in herd.sessions(state="active")] == [session.id]


def test_a_task_is_cancelled_with_c_and_y(server: Path, herd: Tabherd, session: Session) -> None:
    task = herd.submit(action="evaluate", tab=session.tab, params={"expression": ENDLESS})
    with watching(server) as terminal:
        press(terminal, "T", f"> {task.id}", "running")
        press(terminal, "\r", "new Promise")
        press(terminal, "c", f"Cancel task {task.id} (evaluate) of alice? y/N")
        press(terminal, "y", f"Cancelled {task.id}.")
    assert task.status().state == "cancelled"


def test_the_command_that_holds_a_tab_is_cancelled_with_c_and_y(server: Path, session: Session) -> None:
    tab_id = session.tab.id
    words = ("act", tab_id, "evaluate", f"expression={ENDLESS}", "--json")
    with watching(server) as terminal, acting(server, *words) as child:
        press(terminal, "t", f"> {tab_id}", "evaluate")
        press(terminal, "c", f"Cancel the evaluate that runs on {tab_id}? y/N")
        press(terminal, "y", f"Cancelled the evaluate on {tab_id}.")
        assert json.loads(child.communicate(timeout=60)[0])["outcome"] == "cancelled"


def test_a_tab_is_handed_off_and_given_back_with_h(server: Path, herd: Tabherd, session: Session) -> None:
    tab_id = session.tab.id
    with watching(server) as terminal:
        press(terminal, "t", f"> {tab_id}")
        press(terminal, "h", f"Pause agents on {tab_id}, for a person? y/N")
        press(terminal, "y", f"Agents are paused on {tab_id}.", "h give back")
        assert herd.tab_view(tab_id).state == "paused"
        press(terminal, "h", f"Give {tab_id} back to agents? y/N")
        press(terminal, "y", f"{tab_id} is back with its agents.", "h hand off")
        assert herd.tab_view(tab_id).state == "ready"


def test_a_lock_is_taken_from_its_holder_with_u_and_y(server: Path, herd: Tabherd) -> None:
    held = herd.lock("deploy", agent="carol").acquire()
    with watching(server) as terminal:
        press(terminal, "l", "> deploy")
        press(terminal, "u", "Take the lock deploy from carol")
        press(terminal, "y", "Unlocked deploy.")
    assert herd.locks() == []
    with pytest.raises(LockLost):
        held.release()


def test_a_tab_is_taken_from_who_locked_it_with_u_and_y(server: Path, herd: Tabherd, session: Session) -> None:
    lock = session.tab.lock(lease_ms=600_000)
    lock.__enter__()
    with watching(server) as terminal:
        press(terminal, "l", f"> {session.tab.id}")
        press(terminal, "u", f"Take the lock of {session.tab.id} from")
        press(terminal, "y", f"Unlocked {session.tab.id}.")
    assert herd.tab_view(session.tab.id).holder is None
    with pytest.raises(LockNotFound):
        lock.__exit__(None, None, None)


def test_a_refusal_of_the_server_is_shown_and_top_goes_on(server: Path, herd: Tabherd, session: Session) -> None:
    with watching(server) as terminal:
        press(terminal, "t", f"> {session.tab.id}")
        press(terminal, "h", "y/N")
        # Somebody else was quicker.
        herd.handoff_tab(session.tab.id)
        press(terminal, "y", "The tab is paused.")
        press(terminal, "s", f"> {session.id}")
        press(terminal, "q")
        assert terminal.wait() == 0


def test_what_the_token_may_not_do_is_refused_by_the_server(server: Path, herd: Tabherd, session: Session) -> None:
    token = herd.new_token("bob", ["browse"]).token
    with watching(server, TABHERD_TOKEN=token) as terminal:
        # Alice's session is none of bob's business; the browser is there for all to see.
        press(terminal, "s", "There is none.")
        press(terminal, "T", "lacks the scope 'tasks'")
        press(terminal, "b", "> brw_")
        press(terminal, "r", "y/N")
        press(terminal, "y", "lacks the scope 'admin'")


def test_a_browser_is_restarted_with_r_and_its_sessions_go_on(server: Path, herd: Tabherd, session: Session) -> None:
    (before,) = herd.browsers()
    with watching(server) as terminal:
        press(terminal, "b", f"> {before.browser_id}")
        press(terminal, "r", f"Restart {before.browser_id} with 1 session? y/N")
        press(terminal, "y", f"{before.browser_id} is being restarted.")
        press(terminal, "e", "session_recovered")
    assert before.pid not in [browser.pid for browser in herd.browsers()]
    assert herd.session_view(session.id).state == "active"


# --- Leaving ----------------------------------------------------------------------------------------------------


def ctrl_c(terminal: Terminal) -> None:
    terminal.type("\x03")


def terminate(terminal: Terminal) -> None:
    terminal.process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("keys", "shown", "leave", "code"),
    [
        ("sx", "y/N", ctrl_c, 130),
        ("sx", "y/N", terminate, 128 + signal.SIGTERM),
        ("s/a", "/a_", ctrl_c, 130),
        ("t\r", "held by      nobody", terminate, 128 + signal.SIGTERM),
    ],
)
def test_the_terminal_is_as_it_was_wherever_one_leaves(
    server: Path, session: Session, keys: str, shown: str, leave: Callable[[Terminal], None], code: int
) -> None:
    with watching(server) as terminal:
        press(terminal, keys, shown)
        leave(terminal)
        assert terminal.wait() == code
        assert is_restored(terminal, terminal.before)
