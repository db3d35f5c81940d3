"""The lives of the broker in a history: what one of them touches, and how it ends.

A life that is killed stops where it stands. Its timers are taken off the loop with it, so that it costs nothing any
more; what it still waits for is kept, so that nothing of it is cleared away before the history is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

from tabherd.broker.broker import Broker
from tabherd.broker.events import Event, EventBus

from .fakes import Life, SimOwners
from .script import PACE, Paces

if TYPE_CHECKING:
    from .world import World

# The life that a task belongs to, if it is one of the broker's, and on behalf of which verb it is at work.
LIFE: ContextVar[SteppedLife | None] = ContextVar("life", default=None)
OWN_WORK = "broker's own work"
VERB: ContextVar[str] = ContextVar("verb", default=OWN_WORK)


class SteppedLife(Life):
    """A life that checks the world whenever it touches it."""

    owners: SimOwners
    broker: Broker

    def __init__(self, world: World) -> None:
        super().__init__(Paces(), world.tell)
        self._world = world
        self._paces = Paces()
        # Whether the broker has taken up what was left to it.
        self.is_settled = False
        # It is killed when so many writes more are on disk, and nobody has heard of the last one; 0: it is not.
        self.writes_left = 0
        # Set when it is killed.
        self.death: asyncio.Future[None] = world.loop.create_future()
        self._frozen: set[asyncio.Task[Any]] = set()
        # In which everything of it runs that nobody asked for.
        self.context = copy_context()
        self.context.run(self._enter)

    def _enter(self) -> None:
        LIFE.set(self)
        PACE.set(self._world.script.pace(f"broker {self._world.epoch}"))

    def hears(self, news: Callable[..., None], *what: Any) -> None:
        """What follows from it is the broker's, whoever told it."""
        if LIFE.get() is self:
            super().hears(news, *what)
        else:
            self.context.copy().run(super().hears, news, *what)

    async def step(self, most_ms: float = 3.0) -> None:
        # As the base class does it: this is where a history is most of the time.
        if self.is_dead or self.is_over:
            await self.alive()
        await self._world.loop.pause(PACE.get().random() * most_ms / 1000)
        if self.is_dead or self.is_over:
            await self.alive()
        self._world.check()

    def strikes(self, what: str, rate: float) -> bool:
        is_struck = self._paces.strikes(what, rate)
        if is_struck:
            # What the start has begun goes on as the broker's own.
            verb = OWN_WORK if self.is_settled and VERB.get() == "start" else VERB.get()
            self._world.coverage.struck(what, verb)
            self.tell(f"  {what} ({verb})")
        return is_struck

    def wrote(self) -> None:
        if self.writes_left:
            self.writes_left -= 1
            if not self.writes_left:
                self.tell("  what was just written is the last that this broker has done")
                self.kill()

    def puts_cookies(self, context_id: str) -> None:
        self._world.verb_rules.check_cookies(context_id)

    def kill(self) -> None:
        """It ends here and now. Idempotent."""
        if self.is_dead:
            return
        self._world.killed(self)
        self.is_dead = True
        self.death.set_result(None)
        loop = self._world.loop
        self._frozen = loop.unfinished()
        for due in (*(timer[2] for timer in loop.timers), *loop.ready):
            if due.context.get(LIFE) is self:
                due.cancel()


class HeardEvents(EventBus):
    """The events of one life, each of which is looked at in the moment in which it is told."""

    def __init__(self, world: World, life: Life) -> None:
        super().__init__(epoch=world.epoch, ring=1_000, clock=world.clock_ms)
        self._world = world
        self._life = life

    def tell(self, type: str, fields: dict[str, Any]) -> Event:
        is_heard = not self._life.is_dead and not self._life.is_over and not self._world.is_violated
        if is_heard and type.startswith("task."):
            self._world.task_rules.hear(type.removeprefix("task."), fields["taskId"])
        return super().tell(type, fields)
