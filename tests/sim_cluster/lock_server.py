"""Advisory locks of the simulated database: session locks of connections, each of which belongs to one life of a node.

A lock is free when its connection ends on the database's side: released, its process killed, ended by another node
(`expel`), or found dead after a cut. The node on the other side of a cut hears of it later, if ever. Whoever is in
doubt closes the connection; what was sent on it before may still arrive, but only ahead of its end.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tabherd.errors import LockLost, LockTimedOut, StoreUnavailable
from tabherd.locks.base import AnyHold, AsyncHold, Holder, LockKey, LockRow, LockStoreUnavailable

T = TypeVar("T")
# Within this time the database notices that a connection was closed.
NOTICED_S = 0.01

if TYPE_CHECKING:
    from .node import NodeLife
    from .world import World


class SimHold:
    """Implements `AsyncHold`."""

    def __init__(self, link: LockLink, key: LockKey, holder: Holder, generation: int) -> None:
        self._link = link
        self.key = key
        self.holder = holder
        self.generation = generation
        self.acquired_at = link.clock()
        self._told: Callable[[], None] = lambda: None

    def check(self) -> None:
        """It is not asked here."""

    def on_lost(self, told: Callable[[], None]) -> None:
        self._told = told

    async def release(self) -> None:
        await self._link.release(self)

    def lose(self) -> None:
        """Its connection is gone, and its node hears of it."""
        self._told()


class LockServer:
    """The locks of all nodes, as the database has them."""

    def __init__(self) -> None:
        self.holds: dict[LockKey, SimHold] = {}
        self.owners: dict[LockKey, LockLink] = {}
        self.generations: Counter[LockKey] = Counter()
        self._lines: dict[LockKey, deque[tuple[LockLink, Holder, asyncio.Future[SimHold]]]] = {}
        self.links: list[LockLink] = []

    def try_take(self, link: LockLink, key: LockKey, holder: Holder) -> SimHold | None:
        if key in self.holds or link.is_ended:
            return None
        self.generations[key] += 1
        hold = self.holds[key] = SimHold(link, key, holder, self.generations[key])
        self.owners[key] = link
        return hold

    def queue(self, link: LockLink, key: LockKey, holder: Holder, turn: asyncio.Future[SimHold]) -> None:
        """Have the turn resolved when it comes."""
        self._lines.setdefault(key, deque()).append((link, holder, turn))
        self._hand_on(key)

    def leave(self, key: LockKey, turn: asyncio.Future[SimHold]) -> None:
        """Nobody waits for it; what it was given in the same moment is free again."""
        self._lines[key] = deque(one for one in self._lines.get(key, ()) if one[2] is not turn)
        if turn.done():
            self.free(turn.result())

    def free(self, hold: SimHold) -> bool:
        """Whether it was held."""
        if self.holds.get(hold.key) is not hold:
            return False
        del self.holds[hold.key], self.owners[hold.key]
        self._hand_on(hold.key)
        return True

    def end(self, link: LockLink) -> list[SimHold]:
        """Its connections are over, on this side; what they held."""
        link.is_ended = True
        for key, line in self._lines.items():
            self._lines[key] = deque(one for one in line if one[0] is not link)
        lost = [hold for key, hold in list(self.holds.items()) if self.owners[key] is link]
        for hold in lost:
            self.free(hold)
        return lost

    def _hand_on(self, key: LockKey) -> None:
        line = self._lines.get(key, deque())
        while line and key not in self.holds:
            link, holder, turn = line.popleft()
            if not turn.done() and (hold := self.try_take(link, key, holder)) is not None:
                turn.set_result(hold)


class LockLink:
    """Implements `AsyncBackend` for one life of a node."""

    def __init__(self, world: World, life: NodeLife, marker: str) -> None:
        self._world = world
        self._server = world.lock_server
        self._life = life
        self.marker = marker
        self.clock = world.loop.clock_ms
        # Whether its connections are over, as the database sees it; those that are opened later are not.
        self.is_ended = False
        # Attempts whose connection was closed.
        self._given_up: set[asyncio.Future[SimHold]] = set()
        self._server.links.append(self)

    async def acquire(self, key: LockKey, timeout_s: float, holder: Holder, beside: AnyHold | None = None) -> AsyncHold:
        turn: asyncio.Future[SimHold] = asyncio.get_running_loop().create_future()
        try:
            await self._attempt(key, turn, lambda: self._server.queue(self, key, holder, turn))
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(turn)
        except TimeoutError:
            self._give_up(key, turn)
            raise LockTimedOut("Too late.", name=key.label) from None
        except BaseException:
            self._give_up(key, turn)
            raise

    async def try_acquire(self, key: LockKey, holder: Holder, beside: AnyHold | None = None) -> AsyncHold | None:
        turn: asyncio.Future[SimHold] = asyncio.get_running_loop().create_future()

        def take() -> SimHold | None:
            if (hold := self._server.try_take(self, key, holder)) is not None:
                turn.set_result(hold)
            return hold

        try:
            return await self._attempt(key, turn, take)
        except BaseException:
            self._give_up(key, turn)
            raise

    async def release(self, hold: SimHold) -> None:
        try:
            was_held = await self._ask(lambda: self._server.free(hold))
        except BaseException:
            self._closed(self._server.free, hold)
            raise
        if not was_held:
            raise LockLost("It was lost before.", name=hold.key.label)

    async def list(self) -> list[LockRow]:
        rows = [
            LockRow(label=key.label, holder=hold.holder, acquired_at=hold.acquired_at)
            for key, hold in self._server.holds.items()
        ]
        return await self._ask(lambda: rows)

    async def expel(self, marker: str) -> int:
        """As another node does it: connections of that life end, and it hears so when it is reached."""
        links = [link for link in self._server.links if link.marker == marker and not link.is_ended]

        def end() -> int:
            for link in links:
                link.lose()
            return len(links)

        return await self._ask(end)

    async def close(self) -> None:
        """What is held stays held until it is released."""

    def lose(self) -> None:
        """The connections break; its process hears so, if it runs, when its line is open."""
        self._world.lock_rules.lost(self._life)
        for hold in self._server.end(self):
            self._life.process.call_later(self._world.pace.random() * 0.01, hold.lose)
        # Others are opened when they are needed.
        self.is_ended = self._life.is_over or self._life.process.is_killed

    async def _attempt(self, key: LockKey, turn: asyncio.Future[SimHold], work: Callable[[], T]) -> T:
        """Have the database give it the lock, or a place in line."""

        def arrive() -> T:
            result = work()
            if turn in self._given_up:
                # The connection was closed after this was sent, so its end is noticed after this, too.
                self._give_up(key, turn)
            return result

        return await self._ask(arrive)

    def _give_up(self, key: LockKey, turn: asyncio.Future[SimHold]) -> None:
        self._given_up.add(turn)
        self._closed(self._server.leave, key, turn)

    def _closed(self, noticed: Callable[..., object], *args: object) -> None:
        """A connection was closed, which the database notices a little later."""
        loop = self._world.loop
        loop.call_later(self._world.pace.random() * NOTICED_S, noticed, *args, context=loop.outside)

    async def _ask(self, work: Callable[[], T]) -> T:
        try:
            return await self._life.line.ask(work, is_write=True)
        except StoreUnavailable as error:
            raise LockStoreUnavailable("The database of locks does not answer.", cause="away") from error
