"""What clients do with a session that they have: commands, tab locks, handoffs, more tabs, cancels and disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from tabherd import errors, wire
from tabherd.broker.broker import Broker
from tabherd.broker.caller import Caller

from .clients import AGENTS, ConnectionLost, caller_of
from .file_clients import FileClients
from .script import Deed
from .verb_rules import ASKER

if TYPE_CHECKING:
    from .world import World

LOCK_LEASE_MS = 300
# Tabs that a client opens in one session, at the most.
TABS_MAX = 2


class Commands:
    """The ways to use a session."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._files = FileClients(world)

    async def use(self, who: str, agent: str, view: wire.SessionView) -> None:
        """Several things at once, some of which hang, carry a stale fence, or are somebody else's."""
        world = self._world
        deed = world.script.deed(who)
        if deed is None or not view.tabs:
            return
        deed.begin()
        if deed.random() < 0.25:
            beat = wire.Heartbeat(fence=view.fence)
            await world.call(
                "heartbeat", lambda broker: broker.sessions.heartbeat(caller_of(agent, 0), view.session_id, beat)
            )
        works: list[Coroutine[Any, Any, None]] = []

        def also(rate: float, work: Callable[[Deed], Coroutine[Any, Any, None]]) -> None:
            """With that chance, as a deed of its own."""
            wants = deed.random() < rate
            part = world.script.deed(who) if wants else None
            if part is not None:
                works.append(self._as_deed(part, work))

        for number in range(deed.randrange(1, 4)):
            also(1.0, lambda part, number=number: self.command(part, agent, number, view))  # type: ignore[misc]
        also(0.15, lambda part: self._hold(part, agent, part.randrange(4), view))
        also(0.15, self._cancel_something)
        also(0.2, lambda part: world.task_clients.submit_on(part, agent, view))
        also(0.1, lambda part: self._hand_off(part, agent, view))
        also(0.1, lambda part: self._another_tab(part, agent, view))
        also(0.05, lambda part: self._disconnect(part, agent))
        # While all of that waits; and somebody else's session goes to the same agent, whose cap has room for one.
        taker = deed.choice(AGENTS)
        if deed.random() < 0.05:
            also(1.0, lambda part: world.clients.take_over(part, view.session_id, taker))
            also(1.0, lambda part: world.clients.take_over(part, None, taker))
        also(0.05, lambda part: self._put_or_read_state(part, agent, view))
        if world.file_dir.is_used:
            also(0.4, lambda part: self._files.use(part, agent, view))
        await asyncio.gather(*works)

    async def _as_deed(self, deed: Deed, work: Callable[[Deed], Coroutine[Any, Any, None]]) -> None:
        deed.begin()
        await self._world.quietly(work(deed))

    # --- Commands -------------------------------------------------------------------------------------------

    async def command(self, deed: Deed, agent: str, number: int, view: wire.SessionView, tab_id: str = "") -> None:
        world = self._world
        await asyncio.sleep(deed.random() * 0.02)
        who = agent if deed.random() < 0.9 else deed.choice([a for a in AGENTS if a != agent])
        fence = deed.choice((None, view.fence, view.fence, view.fence - 1))
        label = world.mint("command") + ("-hang" if deed.random() < 0.15 else "")
        action = wire.Evaluate(
            expression="|".join((who, label, str(fence or "-"), f"{who}-{number}", "hang" if "hang" in label else "")),
            fence=fence,
            idempotency_key=label if deed.random() < 0.3 else None,
            wait_policy=deed.choice(("fail_fast", "wait_with_timeout", "wait_with_timeout")),
            timeout_ms=deed.choice((100, 200, 1_000)),
        )
        leaves_after = deed.random() * 0.05 if deed.random() < 0.1 else None
        tab_id = tab_id or view.tabs[0].tab_id
        broker = world.broker

        def accepted(command_id: str, position: int) -> None:
            world.rules.arrive(tab_id, label)

        async def arrive(broker: Broker) -> wire.CommandView:
            return await broker.commands.run(caller_of(who, number), tab_id, action, accepted)

        name = "command with a key" if action.idempotency_key else "command"
        world.tell(f"{who}-{number} sends {label} to {tab_id} with fence {fence}")
        try:
            answer = await world.call(name, arrive, leaves_after)
            world.rules.told[answer.command_id] = answer.outcome
            world.rules.hear(view.session_id)
            world.tell(f"{label} of {who} on {tab_id}: {answer.outcome}")
            if action.idempotency_key is not None:
                await self._repeat(deed, who, number, tab_id, action, answer, accepted)
        except errors.TabherdError as error:
            command_id = error.details.get("commandId")
            world.tell(f"{label} of {who} on {tab_id}: {error.code}")
            if command_id is not None and broker is world.broker:
                world.rules.told[command_id] = (await self._outcome(command_id, who)).outcome
        except (ConnectionLost, asyncio.CancelledError):
            world.tell(f"{label} of {who} on {tab_id}: its caller heard nothing")
            if action.idempotency_key is not None:
                await self._repeat(deed, who, number, tab_id, action, None, accepted)

    async def _repeat(
        self,
        deed: Deed,
        who: str,
        number: int,
        tab_id: str,
        action: wire.Evaluate,
        first: wire.CommandView | None,
        accepted: Callable[[str, int], None],
    ) -> None:
        """The same key again, as a client does that heard nothing: the outcome is the first one's."""
        world = self._world
        await asyncio.sleep(deed.random() * 0.2)
        try:
            caller = caller_of(who, number)
            again = await world.call(
                "command with a key", lambda broker: broker.commands.run(caller, tab_id, action, accepted)
            )
        except (errors.TabherdError, ConnectionLost) as error:
            world.tell(f"the key of {action.idempotency_key} is answered with {error!r}")
            return
        world.tell(f"the key of {action.idempotency_key} is answered with {again.outcome} of {again.command_id}")
        if first is not None and again.command_id != first.command_id:
            world.violate(f"{action.idempotency_key} became {again.command_id} after {first.command_id}")

    async def _cancel_something(self, deed: Deed) -> None:
        """Its sender thinks better of a command."""
        await asyncio.sleep(deed.random() * 0.02)
        accepted = list(self._world.broker.commands._accepted.values())
        if accepted:
            command = deed.choice(accepted).command
            caller = caller_of(command.agent_id, 0)
            view = await self._world.call("cancel", lambda broker: broker.commands.cancel(caller, command.id))
            self._world.tell(f"{command.id} was cancelled: {view.outcome}")

    async def _outcome(self, command_id: str, agent: str) -> wire.CommandView:
        return await self._world.call(
            "look at command", lambda broker: broker.commands.get(caller_of(agent, 0), command_id)
        )

    async def _disconnect(self, deed: Deed, agent: str) -> None:
        """One controller of the agent is gone, with its connection: its commands end, and so do its locks."""
        world, controller_id = self._world, caller_of(agent, deed.randrange(4)).controller_id
        await asyncio.sleep(deed.random() * 0.05)

        async def drop(broker: Broker) -> None:
            broker.drop_controller(controller_id)

        world.rules.unlock_all(controller_id)
        world.tell(f"{controller_id} disconnects")
        await world.call("disconnect", drop)

    # --- Tabs -----------------------------------------------------------------------------------------------

    async def _hold(self, deed: Deed, agent: str, number: int, view: wire.SessionView) -> None:
        """Take the tab lock, do something under it, give it back or let it expire."""
        world = self._world
        caller, tab_id = caller_of(agent, number), view.tabs[0].tab_id
        world.rules.wants_lock(tab_id)
        request = wire.LockTab(lock_lease_ms=LOCK_LEASE_MS, wait_policy="wait_with_timeout", timeout_ms=500)
        held = await world.call("lock tab", lambda broker: broker.tab_locks.lock(caller, tab_id, request))
        world.rules.lock(view.session_id, tab_id, caller.controller_id, LOCK_LEASE_MS)
        world.tell(f"{caller.controller_id} has the lock of {tab_id}")
        await self.command(deed, agent, number, view)
        world.rules.unlock(tab_id)
        if deed.random() < 0.7:
            await self._unlock(caller, tab_id, held.ticket)

    async def _unlock(self, caller: Caller, tab_id: str, ticket: str) -> None:
        async def unlock(broker: Broker) -> None:
            broker.tab_locks.unlock(caller, tab_id, ticket)

        await self._world.call("unlock tab", unlock)

    async def _hand_off(self, deed: Deed, agent: str, view: wire.SessionView) -> None:
        """A person drives the tab for a while."""
        world, caller, tab_id = self._world, caller_of(agent, 0), view.tabs[0].tab_id
        ASKER.set(agent)
        await asyncio.sleep(deed.random() * 0.03)
        await world.call("hand off", lambda broker: broker.tabs.hand_off(caller, tab_id, "eve"))
        world.tell(f"eve has {tab_id}")
        world.rules.hand_off(tab_id)
        await asyncio.sleep(deed.random() * 0.2)
        world.rules.resume(tab_id)
        await world.call("resume tab", lambda broker: broker.tabs.resume(caller, tab_id))
        world.tell(f"eve has given {tab_id} back")

    async def _another_tab(self, deed: Deed, agent: str, view: wire.SessionView) -> None:
        """One tab more, something done in it, and perhaps closed again."""
        world, caller = self._world, caller_of(agent, 0)
        ASKER.set(agent)
        leaves_after = deed.random() * 0.02 if deed.random() < 0.2 else None
        request = wire.OpenTab(url="https://shop.test/" if deed.random() < 0.5 else None)
        try:
            tab = await world.call(
                "open tab", lambda broker: broker.commands.open_tab(caller, view.session_id, request), leaves_after
            )
        except asyncio.CancelledError:
            world.tell(f"{agent} left before the tab was there")
            return
        world.tell(f"{agent} has {tab.tab_id} in {view.session_id}, too")
        await self.command(deed, agent, 0, view, tab.tab_id)
        if deed.random() < 0.7:
            close = wire.Close(wait_policy="wait_with_timeout", timeout_ms=500)
            await world.call("close tab", lambda broker: broker.commands.run(caller, tab.tab_id, close))
            world.tell(f"{tab.tab_id} is closed")

    # --- State ----------------------------------------------------------------------------------------------

    async def _put_or_read_state(self, deed: Deed, agent: str, view: wire.SessionView) -> None:
        """Cookies as a whole; those of whoever has the session later are no business of the agent's."""
        world, caller, session_id = self._world, caller_of(agent, 0), view.session_id
        ASKER.set(agent)
        await asyncio.sleep(deed.random() * 0.03)
        if deed.random() < 0.5:
            own = wire.StorageState(cookies=[{"name": agent}])
            await world.call("put state", lambda broker: broker.sessions.put_state(caller, session_id, own))
            world.tell(f"{agent} has put its cookie into {session_id}")
            return
        owners = world.rules.owners_of(session_id)
        state = await world.call("read state", lambda broker: broker.sessions.state(caller, session_id))
        world.tell(f"{agent} has read the cookies of {session_id}")
        strangers = {cookie["name"] for cookie in state.cookies} - owners
        if strangers:
            world.violate(
                f"{agent} reads the cookies of {strangers} in {session_id}, which was {owners}' when it asked"
            )
