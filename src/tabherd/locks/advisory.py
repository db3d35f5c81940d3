"""`advisory_lock` and its three siblings: a block of code that one caller at a time runs, over threads, processes and
machines.

- Waiting or skipping, in threads or in tasks: one meaning. Skipping yields False for busy, and for nothing else.
- A caller that would wait for itself is told so at once.
- However the block is left, the lock is released. If it was lost meanwhile, leaving raises `LockLost`, unless an
  exception of the block's own is on its way: that one says more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from ..errors import AdvisoryLockError, LockDeadlock, LockReentered, LockTimedOut
from .base import AsyncHold, Hold, LockKey, LockRow, key_of, this_process
from .configured import async_backend_at, backend_at, place_of
from .holders import HOLDERS, current_owner

log = logging.getLogger("tabherd.locks")

# How long a caller waits that does not say.
TIMEOUT_S = 15.0


class HeldLock:
    """The lock inside the block."""

    def __init__(self, hold: Hold | AsyncHold) -> None:
        self._hold = hold

    def check(self) -> None:
        """Raise `LockLost` if the lock is gone: before a step that must not be done without it. Costs microseconds."""
        self._hold.check()

    @property
    def label(self) -> str:
        """Its name, or its two numbers."""
        return self._hold.key.label

    @property
    def acquired_at(self) -> int:
        """When it was granted, in milliseconds since 1970."""
        return self._hold.acquired_at

    @property
    def generation(self) -> int | None:
        """How often anybody ever acquired it, where that is counted: on files."""
        return self._hold.generation

    def __repr__(self) -> str:
        return f"<HeldLock {self.label!r}>"


@contextmanager
def advisory_lock(
    namespace: int | str,
    key: int | str | None = None,
    timeout: float = TIMEOUT_S,
    url: str | None = None,
    *,
    label: str = "",
) -> Iterator[HeldLock]:
    """Run the block with the lock, waiting up to `timeout` seconds for it.

    `label` says who you are, to people who look at the locks. Raises `LockTimedOut`, `LockReentered`, `LockDeadlock`,
    `LockStoreUnavailable`, and at the end `LockLost`: all of them `AdvisoryLockError`.
    """
    lock, place, caller, began = key_of(namespace, key), place_of(url), current_owner(), time.monotonic()
    HOLDERS.refuse_own(caller, place.url, lock, is_blocking=True)
    try:
        hold = backend_at(place).acquire(lock, timeout, this_process(label), HOLDERS.latest(caller, place.url))
    except LockTimedOut:
        log.warning("lock %s: not free within %g s", lock.label, timeout)
        raise
    try:
        HOLDERS.add(caller, place.url, hold)
        _log_acquired(lock, began)
        yield HeldLock(hold)
    except BaseException:
        _release_quietly(hold, place.url)
        raise
    _release(hold, place.url)


@contextmanager
def advisory_lock_or_skip(
    namespace: int | str, key: int | str | None = None, url: str | None = None, *, label: str = ""
) -> Iterator[bool]:
    """Run the block with True and the lock, or with False if somebody has it; what is broken raises."""
    lock, place, caller, began = key_of(namespace, key), place_of(url), current_owner(), time.monotonic()
    try:
        HOLDERS.refuse_own(caller, place.url, lock, is_blocking=True)
        hold = backend_at(place).try_acquire(lock, this_process(label), HOLDERS.latest(caller, place.url))
    except (LockReentered, LockDeadlock):
        hold = None
    if hold is None:
        log.debug("lock %s: busy, skipped", lock.label)
        yield False
        return
    try:
        HOLDERS.add(caller, place.url, hold)
        _log_acquired(lock, began)
        yield True
    except BaseException:
        _release_quietly(hold, place.url)
        raise
    _release(hold, place.url)


@asynccontextmanager
async def async_advisory_lock(
    namespace: int | str,
    key: int | str | None = None,
    timeout: float = TIMEOUT_S,
    url: str | None = None,
    *,
    label: str = "",
) -> AsyncIterator[HeldLock]:
    """`advisory_lock` for tasks: only the task waits."""
    lock, place, caller, began = key_of(namespace, key), place_of(url), current_owner(), time.monotonic()
    HOLDERS.refuse_own(caller, place.url, lock, is_blocking=False)
    try:
        hold = await async_backend_at(place).acquire(
            lock, timeout, this_process(label), HOLDERS.latest(caller, place.url)
        )
    except LockTimedOut:
        log.warning("lock %s: not free within %g s", lock.label, timeout)
        raise
    try:
        HOLDERS.add(caller, place.url, hold)
        _log_acquired(lock, began)
        yield HeldLock(hold)
    except BaseException:
        await _async_release_quietly(hold, place.url)
        raise
    await _async_release(hold, place.url)


@asynccontextmanager
async def async_advisory_lock_or_skip(
    namespace: int | str, key: int | str | None = None, url: str | None = None, *, label: str = ""
) -> AsyncIterator[bool]:
    """`advisory_lock_or_skip` for tasks."""
    lock, place, caller, began = key_of(namespace, key), place_of(url), current_owner(), time.monotonic()
    try:
        HOLDERS.refuse_own(caller, place.url, lock, is_blocking=False)
        hold = await async_backend_at(place).try_acquire(lock, this_process(label), HOLDERS.latest(caller, place.url))
    except LockReentered:
        hold = None
    if hold is None:
        log.debug("lock %s: busy, skipped", lock.label)
        yield False
        return
    try:
        HOLDERS.add(caller, place.url, hold)
        _log_acquired(lock, began)
        yield True
    except BaseException:
        await _async_release_quietly(hold, place.url)
        raise
    await _async_release(hold, place.url)


def advisory_locks(url: str | None = None) -> list[LockRow]:
    """The locks that are held or waited for, by anybody."""
    return backend_at(place_of(url)).list()


async def async_advisory_locks(url: str | None = None) -> list[LockRow]:
    """The same, for tasks."""
    return await async_backend_at(place_of(url)).list()


# --- Leaving the block --------------------------------------------------------------------------------------------


def _release(hold: Hold, address: str) -> None:
    HOLDERS.remove(address, hold)
    hold.release()
    log.debug("lock %s: released", hold.key.label)


def _release_quietly(hold: Hold, address: str) -> None:
    """Release it while an exception is on its way, which is what the caller must see."""
    try:
        _release(hold, address)
    except AdvisoryLockError as error:
        log.warning("lock %s: %s", hold.key.label, error)


async def _async_release(hold: AsyncHold, address: str) -> None:
    HOLDERS.remove(address, hold)
    await hold.release()
    log.debug("lock %s: released", hold.key.label)


async def _async_release_quietly(hold: AsyncHold, address: str) -> None:
    try:
        await _async_release(hold, address)
    except AdvisoryLockError as error:
        log.warning("lock %s: %s", hold.key.label, error)


def _log_acquired(lock: LockKey, began: float) -> None:
    if log.isEnabledFor(logging.DEBUG):
        log.debug("lock %s: acquired after %.1f ms", lock.label, (time.monotonic() - began) * 1000)
