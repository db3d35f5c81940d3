"""Locks on files of one directory: any number of processes of one machine, nothing to install.

Invariants:
- The flock of `KEY.lock` is the lock. The kernel frees it when its holder dies, however it dies.
- Whoever has to wait stands in line twice: in its process, behind the callers that came before it; and with one
  thread per process and key in the kernel's own line, on the flock of `KEY.line`. Only who has that one tries for the
  lock, so that a crowd costs no more than one that looks again and again.
- Nobody is overtaken: who waits shares the flock of `KEY.crowd`, and who has just come takes the lock right away only
  if it can have that one for itself, which means that nobody waits.
- Giving up leaves nothing. A thread cannot be called back out of the kernel's line, but all that it can still get there
  is the line's flock, which it lets go of at once; the lock itself is never taken for somebody who has gone.
- A child process has neither its parent's locks nor its lines.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from ..errors import LockLost, LockTimedOut
from .base import AnyHold, AsyncHold, Holder, LockKey, LockRow, LockStoreUnavailable, checked_timeout_s
from .counting import FileCounts
from .file_rows import rows_in
from .lock_file import DESCRIPTORS, LockFile, let_go, sweep, try_flock
from .waiting import Line, Waiter, at_once

# How often the first in the line looks whether the lock is free: soon at first, since most are held briefly.
LOOK_FIRST_S: Final = 0.0001
LOOK_LAST_S: Final = 0.002
# How much longer each pause is than the one before.
LOOK_GROWTH: Final = 1.3


class FileHold:
    """A lock that is held, for threads."""

    def __init__(self, file: LockFile, freed: Callable[[LockKey], None]) -> None:
        self.key: Final = file.key
        self.acquired_at: Final = file.acquired_at
        self.generation: Final = file.generation
        self._file = file
        # Told when it is free again.
        self._freed = freed
        # Who empties it, releases.
        self._unreleased = [True]

    def check(self) -> None:
        if not self._file.is_held:
            raise _lost(self.key)

    def release(self) -> None:
        try:
            self._unreleased.pop()
        except IndexError:
            return
        was_held = self._file.is_held
        try:
            self._file.give_back()
        except OSError as error:
            raise _unusable(error) from error
        self._freed(self.key)
        if not was_held:
            raise _lost(self.key)


class AsyncFileHold:
    """The same for tasks: nothing about it waits."""

    def __init__(self, hold: FileHold) -> None:
        self.key: Final = hold.key
        self.acquired_at: Final = hold.acquired_at
        self.generation: Final = hold.generation
        self._hold = hold

    def check(self) -> None:
        self._hold.check()

    def on_lost(self, told: Callable[[], None]) -> None:
        """The kernel takes no lock away from a process that lives: there is nothing to tell."""

    async def release(self) -> None:
        self._hold.release()


Handed: TypeAlias = LockFile | OSError


class _Queue:
    """Those in this process who wait for one lock, and the thread that stands in the kernel's line for them."""

    def __init__(self) -> None:
        # They are handed the lock, or what went wrong.
        self.line: Line[Handed] = Line()
        # Who they are, for monitoring.
        self.holders: list[Holder] = []
        # Set when the lock is let go of in this process, so that nobody sleeps on.
        self.freed = threading.Event()
        # Whether the thread is there. Changed under the lock of all queues.
        self.is_served = False


