"""How a named lock comes to the first of its line: one competition per name for the backend's lock, then the row.

What it keeps:

- Of all callers of this server that wait for a name, the first one competes with other programs, on behalf of the line:
  the place that the line has there is not lost when its first one leaves.
- Nobody is granted anything in the void. A row is written for a waiter, and when that is done it is looked at again: if
  the waiter has left meanwhile, the next one gets it, under a larger fence.
- A store or backend that is away makes waiters wait on, each as long as it said; then each hears why.
- A competition lasts as long as somebody waits, and ends without a lock when nobody does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import structlog

from ..core.lock_queue import LockQueue, Wish
from ..core.model import NamedLock
from ..errors import LockDeadlock, LockTimedOut, StoreUnavailable, TabherdError
from ..locks.base import AsyncBackend, AsyncHold, Holder, named_key, this_process
from .lock_holds import Holds, LiveLock
from .lock_rows import LockRows, Occupied

log = structlog.get_logger("locks")

# How long a store or backend that is away is left alone.
RETRY_S: Final = 0.5
# Added to the time of the last one in line, so that a waiter's own timer is always the first to ring.
MARGIN_S: Final = 1.0
# After finding that another node's holder has what the backend gives away, it is left alone for so long: that node may
# want to take it again.
OCCUPIED_S: Final = 0.25
# How long grants that are being written may delay a stop.
STOP_LIMIT_S: Final = 5.0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to hold, and how."""

    wish: Wish
    agent_id: str
    # The controllerId that it gave; empty: none.
    controller: str
    ticket_hash: str
    # 0: it does not wait.
    wait_ms: int
    # 0: without a lease.
    lease_ms: int
    # The process that it is bound to; 0: none.
    owner_pid: int
    owner_started: int
    # The connection that it lives by; empty: none.
    connection_id: str


class Waiter:
    """One caller in line."""

    def __init__(self, asked: Asked, until_s: float) -> None:
        self.asked = asked
        # When its time is over, on the loop's clock.
        self.until_s = until_s
        # Set to what it is granted, or to None if the lock is busy and it does not wait.
        self.granted: asyncio.Future[LiveLock | None] = asyncio.get_running_loop().create_future()
        # Why it has not been granted yet, if that is not because the lock is held.
        self.trouble: TabherdError | None = None

    @property
    def is_gone(self) -> bool:
        """Nobody waits for the answer any more."""
        return self.granted.done()

    def tell(self, live: LiveLock | None) -> None:
        if not self.granted.done():
            self.granted.set_result(live)

    def refuse(self, error: TabherdError) -> None:
        if not self.granted.done():
            self.granted.set_exception(error)


