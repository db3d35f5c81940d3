"""A server of the pictures' own: a real `tabherd up` on a free port, in a directory that is gone afterwards.

Whatever happens, neither it nor a browser of its stays. Nothing of the user's settings or state is touched.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from tabherd.client.discovery import read_admin_token
from tabherd.edge.leftovers import end_leftovers

START_LIMIT_S: Final = 90.0
STOP_LIMIT_S: Final = 30.0
# Relative to the directory it runs in, so that no picture shows where that is.
CONFIG: Final = "tabherd.toml"
SETTINGS: Final = """\
[server]
drain_s = 0

[pools.default]
browsers_min = 2
browsers_max = 2
sessions_per_browser = 12
max_active = 14
warm = 2

[pools.research]
browsers_max = 1
max_active = 1
warm = 0
acquire_wait_ms = 120000

[scheduler]
workers = 4
deadline_ms = 600000
"""


class Server:
    """One directory and the server in it. Made by `running`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.url = ""
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def token(self) -> str:
        """The admin's."""
        token = read_admin_token(self.state)
        assert token is not None, "a server with auth writes its token before it is ready"
        return token

    def environment(self) -> dict[str, str]:
        """What a program needs to find this server, and nothing that the user has set."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TABHERD_")}
        chosen = {name: value for name in ("TABHERD_BROWSER",) if (value := os.environ.get(name))}
        return kept | chosen | {"TABHERD_STATE": str(self.state)}

    def start(self) -> None:
        (self.directory / CONFIG).write_text(SETTINGS, encoding="utf-8")
        with (self.directory / "server.log").open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tabherd", "up", "--json", "--port", "0", "--config", CONFIG],
                cwd=self.directory,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C is for whoever makes the pictures, who then ends this.
                start_new_session=True,
            )
        assert self._child.stdout is not None, "its output is a pipe"
        readable, _, _ = select.select([self._child.stdout], [], [], START_LIMIT_S)
        line = self._child.stdout.readline() if readable else b""
        if not line.startswith(b'{"url"'):
            raise RuntimeError(f"The server did not start: {line.decode()}{_tail(self.directory / 'server.log')}")
        self.url = msgspec.json.decode(line, type=dict[str, Any])["url"]

    def stop(self) -> None:
        """End it and what it has started. Idempotent."""
        child, self._child = self._child, None
        if child is not None:
            child.terminate()
            try:
                child.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            assert child.stdout is not None, "its output is a pipe"
            child.stdout.close()
        # In a thread, because whoever drives the camera has a loop of its own in this one.
        with ThreadPoolExecutor(1) as aside:
            aside.submit(end_leftovers, self.state).result()


@contextmanager
def running() -> Iterator[Server]:
    """A server that is ready, with nobody in it yet."""
    with tempfile.TemporaryDirectory(prefix="tabherd-pictures-", ignore_cleanup_errors=True) as directory:
        server = Server(Path(directory).resolve())
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _tail(log: Path) -> str:
    return "\n" + "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:])
