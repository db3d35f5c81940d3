"""Heartbeats: a thread per client says for each of its open sessions and held locks that their owner lives.

It is a thread in both flavours, because an owner whose main thread or event loop is busy lives, too. Invariants:

- Sessions are held weakly: one that its owner forgot is no longer beaten for, and ends by itself on the server.
- One thread watches for the next beat that is due. Before it sends that, it leaves the watch to another if there is
  more to watch, so a beat that hangs holds up no other; how many threads there are is bounded.
- Threads end with the last session, and never keep a process alive. A forked child beats for its own sessions only.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from ..errors import Conflict, NotAllowed, NotFound, NotOwner, TabherdError
from .call import Call

# Opening a session is a sign of life, but only a beat tells the server that there will be more: sent soon, and spared
# to sessions that are over before.
FIRST_S: Final = 1.0
# After a beat that found no server; the session lives on for several missed ones.
RETRY_S: Final = 1.0
# However often a server wants to hear.
INTERVAL_MIN_S: Final = 0.05
# Beats that may hang at once before others wait.
THREADS_MAX: Final = 16


class Beating(Protocol):
    """A session as the pulse sees it."""

    @property
    def id(self) -> str: ...
    @property
    def fence(self) -> int: ...
    @property
    def heartbeat_s(self) -> float: ...

    # What the owner is doing, for people who look.
    phase: str | None

    def was_lost(self, error: TabherdError) -> None:
        """The session is no longer this owner's."""
        ...


@runtime_checkable
class Renewing(Protocol):
    """A named lock as the pulse sees it, besides: it is renewed with a request of its own, and knows that it was."""

    def renewal(self) -> Call[Any]:
        """What renews it; to be sent at once."""
        ...

    def was_renewed(self) -> None:
        """The renewal that was sent last got through."""
        ...


def first_wait_s(session: Beating) -> float:
    """How long after it was opened a session is first beaten for."""
    return max(min(FIRST_S, session.heartbeat_s / 2), INTERVAL_MIN_S)


def next_wait_s(session: Beating, error: TabherdError | None) -> float | None:
    """How long until the next beat after one that ended so; None: there is none. Tells a session that it is lost."""
    if error is None:
        if isinstance(session, Renewing):
            session.was_renewed()
        return max(session.heartbeat_s, INTERVAL_MIN_S)
    if isinstance(error, NotOwner):
        # A shared session of somebody else, who beats for it.
        return None
    if isinstance(error, (Conflict, NotFound, NotAllowed)):
        session.was_lost(error)
        return None
    return max(min(session.heartbeat_s, RETRY_S), INTERVAL_MIN_S)


class _Due(msgspec.Struct, kw_only=True, eq=False):
    session: weakref.ref[Beating]
    # On the monotonic clock.
    at_s: float
    # A thread is at it.
    is_sent: bool = False


class Pulse:
    """Beats for sessions from threads of its own."""

    def __init__(self, send: Callable[[Beating], Any], clock: Callable[[], float] = time.monotonic) -> None:
        # Sends one beat and raises the typed error it was refused with.
        self._send = send
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        # By the session's id().
        self._due: dict[int, _Due] = {}
        # How many threads there are, and whether one of them watches.
        self._threads = 0
        self._is_watched = False

    def add(self, session: Beating) -> None:
        """Beat for it from now on."""
        with self._mine():
            at_s = self._clock() + first_wait_s(session)
            self._due[id(session)] = _Due(session=weakref.ref(session), at_s=at_s)
            self._changed.notify()
            self._see_to_a_watch()

    def remove(self, session: Beating) -> None:
        """Beat for it no more. Idempotent."""
        with self._mine():
            self._due.pop(id(session), None)
            self._changed.notify()

    def close(self) -> None:
        """Beat for nobody. Idempotent."""
        with self._mine():
            self._due.clear()
            self._changed.notify()

    def _mine(self) -> threading.Condition:
        """The lock of this process: a forked child has the objects of its parent, but neither threads nor sessions."""
        if self._pid != os.getpid():
            self._begin()
        return self._changed

    def _see_to_a_watch(self) -> None:
        if self._is_watched or self._threads >= THREADS_MAX:
            # Whoever comes back from sending watches.
            return
        self._threads += 1
        try:
            threading.Thread(target=self._run, name="tabherd-pulse", daemon=True).start()
        except RuntimeError:
            # The process is ending, or has as many threads as it may: those that there are go on.
            self._threads -= 1

    def _run(self) -> None:
        try:
            while (due := self._next()) is not None:
                self._beat(due)
        finally:
            with self._changed:
                self._threads -= 1

    def _next(self) -> _Due | None:
        """Watch until a beat is due and take it; None when another thread watches, or there is nothing to watch."""
        with self._changed:
            if self._is_watched:
                return None
            self._is_watched = True
            try:
                due = self._watch()
            finally:
                self._is_watched = False
            if due is not None and any(not other.is_sent for other in self._due.values()):
                self._see_to_a_watch()
            return due

    def _watch(self) -> _Due | None:
        while True:
            for key in [key for key, due in self._due.items() if due.session() is None]:
                del self._due[key]
            waiting = [due for due in self._due.values() if not due.is_sent]
            if not waiting:
                return None
            due = min(waiting, key=lambda each: each.at_s)
            wait_s = due.at_s - self._clock()
            if wait_s <= 0:
                due.is_sent = True
                return due
            self._changed.wait(wait_s)

    def _beat(self, due: _Due) -> None:
        session = due.session()
        if session is None:
            return
        wait_s: float | None = None
        try:
            self._send(session)
        except TabherdError as error:
            wait_s = next_wait_s(session, error)
        else:
            wait_s = next_wait_s(session, None)
        finally:
            with self._changed:
                due.at_s, due.is_sent = self._clock() + (wait_s or 0.0), False
                if wait_s is None and self._due.get(id(session)) is due:
                    del self._due[id(session)]
