"""What happens to a simulated cluster: nodes are killed, stopped, cut off and told to stop; the database goes away for
everybody, is slow or loses answers; pages crash and browsers die.

Several of these may overlap. In the end everything is healed: no fault outlasts the history.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .chance import begin

if TYPE_CHECKING:
    from .node import Machine
    from .world import World

# How many there are at the most, and how long there is peace in between.
FAULTS_MAX = 6
PEACE_S = 4.0
# How long something lasts: from what nobody notices to longer than a node may be silent, and than its lease.
LASTS_S = (0.3, 1.0, 2.0, 3.0, 4.0, 7.0)
# How long the locks of a connection that is cut are kept.
KEEPALIVE_S = 3.0


class Faults:
    """Chance, as it strikes one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.choices

    async def happen(self) -> None:
        script = self._world.script
        # All of them in the beginning: one that is left out does not change when the others happen.
        fate = script.chance("fate")
        at_s = fate.random() * 3
        for _ in range(fate.randrange(FAULTS_MAX + 1)):
            at_s += fate.random() * fate.choice((0.3, 1.0, PEACE_S))
            self._world.start(self._strike(at_s))

    async def _strike(self, at_s: float) -> None:
        chance, world = self._chance, self._world
        deed = world.script.deed("fate")
        if deed is None:
            return
        begin(deed)
        await asyncio.sleep(at_s)
        machine = chance.choice(list(world.machines.values()))
        dice = chance.random()
        if dice < 0.22:
            await self.kill(machine)
        elif dice < 0.42:
            await self._stop(machine)
        elif dice < 0.62:
            await self._cut(machine)
        elif dice < 0.72:
            await self._outage()
        elif dice < 0.76:
            await self._slowness()
        elif dice < 0.80:
            await self._losses()
        elif dice < 0.85:
            await self._restart(machine)
        elif dice < 0.93:
            self._crash_page(machine)
        else:
            self._kill_browser(machine)

    def _lasting_s(self) -> float:
        return self._chance.choice(LASTS_S) * (0.5 + self._chance.random())

    # --- Nodes ----------------------------------------------------------------------------------------------

    async def kill(self, machine: Machine) -> None:
        """At any moment; started again before or after the others miss it."""
        if machine.process.is_killed:
            return
        machine.kill()
        await asyncio.sleep(self._lasting_s())
        if machine.process.is_killed:
            self._world.tell(f"{machine.node_id} starts again")
            machine.start()

    async def _stop(self, machine: Machine) -> None:
        """As SIGSTOP does it: in the middle of whatever it is doing."""
        process = machine.process
        if not machine.is_up:
            return
        self._world.tell(f"{machine.node_id} is stopped")
        process.stop()
        machine.troubled()
        await asyncio.sleep(self._lasting_s())
        if not process.is_killed:
            self._world.tell(f"{machine.node_id} is woken")
            process.wake()
        machine.untroubled()

    async def _cut(self, machine: Machine) -> None:
        """From the database; clients and other nodes reach it still."""
        line = machine.line
        if line.is_cut:
            return
        is_silent = self._chance.random() < 0.5
        self._world.tell(f"{machine.node_id} is cut off from the database{', silently' if is_silent else ''}")
        line.cut(is_silent=is_silent)
        machine.troubled()
        lasting_s = self._lasting_s()
        if lasting_s > KEEPALIVE_S:
            await asyncio.sleep(KEEPALIVE_S * (0.5 + self._chance.random() * 0.5))
            if machine.current is not None and machine.line is line:
                machine.current.locks.lose()
        await asyncio.sleep(lasting_s)
        if line.is_cut:
            self._world.tell(f"{machine.node_id} reaches the database again")
            line.mend()
            if machine.current is not None and machine.line is line:
                machine.process.call_later(self._chance.random() * 0.5, machine.current.hints.reconnected)
        machine.untroubled()

    async def _restart(self, machine: Machine) -> None:
        """In order: told to stop, and started again."""
        if machine.process.is_killed:
            return
        self._world.tell(f"{machine.node_id} is told to stop")
        process = machine.process
        machine.tell_to_stop()
        await machine.stopped()
        await asyncio.sleep(self._lasting_s())
        if machine.process is process and not process.is_killed:
            self._world.tell(f"{machine.node_id} starts again")
            machine.start()

    # --- The database ---------------------------------------------------------------------------------------

    async def _outage(self) -> None:
        """For everybody."""
        database = self._world.database
        if database.is_away:
            return
        database.is_silent = self._chance.random() < 0.5
        self._world.tell("the database is away")
        database.is_away = True
        await asyncio.sleep(self._lasting_s())
        database.is_away = False
        database.troubled_until_s = self._world.loop.now_s
        self._world.tell("the database is back")
        for machine in self._world.machines.values():
            if machine.current is not None:
                machine.process.call_later(self._chance.random() * 0.5, machine.current.hints.reconnected)

    async def _slowness(self) -> None:
        database = self._world.database
        self._world.tell("the database is slow")
        database.slow_s = self._chance.random() * 0.3
        database.slowest_s = max(database.slowest_s, database.slow_s)
        await asyncio.sleep(self._lasting_s())
        database.slow_s = 0.0
        database.troubled_until_s = self._world.loop.now_s
        self._world.tell("the database is as fast as ever")

    async def _losses(self) -> None:
        """Writes are done, and often nobody hears so."""
        database = self._world.database
        self._world.tell("answers of the database are lost")
        database.is_lossy = True
        await asyncio.sleep(self._lasting_s())
        database.is_lossy = False
        database.troubled_until_s = self._world.loop.now_s
        self._world.tell("answers of the database arrive again")

    # --- Browsers -------------------------------------------------------------------------------------------

    def _crash_page(self, machine: Machine) -> None:
        pages = [
            (process, target)
            for process in machine.browsers.values()
            for target in process.targets.values()
            if process.is_alive and not target.is_crashed
        ]
        if pages:
            process, target = self._chance.choice(pages)
            self._world.tell(f"page {target.target_id} of {machine.node_id} crashes")
            # Its server hears of it when it can; without one nobody does.
            machine.process.call_later(0.0, process.crash_page, target)

    def _kill_browser(self, machine: Machine) -> None:
        alive = [process for process in machine.browsers.values() if process.is_alive]
        if alive:
            victim = self._chance.choice(alive)
            self._world.tell(f"browser {victim.row.id} of {machine.node_id} is killed")
            victim.die("killed")
