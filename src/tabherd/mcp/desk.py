"""What one MCP session has in hand: its agent's client, the sessions it leased, and which tab a call means.

Invariants:
- A desk touches only what was leased over it, even if its credential may do more: two desks never meet in a tab.
- A call that names no tab means the only one there is; with several it is refused with all of them listed. There is
  deliberately no "current tab": sub-agents share one MCP session, and one's choice would be the other's wrong page.
- What was leased over it is given back when the desk is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from .. import wire
from ..client.aio import AsyncSession, AsyncTab, AsyncTabherd, AsyncTask
from ..errors import (
    AmbiguousTarget,
    InvalidRequest,
    LeaseLost,
    SessionNotFound,
    TabherdError,
    TabNotFound,
    TaskNotFound,
)
from .parameters import Lease
from .waiting import Report, in_pool, told_while

# In which a session still serves its owner.
OPEN_STATES: Final = frozenset(("reserved", "active", "recovering"))
# How many candidates a refusal lists.
CANDIDATES_MAX: Final = 20
# How long giving back may take; MCP clients kill a process that takes two seconds to leave.
CLOSE_LIMIT_S: Final = 1.5
DEFAULT_POOL: Final = "default"
LEASE_FIRST: Final = "Call browser_navigate with a url, which leases one, or browser_lease."


class Line(NamedTuple):
    """The way to the server, for one agent."""

    herd: AsyncTabherd
    # Whose sessions may be joined; None: the credential is an agent's own, so the server sees to it.
    agent: str | None = None
    # The process whose death is to end the leases, where the server can see it.
    owner_pid: int | None = None


Answer = TypeVar("Answer")
# Opens the line; takes the name of the MCP client.
Connect = Callable[[str], Awaitable[Line]]


class Desk:
    """The sessions of one MCP session."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._line: Line | None = None
        # By id, oldest first.
        self._sessions: dict[str, AsyncSession] = {}
        # Connecting, and leasing for a call that found no session, happen once for all who ask at once.
        self._connecting = asyncio.Lock()
        self._leasing = asyncio.Lock()
        # Those of them that somebody else leased, and which are not given back unless that is asked for.
        self._joined: set[str] = set()
        # By session, the downloads that were told of, each as it was then.
        self._told: dict[str, set[tuple[str, str]]] = {}
        # Calls that run; the desk is not closed under them.
        self._working: set[asyncio.Task[Any]] = set()
        # How the MCP client calls itself.
        self.client_name = ""

    async def line(self) -> Line:
        """The way to the server; opened at the first call, since the server may be started after its MCP clients."""
        async with self._connecting:
            if self._line is None:
                self._line = await self._connect(self.client_name)
            return self._line

    async def work(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """Run one call to its end. Whoever stops waiting for it cancels it, once, so that it can put things back."""
        running = asyncio.create_task(call)
        self._working.add(running)
        running.add_done_callback(self._worked)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.cancel()
            raise

    async def close(self) -> None:
        """End what runs and give back what was leased here. Idempotent."""
        for running in self._working:
            running.cancel()
        await _within_limit(self._working)
        sessions, self._sessions = [*self._sessions.values()], {}
        releasing = [asyncio.create_task(session.close()) for session in sessions if session.id not in self._joined]
        await _within_limit(releasing)
        if self._line is not None:
            await self._line.herd.close()

    # --- Sessions -----------------------------------------------------------------------------------------------

    async def lease(self, wish: Lease, report: Report) -> AsyncSession:
        """One more session, or one of this agent's that is open already."""
        line = await self.line()
        if wish.session_id is not None:
            session = await self._join(line, wish.session_id)
        else:
            session = await told_while(self._open(line, wish), in_pool(line.herd, wish.pool or DEFAULT_POOL), report)
        self._sessions[session.id] = session
        return session

    async def session(self, session_id: str | None) -> AsyncSession:
        """The session that is meant, as it is now."""
        if session_id is not None:
            if session_id not in self._sessions:
                raise SessionNotFound(
                    f"'{session_id[:100]}' is no session that was leased here.",
                    action=self._next_step(),
                    candidates=self._candidates(self._sessions.values()),
                )
            return await self._refreshed(self._sessions[session_id])
        if not self._sessions:
            raise SessionNotFound("Nothing is leased yet.", action=LEASE_FIRST)
        if len(self._sessions) > 1:
            raise self._ambiguous("sessions", self._sessions.values())
        (only,) = self._sessions.values()
        return await self._refreshed(only)

    async def sessions(self) -> list[AsyncSession]:
        """All of them, as they are now; those that have ended are dropped."""
        for session in [*self._sessions.values()]:
            with suppress(LeaseLost):
                await self._refreshed(session)
        return [*self._sessions.values()]

    async def release(self, session_id: str | None) -> AsyncSession:
        """Give the session back that is meant."""
        session = await self.session(session_id)
        await session.close()
        self._forget(session)
        return session

    # --- Tabs ---------------------------------------------------------------------------------------------------

    async def tab(self, tab_id: str | None, session_id: str | None) -> AsyncTab:
        """The tab that is meant."""
        if tab_id is not None:
            return await self._named(tab_id, session_id)
        session = await self.session(session_id)
        match session.tabs:
            case []:
                raise TabNotFound(
                    "The session has no tab.", action="Open one with browser_tabs, action new.", sessionId=session.id
                )
            case [only]:
                return only
            case _:
                raise self._ambiguous("tabs", [session])

    async def tab_or_lease(self, tab_id: str | None, session_id: str | None, report: Report) -> AsyncTab:
        """The same for the tool that may begin: with nothing leased, a session is leased for it."""
        if tab_id is None and session_id is None:
            async with self._leasing:
                if not self._sessions:
                    return (await self.lease(Lease(), report)).tab
        return await self.tab(tab_id, session_id)

    # --- Files --------------------------------------------------------------------------------------------------

    async def news(self, session: AsyncSession) -> list[wire.FileView]:
        """Downloads of the session that have begun or ended since the last look; only a courtesy, which never fails."""
        try:
            files = [file for file in await session.files() if file.source == "download"]
        except TabherdError:
            # Without the scope, say, there are no files for this agent.
            return []
        told = self._told.get(session.id, set())
        self._told[session.id] = {(file.name, file.state) for file in files}
        return [file for file in files if (file.name, file.state) not in told]

    # --- Tasks --------------------------------------------------------------------------------------------------

    async def task(self, task_id: str) -> AsyncTask:
        """A task of this agent, also one that it submitted in an earlier MCP session."""
        line = await self.line()
        task = line.herd.task(task_id)
        # An admin's credential sees everybody's; this desk is one agent's.
        if line.agent not in (None, (await task.status()).agent_id):
            raise TaskNotFound("No task of yours has that id.")
        return task

    # --- Parts --------------------------------------------------------------------------------------------------

    async def _open(self, line: Line, wish: Lease) -> AsyncSession:
        def session(owner_pid: int | None) -> AsyncSession:
            return line.herd.session(
                pool=wish.pool, key=wish.key, tier=wish.tier, url=wish.url, wait_ms=wish.wait_ms, owner=owner_pid
            )

        try:
            return await session(line.owner_pid).open()
        except InvalidRequest as error:
            if line.owner_pid is None or error.details.get("field") != "owner":
                raise
            # The address is this machine's, but the server runs apart from its processes, as in a container.
            return await session(None).open()

    async def _join(self, line: Line, session_id: str) -> AsyncSession:
        if session_id in self._sessions:
            return await self._refreshed(self._sessions[session_id])
        view = await line.herd.session_view(session_id)
        # An admin's credential sees everybody's; this desk is one agent's.
        if line.agent not in (None, view.agent_id) or view.state not in OPEN_STATES:
            raise SessionNotFound("No session of yours with that id is open.", action=LEASE_FIRST)
        self._joined.add(session_id)
        session = await line.herd.find_session(session_id)
        # What it has downloaded before is no news.
        await self.news(session)
        return session

    async def _refreshed(self, session: AsyncSession) -> AsyncSession:
        """The session with the tabs it has now; `LeaseLost`, once, when it has ended or is another's meanwhile."""
        try:
            return await session.refresh()
        except (LeaseLost, SessionNotFound) as error:
            self._forget(session)
            await session.close()
            raise LeaseLost(error.message, action=LEASE_FIRST, sessionId=session.id) from None

    async def _named(self, tab_id: str, session_id: str | None) -> AsyncTab:
        sessions = [await self.session(session_id)] if session_id is not None else [*self._sessions.values()]
        for is_new_look in (False, True):
            for session in sessions:
                if is_new_look:
                    # It may be a popup that has just opened.
                    await self._refreshed(session)
                for tab in session.tabs:
                    if tab.id == tab_id:
                        return tab
        raise TabNotFound(
            f"'{tab_id[:100]}' is no tab of a session that was leased here.",
            action=self._next_step(),
            candidates=self._candidates(sessions),
        )

    def _ambiguous(self, what: str, sessions: Iterable[AsyncSession]) -> AmbiguousTarget:
        candidates = self._candidates(sessions)
        argument = "tabId" if what == "tabs" else "sessionId or tabId"
        return AmbiguousTarget(
            f"Several {what} are open and the call names none.",
            action=f"Call again with the {argument} of one of the candidates.",
            candidates=candidates,
        )

    def _candidates(self, sessions: Iterable[AsyncSession]) -> list[dict[str, str]]:
        found = [
            {"sessionId": session.id, "tabId": tab.tab_id, "title": tab.title[:100], "url": tab.url[:200]}
            for session in sessions
            for tab in session.view.tabs
        ]
        return found[:CANDIDATES_MAX]

    def _next_step(self) -> str:
        return "Name one of the candidates, or see browser_tabs." if self._sessions else LEASE_FIRST

    def _forget(self, session: AsyncSession) -> None:
        self._sessions.pop(session.id, None)
        self._told.pop(session.id, None)

    def _worked(self, running: asyncio.Task[Any]) -> None:
        self._working.discard(running)
        if not running.cancelled():
            # Looked at, because nobody else will if its caller has left.
            running.exception()


async def _within_limit(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait for them, but not long: what is not given back by then gets no heartbeat any more, and ends by itself."""
    if not tasks:
        return
    done, late = await asyncio.wait(tasks, timeout=CLOSE_LIMIT_S)
    for task in late:
        task.cancel()
    await asyncio.gather(*done, return_exceptions=True)
