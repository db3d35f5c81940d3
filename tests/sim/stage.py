"""A pool with its admission on virtual time, with fake browsers: for tests of the supervisor that need no world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from tabherd.broker.admission import Admission
from tabherd.broker.claim import Claim
from tabherd.broker.stock import PooledTab
from tabherd.browsers.pool import Listener, Pool, PoolPolicy
from tabherd.browsers.port import Page, PageEnd
from tabherd.browsers.slot import SlotPolicy
from tabherd.core.caps import Caps
from tabherd.core.lifecycle import BrowserState
from tabherd.core.model import Browser

from .fakes import Life, Process, SimLauncher
from .virtual_loop import VirtualLoop


class Stage:
    """Everything a pool touches, and what it told."""

    def __init__(self, *, caps: Caps | None = None, max_waiters: int = 100, **policy: Any) -> None:
        self.loop = VirtualLoop()
        self.chance = Random(1)
        self.told: list[tuple[float, str]] = []
        self.processes: dict[str, Process] = {}
        self.rows: dict[str, Browser] = {}
        self.gone: list[tuple[str, str]] = []
        self._minted = 0
        self._policy = policy
        self._caps = caps or Caps()
        self._max_waiters = max_waiters

    async def __aenter__(self) -> Stage:
        self.launcher = SimLauncher(self.processes, Life(self.chance, lambda _: None), self.mint, fail_rate=0.0)
        self.pool = Pool(
            "default",
            policy=self.policy(),
            launcher=self.launcher,
            listener=Listener(
                record=self._record,
                forget=self._forget,
                listen_on=lambda row: SilentListener(),
                on_ready=lambda row: None,
                on_gone=lambda row, reason: self.gone.append((row.id, reason)),
                on_recycled=lambda row, reason: None,
                on_stopped=lambda row, reason: None,
                on_capacity=lambda: self.admission.pump(),
            ),
            new_row=lambda: Browser(
                id=self.mint("brw"), node_id="nod_1", pool="default", state=BrowserState.STARTING, started_at=self.now
            ),
            clock=self.loop.clock_ms,
        )
        self.admission = Admission(
            self.pool, self._caps, max_waiters=self._max_waiters, clock=self.loop.clock_ms, close=self._close
        )
        self.pool.start()
        self.pool.keep()
        await self.pool.wait_tried()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pool.stop()

    def policy(self, **changes: Any) -> PoolPolicy:
        """The policy of this stage; names of a slot's policy may be given too."""
        wanted = {"warm": 0, **self._policy, **changes}
        slot = {name: wanted.pop(name) for name in list(wanted) if name in SlotPolicy.__struct_fields__}
        return PoolPolicy(slot=SlotPolicy(**slot), **wanted)

    @property
    def now(self) -> int:
        return self.loop.clock_ms()

    @property
    def alive(self) -> list[Process]:
        return [process for process in self.processes.values() if process.is_alive]

    def mint(self, what: str) -> str:
        self._minted += 1
        return f"{what}-{self._minted}"

    async def claim(self, agent: str = "ada", key: str = "", wait_ms: int = 0) -> Claim:
        return await self.admission.claim(self.mint("ses"), agent, key, wait_ms)

    async def until(self, is_so: Callable[[], bool], within_s: float = 1_000.0) -> int:
        """Let time pass until something is so; how many milliseconds that took."""
        began = self.now
        while not is_so():
            assert self.now - began < within_s * 1000, "it never comes to be"
            await asyncio.sleep(0.001)
        return self.now - began

    async def _record(self, row: Browser) -> None:
        self.rows[row.id] = row

    async def _forget(self, row: Browser) -> None:
        self.rows.pop(row.id, None)

    async def _close(self, pooled: PooledTab) -> None:
        await pooled.browser.dispose_context(pooled.row.context_id)


class SilentListener:
    """Nobody here is interested in pages."""

    def page_opened(self, page: Page) -> None: ...

    def page_ended(self, target_id: str, how: PageEnd) -> None: ...

    def page_moved(self, target_id: str, url: str, title: str) -> None: ...


def on_stage(play: Callable[[Stage], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a scene to its end on virtual time."""
    stage = Stage(**settings)

    async def scene() -> None:
        async with stage:
            await play(stage)

    asyncio.set_event_loop(stage.loop)
    try:
        stage.loop.run_until_complete(scene())
    finally:
        stage.loop.close()
        asyncio.set_event_loop(None)
    assert stage.alive == [], "a stopped pool leaves no browser"
    assert stage.rows == {}, "a stopped pool leaves no row"
