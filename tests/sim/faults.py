"""What happens to the world of a simulated history: the broker is killed, pages crash, browsers die or hang, and an
operator gives sessions away.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .world import World

# How many there are at the most, and how long there is peace in between.
FAULTS_MAX = 7
PEACE_S = 1.2
# How often it is looked whether a task has ended.
LOOKS_MAX = 200


class Faults:
    """Chance, as it strikes one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance

    async def happen(self) -> None:
        for _ in range(self._chance.randrange(FAULTS_MAX + 1)):
            await asyncio.sleep(self._chance.random() * PEACE_S)
            dice = self._chance.random()
            if dice < 0.3:
                if self._chance.random() < 0.4:
                    await self._task_ends()
                await self._world.restart()
            elif dice < 0.55:
                self._crash_page()
            elif dice < 0.75:
                await self._world.clients.take_over()
            else:
                self._hurt_browser()

    async def _task_ends(self) -> None:
        """Until a task is over, and its end on its way to the disk: the worst moment to be killed in. Not for ever."""
        ends = self._world.broker.tasking.scheduler.counter.all.by_end
        before = dict(ends)
        for _ in range(LOOKS_MAX):
            if ends != before:
                return
            await asyncio.sleep(0.001)

    def _hurt_browser(self) -> None:
        alive = [process for process in self._world.processes.values() if process.is_alive]
        if alive:
            victim = self._chance.choice(alive)
            if self._chance.random() < 0.3:
                self._world.tell(f"browser {victim.row.id} hangs")
                victim.is_hung = True
            else:
                self._world.tell(f"browser {victim.row.id} is killed")
                victim.die("killed")

    def _crash_page(self) -> None:
        pages = [
            (process, target)
            for process in self._world.processes.values()
            for target in process.targets.values()
            if process.is_alive and not target.is_crashed
        ]
        # Those at work first: there is more to lose.
        at_work = [(process, target) for process, target in pages if target.active is not None]
        if pages:
            process, target = self._chance.choice(at_work or pages)
            self._world.tell(f"page {target.target_id} crashes")
            process.crash_page(target)
