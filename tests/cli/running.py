"""A real server with a real browser, for tests marked `server`: started and ended without a command line in between.

The commands `up --detach` and `down` have tests of their own; here each would cost as much as starting the server does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tabherd.cli.process import find_server
from tabherd.edge.leftovers import end_leftovers

from .forked import Forked, nursery

# A server that is to end has that long for it.
END_LIMIT_S = 60
# One whose test is over has that long before it hears a second time that it must.
DRAIN_S = 3
# A browser of a busy machine is not taken for one that hangs, unless a test is about that and says so.
UNHURRIED = {"TABHERD_POOLS__DEFAULT__PROBE_LIMIT_MS": "30000"}


def call(state: Path, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `tabherd` with that state directory, on a free port and with nothing of the user's settings."""
    return subprocess.run(
        [sys.executable, "-m", "tabherd", *words],
        env=environment(state) | dict(env or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def environment(state: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TABHERD_")}
    return kept | {"TABHERD_STATE": str(state), "TABHERD_SERVER__PORT": "0"}


def is_only_ours(env: Mapping[str, str]) -> bool:
    """Whether the environment differs from this process's in tabherd's own variables only."""
    differing = {name for name in env.keys() | os.environ.keys() if env.get(name) != os.environ.get(name)}
    return all(name.startswith("TABHERD_") for name in differing)


class Started:
    """The servers that were started on one state directory, one after the other."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self._children: list[subprocess.Popen[bytes] | Forked] = []
        # The one line that the last one said: where it is, or why it cannot start.
        self.said = ""

    def start(self, env: Mapping[str, str] | None = None) -> None:
        """Start one and return when it is ready; one that cannot start fails the test with what it said."""
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = self.state / "server.log"
        with log.open("wb") as sink:
            self.said = self._run(environment(self.state) | UNHURRIED | dict(env or {}), sink)
        assert self.said, log.read_text()

    def _run(self, env: Mapping[str, str], log: IO[bytes]) -> str:
        """Start `tabherd up` and return its first line."""
        output, theirs = os.pipe()
        try:
            # What changes the interpreter itself needs a new one.
            if is_only_ours(env):
                self._children.append(nursery().fork(env, theirs, log))
            else:
                self._children.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "tabherd", "up", "--json"],
                        env=env,
                        stdin=subprocess.DEVNULL,
                        stdout=theirs,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        finally:
            os.close(theirs)
        with open(output, "rb") as said:
            return said.readline().decode()

    @property
    def is_running(self) -> bool:
        """Whether the last one has not ended."""
        return bool(self._children) and self._children[-1].poll() is None

    def stop(self) -> None:
        """End the one that runs as an operator does, and what one that was killed has left."""
        self._end(END_LIMIT_S)
        # In a thread, because the caller may have a loop of its own.
        with ThreadPoolExecutor(1) as aside:
            aside.submit(end_leftovers, self.state).result()

    def clean_up(self) -> None:
        """Also after a test that failed: no process of any of them stays."""
        try:
            # Who is still at work has no more to say.
            self._end(DRAIN_S)
            self.stop()
        finally:
            for child in self._children:
                # A server that would not stop must still leave nothing behind.
                if child.poll() is None and find_server(self.state) is not None:
                    with suppress(ProcessLookupError):
                        os.kill(child.pid, signal.SIGKILL)
                child.wait(END_LIMIT_S)

    def _end(self, limit_s: float) -> None:
        if (server := find_server(self.state)) is not None:
            with server:
                server.terminate()
                server.wait(limit_s)


@contextmanager
def running_server(state: Path, env: Mapping[str, str] | None = None) -> Iterator[Started]:
    """Yields a server that is ready."""
    started = Started(state)
    try:
        started.start(env)
        yield started
    finally:
        started.clean_up()
