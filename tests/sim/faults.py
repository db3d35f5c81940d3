"""What happens to the world of a simulated history: the broker is killed, pages crash, close and open others, browsers
die or hang, an operator gives sessions away, and somebody sets the clock.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .fakes import Process, Target
from .script import Deed

if TYPE_CHECKING:
    from .world import World

# How many there are at the most, and how long there is peace in between.
FAULTS_MAX = 5
PEACE_S = 0.7
# How often it is looked whether a task has ended.
LOOKS_MAX = 100
# How many writes the broker has left at the most that is killed by the last one, and how long it is waited for that.
WRITES_MAX = 6
WRITES_WITHIN_S = 0.5
# How far the clock is set, forward and back.
CLOCK_SET_MS = (-2_000, -300, -20, 20, 300, 2_000, 8_000)


class Faults:
    """Chance, as it strikes one world."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def happen(self) -> None:
        for _ in range(self._world.script.chance("fate").randrange(FAULTS_MAX + 1)):
            deed = self._world.script.deed("fate")
            if deed is not None:
                deed.begin()
                await self._strike(deed)

    async def _strike(self, deed: Deed) -> None:
        await asyncio.sleep(deed.random() * PEACE_S)
        dice = deed.random()
        if dice < 0.35:
            await self._kill_broker(deed)
        elif dice < 0.5:
            self._crash_page(deed)
        elif dice < 0.55:
            self._close_page(deed)
        elif dice < 0.62:
            self._open_popup(deed)
        elif dice < 0.75:
            await self._world.clients.take_over(deed)
        elif self._world.weather.has_clock_set and dice < 0.85:
            self._set_clock(deed)
        else:
            self._hurt_browser(deed)

    # --- The broker -----------------------------------------------------------------------------------------

    async def _kill_broker(self, deed: Deed) -> None:
        """At any moment, or just after a write of which nobody has heard; the next one perhaps while it starts."""
        dice = deed.random()
        if dice < 0.3:
            await self._task_ends()
        elif dice < 0.6:
            self._world.life.writes_left = deed.randrange(1, WRITES_MAX + 1)
            await asyncio.wait([self._world.life.death], timeout=WRITES_WITHIN_S)
        is_up = False
        while not is_up:
            limit_s = deed.random() * 0.05 if deed.random() < 0.2 else None
            is_up = await self._world.restart(limit_s, deed.random() * 0.5)

    async def _task_ends(self) -> None:
        """Until a task is over, and its end on its way to the disk: the worst moment to be killed in. Not for ever."""
        ends = self._world.broker.tasking.scheduler.counter.all.by_end
        before = dict(ends)
        for _ in range(LOOKS_MAX):
            if ends != before:
                return
            await asyncio.sleep(0.001)

    def _set_clock(self, deed: Deed) -> None:
        by_ms = deed.choice(CLOCK_SET_MS)
        self._world.tell(f"the clock is set by {by_ms} ms")
        self._world.coverage.strike("clock is set")
        self._world.skew_ms += by_ms
        self._world.set_ms += abs(by_ms)

    # --- Browsers and pages ---------------------------------------------------------------------------------

    def _hurt_browser(self, deed: Deed) -> None:
        alive = [process for process in self._world.processes.values() if process.is_alive]
        if not alive:
            return
        victim = deed.choice(alive)
        if deed.random() < 0.3:
            self._world.tell(f"browser {victim.row.id} hangs")
            self._world.coverage.strike("browser hangs")
            victim.is_hung = True
        else:
            self._world.tell(f"browser {victim.row.id} is killed")
            self._world.coverage.strike("browser is killed")
            victim.die("killed")

    def _crash_page(self, deed: Deed) -> None:
        pages = self._pages()
        # Those at work first: there is more to lose.
        at_work = [(process, target) for process, target in pages if target.active is not None]
        if pages:
            process, target = deed.choice(at_work or pages)
            self._world.tell(f"page {target.target_id} crashes")
            self._world.coverage.strike("page crashes")
            process.crash_page(target)

    def _close_page(self, deed: Deed) -> None:
        if pages := self._pages():
            process, target = deed.choice(pages)
            self._world.tell(f"page {target.target_id} closes itself")
            self._world.coverage.strike("page closes")
            process.close_page(target)

    def _open_popup(self, deed: Deed) -> None:
        if pages := self._pages():
            process, target = deed.choice(pages)
            popup = self._world.mint("popup")
            self._world.tell(f"page {target.target_id} opens {popup}")
            self._world.coverage.strike("page opens another")
            process.open_page(popup, target.context, "https://shop.test/offer", target.target_id)

    def _pages(self) -> list[tuple[Process, Target]]:
        return [
            (process, target)
            for process in self._world.processes.values()
            for target in process.targets.values()
            if process.is_alive and not process.is_hung and not target.is_crashed
        ]
