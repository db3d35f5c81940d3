"""All agents of the demo: most as tasks of this process, some as processes of their own, so that these can be killed.

Everything that they tell arrives in one place. Processes are ended by their handles when the crowd is closed, however
that comes about; an agent that ends with an error of ours ends the demo with it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

import msgspec

from .agent import THINKS, Agent, Orders
from .record import AgentDeath, Granted, Left, Phase, Told, now_ms

# What agents get to finish what they have begun.
FINISH_LIMIT_S: Final = 45.0
CANCELS_MAX: Final = 50
CANCEL_POLL_S: Final = 0.2
# A line that an agent's process tells.
LINE_MAX_BYTES: Final = 1 << 20
# How long the right moment to kill an agent is waited for.
FIND_LIMIT_S: Final = 20.0
# Far from what the first life of an agent can have counted to.
SECOND_LIFE: Final = 1_000


class Crowd:
    """The agents, from `start` to the end of the `async with` around it, which ends those that are left."""

    def __init__(self, orders: Sequence[Orders], hear: Callable[[Told], None]) -> None:
        self._orders = {each.agent: each for each in orders}
        self._hear_one = hear
        self._over = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        # Who has a session at the moment.
        self._holding: dict[str, Granted] = {}
        # Set while an agent is to be killed: the session of the first that is ready for it.
        self._ripe: asyncio.Future[Granted] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
        pending = set(self._tasks.values())
        for _ in range(CANCELS_MAX):
            if not pending:
                break
            for task in pending:
                task.cancel()
            # Again and again: who gives a session back to a server that is gone would wait for it to return.
            _, pending = await asyncio.wait(pending, timeout=CANCEL_POLL_S)
        assert not pending, "agents end when they are told so often enough"
        await asyncio.gather(*(process.wait() for process in self._processes.values()))

    async def start(self) -> None:
        """Start everybody; processes first, which take a while, so that all begin at the same time."""
        for orders in sorted(self._orders.values(), key=lambda each: not each.is_process):
            await self._start(orders)

    async def kill_one(self) -> AgentDeath:
        """Kill the process of an agent that has a session, and thinks.

        Then what it has told of its commands is whole, and the recount knows the outcome of each.
        """
        self._ripe = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(FIND_LIMIT_S):
            return await self._kill(await self._ripe)

    async def start_again(self, agent: str) -> None:
        """Start an agent anew whose process was killed."""
        await self._start(msgspec.structs.replace(self._orders[agent], first_visit=SECOND_LIFE))

    async def finish(self) -> None:
        """Let everybody finish what they have begun, and go; raises what an agent failed with."""
        self._over.set()
        for process in self._processes.values():
            if process.returncode is None and process.stdin is not None:
                process.stdin.close()
        async with asyncio.timeout(FINISH_LIMIT_S):
            await asyncio.gather(*self._tasks.values())

    # --- Parts --------------------------------------------------------------------------------------------------

    async def _start(self, orders: Orders) -> None:
        if not orders.is_process:
            work = Agent(orders, self._hear, self._over).live()
        else:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", Agent.__module__),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LINE_MAX_BYTES,
                # Ctrl-C is for the demo, which ends its agents itself.
                start_new_session=True,
            )
            self._processes[orders.agent] = process
            assert process.stdin is not None, "its input is a pipe"
            assert process.stdout is not None, "its output is a pipe"
            process.stdin.write(msgspec.json.encode(orders) + b"\n")
            first = await process.stdout.readline()
            work = self._listen(orders.agent, process, first)
        self._tasks[orders.agent] = asyncio.create_task(work, name=orders.agent)

    async def _listen(self, agent: str, process: asyncio.subprocess.Process, line: bytes) -> None:
        assert process.stdout is not None, "its output is a pipe"
        # What a process that is killed was just about to tell has no end.
        while line.endswith(b"\n"):
            self._hear(msgspec.json.decode(line, type=Told))
            line = await process.stdout.readline()
        code = await process.wait()
        # One that was killed is no longer in the list.
        assert code == 0 or self._processes.get(agent) is not process, f"{agent} ended with {code}"

    async def _kill(self, granted: Granted) -> AgentDeath:
        process = self._processes.pop(granted.agent)
        process.kill()
        killed_ms = now_ms()
        await process.wait()
        await self._tasks.pop(granted.agent)
        self._holding.pop(granted.agent, None)
        return AgentDeath(agent=granted.agent, visit=granted.visit, session=granted.session, killed_ms=killed_ms)

    def _hear(self, told: Told) -> None:
        match told:
            case Granted():
                self._holding[told.agent] = told
            case Left():
                self._holding.pop(told.agent, None)
            case Phase(doing=doing) if doing == THINKS and self._ripe is not None and not self._ripe.done():
                if told.agent in self._processes and told.agent in self._holding:
                    self._ripe.set_result(self._holding[told.agent])
            case _:
                pass
        self._hear_one(told)
