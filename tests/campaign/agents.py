"""The crowd's members that use the SDK: sessions with commands, tasks, batches and named locks.

Each does its kind of work over and over and notes in the ledger what it was told. A typed error is an answer like any
other; whatever else comes is a surprise.
"""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tabherd import AsyncSession, AsyncTabherd, TabherdError
from tabherd.errors import LockLost

from .ledger import Ledger, Opened, Tried
from .site import CountingSite, effect

# Errors that callers may hear while browsers, servers and connections are killed under them.
EXPECTED = frozenset(
    {
        "browser_crashed",
        "capacity",
        "command_timed_out",
        "conflict",
        "deadline_exceeded",
        "draining",
        # On a page that was opened again and is still blank.
        "element_not_found",
        "javascript_error",
        "lease_lost",
        "lock_lost",
        "lock_timed_out",
        "navigation_failed",
        "no_browser",
        "node_unreachable",
        "outcome_unknown",
        "queue_full",
        "queue_wait_timed_out",
        "session_not_found",
        "store_unavailable",
        "tab_busy",
        "tab_dead",
        "tab_not_found",
    }
)
# For whom it may take long: a whole restart of the server is waited out.
TASK_LIMIT_S = 60
# Names that the members contend for.
LOCK_NAMES = ("campaign:a", "campaign:b", "campaign:c")


class Member:
    """One of the crowd. Subclasses say what a turn is."""

    kind: ClassVar[str] = ""

    def __init__(
        self, name: str, herd: AsyncTabherd, site: CountingSite, ledger: Ledger, chance: Random, think_s: float
    ) -> None:
        self.name = name
        self.herd = herd
        self.site = site
        self.ledger = ledger
        self.chance = chance
        self._think_s = think_s
        self._is_over = asyncio.Event()
        self._numbers = 0

    def stop(self) -> None:
        """After the turn that it is at."""
        self._is_over.set()

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    async def run(self) -> None:
        while not self.is_over:
            try:
                await self.turn()
            except TabherdError as error:
                self.heard(error)
            except Exception as error:  # noqa: BLE001 - what it is decides the one who reads the report
                self.ledger.surprise(f"{self.name}: {type(error).__name__}: {error} {_where(error)}")
            await self.think()

    async def turn(self) -> None:
        raise NotImplementedError

    async def think(self) -> None:
        """Between two things, as a model does; cut short at the end."""
        try:
            await asyncio.wait_for(self._is_over.wait(), self._think_s * self.chance.uniform(0.5, 1.5))
        except TimeoutError:
            return

    def heard(self, error: TabherdError) -> None:
        self.ledger.refused[error.code] += 1
        if error.code not in EXPECTED:
            self.ledger.surprise(f"{self.name}: {error.code}: {error.message}")

    def named(self, what: str) -> str:
        """A name that nothing else has."""
        self._numbers += 1
        return f"{self.name}-{what}{self._numbers}"

    async def lease(self) -> tuple[AsyncSession, Opened]:
        """A session of its own, at home."""
        whose = self.named("s")
        session = self.herd.session(agent=self.name, deadline_ms=600_000)
        with self.ledger.timed("acquire"):
            await session.open()
        opened = Opened(id=session.id, whose=whose, tab_id=session.tab.id)
        self.ledger.opened(opened)
        try:
            await self.go_home(session, whose)
        except TabherdError:
            await self.give_back(session, opened)
            raise
        return session, opened

    async def give_back(self, session: AsyncSession, opened: Opened) -> None:
        try:
            await session.close()
            self.ledger.released(opened)
        except TabherdError as error:
            self.heard(error)

    async def go_home(self, session: AsyncSession, whose: str) -> None:
        with self.ledger.timed("command"):
            await session.tab.goto(self.site.home(whose))

    async def attempt(self, session: AsyncSession, whose: str, number: int, *, is_keyed: bool) -> None:
        """A command with an effect."""
        tried = self.ledger.intend(Tried(who=f"{whose}.{number}", kind="command", is_keyed=is_keyed))
        key = {"idempotency_key": tried.who} if is_keyed else {}
        try:
            with self.ledger.timed("command"):
                view = await session.tab.perform("evaluate", expression=effect(tried.who), **key)
        except TabherdError as error:
            if (command_id := error.details.get("commandId")) is not None:
                self.ledger.acknowledged(tried, str(command_id))
            self.ledger.told(tried, error.code)
            raise
        self.ledger.acknowledged(tried, view.command_id)
        self.ledger.told(tried, view.outcome)
        self.ledger.turns[self.name] += 1