class FileLocks:
    """What threads and tasks of this process have in common on one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory
        self.counts: Final = FileCounts(directory)
        # By lock, as long as somebody waits for it or a thread stands in line.
        self._queues: dict[LockKey, _Queue] = {}
        self._guard = threading.Lock()

    def make_directory(self) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            sweep(self.directory)
        except OSError as error:
            raise _unusable(error) from error

    def forget(self) -> None:
        """In a fork: the threads that served the lines do not exist here."""
        self._queues = {}
        self._guard = threading.Lock()
        self.counts.forget()

    async def acquire(self, key: LockKey, timeout_s: float, holder: Holder, *, is_task: bool) -> FileHold:
        """Wait for the lock, in the thread or task that calls."""
        until = time.monotonic() + checked_timeout_s(timeout_s)
        try:
            file = self._take_unless_awaited(key) if timeout_s else LockFile.take(self._path(key), key)
            if file is None and timeout_s:
                self.counts.add(key, waits=1)
                file = await self._wait(key, until, holder, is_task=is_task)
            if file is not None:
                return self._signed(file, holder)
            self.counts.add(key, timeouts=1)
        except OSError as error:
            raise _unusable(error) from error
        raise LockTimedOut(f"Lock '{key.label}' was not free within {timeout_s:g} s.", lock=key.label)

    def try_acquire(self, key: LockKey, holder: Holder) -> FileHold | None:
        """The lock, or None if somebody has it."""
        try:
            file = LockFile.take(self._path(key), key)
            hold = self._signed(file, holder) if file is not None else None
            self.counts.tried(key, is_taken=hold is not None)
        except OSError as error:
            raise _unusable(error) from error
        return hold

    def rows(self) -> list[LockRow]:
        """Locks that are held or waited for."""
        with self._guard:
            waiting = {key.file_name: tuple(queue.holders) for key, queue in self._queues.items()}
        try:
            return rows_in(self.directory, waiting)
        except OSError as error:
            raise _unusable(error) from error

    def _path(self, key: LockKey) -> Path:
        return self.directory / f"{key.file_name}.lock"

    def _opened(self, key: LockKey, suffix: str) -> int:
        return DESCRIPTORS.open(self._path(key).with_suffix(suffix), os.O_RDWR | os.O_CREAT)

    def _signed(self, file: LockFile, holder: Holder) -> FileHold:
        try:
            file.sign(holder)
        except BaseException:
            # A full disk must not leave a lock with nobody to release it.
            file.give_back()
            raise
        return FileHold(file, self._free)

    def _take_unless_awaited(self, key: LockKey) -> LockFile | None:
        """The lock, if it is free and nobody waits for it."""
        if key in self._queues:
            return None
        crowd = self._opened(key, ".crowd")
        try:
            return LockFile.take(self._path(key), key) if try_flock(crowd) else None
        finally:
            let_go(crowd)

    async def _wait(self, key: LockKey, until: float, holder: Holder, *, is_task: bool) -> LockFile | None:
        """Stand in line until then; None when the time is over."""
        waiter: Waiter[Handed] = Waiter(is_task)
        queue = self._join(key, waiter, holder)
        try:
            await waiter.wait(until - time.monotonic())
        except BaseException:
            # Cancelled or interrupted, perhaps just after the lock was handed over.
            for handed in self._leave(queue, waiter, holder):
                if isinstance(handed, LockFile):
                    handed.give_back()
                    queue.freed.set()
            raise
        for handed in self._leave(queue, waiter, holder):
            if isinstance(handed, OSError):
                raise handed
            return handed
        return None

    def _join(self, key: LockKey, waiter: Waiter[Handed], holder: Holder) -> _Queue:
        with self._guard:
            queue = self._queues.setdefault(key, _Queue())
            queue.holders.append(holder)
            queue.line.join(waiter)
            if not queue.is_served:
                # A daemon, since it may be in the kernel's line when the program ends.
                threading.Thread(target=self._serve, args=(key, queue), name="tabherd-lock", daemon=True).start()
                queue.is_served = True
        return queue

    def _leave(self, queue: _Queue, waiter: Waiter[Handed], holder: Holder) -> tuple[Handed, ...]:
        with self._guard:
            queue.holders.remove(holder)
        return queue.line.leave(waiter)

    def _free(self, key: LockKey) -> None:
        if queue := self._queues.get(key):
            queue.freed.set()

    # --- The thread that stands in the kernel's line ---

    def _serve(self, key: LockKey, queue: _Queue) -> None:
        """Get the lock for those who wait here, one after the other, until nobody does."""
        while True:
            with self._guard:
                if not queue.line:
                    queue.is_served = False
                    if self._queues.get(key) is queue:
                        del self._queues[key]
                    return
            try:
                self._serve_first(key, queue)
            except OSError as error:
                queue.line.hand(error)

    def _serve_first(self, key: LockKey, queue: _Queue) -> None:
        crowd = self._opened(key, ".crowd")
        try:
            fcntl.flock(crowd, fcntl.LOCK_SH)
            self._serve_in_line(key, queue)
        finally:
            let_go(crowd)

    def _serve_in_line(self, key: LockKey, queue: _Queue) -> None:
        line = self._opened(key, ".line")
        try:
            fcntl.flock(line, fcntl.LOCK_EX)
            pause_s = LOOK_FIRST_S
            while queue.line:
                queue.freed.clear()
                if file := LockFile.take(self._path(key), key):
                    if not queue.line.hand(file):
                        file.give_back()
                    return
                queue.freed.wait(pause_s)
                pause_s = min(pause_s * LOOK_GROWTH, LOOK_LAST_S)
        finally:
            let_go(line)


# --- The two shells -----------------------------------------------------------------------------------------------


class FileBackend:
    """Locks of one directory, for threads."""

    def __init__(self, directory: Path) -> None:
        self._locks = _locks_in(directory)

    def acquire(self, key: LockKey, timeout_s: float, holder: Holder, beside: AnyHold | None = None) -> FileHold:
        return at_once(self._locks.acquire(key, timeout_s, holder, is_task=False))

    def try_acquire(self, key: LockKey, holder: Holder, beside: AnyHold | None = None) -> FileHold | None:
        return self._locks.try_acquire(key, holder)

    def list(self) -> list[LockRow]:
        return self._locks.rows()

    def close(self) -> None:
        """Nothing is kept open for later."""


class AsyncFileBackend:
    """Locks of one directory, for the tasks of an event loop."""

    def __init__(self, directory: Path) -> None:
        self._locks = _locks_in(directory)

    async def acquire(self, key: LockKey, timeout_s: float, holder: Holder, beside: AnyHold | None = None) -> AsyncHold:
        return AsyncFileHold(await self._locks.acquire(key, timeout_s, holder, is_task=True))

    async def try_acquire(self, key: LockKey, holder: Holder, beside: AnyHold | None = None) -> AsyncHold | None:
        hold = self._locks.try_acquire(key, holder)
        return AsyncFileHold(hold) if hold else None

    async def list(self) -> list[LockRow]:
        # There may be thousands of files to look at.
        return await asyncio.to_thread(self._locks.rows)

    async def expel(self, marker: str) -> int:
        return 0

    async def close(self) -> None:
        """Nothing is kept open for later."""


# By directory, so that all callers of a process stand in one line for each lock.
_opened: dict[Path, FileLocks] = {}
_opening = threading.Lock()


def _locks_in(directory: Path) -> FileLocks:
    with _opening:
        resolved = directory.expanduser().absolute()
        if resolved not in _opened:
            _opened[resolved] = FileLocks(resolved)
        locks = _opened[resolved]
    locks.make_directory()
    return locks


def _forget_in_child() -> None:
    global _opening
    _opening = threading.Lock()
    for locks in _opened.values():
        locks.forget()


os.register_at_fork(after_in_child=_forget_in_child)


def _lost(key: LockKey) -> LockLost:
    return LockLost(
        f"Lock '{key.label}' is lost: its file was removed, or this is a fork of its holder.", lock=key.label
    )


def _unusable(error: OSError) -> LockStoreUnavailable:
    return LockStoreUnavailable(f"The directory of the locks cannot be used: {error}.", reason=str(error))
