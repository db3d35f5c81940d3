"""Agents' clients in a simulated cluster: each request goes to whichever node, also the wrong one, and is repeated at
another when its node is lost.

They act in good faith on what they were told, which may be long out of date; some are not even the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tests.sim.clients import ADMIN, AGENTS, caller_of

from tabherd import errors, wire
from tabherd.broker.broker import Broker
from tabherd.core import lease
from tabherd.core.model import Session

from .chance import begin
from .front_door import PATIENCE_S, Call, ConnectionLost
from .tab_clients import TabClients

if TYPE_CHECKING:
    from .world import World

# Sessions live this long at the most.
DEADLINE_MS = 30_000
# How often a client tries again that was told to.
TRIES_MAX = 4
# What a client that is told so tries again.
AGAIN = (errors.NodeUnreachable, errors.StoreUnavailable, ConnectionLost)


class Clients:
    """Whoever uses sessions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.choices
        self._guests = 0
        self.tabs = TabClients(world, self)

    def start(self) -> None:
        for agent in AGENTS:
            for number in (1, 2):
                rounds = self._world.script.chance(f"{agent}-{number}").randrange(1, 4)
                self._world.start(self._client(agent, number, rounds))
        self._world.start(self._operator())

    # --- Sessions -------------------------------------------------------------------------------------------

    async def _client(self, agent: str, number: int, rounds: int) -> None:
        """One client of an agent: opens, acts, beats, releases, or just goes away."""
        who = f"{agent}-{number}"
        for _ in range(rounds):
            deed = self._world.script.deed(who)
            if deed is not None:
                begin(deed)
                await self._round(who, agent, number)

    async def _round(self, who: str, agent: str, number: int) -> None:
        world = self._world
        await asyncio.sleep(self._chance.random() * 3)
        try:
            view = await self._open(agent, number)
            if view is None:
                return
            for _ in range(self._chance.randrange(1, 5)):
                await self._use(who, agent, view)
                await asyncio.sleep(self._chance.random() * self._chance.choice((0.05, 1.0, 3.0)))
            if self._chance.random() < 0.8:
                await self._release(agent, view)
            else:
                world.tell(f"{agent} walks away from {view.session_id}")
        except (errors.TabherdError, ConnectionLost, asyncio.CancelledError) as error:
            world.tell(f"{agent} gives up: {error!r}")

    async def _open(self, agent: str, number: int) -> wire.SessionView | None:
        world, chance, caller = self._world, self._chance, caller_of(agent, number)
        machine = chance.choice(list(world.machines.values()))
        pid = world.mint_number() if chance.random() < 0.3 else None
        request = wire.OpenSession(
            key=chance.choice(("", "shop", "bank")),
            wait_ms=chance.choice((0, 50, 1_000, 5_000)),
            deadline_ms=DEADLINE_MS,
            reuse=chance.choice((None, "never", "same-agent")),
            owner=None if pid is None else wire.Owner(pid=pid),
        )
        # A process of another machine: nobody there can see whether it lives.
        passed_on = wire.OpenSession(**{**_fields(request), "owner": None})

        async def open(broker: Broker, grant: str) -> wire.SessionView:
            return await broker.sessions.open(caller, passed_on if grant else request, grant=grant)

        if pid is not None:
            machine.alive_pids.add(pid)
            world.start(self._process(machine.node_id, pid))
        leaves_after = chance.random() * 0.1 if chance.random() < 0.1 else PATIENCE_S
        try:
            view: wire.SessionView = await world.front_door.ask(machine, Call("POST", open), leaves_after)
        except (errors.TabherdError, ConnectionLost, asyncio.CancelledError) as error:
            world.tell(f"{agent} is refused a session by {machine.node_id}: {error!r}")
            return None
        world.tell(f"{agent} has {view.session_id} on {view.node}, fence {view.fence}")
        world.rules.hear(view.session_id)
        if pid is not None and view.node == machine.node_id:
            world.rules.named_process(view.session_id, machine.node_id, pid)
        return view

    async def _process(self, node_id: str, pid: int) -> None:
        """A client's process lives for a while."""
        await asyncio.sleep(5 + self._chance.random() * 25)
        machine = self._world.machines[node_id]
        self._world.tell(f"process {pid} on {node_id} ends")
        machine.alive_pids.discard(pid)
        for life in self._world.lives:
            if life.machine is machine and not life.is_over:
                life.process.call_later(0.0, life.owners.die, pid)

    async def _use(self, who: str, agent: str, view: wire.SessionView) -> None:
        """Several things at once on one tab, some of which hang, carry a stale fence, or are somebody else's."""
        works = [self.command(agent, n, view) for n in range(self._chance.randrange(1, 4))]
        if self._chance.random() < 0.4:
            works.append(self._beat(agent, view))
        if self._chance.random() < 0.05:
            works.append(self.take_over(view.session_id, self._chance.choice(AGENTS)))
        if self._chance.random() < 0.15:
            works.append(self.tabs.hold(agent, self._chance.randrange(3), view))
        if self._chance.random() < 0.1:
            works.append(self.tabs.hand_off(agent, view.tabs[0].tab_id))
        await asyncio.gather(*(self._deed(f"{who} with a session", work) for work in works))

    async def _deed(self, who: str, work: Coroutine[Any, Any, None]) -> None:
        """Something that can be left out."""
        deed = self._world.script.deed(who)
        if deed is None:
            work.close()
            return
        begin(deed)
        await self._world.quietly(work)

    async def _beat(self, agent: str, view: wire.SessionView) -> None:
        beat = wire.Heartbeat(fence=view.fence)

        async def heartbeat(broker: Broker, _: str) -> None:
            await broker.sessions.heartbeat(caller_of(agent, 0), view.session_id, beat)

        await self.again(Call("POST", heartbeat, "session", view.session_id))
        self._world.rules.hear(view.session_id)

    async def _release(self, agent: str, view: wire.SessionView) -> None:
        world = self._world
        fence = self._chance.choice((None, view.fence, view.fence - 1))
        disposition = self._chance.choice((None, "close", "pool"))

        async def release(broker: Broker, _: str) -> None:
            await broker.sessions.release(caller_of(agent, 0), view.session_id, fence, disposition)

        try:
            await self.again(Call("DELETE", release, "session", view.session_id))
        except errors.LeaseLost:
            world.tell(f"{agent} cannot release {view.session_id} with fence {fence}")
            return
        ended = world.database.row(Session, view.session_id)
        if ended is not None and (fence not in (None, ended.fence) or ended.agent_id != agent):
            world.violate(f"{agent} released {view.session_id} of {ended.agent_id} at {ended.fence} with fence {fence}")
        world.tell(f"{agent} released {view.session_id} ({disposition})")

    async def _operator(self) -> None:
        """Gives sessions away."""
        for _ in range(self._world.script.chance("operator").randrange(3)):
            deed = self._world.script.deed("operator")
            if deed is None:
                continue
            begin(deed)
            await asyncio.sleep(self._chance.random() * 8)
            held = [row.id for row in self._world.database.rows(Session).values() if row.state in lease.HELD_STATES]
            if held:
                await self._world.quietly(self.take_over(self._chance.choice(held), self._chance.choice(AGENTS)))

    async def take_over(self, session_id: str, agent: str) -> None:
        """An admin gives somebody's session to somebody else, who uses it; the old holder goes on in good faith."""
        world = self._world

        async def take(broker: Broker, _: str) -> wire.SessionView:
            return await broker.sessions.take_over(ADMIN, session_id, agent)

        view: wire.SessionView = await world.call(Call("POST", take, "session", session_id), PATIENCE_S)
        world.tell(f"{session_id} is {agent}'s from now on, fence {view.fence}")
        world.start(self._guest(agent, view))

    async def _guest(self, agent: str, view: wire.SessionView) -> None:
        self._guests += 1
        who = f"guest {self._guests}"
        deed = self._world.script.deed(who)
        if deed is not None:
            begin(deed)
            await self._world.quietly(self._use(who, agent, view))
            await self._world.quietly(self._release(agent, view))

    # --- Commands -------------------------------------------------------------------------------------------

    async def command(self, agent: str, number: int, view: wire.SessionView) -> None:
        world, chance = self._world, self._chance
        await asyncio.sleep(chance.random() * 0.05)
        who = agent if chance.random() < 0.9 else chance.choice([a for a in AGENTS if a != agent])
        fence = chance.choice((None, view.fence, view.fence, view.fence - 1))
        label, controller_id = world.mint("command"), caller_of(who, number).controller_id
        steps = 3 if chance.random() < 0.2 else 1
        does = "hang" if chance.random() < 0.1 else ""
        fields = {
            "fence": fence,
            "idempotency_key": label if chance.random() < 0.3 else None,
            "wait_policy": chance.choice(("fail_fast", "wait_with_timeout", "wait_with_timeout")),
            "timeout_ms": chance.choice((200, 1_000, 6_000)),
        }

        def evaluate(name: str, **more: object) -> wire.Evaluate:
            return wire.Evaluate(expression="|".join((who, name, str(fence or "-"), controller_id, does)), **more)  # type: ignore[arg-type]

        action: wire.Evaluate | wire.Steps = (
            evaluate(label, **fields)
            if steps == 1
            else wire.Steps(steps=[evaluate(f"{label}.{n}") for n in range(steps)], **fields)  # type: ignore[arg-type]
        )
        tab_id = view.tabs[0].tab_id

        async def run(broker: Broker, _: str) -> wire.CommandView:
            return await broker.commands.run(caller_of(who, number), tab_id, action)

        call = Call("POST", run, "tab", tab_id)
        first = await self._outcome_of(call, label)
        if fields["idempotency_key"] is not None:
            # The same key again, as a client does that heard nothing: the outcome is the first one's.
            await asyncio.sleep(chance.random() * 0.5)
            again = await self._outcome_of(call, label)
            if first is not None and again is not None and again.command_id != first.command_id:
                world.violate(f"{label} became {again.command_id} after {first.command_id}")

    async def _outcome_of(self, call: Call, label: str) -> wire.CommandView | None:
        """What became of it; None if nobody was told, or it was refused."""
        world = self._world
        leaves_after = self._chance.random() * 0.1 if self._chance.random() < 0.05 else PATIENCE_S
        try:
            answer: wire.CommandView = await world.call(call, leaves_after)
        except (errors.TabherdError, ConnectionLost, asyncio.CancelledError) as error:
            world.tell(f"{label}: {error!r}")
            return None
        world.rules.told[answer.command_id] = answer.outcome
        world.tell(f"{label}: {answer.outcome}")
        return answer

    # --- Trying again ---------------------------------------------------------------------------------------

    async def again(self, call: Call) -> object:
        """As the SDK does it with what may be repeated: at another node, after a while, a few times."""
        for _ in range(TRIES_MAX):
            try:
                return await self._world.call(call, PATIENCE_S)
            except AGAIN as error:
                last = error
                await asyncio.sleep(0.2 + self._chance.random())
        raise last


def _fields(request: wire.OpenSession) -> dict[str, object]:
    return {name: getattr(request, name) for name in request.__struct_fields__}
