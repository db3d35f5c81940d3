"""Processes as the kernel knows them: who they are, when they end, and ending a whole group of them.

Invariants:
- A pid alone never identifies a process; its start time does. Nothing is signalled on the strength of a pid.
- A group is only signalled while its leader is alive or an unreaped zombie, because until then the kernel cannot give
  its number to a stranger. That is why the leader's exit is noticed without reaping it.
- Every child is waited for, so none of ours stays a zombie.

Reads Linux' /proc.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import structlog

log = structlog.get_logger(__name__)

# What the kernel counts processor time in.
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

# How long killed processes may take to leave the process table, and how often we look.
VANISH_LIMIT_S: Final = 5.0
VANISH_POLL_S: Final = 0.005


# --- Facts --------------------------------------------------------------------------------------------------------


def start_time(pid: int) -> int:
    """When the process started, in clock ticks since boot; 0 when there is none."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def command_line(pid: int) -> tuple[str, ...]:
    """Its arguments; empty when there is no such process, or it is a zombie."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ()
    return tuple(raw.rstrip(b"\0").decode("utf-8", "replace").split("\0")) if raw else ()


def with_argument(argument: str) -> list[int]:
    """The processes of this user that were started with that very argument."""
    return [pid for pid in _pids() if _is_own(pid) and argument in command_line(pid)]


def with_prefix(prefix: str) -> list[tuple[int, str]]:
    """The processes of this user that were started with an argument that begins like this, and that argument."""
    found = []
    for pid in _pids():
        if _is_own(pid):
            found += [(pid, argument) for argument in command_line(pid) if argument.startswith(prefix)]
    return found


def is_leader(pid: int) -> bool:
    """Whether a group is named after this process."""
    return pid > 0 and _group_of(pid) == pid


def group_members(group: int) -> list[int]:
    """The processes of a group that still run; zombies, which only wait for their parent to look, do not."""
    return [pid for pid in _pids() if _group_of(pid) == group and is_running(pid)]


def is_running(pid: int) -> bool:
    """Whether there is such a process and it is no zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def age_ms(pid: int) -> int | None:
    """How long the process has been there; None when there is none. A thread, which has a number of the same kind, and
    a zombie are none.
    """
    started_ticks = start_time(pid)
    if not is_running(pid) or f"\nTgid:\t{pid}\n" not in _status(pid):
        return None
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000) - started_ticks * 1000 // TICKS_PER_S


def cpu_ms(pid: int) -> int:
    """Processor time that it and the children it has waited for used; 0 when there is none."""
    return cpu_ticks(pid) * 1000 // TICKS_PER_S


def cpu_ticks(pid: int) -> int:
    """Clock ticks of processor time that it and the children it has waited for used; 0 when there is none."""
    fields = _stat(pid)
    return sum(int(ticks) for ticks in fields[11:15])


def _group_of(pid: int) -> int:
    # One system call, where reading /proc takes four: groups are looked for among all processes of the machine.
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _is_own(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third (state) on: the second, a name, may hold anything."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return raw.rpartition(") ")[2].split()


# --- Exit ---------------------------------------------------------------------------------------------------------


