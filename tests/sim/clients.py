"""Agents' clients in a simulated history: they lease sessions, send commands, lock tabs, leave, and are overruled.

They act in good faith on what they were told, which may be long out of date; some are not even the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tabherd import errors, wire
from tabherd.broker.broker import Broker
from tabherd.broker.caller import AGENT_SCOPES, Caller
from tabherd.core import lease
from tabherd.core.model import Session

if TYPE_CHECKING:
    from .world import World

AGENTS = ("ada", "bob", "cyd")
ADMIN = Caller(agent_id="root", scopes=AGENT_SCOPES | {"admin"}, controller_id="root")
# Sessions live this long at the most.
DEADLINE_MS = 30_000
LOCK_LEASE_MS = 300


class ConnectionLost(Exception):
    """The broker was killed under the caller."""


def caller_of(agent: str, number: int) -> Caller:
    """One controller of an agent."""
    return Caller(agent_id=agent, scopes=AGENT_SCOPES, controller_id=f"{agent}-{number}")


class Clients:
    """Whoever uses sessions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance

    def start(self) -> None:
        for agent in AGENTS:
            for number in (1, 2):
                self._world.start(self._client(agent, number))

    # --- Sessions -------------------------------------------------------------------------------------------

    async def _client(self, agent: str, number: int) -> None:
        """One client of an agent: opens, acts, beats, releases, or just goes away."""
        world = self._world
        for _ in range(self._chance.randrange(1, 4)):
            await asyncio.sleep(self._chance.random())
            pid = world.mint_pid() if self._chance.random() < 0.3 else None
            try:
                view = await self._open(agent, number, pid)
                if view is None:
                    continue
                for _ in range(self._chance.randrange(1, 6)):
                    await self._use(agent, view)
                if self._chance.random() < 0.2:
                    await self._think(agent, view, pid)
                if self._chance.random() < 0.8:
                    await self._release(agent, view)
                else:
                    world.tell(f"{agent} walks away from {view.session_id}")
            except ConnectionLost:
                world.tell(f"{agent} lost the connection")
            except (errors.LeaseLost, errors.SessionNotFound, errors.StoreUnavailable) as error:
                world.tell(f"{agent} hears {error.code}")
            finally:
                if pid is not None:
                    world.tell(f"process {pid} of {agent} ends")
                    world.alive_pids.discard(pid)
                    world.life.owners.die(pid)

    async def _open(self, agent: str, number: int, pid: int | None) -> wire.SessionView | None:
        world, caller = self._world, caller_of(agent, number)
        request = wire.OpenSession(
            key=self._chance.choice(("", "shop", "bank")),
            wait_ms=self._chance.choice((0, 50, 1_000, 5_000)),
            deadline_ms=DEADLINE_MS,
            reuse=self._chance.choice((None, "never", "same-agent")),
            owner=None if pid is None else wire.Owner(pid=pid),
        )
        leaves_after = self._chance.random() * 0.03 if self._chance.random() < 0.15 else None
        try:
            view = await world.call(lambda broker: broker.sessions.open(caller, request), leaves_after)
        except (errors.Capacity, errors.NoBrowser, errors.BrowserCrashed, errors.StoreUnavailable) as error:
            world.tell(f"{agent} is refused a session: {error.code}")
            return None
        except asyncio.CancelledError:
            world.tell(f"{agent} left before the session was there")
            return None
        world.tell(f"{agent} has {view.session_id}, fence {view.fence}")
        world.rules.hear(view.session_id)
        if pid is not None:
            world.rules.pid_of[view.session_id] = pid
        return view

    async def _use(self, agent: str, view: wire.SessionView) -> None:
        """Several commands at once on one tab, some of which hang, carry a stale fence, or are somebody else's."""
        world = self._world
        if self._chance.random() < 0.3:
            beat = wire.Heartbeat(fence=view.fence)
            await world.call(lambda broker: broker.sessions.heartbeat(caller_of(agent, 0), view.session_id, beat))
        works = [self._command(agent, n, view) for n in range(self._chance.randrange(1, 5))]
        if self._chance.random() < 0.2:
            works.append(world.quietly(self._hold(agent, self._chance.randrange(5), view)))
        if self._chance.random() < 0.2:
            works.append(world.quietly(self._cancel_something()))
        if self._chance.random() < 0.3:
            works.append(world.quietly(world.task_clients.submit_on(agent, view)))
        if self._chance.random() < 0.05:
            # While all of that waits; and somebody else's session goes to the same agent, whose cap has room for one.
            taker = self._chance.choice(AGENTS)
            works += [self.take_over(view.session_id, taker), self.take_over(None, taker)]
        await asyncio.gather(*works)

    async def _think(self, agent: str, view: wire.SessionView, pid: int | None) -> None:
        """Long, legitimate silence: with heartbeats, or with a process that lives."""
        world, caller = self._world, caller_of(agent, 0)
        world.tell(f"{agent} thinks about {view.session_id}")
        beat = wire.Heartbeat(fence=view.fence)
        for _ in range(self._chance.randrange(3, 8)):
            await asyncio.sleep(2)
            if pid is None:
                await world.call(lambda broker: broker.sessions.heartbeat(caller, view.session_id, beat))
                world.rules.hear(view.session_id)

    async def _release(self, agent: str, view: wire.SessionView) -> None:
        world = self._world
        if self._chance.random() < 0.1:
            # At the same moment it is given to somebody else.
            world.start(self.take_over(view.session_id))
            await asyncio.sleep(self._chance.random() * 0.008)
        fence = self._chance.choice((None, view.fence, view.fence - 1))
        disposition = self._chance.choice((None, "close", "pool", "pool"))
        is_stale = fence == view.fence - 1
        try:
            await world.call(
                lambda broker: broker.sessions.release(caller_of(agent, 0), view.session_id, fence, disposition)
            )
        except errors.LeaseLost:
            world.tell(f"{agent} cannot release {view.session_id} with fence {fence}")
            return
        ended = world.disk.rows(Session)[view.session_id]
        if is_stale or (fence is not None and ended.fence != fence) or ended.agent_id != agent:
            world.violate(f"{agent} released {view.session_id} of {ended.agent_id} at {ended.fence} with fence {fence}")
        world.tell(f"{agent} released {view.session_id} ({disposition})")

    async def take_over(self, session_id: str | None = None, agent: str | None = None) -> None:
        """An admin gives somebody's session to somebody else, who uses it; the old holder goes on in good faith."""
        world = self._world
        held = [row.id for row in world.disk.rows(Session).values() if row.state in lease.HELD_STATES]
        if not held:
            return
        session_id, agent = session_id or self._chance.choice(held), agent or self._chance.choice(AGENTS)
        try:
            view = await world.call(lambda broker: broker.sessions.take_over(ADMIN, session_id, agent))
        except (errors.TabherdError, ConnectionLost) as error:
            world.tell(f"{session_id} is not taken over: {error!r}")
            return
        world.tell(f"{session_id} is {agent}'s from now on, fence {view.fence}")
        world.start(self._guest(agent, view))

    async def _guest(self, agent: str, view: wire.SessionView) -> None:
        try:
            await self._use(agent, view)
            await self._release(agent, view)
        except (errors.TabherdError, ConnectionLost) as error:
            self._world.tell(f"{agent} hears {error!r}")

    # --- Commands -------------------------------------------------------------------------------------------

    async def _command(self, agent: str, number: int, view: wire.SessionView) -> None:
        world = self._world
        await asyncio.sleep(self._chance.random() * 0.02)
        who = agent if self._chance.random() < 0.9 else self._chance.choice([a for a in AGENTS if a != agent])
        fence = self._chance.choice((None, view.fence, view.fence, view.fence - 1))
        label = world.mint("command") + ("-hang" if self._chance.random() < 0.15 else "")
        action = wire.Evaluate(
            expression="|".join((who, label, str(fence or "-"), f"{who}-{number}", "hang" if "hang" in label else "")),
            fence=fence,
            idempotency_key=label if self._chance.random() < 0.3 else None,
            wait_policy=self._chance.choice(("fail_fast", "wait_with_timeout", "wait_with_timeout")),
            timeout_ms=self._chance.choice((100, 200, 1_000)),
        )
        leaves_after = self._chance.random() * 0.05 if self._chance.random() < 0.1 else None
        tab_id = view.tabs[0].tab_id
        broker = world.broker

        def accepted(command_id: str, position: int) -> None:
            world.rules.arrive(tab_id, label)

        async def arrive(broker: Broker) -> wire.CommandView:
            return await broker.commands.run(caller_of(who, number), tab_id, action, accepted)

        try:
            answer = await world.call(arrive, leaves_after)
            world.rules.told[answer.command_id] = answer.outcome
            world.rules.hear(view.session_id)
            world.tell(f"{label} of {who} on {tab_id}: {answer.outcome}")
            if action.idempotency_key is not None:
                await self._repeat(who, number, tab_id, action, answer, accepted)
        except errors.TabherdError as error:
            command_id = error.details.get("commandId")
            world.tell(f"{label} of {who} on {tab_id}: {error.code}")
            if command_id is not None and broker is world.broker:
                world.rules.told[command_id] = (await self._outcome(command_id, who)).outcome
        except (ConnectionLost, asyncio.CancelledError):
            world.tell(f"{label} of {who} on {tab_id}: its caller heard nothing")
            if action.idempotency_key is not None:
                await self._repeat(who, number, tab_id, action, None, accepted)

    async def _repeat(
        self,
        who: str,
        number: int,
        tab_id: str,
        action: wire.Evaluate,
        first: wire.CommandView | None,
        accepted: Callable[[str, int], None],
    ) -> None:
        """The same key again, as a client does that heard nothing: the outcome is the first one's."""
        world = self._world
        await asyncio.sleep(self._chance.random() * 0.2)
        try:
            caller = caller_of(who, number)
            again = await world.call(lambda broker: broker.commands.run(caller, tab_id, action, accepted))
        except (errors.TabherdError, ConnectionLost) as error:
            world.tell(f"the key of {action.idempotency_key} is answered with {error!r}")
            return
        world.tell(f"the key of {action.idempotency_key} is answered with {again.outcome} of {again.command_id}")
        if first is not None and again.command_id != first.command_id:
            world.violate(f"{action.idempotency_key} became {again.command_id} after {first.command_id}")

    async def _hold(self, agent: str, number: int, view: wire.SessionView) -> None:
        """Take the tab lock, do something under it, give it back or let it expire."""
        world = self._world
        caller, tab_id = caller_of(agent, number), view.tabs[0].tab_id
        world.rules.wants_lock(view.session_id)
        request = wire.LockTab(lock_lease_ms=LOCK_LEASE_MS, wait_policy="wait_with_timeout", timeout_ms=500)
        held = await world.call(lambda broker: broker.tab_locks.lock(caller, tab_id, request))
        world.rules.lock(view.session_id, caller.controller_id, LOCK_LEASE_MS)
        world.tell(f"{caller.controller_id} has the lock of {tab_id}")
        await self._command(agent, number, view)
        world.rules.unlock(view.session_id)
        if self._chance.random() < 0.7:
            await self._unlock(caller, tab_id, held.ticket)

    async def _unlock(self, caller: Caller, tab_id: str, ticket: str) -> None:
        async def unlock(broker: Broker) -> None:
            broker.tab_locks.unlock(caller, tab_id, ticket)

        await self._world.call(unlock)

    async def _cancel_something(self) -> None:
        """Its sender thinks better of a command."""
        accepted = list(self._world.broker.commands._accepted.values())
        if accepted:
            command = self._chance.choice(accepted).command
            caller = caller_of(command.agent_id, 0)
            view = await self._world.call(lambda broker: broker.commands.cancel(caller, command.id))
            self._world.tell(f"{command.id} was cancelled: {view.outcome}")

    async def _outcome(self, command_id: str, agent: str) -> wire.CommandView:
        return await self._world.call(lambda broker: broker.commands.get(caller_of(agent, 0), command_id))
