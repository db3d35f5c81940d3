"""Agents in a simulated cluster that ask for more than commands, while their session is given away under them.

They open and close tabs, put and read state, hand a tab to a person and submit tasks for it, at whichever node; at the
same moment an admin gives the session to somebody, gives it back, or gives it anew to the agent that has it; or the
node dies that has it. Only some histories have them, so that what others show does not depend on them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tests.sim.clients import AGENTS, caller_of

from tabherd import wire
from tabherd.broker.broker import Broker
from tabherd.core import lease
from tabherd.core.lifecycle import LeaseState
from tabherd.core.model import Session, Tab

from .chance import begin
from .front_door import PATIENCE_S, Call
from .verb_rules import ask_as

if TYPE_CHECKING:
    from .world import World

# How many histories have them.
RATE = 0.35
# How often, and for how long, it is looked whether another node has a session.
LOOK_EVERY_S = 0.01
LOOKS_MAX = 600


class VerbClients:
    """Whoever does something else with a session."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.choices

    def start(self) -> None:
        chance = self._world.script.chance("gifts")
        if chance.random() < RATE:
            for number in (1, 2):
                self._world.start(self._client(f"meddler {number}", chance.randrange(2, 8)))

    async def _client(self, who: str, times: int) -> None:
        world, chance = self._world, self._chance
        for _ in range(times):
            deed = world.script.deed(who)
            if deed is None:
                continue
            begin(deed)
            await asyncio.sleep(chance.random() * 3)
            held = [row for row in world.database.rows(Session).values() if row.state is LeaseState.ACTIVE]
            tabs = world.database.rows(Tab).values()
            tab_of = {tab.session_id: tab.id for tab in tabs}
            if held and (row := chance.choice(held)).id in tab_of:
                works = [self._do(row, tab_of[row.id]) for _ in range(chance.randrange(1, 4))]
                works.append(self._give(row) if chance.random() < 0.85 else self._kill_under(row))
                await asyncio.gather(*(self._part(who, work) for work in works))

    async def _part(self, who: str, work: Coroutine[Any, Any, None]) -> None:
        """Something that can be left out by itself."""
        deed = self._world.script.deed(f"{who} with a session")
        if deed is None:
            work.close()
            return
        begin(deed)
        await asyncio.sleep(self._chance.random() * 0.03)
        await self._world.quietly(work)

    async def _do(self, row: Session, tab_id: str) -> None:
        agent = row.agent_id
        match self._chance.randrange(6):
            case 0:
                await self._another_tab(agent, row.id)
            case 1:
                await self._put_state(agent, row.id)
            case 2:
                await self._read_state(agent, row.id)
            case 3:
                await self._world.clients.tabs.hand_off(agent, tab_id)
            case 4:
                await self._world.task_clients.submit_on(agent, tab_id=tab_id)
            case _:
                await self._world.task_clients.submit_on(agent, session_id=row.id)

    async def _give(self, row: Session) -> None:
        """To somebody, and perhaps back again."""
        chance, give = self._chance, self._world.clients.take_over
        taker = chance.choice(AGENTS)
        await give(row.id, taker)
        if taker != row.agent_id and chance.random() < 0.4:
            await asyncio.sleep(chance.random() * 0.02)
            await give(row.id, row.agent_id)

    async def _kill_under(self, row: Session) -> None:
        """The node that has it dies, with whatever waits there for it; some give it back wherever it is then."""
        await asyncio.sleep(self._chance.random() * 0.05)
        killing = self._world.faults.kill(self._world.machines[row.node_id])
        if self._chance.random() < 0.5:
            await killing
        else:
            await asyncio.gather(killing, self._world.quietly(self._give_back_elsewhere(row)))

    async def _give_back_elsewhere(self, row: Session) -> None:
        """Into the pool, as soon as another node has it."""
        for _ in range(LOOKS_MAX):
            await asyncio.sleep(LOOK_EVERY_S)
            now = self._world.database.row(Session, row.id)
            if now is None or now.state not in lease.HELD_STATES:
                return
            if now.node_id != row.node_id and now.state is LeaseState.ACTIVE:
                break

        async def release(broker: Broker, _: str) -> None:
            await broker.sessions.release(caller_of(row.agent_id, 0), row.id, None, "pool")

        await self._world.call(Call("DELETE", release, "session", row.id), PATIENCE_S)
        self._world.tell(f"{row.agent_id} has given {row.id} back")

    # --- Verbs ----------------------------------------------------------------------------------------------

    async def _another_tab(self, agent: str, session_id: str) -> None:
        """One tab more, and closed again, perhaps when the session is somebody else's."""
        world, caller = self._world, caller_of(agent, 0)
        request = wire.OpenTab(url="https://shop.test/" if self._chance.random() < 0.5 else None)

        async def open_tab(broker: Broker, _: str) -> wire.TabView:
            return await broker.commands.open_tab(caller, session_id, request)

        ask_as(agent, "open tab")
        tab: wire.TabView = await world.call(Call("POST", open_tab, "session", session_id), PATIENCE_S)
        world.tell(f"{agent} has {tab.tab_id} in {session_id}, too")
        close = wire.Close(wait_policy="wait_with_timeout", timeout_ms=500)

        async def close_tab(broker: Broker, _: str) -> wire.CommandView:
            return await broker.commands.run(caller, tab.tab_id, close)

        ask_as(agent, "close tab")
        await world.call(Call("POST", close_tab, "tab", tab.tab_id), PATIENCE_S)
        world.tell(f"{tab.tab_id} is closed")

    async def _put_state(self, agent: str, session_id: str) -> None:
        own = wire.StorageState(cookies=[{"name": agent}])

        async def put(broker: Broker, _: str) -> None:
            await broker.sessions.put_state(caller_of(agent, 0), session_id, own)

        ask_as(agent, "put state")
        await self._world.call(Call("PUT", put, "session", session_id), PATIENCE_S)
        self._world.tell(f"{agent} has put its cookie into {session_id}")

    async def _read_state(self, agent: str, session_id: str) -> None:
        """Cookies of whoever has the session later are no business of the agent's."""
        world, owners = self._world, self._world.verb_rules.owners_of(session_id)

        async def read(broker: Broker, _: str) -> wire.StorageState:
            return await broker.sessions.state(caller_of(agent, 0), session_id)

        ask_as(agent, "read state")
        state: wire.StorageState = await world.call(Call("GET", read, "session", session_id), PATIENCE_S)
        world.tell(f"{agent} has read the cookies of {session_id}")
        world.verb_rules.check_read(agent, session_id, {cookie["name"] for cookie in state.cookies}, owners)