class ExitWatch:
    """Calls back once, on the event loop, when a process exits; it stays unreaped."""

    def __init__(self, pid: int, on_exit: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self._is_over = False
        self._pidfd = -1
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError:
            # An old kernel, or one whose sandbox hides the call: a thread waits instead, for our own children only.
            threading.Thread(target=self._wait_in_thread, args=(pid,), name=f"exit-of-{pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._fire)

    def stop(self) -> None:
        """Never call back from now on. Idempotent."""
        self._is_over = True
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _fire(self) -> None:
        if not self._is_over:
            self.stop()
            self._on_exit()

    def _wait_in_thread(self, pid: int) -> None:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            log.error("not a child of ours, its exit goes unnoticed", pid=pid)
            return
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._fire)


async def wait_vanished(group: int) -> None:
    """Returns when no process of the group runs any more; they have all been killed, so it is a matter of moments."""
    deadline = asyncio.get_running_loop().time() + VANISH_LIMIT_S
    while members := group_members(group):
        if asyncio.get_running_loop().time() > deadline:
            log.error("killed processes do not go away", group=group, pids=members)
            return
        await asyncio.sleep(VANISH_POLL_S)


# --- A process and its group --------------------------------------------------------------------------------------


class Group(Protocol):
    """A program and everything it started, whoever started it."""

    pid: int
    pid_started: int

    def on_exit(self, listener: Callable[[str], None]) -> None:
        """Hear of the leader's exit, with the reason; at once if it has exited already."""
        ...

    async def wait_exited(self) -> None: ...

    async def end(self) -> None:
        """Kill the whole group and return when it is gone. Idempotent; also after the leader's own exit."""
        ...


class ChildGroup:
    """A program started in its own session, together with everything it starts: it outlives us unless ended."""

    def __init__(self, argv: Sequence[str], *, log_path: Path, environ: Mapping[str, str]) -> None:
        """Raises OSError when the program cannot be executed."""
        with log_path.open("ab") as output:
            # No pipe to us: one would fill up or break, and take the child with it, when we are killed.
            self._child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environ),
                start_new_session=True,
            )
        self.pid = self._child.pid
        # Identifies the process together with its pid. It cannot be 0: nobody else reaps our child.
        self.pid_started = start_time(self.pid)
        # Set once the leader has exited, its group has been killed and it has been reaped.
        self._exited = asyncio.Event()
        self._exit_listeners: list[Callable[[str], None]] = []
        self._watch = ExitWatch(self.pid, self._settle)

    @property
    def has_exited(self) -> bool:
        return self._exited.is_set()

    @property
    def exit_reason(self) -> str:
        """How the leader ended, in words; only after it has."""
        code = self._child.returncode
        assert code is not None, "asked before the exit"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"

    def on_exit(self, listener: Callable[[str], None]) -> None:
        """Hear of the leader's exit, with the reason; at once if it has exited already."""
        if self.has_exited:
            listener(self.exit_reason)
        else:
            self._exit_listeners.append(listener)

    async def wait_exited(self) -> None:
        await self._exited.wait()

    async def end(self) -> None:
        """Kill the whole group and return when it is gone. Idempotent; also after the leader's own exit."""
        if not self.has_exited:
            # Unreaped, so the number is still its own.
            os.killpg(self.pid, signal.SIGKILL)
            await self._exited.wait()
        await wait_vanished(self.pid)

    def _settle(self) -> None:
        # The leader is a zombie here: its number is safe to signal, and what it left behind is of no use to anybody.
        os.killpg(self.pid, signal.SIGKILL)
        self._child.wait()
        self._exited.set()
        for listener in self._exit_listeners:
            listener(self.exit_reason)
        self._exit_listeners.clear()


class StrangerGroup:
    """The group of a program that an earlier life of ours started: watched and ended like a child, never reaped."""

    def __init__(self, pid: int, pid_started: int) -> None:
        """Raises ProcessLookupError when the process with that start time does not run any more."""
        self.pid = pid
        self.pid_started = pid_started
        self._exited = asyncio.Event()
        self._exit_listeners: list[Callable[[str], None]] = []
        self._watch = ExitWatch(pid, self._settle)
        # Only now: what is watched is whatever had the pid when the watch began.
        if start_time(pid) != pid_started or not is_running(pid):
            self._watch.stop()
            raise ProcessLookupError(f"process {pid} is gone")

    def on_exit(self, listener: Callable[[str], None]) -> None:
        if self._exited.is_set():
            listener("is gone")
        else:
            self._exit_listeners.append(listener)

    async def wait_exited(self) -> None:
        await self._exited.wait()

    async def end(self) -> None:
        self._kill()
        await wait_vanished(self.pid)
        self.let_go()

    def let_go(self) -> None:
        """Stop watching; the processes run on. Idempotent."""
        self._watch.stop()

    def _kill(self) -> None:
        # Absent counts as ours: while any member of a group lives, the kernel gives its number to nobody else.
        if start_time(self.pid) in (0, self.pid_started):
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _settle(self) -> None:
        self._kill()
        self._exited.set()
        for listener in self._exit_listeners:
            listener("is gone")
        self._exit_listeners.clear()


async def end_stranger(pid: int, pid_started: int, argument: str) -> bool:
    """Kill the group of a process that is not our child, if it is the one described; tells whether it was.

    The three marks together (pid, start time, an argument only we give) leave no room for a process that merely got
    the same pid.
    """
    if pid <= 0 or start_time(pid) != pid_started or argument not in command_line(pid):
        return False
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    await wait_vanished(pid)
    return True
