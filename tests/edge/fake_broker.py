"""A broker that keeps its promises in dictionaries: enough behind the edge for its protocol to be tested alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import Any

import msgspec
from tests.edge.fake_locks import FakeNamedLocks
from tests.edge.fake_tasking import FakeTasking

from tabherd import wire
from tabherd.broker.caller import Caller
from tabherd.broker.credentials import Credentials
from tabherd.broker.files import OpenFile
from tabherd.broker.registry import Registry
from tabherd.errors import (
    BrowserNotFound,
    CommandNotFound,
    Draining,
    FileNotFound,
    LeaseLost,
    NoBrowser,
    SessionNotFound,
    TabNotFound,
)
from tabherd.store.memory import MemoryStore

AT = "2025-01-01T00:00:00.000Z"


class FakeSessions:
    def __init__(self) -> None:
        self.views: dict[str, wire.SessionView] = {}
        self.callers: list[Caller] = []
        self.released: list[str] = []
        self.states: dict[str, wire.StorageState] = {}
        # Replaces `open` where a test needs it to wait, fail or misbehave.
        self.on_open: Callable[[], Awaitable[Any]] | None = None

    async def open(self, caller: Caller, request: wire.OpenSession, *, grant: str = "") -> wire.SessionView:
        self.callers.append(caller)
        if self.on_open is not None:
            await self.on_open()
        number = len(self.views) + 1
        view = wire.SessionView(
            session_id=f"ses_{number}",
            agent_id=request.agent_id or caller.agent_id,
            fence=number,
            state="active",
            pool=request.pool,
            key=request.key,
            tier=request.tier,
            node="nod_test",
            tabs=[wire.TabBrief(tab_id=f"tab_{number}", url="about:blank", title="")],
            created_at=AT,
            expires_at=AT,
            heartbeat_ms=60_000,
            keep_alive=request.keep_alive,
            access=request.access,
            reuse=request.reuse or "never",
            end_reason="",
        )
        self.views[view.session_id] = view
        return view

    async def get(self, caller: Caller, session_id: str) -> wire.SessionView:
        view = self.views.get(session_id)
        if view is None or not caller.may_see(view.agent_id):
            raise SessionNotFound("No such session.")
        return view

    async def list(self, caller: Caller, **filters: Any) -> wire.SessionPage:
        return wire.SessionPage(sessions=[view for view in self.views.values() if caller.may_see(view.agent_id)])

    async def heartbeat(self, caller: Caller, session_id: str, beat: wire.Heartbeat) -> wire.HeartbeatAnswer:
        view = await self.get(caller, session_id)
        if beat.fence != view.fence:
            raise LeaseLost("The fence has moved on.")
        return wire.HeartbeatAnswer(expires_at=AT, fence=view.fence, cancel=[])

    async def release(
        self, caller: Caller, session_id: str, fence: int | None = None, disposition: str | None = None
    ) -> None:
        view = await self.get(caller, session_id)
        if fence is not None and fence != view.fence:
            raise LeaseLost("The fence has moved on.")
        del self.views[session_id]
        self.released.append(session_id)

    async def take_over(self, caller: Caller, session_id: str, agent_id: str) -> wire.SessionView:
        view = await self.get(caller, session_id)
        self.views[session_id] = msgspec.structs.replace(view, agent_id=agent_id, fence=view.fence + 1)
        return self.views[session_id]

    async def state(self, caller: Caller, session_id: str) -> wire.StorageState:
        await self.get(caller, session_id)
        return self.states.get(session_id, wire.StorageState())

    async def put_state(self, caller: Caller, session_id: str, state: wire.StorageState) -> None:
        await self.get(caller, session_id)
        self.states[session_id] = state


class FakeTabs:
    def __init__(self, sessions: FakeSessions) -> None:
        self._sessions = sessions

    async def of_session(self, caller: Caller, session_id: str) -> wire.TabPage:
        return wire.TabPage(tabs=(await self._sessions.get(caller, session_id)).tabs)

    def list(self, caller: Caller) -> wire.TabList:
        views = (view for view in self._sessions.views.values() if caller.may_see(view.agent_id))
        return wire.TabList(tabs=[_tab_view(view, tab, "ready") for view in views for tab in view.tabs])

    def get(self, caller: Caller, tab_id: str) -> wire.TabView:
        return self._find(caller, tab_id, "ready")

    async def hand_off(self, caller: Caller, tab_id: str, by: str | None) -> wire.TabView:
        return self._find(caller, tab_id, "paused")

    async def activate(self, caller: Caller, tab_id: str) -> None:
        self._find(caller, tab_id, "ready")

    async def resume(self, caller: Caller, tab_id: str) -> wire.TabView:
        return self._find(caller, tab_id, "ready")

    def _find(self, caller: Caller, tab_id: str, state: str) -> wire.TabView:
        for view in self._sessions.views.values():
            for tab in view.tabs:
                if tab.tab_id == tab_id and caller.may_see(view.agent_id):
                    return _tab_view(view, tab, state)
        raise TabNotFound("No such tab.")


def _tab_view(session: wire.SessionView, tab: wire.TabBrief, state: str) -> wire.TabView:
    return wire.TabView(
        tab_id=tab.tab_id,
        session_id=session.session_id,
        agent_id=session.agent_id,
        state=state,
        url=tab.url,
        title=tab.title,
        generation=1,
        provenance="created",
        opener_tab_id=None,
        created_at=AT,
        holder=None,
        waiters=[],
        expected_wait_ms=0,
    )


class FakeCommands:
    def __init__(self, sessions: FakeSessions) -> None:
        self._sessions = sessions
        self.callers: list[Caller] = []
        self.actions: list[wire.AnyAction] = []
        # What an action answers with.
        self.result: Any = None
        # Set when a command has begun; replaces the answer by a wait for ever.
        self.is_hanging = False
        self.began = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def run(self, caller: Caller, tab_id: str, action: wire.AnyAction) -> wire.CommandView:
        self.callers.append(caller)
        self.actions.append(action)
        self.began.set()
        if self.is_hanging:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if not any(tab.tab_id == tab_id for view in self._sessions.views.values() for tab in view.tabs):
            raise TabNotFound("No such tab.")
        return wire.CommandView(
            command_id="cmd_1", ok=True, outcome="completed", result=self.result, queued_ms=0, duration_ms=1
        )

    async def open_tab(self, caller: Caller, session_id: str, request: wire.OpenTab) -> wire.TabView:
        view = await self._sessions.get(caller, session_id)
        tab = wire.TabBrief(
            tab_id=f"{view.tabs[0].tab_id}_{len(view.tabs)}", url=request.url or "about:blank", title=""
        )
        self._sessions.views[session_id] = msgspec.structs.replace(view, tabs=[*view.tabs, tab])
        return _tab_view(view, tab, "ready")

    async def get(self, caller: Caller, command_id: str) -> wire.CommandView:
        raise CommandNotFound("No such command.")

    async def cancel(self, caller: Caller, command_id: str) -> wire.CommandView:
        return await self.get(caller, command_id)


class FakeTabLocks:
    def __init__(self, tabs: FakeTabs) -> None:
        self._tabs = tabs

    async def lock(self, caller: Caller, tab_id: str, request: wire.LockTab) -> wire.TabLockView:
        self._tabs.get(caller, tab_id)
        return wire.TabLockView(
            tab_id=tab_id,
            lock_owner_controller_id=caller.controller_id,
            lock_lease_ms=30_000,
            lock_expires_at=AT,
            ticket="lck_1",
        )

    def unlock(self, caller: Caller, tab_id: str, ticket: str) -> None:
        self._tabs.get(caller, tab_id)

    def force(self, caller: Caller, tab_id: str, holder: str | None = None) -> None:
        caller.require("admin")
        self._tabs.get(caller, tab_id)


class FakeAuditor:
    def __init__(self) -> None:
        self.noted: list[dict[str, Any]] = []
        # What the last reader of the trail asked for.
        self.asked: dict[str, Any] = {}

    def note(self, **entry: Any) -> None:
        self.noted.append(entry)

    async def list(self, caller: Caller, **filters: Any) -> wire.AuditPage:
        self.asked = filters
        return wire.AuditPage(entries=[])


BROWSER = wire.BrowserView(
    browser_id="brw_1",
    node="nod_1",
    pool="default",
    state="ready",
    pid=42,
    product="Chromium/1",
    sessions=1,
    sessions_served=3,
    stock=4,
    memory_bytes=200 << 20,
    cpu_ms=1_500,
    cpu_percent=2.5,
    processes=7,
    circuit="closed",
    suspect=False,
    last_failure="",
    started_at=AT,
)


class FakeOperations:
    def __init__(self, sessions: FakeSessions) -> None:
        self._sessions = sessions
        self.is_draining = False
        # What was asked for, and of which browser.
        self.asked: list[tuple[str, str]] = []

    def browsers(self, caller: Caller) -> wire.BrowserPage:
        return wire.BrowserPage(browsers=[BROWSER])

    def restart_browser(self, caller: Caller, browser_id: str) -> wire.BrowserView:
        return self._ask("restart", browser_id)

    def drain_browser(self, caller: Caller, browser_id: str) -> wire.BrowserView:
        return self._ask("drain", browser_id)

    def stats(self, caller: Caller, *, of_all: bool = False) -> wire.Stats:
        waiter = wire.SessionWaiter(agent_id="bob", key="", position=1, expected_wait_ms=500, since=AT)
        pool = wire.PoolStats(
            active=1,
            pooled=3,
            tabs=4,
            waiting=2,
            capacity=100,
            free_seats=24,
            stock=4,
            browsers=1,
            waiters=[waiter] if of_all else [],
        )
        return wire.Stats(node="nod_test", draining=self.is_draining, sessions=1, pools={"default": pool})

    def drain(self, caller: Caller) -> wire.NodeDrain:
        self.is_draining = True
        return wire.NodeDrain(draining=True, sessions=len(self._sessions.views))

    def resume(self, caller: Caller) -> wire.NodeDrain:
        self.is_draining = False
        return wire.NodeDrain(draining=False, sessions=len(self._sessions.views))

    def _ask(self, what: str, browser_id: str) -> wire.BrowserView:
        if browser_id != BROWSER.browser_id:
            raise BrowserNotFound("No such browser.")
        self.asked.append((what, browser_id))
        return BROWSER


class FakeHistory:
    def view(self, caller: Caller, intervals: int) -> wire.History:
        numbers: list[float | None] = [None, 1.5, 2][-intervals:]
        series = wire.HistorySeries(**dict.fromkeys(wire.HistorySeries.__struct_fields__, numbers))
        return wire.History(interval_ms=2_000, begins_at=AT, series=series)


class FakeFiles:
    """Whatever is uploaded, in memory."""

    def __init__(self, sessions: FakeSessions) -> None:
        self._sessions = sessions
        self.contents: dict[str, bytes] = {}
        # What callers said that they would send.
        self.declared: list[int] = []
        # How often a file that was opened was closed again.
        self.closed = 0

    async def list(self, caller: Caller, session_id: str) -> wire.FilePage:
        await self._sessions.get(caller, session_id)
        sizes = {name: len(content) for name, content in self.contents.items()}
        views = [
            wire.FileView(name=name, size_bytes=size, source="upload", state="completed", created_at=AT)
            for name, size in sizes.items()
        ]
        return wire.FilePage(files=views)

    async def upload(
        self, caller: Caller, session_id: str, name: str, declared_bytes: int, pieces: AsyncIterable[bytes]
    ) -> wire.UploadedFile:
        await self._sessions.get(caller, session_id)
        self.declared.append(declared_bytes)
        self.contents[name] = b"".join([piece async for piece in pieces])
        return wire.UploadedFile(name=name, size_bytes=len(self.contents[name]), path=f"/files/{name}")

    async def open(self, caller: Caller, session_id: str, name: str) -> OpenFile:
        await self._sessions.get(caller, session_id)
        if name not in self.contents:
            raise FileNotFound("No such file.")
        content = self.contents[name]

        async def pieces() -> AsyncGenerator[bytes]:
            yield content

        return OpenFile(name, len(content), pieces(), self._close)

    def _close(self) -> None:
        self.closed += 1


class FakeBroker:
    def __init__(self) -> None:
        self.credentials = Credentials(MemoryStore())
        self.sessions = FakeSessions()
        self.tabs = FakeTabs(self.sessions)
        self.tab_locks = FakeTabLocks(self.tabs)
        self.commands = FakeCommands(self.sessions)
        self.auditor = FakeAuditor()
        self.files = FakeFiles(self.sessions)
        self.operations = FakeOperations(self.sessions)
        self.history = FakeHistory()
        self.tasking = FakeTasking()
        self.named_locks = FakeNamedLocks()
        # No session here is in a browser.
        self.registry = Registry()
        self.is_ready = True

    async def readiness(self, pool: str | None) -> dict[str, wire.PoolReadiness]:
        if self.is_draining:
            raise Draining("The server admits no new session.", retry_after_ms=1_000)
        if not self.is_ready:
            raise NoBrowser("No browser is ready yet.", retry_after_ms=1_000)
        return {pool or "default": "ready"}

    def clock(self) -> int:
        return time.time_ns() // 1_000_000

    def nodes(self) -> wire.NodePage:
        return wire.NodePage(nodes=[])

    def any_browser(self) -> None:
        """There is none."""

    @property
    def is_draining(self) -> bool:
        return self.operations.is_draining
