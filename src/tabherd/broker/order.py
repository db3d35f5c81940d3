"""The session mutex, and the one order in which locks are taken: session, then lease, then store.

Whoever takes them in one order never waits in a circle. What a task holds is written down, and a task that goes against
the order hears `LockOrderViolated` at once, before it can wait:

- A task has one session at a time, and never the same one twice: that would wait for itself.
- While it holds a rank it may only take later ones. So nothing inside a store call, and nothing that changes a lease,
  takes a session.
- The books are kept per task: one that is started by a holder holds nothing.

That is for us and not for users, so it is like an assertion: under `python -O` nothing is written down or checked, and
only the mutex itself remains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from types import TracebackType
from typing import Any, Final, TypeAlias

from ..core.model import RowT
from ..store.base import Op, Outcome, Scalar, Store


class LockOrderViolated(AssertionError):
    """A task took locks in an order in which two tasks could wait for each other: a bug of ours."""


class Rank(IntEnum):
    """What can be held, in the order in which it is taken."""

    SESSION = 1
    LEASE = 2
    STORE = 3


def held(rank: Rank, name: str = "") -> AbstractContextManager[None]:
    """Around work that has a lease or the store: says so in the books, and refuses work that goes against the order."""
    return _Holding(rank, name) if __debug__ else _NOT_TRACKED


def holdings() -> tuple[str, ...]:
    """What the running task holds, in the order in which it took it."""
    return tuple(str(holding) for holding in _books.get(_running_task(), ()))


class SessionMutex:
    """Makes bind, checkout, recovery, release, handoff and state import of one session serial.

    `async with mutex:`; first come, first served. It is taken before anything of that session is written.
    """

    __slots__ = ("_holding", "_lock", "_name")

    def __init__(self, name: str = "") -> None:
        # The session's id, for whoever reads the error.
        self._name = name
        self._lock = asyncio.Lock()
        # The entry of whoever has it.
        self._holding: _Holding | None = None

    def locked(self) -> bool:
        return self._lock.locked()

    async def __aenter__(self) -> None:
        if __debug__:
            holding = _Holding(Rank.SESSION, self._name)
            # Before the wait, which would be for ever if this task had it already.
            holding.check()
        await self._lock.acquire()
        if __debug__:
            # Nothing can have been taken meanwhile: the task was waiting here.
            holding.note()
            self._holding = holding

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if __debug__:
            assert self._holding is not None, "given back twice"
            self._holding.strike()
            self._holding = None
        self._lock.release()


class OrderedStore:
    """A store whose calls stand in the books while they run."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def apply(self, *ops: Op) -> Outcome:
        with held(Rank.STORE, "apply"):
            return await self._store.apply(*ops)

    async def get(self, table: type[RowT], id: str) -> RowT | None:
        with held(Rank.STORE, "get"):
            return await self._store.get(table, id)

    async def select(
        self,
        table: type[RowT],
        where: Mapping[str, Scalar | tuple[Scalar, ...]] | None = None,
        *,
        after: str = "",
        limit: int = 1_000,
        newest_first: bool = False,
    ) -> list[RowT]:
        with held(Rank.STORE, "select"):
            return await self._store.select(table, where, after=after, limit=limit, newest_first=newest_first)

    async def counter(self, name: str) -> int:
        with held(Rank.STORE, "counter"):
            return await self._store.counter(name)

    async def now(self) -> int:
        with held(Rank.STORE, "now"):
            return await self._store.now()

    async def close(self) -> None:
        await self._store.close()


def ordered(store: Store) -> Store:
    """The store as the broker uses it: in the books, or just itself where none are kept."""
    return OrderedStore(store) if __debug__ else store


# --- The books ----------------------------------------------------------------------------------------------------

_Task: TypeAlias = "asyncio.Task[Any] | None"
# What each task holds, in order. An entry goes with the last thing its task holds, so no finished task stays here.
_books: dict[_Task, list[_Holding]] = {}
_NOT_TRACKED: Final = nullcontext()


class _Holding:
    """One thing that a task holds, or is about to."""

    __slots__ = ("_name", "_rank", "_task")

    def __init__(self, rank: Rank, name: str) -> None:
        self._rank = rank
        self._name = name
        self._task = _running_task()

    def __str__(self) -> str:
        return f"{self._rank.name.lower()} {self._name}".rstrip()

    def check(self) -> None:
        """Refuse what does not come after everything that the task holds; the last is the latest."""
        mine = _books.get(self._task)
        if mine and mine[-1]._rank >= self._rank:
            raise LockOrderViolated(
                f"A task takes {self} while it holds {', '.join(map(str, mine))}; "
                "the order is session, lease, store, and one of each."
            )

    def note(self) -> None:
        _books.setdefault(self._task, []).append(self)

    def strike(self) -> None:
        # By the entry's own task: a coroutine that is thrown away is closed by whoever runs at that moment.
        mine = _books[self._task]
        mine.remove(self)
        if not mine:
            del _books[self._task]

    def __enter__(self) -> None:
        self.check()
        self.note()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.strike()


def _running_task() -> _Task:
    """None in a callback, which runs without a pause and so keeps books that are empty again when it ends."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
