"""Fake browsers and a fallible store: what the simulated broker touches instead of the world.

A `Life` is one life of the broker between two kills. Whatever a dead life still tries to do to the world never
happens: its calls wait for ever, as those of a killed process do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any

from tabherd import wire
from tabherd.browsers.port import BrowserGone, CdpFailure, LaunchFailed, Listener, Page, Usage
from tabherd.core.model import Browser, RowT, changed
from tabherd.errors import StoreUnavailable
from tabherd.store.base import Add, Op, Outcome
from tabherd.store.memory import MemoryStore


class Violation(AssertionError):
    """An invariant did not hold."""


class Life:
    """One life of the broker. `step` is every moment at which the world may move in between."""

    def __init__(self, chance: Random, tell: Callable[[str], None]) -> None:
        self.chance = chance
        self.tell = tell
        self.is_dead = False
        # Set when the whole simulation ends, so that what a dead life left can be cleared away.
        self.is_over = False
        # Calls of this life after its death; kept, so that nothing of it is collected in the middle of a history.
        self._never: list[asyncio.Future[None]] = []

    async def step(self, most_ms: float = 3.0) -> None:
        await self._alive()
        await asyncio.sleep(self.chance.random() * most_ms / 1000)
        await self._alive()

    async def _alive(self) -> None:
        if self.is_over:
            raise asyncio.CancelledError
        if self.is_dead:
            never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._never.append(never)
            await never


class SimStore:
    """The durable store as one life sees it: late, and sometimes refusing."""

    def __init__(self, disk: MemoryStore, life: Life, *, fail_rate: float, drop_caps: bool) -> None:
        self._disk = disk
        self._life = life
        self._fail_rate = fail_rate
        self._drop_caps = drop_caps

    async def apply(self, *ops: Op) -> Outcome:
        await self._life.step()
        if self._life.chance.random() < self._fail_rate:
            raise StoreUnavailable("the simulated disk is full", cause="full")
        if self._drop_caps:
            ops = tuple(Add(op.counter, op.delta) if isinstance(op, Add) else op for op in ops)
        outcome = await self._disk.apply(*ops)
        await self._life.step()
        return outcome

    async def get(self, table: type[RowT], id: str) -> RowT | None:
        await self._life.step(1.0)
        return await self._disk.get(table, id)

    async def select(
        self, table: type[RowT], where: Mapping[str, Any] | None = None, *, after: str = "", limit: int = 1_000
    ) -> list[RowT]:
        await self._life.step(1.0)
        return await self._disk.select(table, where, after=after, limit=limit)

    async def counter(self, name: str) -> int:
        await self._life.step(1.0)
        return await self._disk.counter(name)

    async def close(self) -> None:
        """The disk outlives its users."""


class SimMarks:
    """Marks as one life sets them; the dictionary is the file."""

    def __init__(self, file: dict[int, tuple[str, str]], life: Life) -> None:
        self._file = file
        self._life = life
        self._next = 0

    def left(self) -> dict[str, str]:
        found = dict(self._file.values())
        self._file.clear()
        return found

    def set(self, tab_id: str, command_id: str) -> int:
        self._next += 1
        if not self._life.is_dead:
            self._file[self._next] = (tab_id, command_id)
        return self._next

    def clear(self, mark: int) -> None:
        if not self._life.is_dead:
            del self._file[mark]


class Target:
    """One page: who may act on it, and what acts on it now."""

    def __init__(self, target_id: str) -> None:
        self.target_id = target_id
        self.is_closed = False
        # The command at work in the page. It stays after its caller gave up: only closing the page ends it.
        self.active: str | None = None


class Process:
    """A fake Chromium process; it outlives the broker that started it."""

    def __init__(self, row: Browser) -> None:
        self.row = row
        self.is_alive = True
        # Alive, but answers nobody: what SIGSTOP does.
        self.is_hung = False
        self.contexts: dict[str, dict[str, Target]] = {}
        self.on_death: list[asyncio.Future[str]] = []

    def die(self, reason: str) -> None:
        self.is_alive = False
        self.contexts.clear()
        for waiter in self.on_death:
            if not waiter.done():
                waiter.set_result(reason)


class SimTab:
    def __init__(self, browser: SimBrowser, target: Target) -> None:
        self.browser = browser
        self.target = target
        self.target_id = target.target_id
        self.cdp_session_id = f"attached-{target.target_id}"

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        raise NotImplementedError("the simulator replaces the action engine")

    def listen(self, method: str, listener: Listener) -> Callable[[], None]:
        return lambda: None


class SimBrowser:
    """A process as one life of the broker holds it."""

    def __init__(self, process: Process, life: Life, mint: Callable[[str], str]) -> None:
        self.process = process
        self.row = process.row
        self._life = life
        self._mint = mint

    async def new_context(self) -> str:
        await self._call()
        context_id = self._mint("context")
        self.process.contexts[context_id] = {}
        await self._call()
        return context_id

    async def new_tab(self, context_id: str) -> SimTab:
        await self._call()
        target = Target(self._mint("target"))
        self.process.contexts[context_id][target.target_id] = target
        await self._call()
        return SimTab(self, target)

    async def attach_tab(self, target_id: str) -> SimTab:
        await self._call()
        for targets in self.process.contexts.values():
            if target := targets.get(target_id):
                return SimTab(self, target)
        raise CdpFailure("Target.attachToTarget", -32602, "No target with given id found")

    async def context_ids(self) -> list[str]:
        await self._call()
        return list(self.process.contexts)

    async def pages(self) -> list[Page]:
        await self._call()
        return [
            Page(target_id=target_id, context_id=context_id, url="", title="")
            for context_id, targets in self.process.contexts.items()
            for target_id in targets
        ]

    async def probe(self) -> Usage:
        await self._call()
        return Usage()

    async def close_tab(self, target_id: str) -> None:
        await self._call()
        for targets in self.process.contexts.values():
            if target := targets.pop(target_id, None):
                target.is_closed = True
        await self._call()

    async def dispose_context(self, context_id: str) -> None:
        await self._call()
        for target in self.process.contexts.pop(context_id, {}).values():
            target.is_closed = True
        await self._call()

    async def wait_gone(self) -> str:
        if not self.process.is_alive:
            return "was dead"
        waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.process.on_death.append(waiter)
        reason = await waiter
        await self._life.step()
        return reason

    async def stop(self) -> None:
        await self._life.step()
        self.process.die("stopped")

    async def _call(self) -> None:
        while self.process.is_hung and self.process.is_alive:
            await self._life.step(100.0)
        if not self.process.is_alive:
            await self._life.step(0.1)
            raise BrowserGone("the process is dead", was_sent=False)
        await self._life.step()
        if not self.process.is_alive:
            raise BrowserGone("the process died", was_sent=True)


class SimLauncher:
    """Starts fake processes; `processes` is the machine's process table and survives every life."""

    def __init__(self, processes: dict[str, Process], life: Life, mint: Callable[[str], str], fail_rate: float) -> None:
        self._processes = processes
        self._life = life
        self._mint = mint
        self._fail_rate = fail_rate

    async def launch(self, row: Browser) -> SimBrowser:
        await self._life.step(50.0)
        if self._life.chance.random() < self._fail_rate:
            raise LaunchFailed("the simulated binary exits at once")
        process = Process(changed(row, pid=len(self._processes) + 1))
        self._processes[row.id] = process
        await self._life.step(50.0)
        return SimBrowser(process, self._life, self._mint)

    async def adopt(self, row: Browser) -> SimBrowser | None:
        await self._life.step()
        process = self._processes.get(row.id)
        if process is None or not process.is_alive or process.is_hung:
            return None
        process.row = row
        return SimBrowser(process, self._life, self._mint)

    async def reap_strays(self, node_id: str, known: Collection[str]) -> int:
        await self._life.step()
        strays = [process for id, process in self._processes.items() if process.is_alive and id not in known]
        for process in strays:
            process.die("stray")
        return len(strays)

    async def reap(self, row: Browser) -> None:
        await self._life.step()
        if process := self._processes.get(row.id):
            process.die("reaped")


async def sim_perform(tab: SimTab, action: wire.AnyAction) -> Any:
    """Act on a fake page. `hang` never ends by itself and, like a real page, does not stop when its caller does."""
    assert isinstance(action, wire.Evaluate)
    target = tab.target
    if target.active is not None and tab.browser.process.is_alive:
        raise Violation(f"{action.expression} starts on {target.target_id} while {target.active} is at work in it")
    await tab.browser._call()
    if target.is_closed:
        raise BrowserGone("the page is closed", was_sent=False)
    target.active = action.expression
    if action.expression.endswith("hang"):
        await asyncio.get_running_loop().create_future()
    await tab.browser._call()
    await tab.browser._life.step(20.0)
    if not tab.browser.process.is_alive:
        raise BrowserGone("the process died", was_sent=True)
    target.active = None
    return action.expression
