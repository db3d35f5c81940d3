"""`top` shows a real server to a person, who finds what holds things up there, steps in, and gets the terminal back.

Where keys lead and what is drawn is the matter of `test_top_model.py` and `test_frame_screen.py`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.conftest import Tabherd as Command
from tests.cli.running import environment, running_server
from tests.cli.terminal import Terminal, on_terminal
from tests.server.conftest import Server
from tests.shared_server import unique

from tabherd.client import Session, Tabherd
from tabherd.errors import LockLost, LockNotFound

# Nobody looks at a warm stock here.
COLD = {"TABHERD_POOLS__DEFAULT__WARM": "0"}
FAST = ("--interval", "0.2")
# The other screen is entered, and left again.
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
# Runs until it is cancelled.
ENDLESS = "new Promise(() => {})"


@pytest.fixture
def server(shared_server: Server) -> Path:
    return shared_server.state


@pytest.fixture
def herd(server: Path) -> Iterator[Tabherd]:
    """What the server says to somebody else."""
    with Tabherd(environ=environment(server), patience_s=0) as client:
        yield client


@pytest.fixture
def session(herd: Tabherd) -> Iterator[Session]:
    """The only one there is."""
    with herd.session(agent=unique("topper")) as leased:
        yield leased


@contextmanager
def watching(server: Path, *words: str) -> Iterator[Terminal]:
    """`top`, without colours, so that what is shown is found as it reads."""
    with on_terminal(server, "top", *(words or FAST), env={"NO_COLOR": "1"}) as terminal:
        terminal.read_until("q leave")
        yield terminal
    assert "Traceback" not in terminal.raw


def press(terminal: Terminal, keys: str, *wanted: str) -> None:
    """Type, and wait until all of that was shown afterwards."""
    seen = len(terminal.raw)
    terminal.type(keys)
    for each in wanted:
        terminal.read_until(each, after=seen)


def is_restored(terminal: Terminal) -> bool:
    shown = terminal.raw
    return (
        terminal.modes() == terminal.before
        and shown.rindex(LEAVE) > shown.rindex(ENTER)
        and shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    )


def ignored(pid: int) -> set[int]:
    """The signals that a process ignores."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    mask = int(status["SigIgn"], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