class _Competition:
    """The wait for one name's lock of the backend."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        # It has the backend's lock and writes: it must come to its end.
        self.is_granting = False


class Grants:
    """Those who wait for named locks on this server, and how they get them."""

    def __init__(
        self,
        *,
        node_id: str,
        rows: LockRows,
        backend: AsyncBackend,
        queue: LockQueue,
        holds: Holds,
        clock: Callable[[], int],
    ) -> None:
        self._node_id = node_id
        self._rows = rows
        self._backend = backend
        self._queue = queue
        self._holds = holds
        self._clock = clock
        # By the id of their wish.
        self._waiters: dict[str, Waiter] = {}
        # By name.
        self._competitions: dict[str, _Competition] = {}
        holds.on_free = self._see_to

    @property
    def competing(self) -> int:
        """Names that are not held here yet and may be soon."""
        return len(self._competitions)

    async def wait(self, asked: Asked) -> LiveLock | None:
        """Until it is the caller's turn; None: its time was over, or it is busy and the caller does not wait.

        The wish stands in line already, and does not afterwards, whatever comes. A caller that is cancelled leaves
        nothing behind.
        """
        wait_s = asked.wait_ms / 1000
        waiter = Waiter(asked, asyncio.get_running_loop().time() + wait_s)
        self._waiters[asked.wish.id] = waiter
        self._see_to(asked.wish.name)
        try:
            async with asyncio.timeout(wait_s or None):
                return await waiter.granted
        except TimeoutError:
            if (live := _granted(waiter)) is not None:
                return live
            if waiter.trouble is not None:
                raise waiter.trouble from None
            return None
        except asyncio.CancelledError:
            if (live := _granted(waiter)) is not None:
                self._holds.end(live, "lock.released", "caller_left")
            raise
        finally:
            self._leave(waiter)

    def turn_away(self, refusal: Callable[[], TabherdError]) -> None:
        """Whoever waits hears that."""
        for waiter in self._waiters.values():
            waiter.refuse(refusal())

    async def stop(self) -> None:
        """Returns when no competition goes on; whoever waited was turned away."""
        tasks = [competition.task for competition in self._competitions.values()]
        for competition in self._competitions.values():
            if not competition.is_granting:
                competition.task.cancel()
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=STOP_LIMIT_S)
            # Their rows were not written, or are for the next life to bury.
            for task in unfinished:
                task.cancel()

    # --- The competition ------------------------------------------------------------------------------------

    def _leave(self, waiter: Waiter) -> None:
        wish = waiter.asked.wish
        self._waiters.pop(wish.id, None)
        self._queue.leave(wish)
        competition = self._competitions.get(wish.name)
        if competition is not None and not competition.is_granting and self._queue.first(wish.name) is None:
            competition.task.cancel()

    def _see_to(self, name: str) -> None:
        """Compete for the name, if somebody waits for it and nobody here has it."""
        if name in self._competitions or self._queue.is_held(name) or self._queue.first(name) is None:
            return
        task = asyncio.get_running_loop().create_task(self._compete(name), name=f"lock {name}")
        self._competitions[name] = _Competition(task)
        task.add_done_callback(partial(self._ended, name))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._competitions[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("bug: a competition for a lock failed", lock=name, exc_info=error)
            for waiter in self._line(name):
                waiter.refuse(StoreUnavailable("The lock cannot be had because of a bug in tabherd.", name=name))
            return
        # Somebody may have come after it was given up.
        self._see_to(name)

    async def _compete(self, name: str) -> None:
        competition = self._competitions[name]
        while (first := self._first(name)) is not None:
            hold = await self._take(name, first)
            if hold is None:
                continue
            competition.is_granting = True
            pause_s = 0.0
            try:
                if await self._grant(name, hold):
                    return
            except Occupied:
                pause_s = OCCUPIED_S
                self._tell_busy(name)
            await self._holds.give_back(hold)
            competition.is_granting = False
            await asyncio.sleep(pause_s)

    async def _take(self, name: str, first: Waiter) -> AsyncHold | None:
        """The backend's lock; None: look again who is first."""
        holder = _holder(first.asked)
        try:
            if first.asked.wait_ms:
                return await self._backend.acquire(named_key(name), self._patience_s(name), holder)
            hold = await self._backend.try_acquire(named_key(name), holder)
        except LockTimedOut:
            # Only those came too late for it whose own time is over, too; the others go on.
            return None
        except LockDeadlock as error:
            self._drop(first, error)
            return None
        except StoreUnavailable as error:
            await self._wait_out(name, error)
            return None
        if hold is None:
            first.tell(None)
            self._queue.leave(first.asked.wish)
        return hold

    async def _grant(self, name: str, hold: AsyncHold) -> bool:
        """Give it to the first who is still there; False when nobody is. `Occupied` if it is not ours to give."""
        may_stand = False
        while (first := self._first(name)) is not None:
            try:
                row = await self._rows.record(self._row(first.asked, hold))
            except StoreUnavailable as error:
                # It may have been written all the same.
                may_stand = True
                await self._wait_out(name, error)
                continue
            may_stand = True
            if first.is_gone:
                # It left while its row was written, and nobody was told of it.
                self._queue.leave(first.asked.wish)
                continue
            live = LiveLock(row, hold, first.asked.connection_id)
            self._queue.grant(first.asked.wish)
            self._holds.bind(live)
            first.tell(live)
            return True
        if may_stand:
            await self._rows.discard(name)
        return False

    def _tell_busy(self, name: str) -> None:
        """Who does not wait hears that it is held."""
        for waiter in self._line(name):
            if not waiter.asked.wait_ms:
                waiter.tell(None)
                self._queue.leave(waiter.asked.wish)

    async def _wait_out(self, name: str, error: StoreUnavailable) -> None:
        """The store or the backend is away: who does not wait hears so, the others when their time is over."""
        for waiter in self._line(name):
            waiter.trouble = error
            if not waiter.asked.wait_ms:
                self._drop(waiter, error)
        await asyncio.sleep(RETRY_S)

    def _drop(self, waiter: Waiter, error: TabherdError) -> None:
        waiter.refuse(error)
        self._queue.leave(waiter.asked.wish)

    # --- Parts ----------------------------------------------------------------------------------------------

    def _first(self, name: str) -> Waiter | None:
        """Whose turn it is; who is gone already is not waited for to say so."""
        while (wish := self._queue.first(name)) is not None:
            waiter = self._waiters[wish.id]
            if not waiter.is_gone:
                return waiter
            self._queue.leave(wish)
        return None

    def _line(self, name: str) -> list[Waiter]:
        return [self._waiters[wish.id] for wish in self._queue.line(name)]

    def _patience_s(self, name: str) -> float:
        """As long as the most patient one in line has."""
        now_s = asyncio.get_running_loop().time()
        return max(0.0, *(waiter.until_s - now_s for waiter in self._line(name))) + MARGIN_S

    def _row(self, asked: Asked, hold: AsyncHold) -> NamedLock:
        now = self._clock()
        return NamedLock(
            id=asked.wish.name,
            node_id=self._node_id,
            agent_id=asked.agent_id,
            controller=asked.controller,
            ticket_hash=asked.ticket_hash,
            lease_ms=asked.lease_ms,
            acquired_at=now,
            expires_at=now + asked.lease_ms if asked.lease_ms else 0,
            owner_pid=asked.owner_pid,
            owner_started=asked.owner_started,
            is_connection_bound=bool(asked.connection_id),
            generation=hold.generation or 0,
        )


def _granted(waiter: Waiter) -> LiveLock | None:
    """What it was granted, if it was in the very moment in which it stopped waiting."""
    granted = waiter.granted
    if granted.cancelled() or not granted.done() or granted.exception() is not None:
        return None
    return granted.result()


def _holder(asked: Asked) -> Holder:
    name = f"{asked.agent_id}/{asked.controller}" if asked.controller else asked.agent_id
    return this_process(f"{name} via tabherd")
