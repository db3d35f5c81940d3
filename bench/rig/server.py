"""A real `tabherd up` in a process of its own, with a fresh state directory on a free port.

Whatever happens to the benchmark, afterwards neither the server, nor a browser of any of its lives, nor the directory
is left.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from .caller import Caller, now_ms

START_LIMIT_S: Final = 60.0
# How long it may take to end by itself; with hundreds of sessions that is a while.
STOP_LIMIT_S: Final = 60.0
KILL_LIMIT_S: Final = 10.0
LOG_CHARS_SHOWN: Final = 2_000


class Server:
    """One state directory and the process that serves it now. Made by `running`."""

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        self.state = directory / "state"
        self._log = directory / "log"
        self._settings = settings
        # 0 until the first start, which picks one; later lives listen there again.
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def token(self) -> str:
        """The administrator's."""
        return (self.state / "admin.token").read_text(encoding="ascii").strip()

    def caller(self) -> Caller:
        """A new connection, as the administrator."""
        return Caller(self.url, self.token)

    def start(self) -> None:
        """Returns when it says that it is ready."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Begin a start; `wait_ready` ends it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tabherd", "up", "--port", str(self._port), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment(),
                # Ctrl-C ends the benchmark, which then ends this.
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_LIMIT_S)
        line = self._process.stdout.readline() if readable else b""
        if not line.startswith(b'{"url"'):
            log = self._log.read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"The server did not start: {line.decode()}\n{log[-LOG_CHARS_SHOWN:]}")
        self._port = int(msgspec.json.decode(line)["url"].rpartition(":")[2])

    def kill(self) -> None:
        """As a power cut would: at once. Its browsers stay."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def cut(self) -> None:
        """As a power cut of a machine that nobody starts again: the server and its browsers, at once."""
        self.kill()
        self._end_browsers()

    def stop(self) -> None:
        """In order: it keeps its sessions for the next start, and ends its browsers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(STOP_LIMIT_S)

    def end(self) -> None:
        """Stop it, by force if it must be, and everything that any of its lives started."""
        if self._process is not None:
            # The second one ends the drain.
            for _ in range(2):
                if self._process.poll() is None:
                    self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.kill()
            assert self._process.stdout is not None
            self._process.stdout.close()
        self._end_browsers()

    def _end_browsers(self) -> None:
        leftovers = self._browsers()
        for browser in leftovers:
            with contextlib.suppress(psutil.NoSuchProcess):
                browser.kill()
        psutil.wait_procs(leftovers, timeout=KILL_LIMIT_S)

    def _browsers(self) -> list[psutil.Process]:
        """Every process whose profile is in our state directory."""
        mine = f"--user-data-dir={self.state}"
        found = []
        for process in psutil.process_iter(["cmdline"]):
            if any(word.startswith(mine) for word in process.info["cmdline"] or ()):
                found.append(process)
        return found

    def _environment(self) -> dict[str, str]:
        """Nothing of the user's own settings but the choice of a browser."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TABHERD_") or name == "TABHERD_BROWSER"
        }
        settings = {f"TABHERD_{name.upper()}": str(value) for name, value in self._settings.items()}
        return kept | settings | {"TABHERD_STATE": str(self.state)}


def cpu_s(pid: int) -> float:
    """The CPU time that a process has used so far, with all its threads."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def imports_s() -> float:
    """The part of a start that no server can save: Python with everything it imports."""
    began = now_ms()
    subprocess.run([sys.executable, "-c", "import tabherd.cli.main, tabherd.edge.server"], check=True)
    return (now_ms() - began) / 1000


@contextlib.contextmanager
def running(**settings: Any) -> Iterator[Server]:
    """A server that is ready. Settings are spelt as in the environment: `pools__default__warm=0`."""
    with tempfile.TemporaryDirectory(prefix="tabherd-bench-", ignore_cleanup_errors=True) as directory:
        server = Server(Path(directory), settings)
        try:
            server.start()
            yield server
        finally:
            server.end()
