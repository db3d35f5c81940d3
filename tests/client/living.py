"""What the client's tests need to look at a real server, and to run programs that find it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.running import environment
from tests.server.conftest import Server

# Before it something that was expected counts as missing.
LIMIT_S = 60.0


def until(is_so: Callable[[], bool]) -> None:
    """Look again and again: what happens in another thread or process tells nobody.

    What does not come soon is looked for less and less often, since each look may be a request.
    """
    limit_s = time.monotonic() + LIMIT_S
    pause_s = 0.02
    while not is_so():
        assert time.monotonic() < limit_s, "it never was"
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.2, 0.2)


def environ_of(server: Server) -> dict[str, str]:
    """What a program sees that finds the server by itself."""
    return {"TABHERD_STATE": str(server.state)}


@contextmanager
def program(state: Path, text: str) -> Iterator[subprocess.Popen[str]]:
    """A program of its own that finds the server by itself; it is gone afterwards."""
    with subprocess.Popen(
        [sys.executable, "-c", text],
        env=environment(state),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()
