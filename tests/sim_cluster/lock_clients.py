"""Callers of named locks in a simulated cluster: take, renew and give back at any node, or let expire."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.sim.clients import AGENTS, caller_of

from tabherd import errors, wire
from tabherd.broker.broker import Broker

from .chance import begin
from .front_door import PATIENCE_S, Call, ConnectionLost

if TYPE_CHECKING:
    from .world import World

NAMES = ("red", "blue")
LEASES_MS = (500, 2_000, 6_000)


class LockClients:
    """Whoever uses named locks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.choices

    def start(self) -> None:
        for agent in AGENTS:
            chance = self._world.script.chance(f"{agent}'s locks")
            if chance.random() < 0.6:
                self._world.start(self._client(agent, chance.randrange(1, 5)))

    async def _client(self, agent: str, rounds: int) -> None:
        for _ in range(rounds):
            deed = self._world.script.deed(f"{agent}'s lock")
            if deed is None:
                continue
            begin(deed)
            await asyncio.sleep(self._chance.random() * 3)
            await self._world.quietly(self._hold(agent))

    async def _hold(self, agent: str) -> None:
        world, chance, caller = self._world, self._chance, caller_of(agent, 0)
        name, ticket = chance.choice(NAMES), world.mint("a-ticket-that-nobody-guesses")
        request = wire.AcquireLock(
            wait_ms=chance.choice((0, 300, 3_000)), lease_ms=chance.choice(LEASES_MS), ticket=ticket
        )

        async def acquire(broker: Broker, _: str) -> wire.LockView:
            return await broker.named_locks.acquire(caller, name, request)

        async def renew(broker: Broker, _: str) -> wire.LockView:
            return await broker.named_locks.renew(caller, name, ticket)

        async def release(broker: Broker, _: str) -> None:
            await broker.named_locks.release(caller, name, ticket)

        view: wire.LockView = await world.call(Call("POST", acquire), PATIENCE_S)
        world.tell(f"{agent} has the lock {name}, fence {view.fence}")
        world.lock_rules.granted(view)
        try:
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(chance.random() * 1.5)
                world.lock_rules.granted(await world.call(Call("POST", renew), PATIENCE_S))
        except (errors.TabherdError, ConnectionLost, asyncio.CancelledError) as error:
            world.tell(f"{agent} cannot renew {name}: {error!r}")
        if chance.random() < 0.7:
            world.lock_rules.gives_back(view)
            await world.clients.again(Call("DELETE", release))
            world.tell(f"{agent} has given back the lock {name}")
