"""A real server with a real browser, started and stopped through the command line, for tests marked `server`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


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


@contextmanager
def running_server(state: Path, env: Mapping[str, str] | None = None) -> Iterator[Path]:
    """Yields the state directory of a server that is ready."""
    started = call(state, "up", "--detach", "--json", env=env)
    try:
        assert started.returncode == 0, started.stdout + started.stderr
        yield state
    finally:
        stopped = call(state, "down", env={"TABHERD_SERVER__DRAIN_S": "1"})
        # A test that stopped it itself is fine; one whose server would not stop must still leave nothing behind.
        if stopped.returncode != 0:
            os.kill(json.loads(started.stdout)["pid"], signal.SIGKILL)
