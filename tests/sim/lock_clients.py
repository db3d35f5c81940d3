"""Agents that use named locks in a simulated history: they wait in line, renew, give back, walk away and are overruled.

What they ask for and hear is told to `lock_rules`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tabherd import errors, wire
from tabherd.broker.broker import Broker

from .clients import ADMIN, AGENTS, ConnectionLost, caller_of
from .lock_rules import Held
from .script import Deed

if TYPE_CHECKING:
    from .world import World

NAMES = ("deploy", "index")


class LockClients:
    """Whoever uses named locks."""

    def __init__(self, world: World) -> None:
        self._world = world

    def start(self) -> None:
        chance = self._world.script.chance("lock clients")
        if chance.random() < 0.4:
            for number in range(chance.randrange(2, 5)):
                self._world.start(self._client(chance.choice(AGENTS), number + 1, chance.randrange(1, 4)))

    async def _client(self, agent: str, number: int, rounds: int) -> None:
        for _ in range(rounds):
            deed = self._world.script.deed(f"locker {number}")
            if deed is None:
                continue
            deed.begin()
            await asyncio.sleep(deed.random() * 0.3)
            await self._world.quietly(self._round(deed, agent, f"locker-{number}"))

    async def _round(self, deed: Deed, agent: str, controller: str) -> None:
        world, name = self._world, deed.choice(NAMES)
        if deed.random() < 0.08:
            await self._force(name)
        pid = world.mint_pid() if deed.random() < 0.2 else None
        try:
            await self._take(deed, agent, controller, name, pid)
        finally:
            if pid is not None:
                world.lock_rules.owner_ends(pid)
                world.end_process(pid)

    async def _take(self, deed: Deed, agent: str, controller: str, name: str, pid: int | None) -> None:
        world, caller = self._world, caller_of(agent, 0)
        connection_id = world.mint("connection") if deed.random() < 0.2 else ""
        is_skipping = deed.random() < 0.1
        ticket = world.mint("a-secret-of-my-own-making") if deed.random() < 0.5 else None
        request = wire.AcquireLock(
            wait_ms=0 if is_skipping else deed.choice((0, 100, 800, 800)),
            lease_ms=deed.choice((300, 600, 1_000)),
            owner=None if pid is None else wire.Owner(pid=pid),
            skip=is_skipping,
            ticket=ticket,
        )
        leaves_after = deed.random() * 0.05 if deed.random() < 0.15 else None

        async def acquire(broker: Broker) -> wire.LockView:
            return await broker.named_locks.acquire(
                caller, name, request, controller=controller, connection_id=connection_id
            )

        world.tell(f"{agent}/{controller} asks for lock {name}")
        try:
            try:
                view = await world.call("acquire lock", acquire, leaves_after)
            except ConnectionLost:
                if ticket is None or connection_id:
                    raise
                # With the same secret again: if it was granted, that is the answer.
                await asyncio.sleep(deed.random() * 0.4)
                view = await world.call("acquire lock", acquire)
        except asyncio.CancelledError:
            world.tell(f"{agent}/{controller} left before it had lock {name}")
            self._drop(connection_id)
            return
        except BaseException:
            self._drop(connection_id)
            raise
        if not view.acquired:
            world.tell(f"{agent}/{controller} goes on without lock {name}")
            return
        assert view.ticket is not None
        assert view.fence is not None
        assert view.lease_ms is not None
        held = Held(f"{agent}/{controller}", view.ticket, view.fence, view.lease_ms, pid, connection_id)
        world.lock_rules.granted(name, held)
        await self._keep(deed, agent, name, held)

    async def _keep(self, deed: Deed, agent: str, name: str, held: Held) -> None:
        """Work under it, renew it, give it back or let it go."""
        world, caller = self._world, caller_of(agent, 0)
        await asyncio.sleep(deed.random() * 0.2)
        if deed.random() < 0.5:
            is_certain = world.lock_rules.is_certain(name, held)
            try:
                await world.call("renew lock", lambda broker: broker.named_locks.renew(caller, name, held.ticket))
            except errors.LockLost:
                world.lock_rules.lost(name, held, is_certain)
                return
            world.lock_rules.renewed(name, held)
            await asyncio.sleep(deed.random() * 0.2)
        if deed.random() < 0.7:
            world.lock_rules.given_back(name, held)
            await world.call("release lock", lambda broker: broker.named_locks.release(caller, name, held.ticket))
            world.tell(f"{held.who} gave lock {name} back")
        else:
            world.tell(f"{held.who} walks away from lock {name}")
            if held.connection_id:
                world.lock_rules.given_back(name, held)
            self._drop(held.connection_id)

    def _drop(self, connection_id: str) -> None:
        """Its connection ends; of a dead broker it has ended with that."""
        if connection_id and not self._world.life.is_dead:
            self._world.life.hears(self._world.broker.named_locks.drop_connection, connection_id)

    async def _force(self, name: str) -> None:
        world = self._world
        world.lock_rules.forced(name)
        try:
            await world.call("force lock", lambda broker: broker.named_locks.force(ADMIN, name))
        except errors.LockNotFound:
            return
        finally:
            world.lock_rules.forced(name)
        world.tell(f"an operator freed lock {name}")
