"""The server's process, as seen from outside: is it really ours, and has it ended?

A pid alone proves nothing, because the kernel uses numbers again. A server writes its pid into the `lock` file of its
state directory and holds that file open for as long as it lives, also while it starts and stops, when there is no
`server.json`. A process counts as the server only if its command is tabherd's and it has that very file open; it is
held through a pidfd while this is checked, so that a signal can only reach what was checked.
"""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path
from types import TracebackType
from typing import Self

from ..client.discovery import ServerRecord, read_server_record

LOCK_FILE = "lock"


class ServerProcess:
    """A live, verified server process. Close it, or use it in `with`."""

    def __init__(self, pid: int, pidfd: int, record: ServerRecord | None) -> None:
        self.pid = pid
        # Where it can be reached; None while it starts or stops.
        self.record = record
        self._pidfd = pidfd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._pidfd)

    def terminate(self) -> None:
        """Send SIGTERM; a process that has ended meanwhile is fine."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
        except ProcessLookupError:
            return

    def wait(self, limit_s: float) -> bool:
        """Whether it ended within the limit."""
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        return bool(poller.poll(limit_s * 1000))


def find_server(state: Path) -> ServerProcess | None:
    """The process that owns that state directory, or None."""
    lock = state.resolve() / LOCK_FILE
    try:
        pid = int(lock.read_bytes())
        pidfd = os.pidfd_open(pid)
    except (OSError, ValueError, OverflowError):
        # Never started here, or ended since; a number that cannot be a pid is neither.
        return None
    if _is_server(pid, lock):
        record = read_server_record(state)
        return ServerProcess(pid, pidfd, record if record is not None and record.pid == pid else None)
    os.close(pidfd)
    return None


def _is_server(pid: int, lock: Path) -> bool:
    proc = Path("/proc") / str(pid)
    try:
        words = (proc / "cmdline").read_bytes().split(b"\0")
        descriptors = list((proc / "fd").iterdir())
    except OSError:
        # It ended while we looked, or belongs to another user and is then not ours to end.
        return False
    # `.../bin/tabherd up` and `python -m tabherd up`.
    is_tabherd = any(word.rpartition(b"/")[2] == b"tabherd" for word in words)
    return is_tabherd and any(_target(descriptor) == lock for descriptor in descriptors)


def _target(descriptor: Path) -> Path | None:
    try:
        return descriptor.readlink()
    except FileNotFoundError:
        # Closed since it was listed.
        return None
