"""The database that all nodes share, and each node's way to it, which can be cut, hang, lose answers and be late.

What a node asks travels there and back as messages of the world, so a write of a node that was killed, stopped or cut
off meanwhile may still land: at once, or long after everybody has given it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tests.sim.script import PACE, Pace

from tabherd.core.model import RowT
from tabherd.errors import StoreUnavailable
from tabherd.store.base import IN_DOUBT, Op, Outcome
from tabherd.store.evaluate import evaluate
from tabherd.store.memory import MemoryStore

from .machine_loop import Process
from .verb_rules import Asked, asked_now

if TYPE_CHECKING:
    from .node import NodeLife
    from .world import World

T = TypeVar("T")
# How long a message to the database or back takes.
WAY_S = 0.003
# How long a node waits for an answer; as many of its beats as with the defaults.
STATEMENT_LIMIT_S = 2.0
# How often an answer is lost although the database has done its part.
LOST_RATE = 0.002
# The same while the way back is bad.
LOSSY_RATE = 0.3
# How often a message that a cut has caught arrives after it all the same.
LATE_RATE = 0.5


class Database(MemoryStore):
    """What survives everything. Every transaction that was applied is shown to the rules."""

    def __init__(self, world: World) -> None:
        super().__init__(world.loop.clock_ms)
        self._world = world
        # Whether nobody reaches it.
        self.is_away = False
        # Whether whoever asks meanwhile hears nothing, instead of a refusal.
        self.is_silent = False
        # Whether many answers are lost.
        self.is_lossy = False
        # How late it answers.
        self.slow_s = 0.0
        # How late it has ever answered.
        self.slowest_s = 0.0
        # Until when it was last away or slow.
        self.troubled_until_s = 0.0

    def transact(self, ops: tuple[Op, ...], writer: NodeLife | None, asked: Asked) -> Outcome:
        """All of it or none of it, now, on behalf of that."""
        rules = self._world.rules
        before = rules.before(ops, writer)
        self._world.verb_rules.before(ops, asked)
        (outcome,), _ = evaluate([ops], self._state)
        rules.wrote(before, ops, outcome, writer)
        self._world.verb_rules.wrote(outcome)
        return outcome

    def rows(self, table: type[RowT]) -> dict[str, RowT]:
        """By id."""
        return self._state.rows.get(table, {})  # type: ignore[return-value]

    def row(self, table: type[RowT], id: str) -> RowT | None:
        return self._state.row(table, id)  # type: ignore[return-value]

    @property
    def counters(self) -> dict[str, int]:
        return self._state.counters


class Line:
    """Implements `Store`: the way of one process to the database."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._database = world.database
        self._process = process
        self._loop = world.loop
        self.is_cut = False
        # Whether a cut is silent: nobody hears anything before the limit.
        self.is_silent = False
        # Until when something may wait for an answer that never comes.
        self.hung_until_s = 0.0
        # For whom it writes; None before a life has begun.
        self.life: NodeLife | None = None
        # Messages that a cut has caught on their way there.
        self._caught: list[Callable[[], object]] = []

    # --- Faults ---------------------------------------------------------------------------------------------

    def cut(self, *, is_silent: bool) -> None:
        self.is_cut, self.is_silent = True, is_silent

    def mend(self) -> None:
        """What was on its way may arrive now, whoever waits for it."""
        self.is_cut = False
        caught, self._caught = self._caught, []
        for arrive in caught:
            if PACE.get().random() < LATE_RATE and not self._database.is_away:
                arrive()

    @property
    def is_open(self) -> bool:
        return not self.is_cut and not self._database.is_away

    # --- Store ----------------------------------------------------------------------------------------------

    async def apply(self, *ops: Op) -> Outcome:
        # As of now: what the process becomes later does not change what it has sent.
        writer, asked = self.life, asked_now()
        return await self.ask(lambda: self._database.transact(ops, writer, asked), is_write=True)

    async def get(self, table: type[RowT], id: str) -> RowT | None:
        return await self.ask(lambda: self._database.row(table, id))

    async def select(self, table: type[RowT], where: Mapping[str, Any] | None = None, **more: Any) -> list[RowT]:
        return await self.ask(lambda: self._database.list_rows(table, where, **more))

    async def counter(self, name: str) -> int:
        return await self.ask(lambda: self._database.counters.get(name, 0))

    async def now(self) -> int:
        return await self.ask(self._loop.clock_ms)

    async def close(self) -> None:
        """The database outlives its users."""

    # --- Messages -------------------------------------------------------------------------------------------

    async def ask(self, work: Callable[[], T], *, is_write: bool = False) -> T:
        """Have the database do something, and hear what came of it."""
        if self._loop.is_over:
            raise asyncio.CancelledError
        answer: asyncio.Future[T] = self._loop.create_future()
        # Of whoever asks: what happens to a message on its way is part of that.
        pace = PACE.get()
        self._later(self._way_s(pace), self._arrive, work, answer, is_write, pace)
        return await answer

    async def pause(self) -> None:
        """A round trip that does nothing."""
        await self.ask(lambda: None)

    def _arrive(self, work: Callable[[], T], answer: asyncio.Future[T], is_write: bool, pace: Pace) -> None:
        if not self.is_open:
            is_silent = self.is_silent if self.is_cut else self._database.is_silent
            if is_silent:
                self.hung_until_s = self._loop.now_s + STATEMENT_LIMIT_S
            if is_silent and is_write and self.is_cut:
                self._caught.append(work)
                self._later(STATEMENT_LIMIT_S, self._refuse, answer, IN_DOUBT)
            else:
                self._later(STATEMENT_LIMIT_S if is_silent else 0.0, self._refuse, answer, "away")
            return
        try:
            value = work()
        except AssertionError as error:
            # A rule that was broken has been noted; whoever asked goes the way of its own process.
            self._later(0.0, self._fail, answer, error)
            return
        lost_rate = LOSSY_RATE if self._database.is_lossy else LOST_RATE
        if is_write and pace.strikes("answer of the database is lost", lost_rate):
            self._world.tell("  an answer of the database is lost")
            self._later(self._way_s(pace), self._refuse, answer, IN_DOUBT)
        else:
            self._later(self._way_s(pace), self._answer, answer, value, is_write)

    def _answer(self, answer: asyncio.Future[T], value: T, is_write: bool) -> None:
        if not self.is_open:
            self._refuse(answer, IN_DOUBT if is_write else "away")
        elif not answer.done():
            answer.set_result(value)

    def _refuse(self, answer: asyncio.Future[Any], cause: str) -> None:
        if not answer.done():
            answer.set_exception(StoreUnavailable("The database does not answer.", cause=cause))
            # Looked at, or asyncio would complain of those whose asker was killed.
            answer.exception()

    def _fail(self, answer: asyncio.Future[Any], error: BaseException) -> None:
        if not answer.done():
            answer.set_exception(error)
            answer.exception()

    def _way_s(self, pace: Pace) -> float:
        return pace.random() * (WAY_S + self._database.slow_s)

    def _later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_later(delay_s, callback, *args, context=self._loop.outside)
