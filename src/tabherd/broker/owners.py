"""Evidence of the processes that owners named: each is alive or proven dead, told apart from a later one by its start.

A pid is evidence only because a caller named it, and only together with its start time. What this keeps:

- Dead is a proof: the process that was named has exited, though its parent may not have looked yet (a zombie), or its
  pid now belongs to another. One that cannot be asked about, and one that is stopped (SIGSTOP), is not dead.
- Where the kernel has pidfds death is heard of at once and nothing is polled. Elsewhere, or when descriptors run out,
  /proc is read each time somebody asks for the state.
- Each watch calls back once at the most, never from inside the call that began it, and never after `forget`.
- One descriptor per watched session, given back with the proof of death or at `forget`.

Reads Linux' /proc.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from ..browsers import process
from ..core.lease import OwnerProcess
from ..errors import InvalidRequest

log = structlog.get_logger("owners")

# Callers read a start time in seconds from clocks and tools that round it down to whole seconds, twice at worst; the
# kernel's own time of the boot is rounded the same way.
START_TOLERANCE_S: Final = 1.1


class Owners:
    """The processes whose death ends a session, by session."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._watches: dict[str, _Watch] = {}

    def identify(self, pid: int, start_time: float | None) -> int:
        """When the process started, in clock ticks; refused when none such runs.

        `start_time` is what the caller believes: clock ticks, or seconds or milliseconds since 1970. None asks for
        whatever runs under that pid now.
        """
        started_ticks = _visible_start(pid)
        if not started_ticks:
            raise InvalidRequest(
                f"The server sees no process {pid} run on its machine.",
                action="Name a process that runs on the same machine as the server, or leave owner out.",
                field="owner",
                pid=pid,
            )
        if start_time is not None and not _is_start(start_time, started_ticks):
            raise InvalidRequest(
                f"Process {pid} did not start at {start_time}: another has its pid now.",
                action="Send startTime in clock ticks, as in /proc/PID/stat, or in (milli)seconds since 1970.",
                field="owner",
                pid=pid,
            )
        return started_ticks

    def watch(self, session_id: str, pid: int, started_ticks: int, on_death: Callable[[], None]) -> None:
        """Know from now on whether that process lives, and call back when it is proven dead; replaces an earlier watch.

        One that has exited already is dead at once.
        """
        self.forget(session_id)
        self._watches[session_id] = _Watch(pid, started_ticks, on_death, self._clock)

    def state(self, session_id: str) -> OwnerProcess:
        """What is known about the process that this session's owner named."""
        watch = self._watches.get(session_id)
        if watch is None:
            return OwnerProcess.NONE
        return OwnerProcess.ALIVE if watch.is_alive() else OwnerProcess.DEAD

    def died_at(self, session_id: str) -> int:
        """When the death was proven; 0 while it is not."""
        watch = self._watches.get(session_id)
        return 0 if watch is None else watch.died_at or 0

    def forget(self, session_id: str) -> None:
        """The session has ended or changed hands: nothing is known about it from now on. Idempotent."""
        if (watch := self._watches.pop(session_id, None)) is not None:
            watch.stop()

    def close(self) -> None:
        """Forget them all."""
        for session_id in list(self._watches):
            self.forget(session_id)


class _Watch:
    """One process, from the moment it is watched to its proven death."""

    def __init__(self, pid: int, started_ticks: int, on_death: Callable[[], None], clock: Callable[[], int]) -> None:
        self._pid = pid
        self._started_ticks = started_ticks
        self._on_death = on_death
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        # When the death was proven; None before.
        self.died_at: int | None = None
        # The call of `on_death` that is on its way.
        self._telling: asyncio.Handle | None = None
        # -1 when there is none: the state is read from /proc instead.
        self._pidfd = _open_pidfd(pid)
        # Only now: had the pid changed hands before, the descriptor would be another's; from here on it cannot.
        if not self._runs():
            self._died()
        elif self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self._died)

    def is_alive(self) -> bool:
        if self.died_at is None and self._pidfd < 0 and not self._runs():
            self._died()
        return self.died_at is None

    def stop(self) -> None:
        """Never call back from now on. Idempotent."""
        self._let_go()
        if self._telling is not None:
            self._telling.cancel()

    def _runs(self) -> bool:
        try:
            if process.start_time(self._pid) != self._started_ticks:
                return False
            return process.is_running(self._pid) if self._pidfd < 0 else not _is_readable(self._pidfd)
        except PermissionError:
            # It changed its user, and /proc hides those of others: that proves nothing.
            return True

    def _died(self) -> None:
        self._let_go()
        self.died_at = self._clock()
        self._telling = self._loop.call_soon(self._on_death)

    def _let_go(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


def _open_pidfd(pid: int) -> int:
    """A descriptor that becomes readable when the process exits; -1 when there can be none."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return -1
    except OSError as error:
        # An old kernel, a sandbox that hides the call, or no descriptor left: reading /proc is slower, not wrong.
        log.info("a named process is watched by polling", pid=pid, error=str(error))
        return -1


def _is_readable(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def _visible_start(pid: int) -> int:
    """When the process started, in clock ticks since boot; 0 when we see none under that pid, or only a zombie."""
    try:
        return process.start_time(pid) if process.is_running(pid) else 0
    except PermissionError:
        return 0


def _is_start(start_time: float, started_ticks: int) -> bool:
    """Whether that is when the process started, in any of the units that callers have."""
    if start_time == started_ticks:
        return True
    started_s = _boot_s() + started_ticks / os.sysconf("SC_CLK_TCK")
    return any(abs(seconds - started_s) <= START_TOLERANCE_S for seconds in (start_time, start_time / 1_000))


def _boot_s() -> int:
    """When the machine was started, in whole seconds since 1970, as the tools that report start times read it."""
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        if line.startswith("btime "):
            return int(line.split()[1])
    raise AssertionError("/proc/stat has no btime")