def _where(error: Exception) -> str:
    """The innermost places of it."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))


class Browsing(Member):
    """Leases a session, does some things in it, looks whether it is still its own, and gives it back."""

    kind = "sdk"

    async def turn(self) -> None:
        session, opened = await self.lease()
        try:
            for number in range(self.chance.randint(3, 8)):
                if self.is_over:
                    break
                try:
                    await self.one_thing(session, opened, number)
                except TabherdError as error:
                    self.heard(error)
                    if session.is_lost or error.code in ("session_not_found", "tab_not_found"):
                        break
                await self.think()
        finally:
            await self.give_back(session, opened)

    async def one_thing(self, session: AsyncSession, opened: Opened, number: int) -> None:
        tab = session.tab
        match self.chance.randrange(6):
            case 0:
                await self.attempt(session, opened.whose, number, is_keyed=False)
            case 1:
                await self.attempt(session, opened.whose, number, is_keyed=True)
            case 2:
                await self.timed(tab.run([{"kind": "fill", "selector": "#field", "value": opened.whose}, PUSH]))
            case 3:
                if opened.whose not in await self.timed(tab.snapshot()):
                    # A page that was at work when it was cut off is a blank one now.
                    await self.go_home(session, opened.whose)
            case 4:
                title, cookie = await self.timed(tab.evaluate("[document.title, document.cookie]"))
                if (title and title != opened.whose) or (cookie and cookie != f"whose={opened.whose}"):
                    self.site.crosstalk.append(f"{opened.whose} saw {title!r} and {cookie!r}")
            case _:
                await self.go_home(session, opened.whose)
        self.ledger.turns[self.name] += 1

    async def timed(self, doing: Any) -> Any:
        with self.ledger.timed("command"):
            return await doing


PUSH = {"kind": "click", "selector": "#push"}


class Submitting(Member):
    """Submits a task, which leases a session for its duration, and waits for its end."""

    kind = "task"

    async def turn(self) -> None:
        tried, steps, is_idempotent = self.made()
        with self.ledger.timed("submit"):
            task = await self.herd.submit(steps=steps, agent=self.name, idempotent=is_idempotent, deadline_ms=300_000)
        self.ledger.acknowledged(tried, task.id)
        try:
            with self.ledger.timed("task"):
                await task.result(timeout=TASK_LIMIT_S)
        except TimeoutError:
            # It goes on; afterwards somebody looks.
            return
        except TabherdError as error:
            self.ledger.told(tried, error.code)
            raise
        self.ledger.told(tried, "done")
        self.ledger.turns[self.name] += 1

    def made(self) -> tuple[Tried, list[dict[str, Any]], bool]:
        """A task with an effect; now and then one that may be done again."""
        whose = self.named("t")
        is_idempotent = self.chance.random() < 0.5
        tried = self.ledger.intend(Tried(who=f"{whose}.0", kind="task", is_idempotent=is_idempotent))
        steps = [
            {"kind": "navigate", "url": self.site.home(whose)},
            {"kind": "evaluate", "expression": effect(tried.who)},
        ]
        return tried, steps, is_idempotent


class Batching(Submitting):
    """Submits several tasks at once."""

    kind = "batch"

    async def turn(self) -> None:
        made = [self.made() for _ in range(self.chance.randint(2, 5))]
        tasks = [
            {"steps": steps, "idempotent": is_idempotent, "deadline_ms": 300_000} for _, steps, is_idempotent in made
        ]
        with self.ledger.timed("submit"):
            answers = await self.herd.submit_batch(tasks, agent=self.name)
        for (tried, _, _), task in zip(made, answers, strict=True):
            if isinstance(task, TabherdError):
                self.heard(task)
                continue
            self.ledger.acknowledged(tried, task.id)
        for (tried, _, _), task in zip(made, answers, strict=True):
            if isinstance(task, TabherdError):
                continue
            try:
                await task.result(timeout=TASK_LIMIT_S)
                self.ledger.told(tried, "done")
            except TimeoutError:
                continue
            except TabherdError as error:
                self.ledger.told(tried, error.code)
                self.heard(error)
        self.ledger.turns[self.name] += 1


class Locking(Member):
    """Takes a named lock; while it is sure to have it, nobody else may be."""

    kind = "lock"

    async def turn(self) -> None:
        name = self.chance.choice(LOCK_NAMES)
        lock = self.herd.lock(name, timeout=20, agent=self.name, lease_ms=10_000)
        with self.ledger.timed("lock"):
            await lock.acquire()
        other = self.ledger.inside.get(name)
        if other is not None and not other.is_lost:
            self.ledger.surprise(f"{self.name} has {name} with fence {lock.fence}, and so has {other!r}")
        if lock.fence <= self.ledger.fences.get(name, 0):
            self.ledger.surprise(f"the fence of {name} fell from {self.ledger.fences[name]} to {lock.fence}")
        self.ledger.fences[name] = max(lock.fence, self.ledger.fences.get(name, 0))
        self.ledger.inside[name] = lock
        try:
            await asyncio.sleep(self.chance.uniform(0.02, 0.2))
        finally:
            if self.ledger.inside.get(name) is lock:
                del self.ledger.inside[name]
            try:
                await lock.release()
                self.ledger.turns[self.name] += 1
            except LockLost as error:
                self.heard(error)