@contextmanager
def acting(server: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on while the test does."""
    command = [sys.executable, "-m", "tabherd", *words]
    with subprocess.Popen(
        command, env=environment(server), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            child.kill()


# --- Without a person -------------------------------------------------------------------------------------------


@pytest.mark.server
def test_once_is_one_frame_without_control_codes_or_one_document_with_everything(
    real: Command, session: Session
) -> None:
    done = real("top", "--once")
    assert (done.exit_code, done.stderr, "\x1b" in done.stdout) == (0, "", False)
    rows = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(session.tab.id)]
    assert rows == [session.agent]
    told = json.loads(real("top", "--once", "--json").stdout)
    nothing = {"held": 0, "waiting": 0, "queued": 0, "inflight": 0}
    assert told["agents"][session.agent] == {"sessions": 1, "tabs": 1, **nothing}
    assert [each["tabId"] for each in told["tabs"]] == [session.tab.id]
    (shown,) = told["sessions"]
    assert shown["browserId"] in [each["browserId"] for each in told["browsers"] if each["state"] == "ready"]
    assert (told["connected"], told["tasks"], told["moreTasks"], told["refused"]) == (True, [], False, {})
    assert "session.opened" in [event["type"] for event in told["events"]]


@pytest.mark.server
def test_json_goes_on_with_a_document_per_frame_until_nobody_reads(server: Path) -> None:
    with acting(server, "top", "--json", *FAST) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert [json.loads(child.stdout.readline())["connected"] for _ in range(3)] == [True] * 3
        child.stdout.close()
        assert (child.wait(60), child.stderr.read()) == (0, "")


def test_without_a_server_it_is_refused_on_the_ordinary_screen(state: Path) -> None:
    with on_terminal(state, "top") as terminal:
        assert terminal.wait() == 1
    assert "node_unreachable" in terminal.raw
    assert ENTER not in terminal.raw


# --- Looking ----------------------------------------------------------------------------------------------------


@pytest.mark.server
def test_one_goes_from_an_agent_to_its_session_and_its_tab_and_back(server: Path, session: Session) -> None:
    agent, session_id, tab_id = session.agent, session.id, session.tab.id
    with watching(server) as terminal:
        # Stopped by Ctrl-Z it would leave its screen behind.
        assert signal.SIGTSTP in ignored(terminal.process.pid)
        press(terminal, f"a/{agent}\r", f"> {agent}")
        press(terminal, "\r", f"agent {agent}: 2", f"> {session_id}", tab_id)
        press(terminal, "\r", f"tabs of session {session_id}: 1", f"> {tab_id}")
        press(terminal, "\r", "held by      nobody", "about:blank")
        # Escape alone is Escape, and no beginning of something else.
        press(terminal, "\x1b", f"tabs of session {session_id}: 1")
        press(terminal, "\x7f", f"agent {agent}: 2")
        press(terminal, "\x1b[B", f">   {tab_id}")
        press(terminal, "s/nobody-has-this", "/nobody-has-this_", "Nothing in this list contains that.")
        press(terminal, "\x1b", f"> {session_id}")
        press(terminal, "q")
        assert terminal.wait() == 0
        assert is_restored(terminal)
    frames = terminal.raw.partition(ENTER)[2].partition(LEAVE)[0].split("\x1b[H")[2:]
    # Neither the screen nor a line is erased between frames, which would flicker; none is beyond the last line.
    assert not any("\x1b[2J" in frame or "\x1b[2K" in frame for frame in frames)
    assert {frame.count("\n") for frame in frames} == {23}


@pytest.mark.server
def test_what_happens_is_shown_long_before_the_next_look_is_due(server: Path, herd: Tabherd) -> None:
    agent = unique("swift")
    with watching(server, "--interval", "3600") as terminal:
        with herd.session(agent=agent):
            terminal.read_until(agent)
        seen = len(terminal.raw)
        terminal.resize(120, 40)
        terminal.read_until("\x1b[H", after=seen)
        # Also in the middle of a search a signal leaves the terminal as it was.
        press(terminal, "s/a", "/a_")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM
        assert is_restored(terminal)
    assert terminal.raw.partition(LEAVE)[0].split("\x1b[H")[-1].count("\n") == 39


# --- Stepping in ------------------------------------------------------------------------------------------------


@pytest.mark.server
def test_a_person_steps_in_with_a_key_and_y(server: Path, herd: Tabherd, session: Session) -> None:
    tab, name = session.tab, unique("deploy")
    held = herd.lock(name, agent="carol").acquire()
    with watching(server) as terminal:
        with acting(server, "act", tab.id, "evaluate", f"expression={ENDLESS}", "--json") as child:
            press(terminal, "t", f"> {tab.id}", "evaluate")
            press(terminal, "c", f"Cancel the evaluate that runs on {tab.id}? y/N")
            press(terminal, "y", f"Cancelled the evaluate on {tab.id}.")
            assert json.loads(child.communicate(timeout=60)[0])["outcome"] == "cancelled"
        task = herd.submit(action="evaluate", tab=tab, params={"expression": ENDLESS})
        press(terminal, "T", f"> {task.id}", "running")
        press(terminal, "c", f"Cancel task {task.id} (evaluate) of {session.agent}? y/N")
        press(terminal, "y", f"Cancelled {task.id}.")
        assert task.status().state == "cancelled"
        press(terminal, "t", f"> {tab.id}")
        press(terminal, "h", f"Pause agents on {tab.id}, for a person? y/N")
        press(terminal, "y", f"Agents are paused on {tab.id}.", "h give back")
        assert herd.tab_view(tab.id).state == "paused"
        press(terminal, "h", f"Give {tab.id} back to agents? y/N")
        press(terminal, "y", f"{tab.id} is back with its agents.", "h hand off")
        press(terminal, f"l/{name}\r", f"> {name}")
        press(terminal, "u", f"Take the lock {name} from carol")
        press(terminal, "y", f"Unlocked {name}.")
        with pytest.raises(LockLost):
            held.release()
        lock = tab.lock(lease_ms=600_000)
        lock.__enter__()
        press(terminal, "\x1b", tab.id)
        press(terminal, "j", f"> {tab.id}")
        press(terminal, "u", f"Take the lock of {tab.id} from")
        press(terminal, "y", f"Unlocked {tab.id}.")
        with pytest.raises(LockNotFound):
            lock.__exit__(None, None, None)
        press(terminal, "q")
        assert terminal.wait() == 0


@pytest.mark.server
def test_only_y_means_yes_and_a_refusal_is_shown_and_top_goes_on(server: Path, herd: Tabherd, session: Session) -> None:
    with watching(server) as terminal:
        press(terminal, "s", f"> {session.id}")
        press(terminal, "x", f"Release session {session.id} of {session.agent}? y/N")
        press(terminal, "n", "Nothing was done.")
        assert herd.session_view(session.id).state == "active"
        press(terminal, "t", f"> {session.tab.id}")
        press(terminal, "h", "y/N")
        # Somebody else was quicker.
        herd.handoff_tab(session.tab.id)
        press(terminal, "y", "The tab is paused.")
        press(terminal, "s", f"> {session.id}")
        press(terminal, "x", "y/N")
        press(terminal, "y", f"Released {session.id}.")
        # Any key takes the outcome away; then the screen says that what was selected is not there any more.
        press(terminal, "z", "is gone.")
        assert herd.session_view(session.id).end_reason == "released"
        seen = len(terminal.raw)
        with herd.session(agent=session.agent) as other:
            terminal.read_until(other.id, after=seen)
            press(terminal, "j", f"> {other.id}")
            press(terminal, "x", "y/N")
            terminal.type("\x03")
            assert terminal.wait() == 130
            assert is_restored(terminal)


@pytest.mark.server
def test_a_restart_of_the_browser_or_the_server_is_said_and_survived(tmp_path: Path) -> None:
    with running_server(tmp_path / "state", COLD) as started:
        state = started.state
        with Tabherd(environ=environment(state)) as herd, herd.session(agent="alice") as session:
            (before,) = herd.browsers()
            with watching(state) as terminal:
                press(terminal, "b", f"> {before.browser_id}")
                press(terminal, "r", f"Restart {before.browser_id} with 1 session? y/N")
                press(terminal, "y", f"{before.browser_id} is being restarted.")
                press(terminal, "e", "session_recovered")
                assert before.pid not in [browser.pid for browser in herd.browsers()]
                assert herd.session_view(session.id).state == "active"
                started.stop()
                terminal.read_until("no answer")
                terminal.read_until("from before")
                # On another port, since it takes whichever is free.
                started.start(COLD)
                url = json.loads((state / "server.json").read_text())["url"]
                press(terminal, "\x1b", url, "ready")
                press(terminal, "q")
                assert terminal.wait() == 0
