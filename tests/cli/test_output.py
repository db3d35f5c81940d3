"""How the command line speaks on terminals and in pipes, and how it ends when it is not let finish."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Tabherd
from tests.cli.running import environment
from tests.cli.terminal import on_terminal
from tests.client.canned import BUSY, COMMAND, SESSION, CannedServer

from tabherd.cli.output import Voice, _fitting, printable
from tabherd.errors import JavascriptError


@pytest.fixture
def busy(canned: CannedServer) -> dict[str, str]:
    """The environment of a command whose tab is somebody else's just now."""
    canned.answer("POST", "/tabs/tab_1/action", BUSY, 423)
    return {"TABHERD_URL": canned.url}


def test_a_refusal_is_coloured_on_a_terminal(busy: dict[str, str], state: Path) -> None:
    with on_terminal(state, "act", "tab_1", "text", env=busy) as terminal:
        assert terminal.wait() == 1
    assert "\x1b[31mbob is on it." in terminal.raw


def test_no_colour_is_sent_where_none_is_wanted(busy: dict[str, str], state: Path) -> None:
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        with on_terminal(state, "act", "tab_1", "text", env=busy | env) as terminal:
            assert terminal.wait() == 1
        assert terminal.raw == "bob is on it. [tab_busy]\r\nNext: Wait.\r\n"


def test_checks_have_no_colour_where_none_is_wanted_and_go_to_stdout_while_progress_is_on_the_terminal(
    state: Path, tmp_path: Path
) -> None:
    """As in `tabherd doctor > file`."""
    with on_terminal(state, "doctor", env={"NO_COLOR": "1"}, stdout=tmp_path / "out") as terminal:
        terminal.wait()
    assert "configuration" in (tmp_path / "out").read_text()
    assert "Checking this machine" in terminal.raw
    assert "configuration" not in terminal.raw
    assert "\x1b[3" not in (tmp_path / "out").read_text() + terminal.raw


def test_what_a_page_says_cannot_command_the_terminal_but_reaches_a_pipe(
    canned: CannedServer, tabherd: Tabherd, state: Path
) -> None:
    canned.answer("POST", "/tabs/tab_1/action", COMMAND | {"result": "a\x1b[2Jb"})
    with on_terminal(state, "act", "tab_1", "text", env={"TABHERD_URL": canned.url}) as terminal:
        terminal.wait()
    assert terminal.raw == "a\N{REPLACEMENT CHARACTER}[2Jb\r\n"
    assert tabherd("act", "tab_1", "text").stdout == "a\x1b[2Jb\n"


def test_lines_and_tabs_of_a_text_are_kept() -> None:
    assert printable("a\n\tb é 漢\r\x07") == "a\n\tb é 漢\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"


def test_progress_is_shown_on_a_terminal_and_gone_before_the_answer(canned: CannedServer, state: Path) -> None:
    canned.answer("POST", "/sessions", SESSION, 201)
    with on_terminal(state, "session", "new", "-q", env={"TABHERD_URL": canned.url}) as terminal:
        assert terminal.wait() == 0
    assert "Leasing a session" in terminal.raw
    # The line is erased and the cursor is back.
    assert terminal.raw.rstrip().endswith("tab_1")
    assert terminal.raw.rindex("\x1b[2K") > terminal.raw.rindex("Leasing a session")
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")


def test_progress_is_quiet_in_a_pipe(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/sessions", SESSION, 201)
    done = tabherd("session", "new", "-q")
    assert (done.stdout, done.stderr) == ("tab_1\n", "")


def test_a_reader_that_has_had_enough_ends_it_quietly(canned: CannedServer, state: Path) -> None:
    event = b'id: 3-%d\nevent: x\ndata: {"type": "x"}\n\n'
    canned.answer("GET", "/events", event % 50, media="text/event-stream")
    canned.answer("GET", "/events", b"".join(event % n for n in range(1, 51)) * 1_000, media="text/event-stream")
    with subprocess.Popen(
        [sys.executable, "-m", "tabherd", "events", "--json", "--follow"],
        env=environment(state) | {"TABHERD_URL": canned.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stderr is not None
            assert child.stdout.readline() == b'{"type":"x"}\n'
            child.stdout.close()
            assert (child.wait(60), child.stderr.read()) == (0, b"")
        finally:
            child.kill()


def test_ctrl_c_ends_with_130_and_without_a_traceback(canned: CannedServer, state: Path) -> None:
    canned.answer("GET", "/events", b"id: 3-0\nevent: reset\ndata: {}\n\n", media="text/event-stream")
    canned.answer("GET", "/events", b'id: 3-1\nevent: x\ndata: {"type": "x"}\n\n', media="text/event-stream")
    # The stream ends, and while it is waited for anew Ctrl-C comes.
    with on_terminal(state, "events", "--follow", env={"TABHERD_URL": canned.url}) as terminal:
        terminal.read_until("x")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert "Traceback" not in terminal.raw
    assert "Aborted" not in terminal.raw


def test_ctrl_c_while_an_answer_is_waited_for_brings_the_cursor_back(state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with on_terminal(state, "session", "new", env={"TABHERD_URL": url}) as terminal:
            terminal.read_until("Leasing a session")
            terminal.type("\x03")
            assert terminal.wait() == 130
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")
    assert "Traceback" not in terminal.raw


@pytest.mark.parametrize(("width", "kept"), [(None, [0, 1, 2]), (26, [0, 1, 2]), (25, [0, 1]), (17, [0, 1]), (3, [0])])
def test_columns_that_can_be_spared_go_where_there_is_no_room(width: int | None, kept: list[int]) -> None:
    assert _fitting(("a", "bb", "ccc"), [("12345678", "1234567", "1234567")], ("ccc", "bb"), width) == kept


def test_a_refusal_that_a_page_has_written_does_not_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    error = JavascriptError("Error: \x1b]0;owned\x07\x1b[2J\u202e", action="Look at \x1b[31mthis\x9b2J.")
    Voice(as_json=False).refuse(error)
    told = capsys.readouterr().err
    assert "Error: " in told
    assert not set(told) & set("\x1b\x07\x9b\u202e")
