"""The server that a demo starts for itself: a real `tabherd up` in a directory of its own, and nothing of it later.

- Nothing of the user's is used or touched: not the settings, the state directory, the port or a running server.
- Signals go only to processes that were started here, held by handle, and to browsers that are proven to be theirs.
- `close` ends the process, then its browsers, then the directory, whatever state they are in.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from ...browsers import process
from ...client.discovery import ServerRecord, read_admin_token
from ...edge.leftovers import end_leftovers
from ...errors import NodeUnreachable, from_wire
from .record import now_ms

# A cold machine reads a Chromium of 200 MB from disk first.
START_LIMIT_S: Final = 60.0
# What an orderly end may take before it is killed.
STOP_LIMIT_S: Final = 10.0
REMOVALS_MAX: Final = 40
REMOVAL_POLL_S: Final = 0.05
LOG_LINES_SHOWN: Final = 8
PREFIX: Final = "tabherd-demo-"
# The one variable of the user's that a demo heeds: which browser to use.
KEPT_VARIABLE: Final = "TABHERD_BROWSER"

# A pid and when it started: together they are one process and no other.
Known: TypeAlias = tuple[int, int]


class OwnServer:
    """One directory and the server in it, through several lives."""

    def __init__(self, cap: int) -> None:
        # Short and resolved: command lines and sockets carry it.
        self.directory = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        self.state = self.directory / "state"
        self._settings = _settings(cap)
        self._child: asyncio.subprocess.Process | None = None
        # Fixed by the first life, so that agents find the later ones where they found the first.
        self._port = 0
        self.url = ""

    @property
    def admin_token(self) -> str:
        token = read_admin_token(self.state)
        assert token is not None, "a server with auth writes its token before it is ready"
        return token

    async def start(self) -> None:
        """Start a life of it and wait until it takes sessions; a start that fails raises the server's own error."""
        assert self._child is None, "one life at a time"
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TABHERD_")}
        chosen = {KEPT_VARIABLE: value} if (value := os.environ.get(KEPT_VARIABLE)) else {}
        own = {"TABHERD_STATE": str(self.state), "TMPDIR": str(temporary)}
        with (self.directory / "server.log").open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tabherd", "up", "--json", "--host", "127.0.0.1", "--port", str(self._port)),
                env=kept | chosen | self._settings | own,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                # Ctrl-C in this terminal is the demo's to handle: its server must not end first.
                start_new_session=True,
            )
        record = await self._hear_ready(self._child)
        self.url = record.url
        self._port = int(record.url.rpartition(":")[2])

    async def kill(self) -> float:
        """End the server as a power cut would; its browsers run on. When it was gone."""
        assert self._child is not None, "only a running server can be killed"
        self._child.kill()
        await self._child.wait()
        self._child = None
        return now_ms()

    async def stop(self) -> None:
        """The orderly end, or the other one if it takes too long. Idempotent."""
        child, self._child = self._child, None
        if child is None or child.returncode is not None:
            return
        child.terminate()
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()

    async def close(self) -> None:
        """End the server and its browsers, and remove the directory. Idempotent."""
        await self.stop()
        # A server that was killed, or that could not end them, has left its browsers.
        await asyncio.to_thread(end_leftovers, self.state)
        await self._remove()

    def kill_browser(self, pid: int) -> float:
        """Kill a browser of this server with all its processes. When it was done."""
        words = process.command_line(pid)
        is_ours = any(word.startswith(f"--user-data-dir={self.state}{os.sep}") for word in words)
        assert is_ours, f"process {pid} is not a browser of this server"
        assert process.is_leader(pid), f"process {pid} has no group of its own"
        os.killpg(pid, signal.SIGKILL)
        return now_ms()

    def processes(self) -> set[Known]:
        """Whatever runs on behalf of this directory: what names it, and the groups that such a process leads."""
        mark = str(self.directory).encode()
        named = {pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _mentions(pid, mark)}
        grouped = {member for pid in named if process.is_leader(pid) for member in process.group_members(pid)}
        return {(pid, process.start_time(pid)) for pid in named | grouped if process.is_running(pid)}

    def leftover_directories(self) -> list[Path]:
        """What is there of sessions and browsers; nothing, once the server has ended."""
        kept = [self.state / name for name in ("profiles", "files")]
        return [entry for directory in kept if directory.is_dir() for entry in directory.iterdir()]

    async def _remove(self) -> None:
        """Remove the directory; a process that is just ending may still write into it, so more than once if need be."""
        for _ in range(REMOVALS_MAX):
            if not self.directory.exists():
                return
            await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)
            await asyncio.sleep(REMOVAL_POLL_S)
        # Whatever is in the way is named.
        shutil.rmtree(self.directory)

    async def _hear_ready(self, child: asyncio.subprocess.Process) -> ServerRecord:
        """The first line that it prints: where it is, or why it cannot be."""
        assert child.stdout is not None, "its output is a pipe"
        try:
            async with asyncio.timeout(START_LIMIT_S):
                line = await child.stdout.readline()
        except TimeoutError:
            line = b""
        try:
            said = msgspec.json.decode(line, type=dict[str, Any])
            if "code" in said:
                raise from_wire(said)
            return msgspec.convert(said, ServerRecord)
        except (msgspec.DecodeError, msgspec.ValidationError):
            raise NodeUnreachable(
                f"The demo's own server did not start.{self._log_tail()}", action="Run 'tabherd doctor'."
            ) from None

    def _log_tail(self) -> str:
        lines = (self.directory / "server.log").read_text(encoding="utf-8", errors="replace").splitlines()
        return "".join(f"\n  {line}" for line in lines[-LOG_LINES_SHOWN:])


def still_running(known: Iterable[Known]) -> set[Known]:
    """Those that have not ended."""
    return {(pid, started) for pid, started in known if process.is_running(pid) and process.start_time(pid) == started}


def _settings(cap: int) -> dict[str, str]:
    """As many sessions as the demo has tabs, in two browsers, so that the death of one leaves the other at work."""
    pool = {
        "MAX_ACTIVE": cap,
        "BROWSERS_MIN": 2,
        "BROWSERS_MAX": 2,
        "SESSIONS_PER_BROWSER": cap,
        "WARM": 2,
        "ACQUIRE_WAIT_MS": 30_000,
        # Shorter than usual, so that whatever nobody claims is seen to end by itself within a demo.
        "HEARTBEAT_S": 2,
        "STALE_AFTER_S": 10,
        "IDLE_TTL_S": 10,
    }
    # Whoever is still at work when the demo is ended is not waited for.
    server = {"TABHERD_SERVER__DRAIN_S": "0", "TABHERD_SERVER__LOG_FORMAT": "json"}
    return server | {f"TABHERD_POOLS__DEFAULT__{name}": str(value) for name, value in pool.items()}


def _mentions(pid: int, mark: bytes) -> bool:
    for name in ("cmdline", "environ"):
        try:
            if mark in Path(f"/proc/{pid}/{name}").read_bytes():
                return True
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            # It ended meanwhile, or is another user's, and then none of ours.
            continue
    return False
