"""Real servers for the client's tests, with a pool whose sessions end soon without a sign of life."""

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
SETTINGS = {
    # A machine that runs other tests as well may not do anything for some seconds, or take them for a restart.
    "POOLS__HASTY__IDLE_TTL_S": "5",
    "POOLS__HASTY__HEARTBEAT_S": "1",
    "POOLS__HASTY__STALE_AFTER_S": "12",
    "POOLS__HASTY__WARM": "1",
    "POOLS__HASTY__PROBE_LIMIT_MS": "30000",
    "POOLS__TINY__MAX_ACTIVE": "1",
    "POOLS__TINY__WARM": "1",
    "POOLS__TINY__PROBE_LIMIT_MS": "30000",
}
# Longer than a session of the hasty pool lives without a sign of life.
TOO_LONG_S = 13.5


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
