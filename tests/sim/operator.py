"""An operator in a simulated history: changes limits, drains and resumes the node, drains and restarts browsers.

In the end everything is as it was at the start: the settings are those of the file, and the node admits sessions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from tabherd.broker.broker import Broker
from tabherd.config import Config

from .clients import ADMIN
from .script import Deed

if TYPE_CHECKING:
    from .world import World


class Operator:
    """Whoever runs the node."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._usual = world.config

    def start(self) -> None:
        chance = self._world.script.chance("operator")
        if chance.random() < 0.4:
            self._world.start(self._operate(chance.randrange(1, 4)))

    async def _operate(self, times: int) -> None:
        world = self._world
        for _ in range(times):
            deed = world.script.deed("operator")
            if deed is None:
                continue
            deed.begin()
            await asyncio.sleep(deed.random())
            dice = deed.random()
            if dice < 0.5:
                await world.quietly(self._limit(deed))
            elif dice < 0.75:
                await world.quietly(self._drain(deed))
            else:
                await world.quietly(self._see_to_browser(deed))
        if world.config is not self._usual:
            await world.quietly(self._set(self._usual))

    # --- Settings -------------------------------------------------------------------------------------------

    async def _limit(self, deed: Deed) -> None:
        scheduler = msgspec.structs.replace(
            self._usual.scheduler,
            enabled=deed.random() < 0.7,
            workers=deed.choice((1, 2, 3, 5)),
            max_inflight_per_agent=deed.choice((1, 2, 4)),
            queue_max=deed.choice((1, 3, 20)),
            queue_max_per_agent=deed.choice((1, 4, 10)),
            priority_aging_ms=deed.choice((0, 100, 500)),
        )
        await self._set(msgspec.structs.replace(self._usual, scheduler=scheduler))

    async def _set(self, config: Config) -> None:
        world = self._world
        # In the file first: a broker that is killed meanwhile starts with it.
        world.config = config

        async def apply(broker: Broker) -> None:
            broker.settings.apply(config)

        world.tell(f"scheduler: {config.scheduler}")
        await world.call("change settings", apply)

    # --- Draining -------------------------------------------------------------------------------------------

    async def _drain(self, deed: Deed) -> None:
        """No session for anybody who asks, for a while."""
        world = self._world

        async def drain(broker: Broker) -> None:
            broker.operations.drain(ADMIN)

        async def resume(broker: Broker) -> None:
            broker.operations.resume(ADMIN)

        await world.call("drain", drain)
        world.tell("the broker drains")
        world.rules.drain = object()
        await asyncio.sleep(deed.random() * 0.5)
        world.rules.drain = None
        await world.call("resume", resume)
        world.tell("the broker admits sessions again")

    async def _see_to_browser(self, deed: Deed) -> None:
        world = self._world
        browser_ids = [id for id, process in world.processes.items() if process.is_alive]
        if not browser_ids:
            return
        browser_id, is_restart = deed.choice(browser_ids), deed.random() < 0.5

        async def see_to(broker: Broker) -> None:
            verb = broker.operations.restart_browser if is_restart else broker.operations.drain_browser
            verb(ADMIN, browser_id)

        await world.call("restart browser" if is_restart else "drain browser", see_to)
        world.tell(f"browser {browser_id} is {'restarted' if is_restart else 'drained'}")
