"""`top` shows what is, goes on when the server is restarted, and leaves the terminal as it was."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.running import Started, call, environment, running_server
from tests.cli.terminal import Terminal, on_terminal

from tabherd.client import Tabherd

# Each context of a warm stock is work, and nobody looks at it here.
COLD = {"TABHERD_POOLS__DEFAULT__WARM": "0"}
FAST = ("--interval", "0.2")
# The other screen is entered, and left again.
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with running_server(tmp_path_factory.mktemp("top") / "state", COLD) as started:
        yield started


@pytest.fixture
def server(started: Started) -> Path:
    return started.state


@pytest.fixture
def tab(server: Path) -> Iterator[str]:
    with Tabherd(environ=environment(server)) as herd, herd.session(agent="alice") as session:
        yield session.tab.id


def is_restored(terminal: Terminal, before: list[object]) -> bool:
    shown = terminal.raw
    return (
        terminal.modes() == before
        and shown.rindex(LEAVE) > shown.rindex(ENTER)
        and shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    )


def ignored(pid: int) -> set[int]:
    """The signals that a process ignores."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    mask = int(status["SigIgn"], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


@pytest.mark.server
def test_once_prints_one_frame_without_control_codes_in_a_pipe(server: Path, tab: str) -> None:
    done = call(server, "top", "--once")
    assert (done.returncode, done.stderr, "\x1b" in done.stdout) == (0, "", False)
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith(tab)] == ["alice"]
    assert "session.opened" in done.stdout


@pytest.mark.server
def test_once_as_json_is_one_document_with_everything(server: Path, tab: str) -> None:
    told = json.loads(call(server, "top", "--once", "--json").stdout)
    assert told["connected"] is True
    nothing = {"held": 0, "waiting": 0, "queued": 0, "inflight": 0}
    assert told["agents"]["alice"] == {"sessions": 1, "tabs": 1, **nothing}
    assert [each["tabId"] for each in told["tabs"]] == [tab]
    assert [(each["agentId"], each["browserId"]) for each in told["sessions"]] == [
        ("alice", told["browsers"][0]["browserId"])
    ]
    assert (told["tasks"], told["moreTasks"], told["locks"], told["refused"]) == ([], False, [], {})
    assert told["browsers"][0]["state"] == "ready"
    assert "session.opened" in [event["type"] for event in told["events"]]


@pytest.mark.server
def test_json_goes_on_with_a_document_per_frame_until_nobody_reads(server: Path) -> None:
    words = [sys.executable, "-m", "tabherd", "top", "--json", *FAST]
    with subprocess.Popen(words, env=environment(server), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stderr is not None
            frames = [json.loads(child.stdout.readline()) for _ in range(3)]
            assert {frame["connected"] for frame in frames} == {True}
            child.stdout.close()
            assert (child.wait(60), child.stderr.read()) == (0, b"")
        finally:
            child.kill()


@pytest.mark.server
@pytest.mark.parametrize(("keys", "code"), [("q", 0), ("Q", 0), ("\x03", 130)])
def test_a_key_leaves_and_the_terminal_is_as_it_was(server: Path, keys: str, code: int) -> None:
    with on_terminal(server, "top", *FAST) as terminal:
        before = terminal.modes()
        terminal.read_until("ready")
        terminal.type(keys)
        assert terminal.wait() == code
        assert is_restored(terminal, before)
    assert "Traceback" not in terminal.raw


@pytest.mark.server
def test_a_signal_leaves_the_terminal_as_it_was(server: Path) -> None:
    with on_terminal(server, "top", *FAST) as terminal:
        before = terminal.modes()
        terminal.read_until("ready")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM
        assert is_restored(terminal, before)


@pytest.mark.server
def test_other_keys_do_nothing_and_are_not_shown(server: Path) -> None:
    with on_terminal(server, "top", *FAST) as terminal:
        terminal.read_until("ready")
        # Stopped by Ctrl-Z it would leave its screen behind.
        assert signal.SIGTSTP in ignored(terminal.process.pid)
        terminal.type("xyzzy\x1a")
        seen = len(terminal.raw)
        terminal.read_until("ready", after=seen)
        terminal.type("q")
        assert terminal.wait() == 0
    assert "xyzzy" not in terminal.raw


@pytest.mark.server
def test_a_frame_is_drawn_over_the_one_before_and_never_beyond_the_last_line(server: Path, tab: str) -> None:
    with on_terminal(server, "top", *FAST) as terminal:
        terminal.read_until("\x1b[H")
        seen = len(terminal.raw)
        terminal.read_until("\x1b[H", after=seen)
        terminal.type("q")
        terminal.wait()
    frames = terminal.raw.partition(ENTER)[2].split("\x1b[H")[2:]
    assert frames
    # Neither the screen nor a line is erased in between: that would flicker.
    assert not any("\x1b[2J" in frame or "\x1b[2K" in frame for frame in frames)
    assert {frame.count("\n") for frame in frames} == {23}


@pytest.mark.server
def test_a_terminal_that_changes_its_size_is_filled_again(server: Path) -> None:
    with on_terminal(server, "top", "--interval", "3600") as terminal:
        terminal.read_until("ready")
        seen = len(terminal.raw)
        terminal.resize(120, 40)
        terminal.read_until("\x1b[H", after=seen)
        terminal.type("q")
        terminal.wait()
    last = terminal.raw.partition(LEAVE)[0].split("\x1b[H")[-1]
    assert last.count("\n") == 39


@pytest.mark.server
def test_what_happens_is_shown_long_before_the_next_look_is_due(server: Path) -> None:
    with on_terminal(server, "top", "--interval", "3600") as terminal:
        terminal.read_until("ready")
        session = json.loads(call(server, "session", "new", "--agent", "swift-agent", "--json").stdout)
        terminal.read_until("swift-agent")
        call(server, "session", "end", session["sessionId"])


@pytest.mark.server
def test_a_restart_of_the_server_is_said_and_survived(started: Started) -> None:
    with on_terminal(started.state, "top", *FAST) as terminal:
        terminal.read_until("ready")
        started.stop()
        terminal.read_until("no answer")
        terminal.read_until("from before")
        # On another port, since it takes whichever is free.
        started.start(COLD)
        url = json.loads((started.state / "server.json").read_text())["url"]
        seen = len(terminal.raw)
        terminal.read_until(url, after=seen)
        terminal.read_until("ready", after=seen)
        terminal.type("q")
        assert terminal.wait() == 0


@pytest.mark.parametrize("words", [("top",), ("top", "--once"), ("top", "--json")])
def test_without_a_server_it_is_refused_on_the_ordinary_screen(state: Path, words: tuple[str, ...]) -> None:
    with on_terminal(state, *words) as terminal:
        assert terminal.wait() == 1
    assert "node_unreachable" in terminal.raw
    assert ENTER not in terminal.raw
