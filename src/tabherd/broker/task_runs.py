"""How one task runs: as a command like any other, on its tab, its session's first tab, or a tab that is leased for it.

The scheduled and the direct path are one function, so that what holds for commands holds for tasks: turns, fences,
policies, quarantine, one outcome. A tab that somebody else has is not waited for here; the scheduler does that without
keeping a worker.

Invariant: a task acts under the lease that it was submitted under, or that was taken for it, and under no other: the
session may have gone to another agent and come back, also while there was no server. Recovery keeps the fence, so what
crashes does not cost a task its session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from .. import wire
from ..core.lifecycle import CommandState
from ..core.model import Task
from ..errors import (
    BrowserCrashed,
    CommandTimedOut,
    LeaseLost,
    SessionNotFound,
    TabBusy,
    TabLocked,
    TabPausedHandoff,
    from_wire,
)
from .access import Access
from .caller import Caller
from .commands import Commands
from .patience import patiently
from .registry import LiveTab, Registry
from .sessions import Sessions
from .task_rows import command_of

# What an opened session may wait for at the most, whatever the task has left.
LEASE_WAIT_MAX_MS = 120_000
DEADLINE_MIN_MS = 1_000


class Blocked(Exception):
    """Somebody else has the tab: the task waits without a worker until it is free."""

    def __init__(self, tab: LiveTab) -> None:
        super().__init__(tab.row.id)
        self.tab = tab


class Withdrawn(Exception):
    """Somebody cancelled the command that the task had become."""


class TaskRuns:
    """Runs tasks."""

    def __init__(
        self,
        *,
        own_pid: int,
        registry: Registry,
        access: Access,
        commands: Commands,
        sessions: Sessions,
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        # Of the server's own process.
        self._own_pid = own_pid
        self._registry = registry
        self._access = access
        self._commands = commands
        self._sessions = sessions
        self._clock = clock
        self._spawn = spawn

    async def run(
        self,
        task: Task,
        on_sent: Callable[[str], None],
        on_place: Callable[[], None],
        write_sent: Callable[[], Awaitable[None]] | None = None,
    ) -> Any:
        """The result; what it fails with is raised.

        `on_sent` hears the id of the command just before anything reaches the page, and after `write_sent` is done;
        `on_place` that a task which brings no session waits for none any more.
        """
        caller = caller_of(task)
        if task.tab_id or task.session_id:
            return await self._act(caller, self.tab_of(caller, task), task, task.fence or None, on_sent, write_sent)
        left_ms = task.deadline_at - self._clock()
        request = wire.OpenSession(
            pool=task.pool,
            wait_ms=min(max(0, left_ms), LEASE_WAIT_MAX_MS),
            deadline_ms=max(DEADLINE_MIN_MS, left_ms),
            # If this server dies, so does the lease.
            owner=wire.Owner(pid=self._own_pid),
        )
        live = await self._sessions.lease(caller, request, on_place, is_local=True)
        # Of this lease: an admin may give the session to somebody, also to this agent, and then it is not the task's.
        fence = live.row.fence
        try:
            return await self._act(caller, next(iter(live.tabs.values())), task, fence, on_sent, write_sent)
        except Blocked:
            # Nobody waits for a page that died, or was taken, between the lease and the task: the next lease has
            # another, and no other task of the pool stands behind it.
            raise BrowserCrashed("The page of its session could not be used before the task was sent.") from None
        finally:
            # What became of the task does not depend on it, and must not wait for a browser that hangs.
            self._spawn(self._give_back(caller, live.row.id, fence))

    def tab_of(self, caller: Caller, task: Task) -> LiveTab:
        """The tab that a task names, or the first one of its session, if the task is for the lease that this is."""
        fence = task.fence or None
        if task.tab_id:
            return self._access.usable_tab(caller, task.tab_id, task.session_id or None, fence)
        live = self._registry.session(task.session_id)
        if live is None or not caller.may_see(live.row.agent_id):
            if fence is not None:
                # It was there, and the agent's, when the task was submitted.
                raise LeaseLost("The session has ended or changed hands.", sessionId=task.session_id)
            raise SessionNotFound("No such session.", sessionId=task.session_id)
        first = next(iter(live.tabs), None)
        if first is None:
            raise SessionNotFound("The session has no tab.", sessionId=task.session_id)
        return self._access.usable_tab(caller, first, task.session_id, fence)

    async def _act(
        self,
        caller: Caller,
        tab: LiveTab,
        task: Task,
        fence: int | None,
        on_sent: Callable[[str], None],
        write_sent: Callable[[], Awaitable[None]] | None,
    ) -> Any:
        left_ms = task.deadline_at - self._clock()
        if left_ms <= 0:
            # Its timer comes too late where the clock was set.
            raise CommandTimedOut("The deadline passed before the task was sent.", taskId=task.id)
        request = command_of(task, left_ms, fence)
        command_id = ""

        def accepted(id: str, _: int) -> None:
            nonlocal command_id
            command_id = id
            if write_sent is None:
                on_sent(id)

        async def before_send() -> None:
            assert write_sent is not None
            await write_sent()
            on_sent(command_id)

        try:
            done = await self._commands.run(
                caller,
                tab.row.id,
                request,
                accepted,
                before_send=None if write_sent is None else before_send,
                is_recorded=False,
            )
        except (TabBusy, TabLocked, TabPausedHandoff):
            raise Blocked(tab) from None
        if done.outcome == CommandState.CANCELLED:
            raise Withdrawn
        if done.error is not None:
            # A step failed; what became of each goes along.
            error = from_wire(done.error)
            error.details["steps"] = done.result
            raise error
        return done.result

    async def _give_back(self, caller: Caller, session_id: str, fence: int) -> None:
        try:
            await patiently(lambda: self._sessions.release(caller, session_id, fence))
        except (LeaseLost, SessionNotFound):
            # It ended with its browser, or by its own deadline.
            return


def caller_of(task: Task) -> Caller:
    """As whom the task acts: its agent, with what the credential was allowed that submitted it."""
    return Caller(agent_id=task.agent_id, scopes=frozenset(task.scopes), controller_id=f"task/{task.id}")
