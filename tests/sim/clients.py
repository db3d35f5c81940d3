"""Agents' clients in a simulated history: they lease sessions, keep them, leave, and are overruled.

They act in good faith on what they were told, which may be long out of date; some are not even the owner. What they do
with a session is in `commands`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tabherd import errors, wire
from tabherd.broker.caller import AGENT_SCOPES, Caller
from tabherd.core import lease
from tabherd.core.model import Session

from .script import Deed

if TYPE_CHECKING:
    from .world import World

AGENTS = ("ada", "bob", "cyd")
ADMIN = Caller(agent_id="root", scopes=AGENT_SCOPES | {"admin"}, controller_id="root")
# Sessions live this long at the most.
DEADLINE_MS = 15_000


class ConnectionLost(Exception):
    """The broker was killed under the caller."""


def caller_of(agent: str, number: int) -> Caller:
    """One controller of an agent."""
    return Caller(agent_id=agent, scopes=AGENT_SCOPES, controller_id=f"{agent}-{number}")


class Clients:
    """Whoever uses sessions."""

    def __init__(self, world: World) -> None:
        from .commands import Commands

        self._world = world
        self._commands = Commands(world)
        self._guests = 0

    def start(self) -> None:
        chance = self._world.script.chance("clients")
        for number in range(chance.choice((1, 2, 2, 3, 3, 4))):
            self._world.start(self._client(chance.choice(AGENTS), number + 1, chance.randrange(1, 3)))

    # --- Sessions -------------------------------------------------------------------------------------------

    async def _client(self, agent: str, number: int, rounds: int) -> None:
        """One client of an agent: opens, acts, beats, releases, or just goes away."""
        for _ in range(rounds):
            deed = self._world.script.deed(f"client {number}")
            if deed is not None:
                deed.begin()
                await self._round(deed, agent, number)

    async def _round(self, deed: Deed, agent: str, number: int) -> None:
        world, who = self._world, f"client {number}"
        await asyncio.sleep(deed.random() * 0.5)
        pid = world.mint_pid() if deed.random() < 0.3 else None
        try:
            view = await self._open(deed, agent, number, pid)
            if view is None:
                return
            for _ in range(deed.randrange(1, 4)):
                await self._commands.use(who, agent, view)
            if deed.random() < 0.15:
                await self._think(deed, agent, view, pid)
            if deed.random() < 0.8:
                await self._release(deed, agent, view)
            else:
                world.tell(f"{agent} walks away from {view.session_id}")
        except ConnectionLost:
            world.tell(f"{agent} lost the connection")
        except (errors.LeaseLost, errors.SessionNotFound, errors.StoreUnavailable) as error:
            world.tell(f"{agent} hears {error.code}")
        finally:
            if pid is not None:
                world.end_process(pid)

    async def _open(self, deed: Deed, agent: str, number: int, pid: int | None) -> wire.SessionView | None:
        world, caller = self._world, caller_of(agent, number)
        request = wire.OpenSession(
            key=deed.choice(("", "shop", "bank")),
            wait_ms=deed.choice((0, 50, 1_000, 3_000)),
            deadline_ms=DEADLINE_MS,
            reuse=deed.choice((None, "never", "same-agent")),
            owner=None if pid is None else wire.Owner(pid=pid),
        )
        leaves_after = deed.random() * 0.03 if deed.random() < 0.15 else None
        world.tell(f"{agent} asks for a session")
        drain = world.rules.drain
        try:
            view = await world.call("open session", lambda broker: broker.sessions.open(caller, request), leaves_after)
        except (
            errors.Capacity,
            errors.NoBrowser,
            errors.BrowserCrashed,
            errors.StoreUnavailable,
            errors.Draining,
        ) as error:
            world.tell(f"{agent} is refused a session: {error.code}")
            return None
        except asyncio.CancelledError:
            world.tell(f"{agent} left before the session was there")
            return None
        world.tell(f"{agent} has {view.session_id}, fence {view.fence}")
        if drain is not None and drain is world.rules.drain:
            world.violate(f"{agent} was given {view.session_id} although the broker drains")
        world.rules.hear(view.session_id)
        if pid is not None:
            world.rules.pid_of[view.session_id] = pid
        return view

    async def _think(self, deed: Deed, agent: str, view: wire.SessionView, pid: int | None) -> None:
        """Long, legitimate silence: with heartbeats, or with a process that lives."""
        world, caller = self._world, caller_of(agent, 0)
        world.tell(f"{agent} thinks about {view.session_id}")
        beat = wire.Heartbeat(fence=view.fence)
        for _ in range(deed.randrange(3, 6)):
            await asyncio.sleep(2)
            if pid is None:
                await world.call("heartbeat", lambda broker: broker.sessions.heartbeat(caller, view.session_id, beat))
                world.rules.hear(view.session_id)

    async def _release(self, deed: Deed, agent: str, view: wire.SessionView) -> None:
        world = self._world
        if deed.random() < 0.1:
            # At the same moment it is given to somebody else.
            world.start(self.take_over(deed, view.session_id))
            await asyncio.sleep(deed.random() * 0.008)
        fence = deed.choice((None, view.fence, view.fence - 1))
        disposition = deed.choice((None, "close", "pool", "pool"))
        is_stale = fence == view.fence - 1
        try:
            await world.call(
                "release session",
                lambda broker: broker.sessions.release(caller_of(agent, 0), view.session_id, fence, disposition),
            )
        except errors.LeaseLost:
            world.tell(f"{agent} cannot release {view.session_id} with fence {fence}")
            return
        ended = world.disk.rows(Session)[view.session_id]
        if is_stale or (fence is not None and ended.fence != fence) or ended.agent_id != agent:
            world.violate(f"{agent} released {view.session_id} of {ended.agent_id} at {ended.fence} with fence {fence}")
        world.tell(f"{agent} released {view.session_id} ({disposition})")

    # --- Takeover -------------------------------------------------------------------------------------------

    async def take_over(self, deed: Deed, session_id: str | None = None, agent: str | None = None) -> None:
        """An admin gives somebody's session to somebody else, who uses it; the old holder goes on in good faith."""
        world = self._world
        held = [row.id for row in world.disk.rows(Session).values() if row.state in lease.HELD_STATES]
        if not held:
            return
        session_id, agent = session_id or deed.choice(held), agent or deed.choice(AGENTS)
        world.tell(f"an operator gives {session_id} to {agent}")
        try:
            view = await world.call("take over", lambda broker: broker.sessions.take_over(ADMIN, session_id, agent))
        except (errors.TabherdError, ConnectionLost) as error:
            world.tell(f"{session_id} is not taken over: {error!r}")
            return
        world.tell(f"{session_id} is {agent}'s from now on, fence {view.fence}")
        world.start(self._guest(agent, view))

    async def _guest(self, agent: str, view: wire.SessionView) -> None:
        self._guests += 1
        who = f"guest {self._guests}"
        deed = self._world.script.deed(who)
        if deed is None:
            return
        deed.begin()
        try:
            await self._commands.use(who, agent, view)
            await self._release(deed, agent, view)
        except (errors.TabherdError, ConnectionLost) as error:
            self._world.tell(f"{agent} hears {error!r}")
