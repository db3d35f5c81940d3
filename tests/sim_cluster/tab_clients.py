"""Controllers in a simulated cluster that keep others from a tab for a while: with its lock, or for a person.

Both are asked for at whichever node. A lock is the word of one life of a node, and ends with it; what a person was
given stays theirs, whichever node has the tab by then.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.sim.clients import caller_of

from tabherd import wire
from tabherd.broker.broker import Broker
from tabherd.core.gate import TabLock

from .front_door import PATIENCE_S, Call
from .verb_rules import ask_as

if TYPE_CHECKING:
    from .clients import Clients
    from .world import World

# How long a lock is for, and how long it is waited for.
LEASE_MS = 1_500
WAIT_MS = 2_000


class TabClients:
    """Whoever wants a tab for more than one command."""

    def __init__(self, world: World, clients: Clients) -> None:
        self._world = world
        self._chance = world.choices
        self._clients = clients

    async def hold(self, agent: str, number: int, view: wire.SessionView) -> None:
        """Take the lock, do something under it, give it back or let it expire."""
        world, caller, tab_id = self._world, caller_of(agent, number), view.tabs[0].tab_id
        request = wire.LockTab(lock_lease_ms=LEASE_MS, wait_policy="wait_with_timeout", timeout_ms=WAIT_MS)

        async def lock(broker: Broker, _: str) -> tuple[Broker, TabLock | None]:
            await broker.tab_locks.lock(caller, tab_id, request)
            tab = broker.registry.tab(tab_id)
            return broker, None if tab is None else tab.gate.tab_lock

        broker, held = await world.call(Call("POST", lock, "tab", tab_id), PATIENCE_S)
        if held is None:
            return
        world.tell(f"{caller.controller_id} has the lock of {tab_id}")
        world.tab_rules.lock(tab_id, view.fence, broker, held)
        await self._clients.command(agent, number, view)
        world.tab_rules.unlock(tab_id, held)
        if self._chance.random() < 0.7:

            async def unlock(broker: Broker, _: str) -> None:
                broker.tab_locks.unlock(caller, tab_id, held.ticket.id)

            await world.call(Call("DELETE", unlock, "tab", tab_id), PATIENCE_S)

    async def hand_off(self, agent: str, tab_id: str) -> None:
        """A person drives the tab for a while; once, so that nobody gives back what the next one has."""
        world, caller = self._world, caller_of(agent, 0)
        if not world.tab_rules.may_be_handed_off(tab_id):
            return
        await asyncio.sleep(self._chance.random() * 0.1)

        async def hand_off(broker: Broker, _: str) -> None:
            await broker.tabs.hand_off(caller, tab_id, "eve")

        async def resume(broker: Broker, _: str) -> None:
            await broker.tabs.resume(caller, tab_id)

        try:
            ask_as(agent, "hand off")
            await world.call(Call("POST", hand_off, "tab", tab_id), PATIENCE_S)
            world.tell(f"eve has {tab_id}")
            world.tab_rules.hand_off(tab_id)
            await asyncio.sleep(self._chance.random() * self._chance.choice((0.3, 10.0)))
        finally:
            # Also when nobody heard whether the person has it.
            world.tab_rules.resume(tab_id)
            ask_as(agent, "resume tab")
            await self._clients.again(Call("POST", resume, "tab", tab_id))
            world.tell(f"eve has given {tab_id} back")
