"""`tabherd demo` as a person runs it: it holds what it shows, says so to programs, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from tabherd.cli.demo import run
from tabherd.cli.demo.own_server import OwnServer
from tabherd.cli.main import app

from .running import environment

# The least that there is.
SMALLEST = ("--agents", "4", "--tabs", "2", "--seconds", "2")
# Far more than a demo takes, on the slowest machine.
LIMIT_S = 150


class Demo:
    """A demo in a process of its own, whose temporary files are where the test can see them."""

    def __init__(self, home: Path, *words: str, env: dict[str, str] | None = None) -> None:
        self.home = home
        self.temporary = home / "temporary"
        self.temporary.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tabherd", "demo", *words],
            env=environment(home / "state") | {"TMPDIR": str(self.temporary)} | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, text: str) -> None:
        """Until it says so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if text in line:
                return
        raise AssertionError(f"it never said {text!r}")

    def end(self) -> tuple[int, str, str]:
        """Its exit code, and what else it said."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, out, err

    def processes(self) -> list[psutil.Process]:
        """Whatever runs in the name of this demo, wherever it was started from."""
        found = []
        for process in psutil.process_iter():
            try:
                told = [*process.cmdline(), *process.environ().values()]
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if any(str(self.home) in word for word in told):
                found.append(process)
        return found


@contextmanager
def demo(home: Path, *words: str, env: dict[str, str] | None = None) -> Iterator[Demo]:
    """A demo that is over, with all that it started, when the test is."""
    running = Demo(home, *words, env=env)
    try:
        yield running
    finally:
        for process in running.processes():
            process.kill()
        running.process.communicate(timeout=LIMIT_S)


def left_behind(running: Demo) -> list[object]:
    """Processes and files of a demo that has ended."""
    return [*running.processes(), *running.temporary.iterdir()]


@pytest.mark.server
@pytest.mark.browser
def test_a_short_demo_with_every_crash_holds_every_guarantee_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, *SMALLEST, "--json") as running:
        code, out, err = running.end()
        told = json.loads(out)
        assert [row for row in told["guarantees"] if not row["held"]] == []
        assert (code, told["held"], len(told["guarantees"]), err) == (0, True, 11, "")
        assert left_behind(running) == []
        # Not the state directory that it was told about, which is that of the user's own server.
        assert not (tmp_path / "state").exists()


@pytest.mark.release
@pytest.mark.server
@pytest.mark.browser
@pytest.mark.parametrize("moment", ["server of the demo's own starts", "agents want", "kill -9: the server itself"])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, moment: str) -> None:
    with demo(tmp_path, *SMALLEST) as running:
        running.wait_for(moment)
        running.process.send_signal(signal.SIGINT)
        running.process.send_signal(signal.SIGINT)
        code, out, err = running.end()
        assert code == 130, out + err
        assert "Traceback" not in err
        assert left_behind(running) == []


@pytest.mark.server
def test_a_demo_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, *SMALLEST, env={"TABHERD_BROWSER": "/bin/false"}) as running:
        code, _, err = running.end()
        assert code == 1
        assert "[no_browser]" in err
        assert left_behind(running) == []


def test_a_guarantee_that_did_not_hold_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "run", lambda voice, wish: False)
    assert CliRunner().invoke(app, ["demo"]).exit_code == 1


def test_a_seed_that_is_named_is_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    wishes: list[run.Wish] = []

    def remember(voice: object, wish: run.Wish) -> bool:
        wishes.append(wish)
        return True

    monkeypatch.setattr(run, "run", remember)
    CliRunner().invoke(app, ["demo", "--seed", "7", "--no-crash"])
    assert wishes == [run.Wish(agents=20, tabs=8, seconds=30.0, seed=7, has_crashes=False)]


@pytest.mark.parametrize("words", [("--agents", "1"), ("--tabs", "1"), ("--seconds", "0"), ("--tabs", "17")])
def test_what_no_demo_can_be_made_of_is_refused(words: tuple[str, str]) -> None:
    assert CliRunner().invoke(app, ["demo", *words]).exit_code == 2


async def test_only_browsers_of_its_own_server_are_killed() -> None:
    server = OwnServer(2)
    stranger = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    try:
        with pytest.raises(AssertionError, match="not a browser of this server"):
            server.kill_browser(stranger.pid)
        assert stranger.returncode is None
        assert os.path.exists(f"/proc/{stranger.pid}")
    finally:
        stranger.kill()
        await stranger.wait()
        await server.close()
    assert not server.directory.exists()
