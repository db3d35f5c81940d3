"""`AsyncTabherd`: everything that can be asked of a server, typed, with typed errors."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

import httpx

from ... import wire
from ...errors import TabherdError, from_wire
from ..call import Call, command, get, segment, unreachable, wire_names
from ..events import EventParser, ServerEvent
from ..patience import wait_before_retry
from ..storage import StorageState, plain_state
from ..submission import Moment, submission
from .link import AsyncLink
from .locks import AsyncLock
from .seam import sleep
from .session import AsyncSession
from .tab import AsyncTab
from .task import AsyncTask

Answer = TypeVar("Answer")

# How long refusals and an absent server are waited out unless the caller says otherwise.
PATIENCE_S: Final = 60.0
# Pages that are read when a list is longer than one of them, and how long each may be.
PAGES_MAX: Final = 1_000
PAGE_SIZE: Final = 1_000
# A stream of events that says nothing at all for this long is broken: the server gives a sign every 15 s.
PULSE_LIMIT_S: Final = 45.0
# One that broke sooner than this after it was opened counts as one more attempt.
STEADY_S: Final = 5.0


class AsyncTabherd:
    """A client of one server; without arguments, of the one that runs on this machine.

    `agent`: whom an admin's credential acts for. `patience_s`: how long refusals because of load, and a server that is
    being restarted, are waited out; 0: never. `transport`: one of httpx's, to reach the server in another way.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        agent: str | None = None,
        patience_s: float = PATIENCE_S,
        environ: Mapping[str, str] = os.environ,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._link = AsyncLink(url, token, agent, patience_s, environ, transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """Where the server listens, without a trailing slash."""
        return self._link.url

    async def close(self) -> None:
        """Close the connections. Sessions that are still open get no more heartbeats and end by themselves."""
        await self._link.close()

    # --- Sessions -----------------------------------------------------------------------------------------------

    def session(
        self,
        *,
        agent: str | None = None,
        pool: str | None = None,
        key: str | None = None,
        tier: str | None = None,
        deadline_ms: int | None = None,
        wait_ms: int | None = None,
        keep_alive: bool | None = None,
        access: Literal["exclusive", "shared"] | None = None,
        owner: int | wire.Owner | None = None,
        storage_state: StorageState | None = None,
        url: str | None = None,
        reuse: Literal["never", "same-agent", "any"] | None = None,
        viewport: wire.Viewport | Mapping[str, Any] | None = None,
        allow_navigate: bool | None = None,
        disposition: Literal["close", "pool"] | None = None,
    ) -> AsyncSession:
        """A session to be leased by `async with`, or by its `open()`, and given back with `disposition` at the end.

        `wait_ms` bounds how long a place is waited for; without it the pool and this client's patience do. `owner` is
        the pid of a process on the server's machine whose death ends the session. `storage_state` is what a session's
        `storage_state()` gave, or what Playwright's did: the dict, or the path of the file.
        """
        fields = {
            "agent_id": agent,
            "pool": pool,
            "key": key,
            "tier": tier,
            "deadline_ms": deadline_ms,
            "wait_ms": wait_ms,
            "keep_alive": keep_alive,
            "access": access,
            "owner": wire.Owner(pid=owner) if isinstance(owner, int) else owner,
            "storage_state": None if storage_state is None else plain_state(storage_state),
            "url": url,
            "reuse": reuse,
            "viewport": viewport,
            "allow_navigate": allow_navigate,
        }
        return AsyncSession(self._link, wire_names(fields), disposition)

    async def find_session(self, session_id: str) -> AsyncSession:
        """One that is open already, such as one that another process leased; it is kept alive from here, too."""
        session = AsyncSession(self._link, {}, None)
        session.join(await self.session_view(session_id))
        return session

    async def session_view(self, session_id: str) -> wire.SessionView:
        """One session as it is now, also after it ended."""
        return await self._link.ask(get(f"/sessions/{segment(session_id)}", wire.SessionView))

    async def sessions(self, agent: str | None = None, state: str | None = None) -> list[wire.SessionView]:
        """Every session the credential may see."""
        found: list[wire.SessionView] = []
        query = wire_names({"agent_id": agent, "state": state})
        for _ in range(PAGES_MAX):
            page = await self._link.ask(get("/sessions", wire.SessionPage, query))
            found += page.sessions
            if page.next_cursor is None:
                break
            query["cursor"] = page.next_cursor
        return found

    async def end_session(self, session_id: str, fence: int | None = None, disposition: str | None = None) -> None:
        """Give a session back; with a fence, only if it is still the same lease.

        `disposition` is `pool` (its tab is kept for the next session of its key) or `close`.
        """
        query = wire_names({"fence": fence, "disposition": disposition})
        path = f"/sessions/{segment(session_id)}"
        await self._link.send(Call(method="DELETE", path=path, answer=bytes, query=query, may_repeat=True))

    async def take_over(self, session_id: str, agent: str) -> wire.SessionView:
        """Give a session to another agent; its old holder is shut out at once. Needs an admin's credential."""
        path = f"/sessions/{segment(session_id)}/takeover"
        return await self._link.ask(Call(method="POST", path=path, answer=wire.SessionView, body={"agentId": agent}))

    # --- Tabs and commands --------------------------------------------------------------------------------------

    async def tabs(self) -> list[wire.TabView]:
        """The tabs that the credential may see, with who has each and who waits for it."""
        return (await self._link.ask(get("/tabs", wire.TabList))).tabs

    async def tab_view(self, tab_id: str) -> wire.TabView:
        """One tab: its page, who has it since when, who waits for it."""
        return await self._link.ask(get(f"/tabs/{segment(tab_id)}", wire.TabView))

    async def handoff_tab(self, tab_id: str, by: str | None = None) -> wire.TabView:
        """Pause agents on a tab while a person drives it; what runs finishes first."""
        path = f"/tabs/{segment(tab_id)}/handoff"
        return await self._link.ask(Call(method="POST", path=path, answer=wire.TabView, body=wire_names({"by": by})))

    async def resume_tab(self, tab_id: str) -> wire.TabView:
        """Give a tab that was handed off back to agents."""
        return await self._post(f"/tabs/{segment(tab_id)}/resume", wire.TabView)

    async def act(self, tab_id: str, kind: str, **params: Any) -> wire.CommandView:
        """Run one command on a tab and wait for its outcome; a command that failed raises its typed error.

        Parameters are those of the action, in Python spelling. The verbs of `AsyncTab` are made of this.
        """
        path = f"/tabs/{segment(tab_id)}/action"
        return await self._link.ask(command(path, {"kind": kind, **wire_names(params)}))

    async def command(self, command_id: str) -> wire.CommandView:
        """The one outcome of a command, or how far it is."""
        return await self._link.ask(get(f"/commands/{segment(command_id)}", wire.CommandView))

    async def cancel_command(self, command_id: str) -> wire.CommandView:
        """End a command that waits or runs; answers with its outcome."""
        path = f"/commands/{segment(command_id)}/cancel"
        return await self._link.ask(Call(method="POST", path=path, answer=wire.CommandView, may_repeat=True))

    # --- Tasks --------------------------------------------------------------------------------------------------

    async def submit(
        self,
        *,
        action: str | None = None,
        steps: Sequence[Mapping[str, Any]] | None = None,
        session: AsyncSession | str | None = None,
        tab: AsyncTab | str | None = None,
        selector: str | None = None,
        ref: str | None = None,
        params: Mapping[str, Any] | None = None,
        priority: int | None = None,
        deadline: Moment | None = None,
        deadline_ms: int | None = None,
        pool: str | None = None,
        agent: str | None = None,
        idempotent: bool | None = None,
        idempotency_key: str | None = None,
        callback_url: str | None = None,
        **more: Any,
    ) -> AsyncTask:
        """Have an action, or steps, done in their turn; the task is on disk when this returns, and needs nobody then.

        On `tab`, on the first tab of `session` (handles or ids), or, without either, on one of `pool` that is leased
        for it. What the action takes goes in `params` or by name. `priority`: lower goes first among one's own.
        `deadline` is a moment, `deadline_ms` a time from now. `idempotent`: it may be done again when a crash leaves
        unknown whether it was. `agent`: whose task, for an admin; the one that the session was leased for by default.
        """
        body = _submission(
            action=action,
            steps=steps,
            session=session,
            tab=tab,
            selector=selector,
            ref=ref,
            params={**(params or {}), **more},
            priority=priority,
            deadline=deadline,
            deadline_ms=deadline_ms,
            pool=pool,
            idempotent=idempotent,
            idempotency_key=idempotency_key,
            callback_url=callback_url,
        )
        holder = tab.session if isinstance(tab, AsyncTab) else session if isinstance(session, AsyncSession) else None
        if agent is None and holder is not None:
            agent = holder.asked_agent
        body |= wire_names({"agent_id": agent})
        # Its key makes twice the same as once.
        call = Call(method="POST", path="/tasks", answer=wire.SubmittedTask, body=body, may_repeat=True)
        submitted = await (self._link if holder is None else holder).ask(call)
        return AsyncTask(self._link, submitted.task_id)

    async def submit_batch(
        self, tasks: Sequence[Mapping[str, Any]], *, agent: str | None = None, callback_url: str | None = None
    ) -> list[AsyncTask | TabherdError]:
        """Submit up to 50 at once: each as a mapping of what `submit` takes, with what the action takes in `params`.

        Each is admitted or refused by itself: in its place is its task, or the error that it was refused with.
        """
        bodies = [_submission(**task) for task in tasks]
        body = {"tasks": bodies, **wire_names({"agent_id": agent, "callback_url": callback_url})}
        call = Call(method="POST", path="/tasks/batch", answer=wire.SubmittedBatch, body=body, may_repeat=True)
        answers = (await self._link.ask(call)).tasks
        return [
            AsyncTask(self._link, each.task_id) if each.error is None else from_wire(each.error) for each in answers
        ]

    def task(self, task_id: str) -> AsyncTask:
        """A task by its id, such as one that another process submitted; asks nothing yet."""
        return AsyncTask(self._link, task_id)

    async def tasks(
        self,
        agent: str | None = None,
        state: str | None = None,
        *,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> list[wire.TaskView]:
        """The tasks that the credential may see: those that wait or run, and those that were over a while ago.

        `limit`: no more than so many, the first of them.
        """
        found: list[wire.TaskView] = []
        order = "desc" if newest_first else None
        page_size = PAGE_SIZE if limit is None else max(1, min(PAGE_SIZE, limit))
        query = wire_names({"agent_id": agent, "state": state, "order": order, "limit": page_size})
        for _ in range(PAGES_MAX):
            page = await self._link.ask(get("/tasks", wire.TaskPage, query))
            found += page.tasks
            if page.next_cursor is None or (limit is not None and len(found) >= limit):
                break
            query["cursor"] = page.next_cursor
        return found if limit is None else found[:limit]

    async def scheduler_stats(self) -> wire.SchedulerStats:
        """What waits and runs, what became of tasks since the server started, and the settings."""
        return await self._link.ask(get("/scheduler/stats", wire.SchedulerStats))

    # --- Named locks --------------------------------------------------------------------------------------------

    def lock(
        self,
        name: str,
        timeout: float = 15.0,
        *,
        lease_ms: int | None = None,
        owner: int | wire.Owner | None = None,
        agent: str | None = None,
    ) -> AsyncLock:
        """The lock of that name, to be had by `async with`, or by its `acquire()`, and given back at the end.

        It is waited for in line, `timeout` seconds at the most: then `LockTimedOut` is raised. While it is held it is
        renewed by itself. `owner` is the pid of a process on the server's machine whose death frees it, too.
        """
        options = _lock_options(lease_ms, owner, agent)
        return AsyncLock(self._link, name, timeout_s=timeout, is_skipping=False, options=options)

    def try_lock(
        self,
        name: str,
        *,
        lease_ms: int | None = None,
        owner: int | wire.Owner | None = None,
        agent: str | None = None,
    ) -> AsyncLock:
        """The same without waiting: what `async with` yields is true if it was free, and false if it is busy."""
        options = _lock_options(lease_ms, owner, agent)
        return AsyncLock(self._link, name, timeout_s=0.0, is_skipping=True, options=options)

    async def locks(self) -> list[wire.HeldLock]:
        """Locks that are held through the server or waited for."""
        return (await self._link.ask(get("/locks", wire.LockPage))).locks

    async def free_lock(self, name: str, fence: int | None = None) -> None:
        """Take a named lock from whoever has it; with a fence, only if it is still at that. Needs an admin's
        credential.
        """
        await self._free(f"/locks/{segment(name)}", {"fence": fence})

    async def free_tab(self, tab_id: str, holder: str | None = None) -> None:
        """Take the lock of a tab from whoever has it, or only from that controller. Needs an admin's credential."""
        await self._free(f"/tabs/{segment(tab_id)}/lock", {"holder": holder})

    async def advisory_locks(self) -> list[wire.AdvisoryLock]:
        """Every lock that its backend knows of, also of programs that use `tabherd.locks`."""
        return (await self._link.ask(get("/api/advisory-locks", wire.AdvisoryLocks))).advisory_locks

    # --- Events -------------------------------------------------------------------------------------------------

    async def events(
        self,
        *,
        after: str | None = None,
        silence_s: float | None = None,
        types: str | None = None,
        agent: str | None = None,
        tab: str | None = None,
    ) -> AsyncGenerator[ServerEvent, None]:
        """What happens, from now or from just after an event id; `types` such as `session.*,tab.closed`.

        A connection that breaks is opened again where it broke off; what could not be kept meanwhile is told by an
        event `reset`. Ends after such a silence, or, for a client without patience, with the server.
        """
        query = wire_names({"types": types, "agent_id": agent, "tab_id": tab})
        limit_s = PULSE_LIMIT_S if silence_s is None else min(silence_s, PULSE_LIMIT_S)
        began_s, heard_s, attempt = monotonic(), monotonic(), 0
        while True:
            opened_s = monotonic()
            parser = EventParser(after)
            headers = {"Accept": "text/event-stream"} | ({} if after is None else {"Last-Event-ID": after})
            try:
                async with self._link.stream("/events", query=query, headers=headers, silence_s=limit_s) as answer:
                    async for line in answer.aiter_lines():
                        event = parser.feed(line)
                        # The server says where the stream stands also when there is nothing to tell.
                        after = parser.place
                        if event is not None:
                            yield event
                            heard_s, began_s, attempt = monotonic(), monotonic(), 0
                        elif silence_s is not None and monotonic() - heard_s >= silence_s:
                            return
                if not self._link.patience_s:
                    return
                error: TabherdError = unreachable(self.url, EOFError("it ended the stream"), retryable=True)
            except httpx.HTTPError as broken:
                if isinstance(broken, httpx.ReadTimeout) and limit_s == silence_s:
                    return
                error = unreachable(self.url, broken, retryable=True)
            except TabherdError as refused:
                error = refused
            if monotonic() - opened_s >= STEADY_S:
                # It held, quiet as it was: patience begins with this break.
                began_s, attempt = monotonic(), 0
            wait_s = wait_before_retry(
                error, attempt, monotonic() - began_s, self._link.patience_s, self._link.chance()
            )
            if wait_s is None:
                raise error
            await sleep(wait_s)
            attempt += 1
            self._link.address.look_again()

    # --- Operations ---------------------------------------------------------------------------------------------

    async def health(self) -> wire.Health:
        """Whether the server answers at all; needs no credential."""
        return await self._link.ask(get("/health", wire.Health))

    async def is_ready(self) -> bool:
        """Whether the server takes new work (it does not while it starts or drains)."""
        return (await self._link.send_once(get("/ready", wire.Health))).is_success

    async def browsers(self) -> list[wire.BrowserView]:
        """The Chromium processes under the server's care."""
        return (await self._link.ask(get("/browsers", wire.BrowserPage))).browsers

    async def restart_browser(self, browser_id: str) -> wire.BrowserView:
        """End that browser now and start another, where its sessions go on. Needs an admin's credential."""
        return await self._post(f"/browsers/{segment(browser_id)}/restart", wire.BrowserView)

    async def drain_browser(self, browser_id: str) -> wire.BrowserView:
        """Let that browser end with its last session; its replacement starts now. Needs an admin's credential."""
        return await self._post(f"/browsers/{segment(browser_id)}/drain", wire.BrowserView)

    async def stats(self, *, all_waiters: bool = False) -> wire.Stats:
        """What each pool has, gives and could give; for an admin with who waits, of all agents, if that is asked."""
        return await self._link.ask(get("/stats", wire.Stats, {"waiters": "all"} if all_waiters else {}))

    async def nodes(self) -> list[wire.NodeView]:
        """The servers that share the store."""
        return (await self._link.ask(get("/nodes", wire.NodePage))).nodes

    async def drain(self) -> wire.NodeDrain:
        """Let the server admit no new session; those that are open go on. Needs an admin's credential."""
        return await self._post("/drain", wire.NodeDrain)

    async def undrain(self) -> wire.NodeDrain:
        """Let the server admit sessions again. Needs an admin's credential."""
        return await self._link.ask(Call(method="DELETE", path="/drain", answer=wire.NodeDrain, may_repeat=True))

    async def new_token(
        self, agent: str, scopes: list[str] | None = None, *, expires_in_s: int | None = None
    ) -> wire.AgentToken:
        """A fresh credential for an agent; needs an admin's. The token is shown this once; older ones stay good."""
        body = wire_names({"agent_id": agent, "scopes": scopes, "expires_in_s": expires_in_s})
        return await self._link.ask(Call(method="POST", path="/agents", answer=wire.AgentToken, body=body))

    async def tokens(self, agent: str | None = None) -> list[wire.TokenView]:
        """The tokens that there are and were, without their secrets; for an agent its own."""
        found: list[wire.TokenView] = []
        query = wire_names({"agent_id": agent, "limit": PAGE_SIZE})
        for _ in range(PAGES_MAX):
            page = await self._link.ask(get("/tokens", wire.TokenPage, query))
            found += page.tokens
            if page.next_cursor is None:
                break
            query["cursor"] = page.next_cursor
        return found

    async def revoke_token(self, token_id: str) -> None:
        """End a token, with its logins, addresses and sockets. An agent may revoke its own, an admin any."""
        await self._link.send(Call(method="DELETE", path=f"/tokens/{segment(token_id)}", answer=bytes, may_repeat=True))

    async def audit(
        self, agent: str | None = None, session_id: str | None = None, tab_id: str | None = None
    ) -> list[wire.AuditEntry]:
        """Who did what to which tab or session, oldest first. Needs an admin's credential."""
        found: list[wire.AuditEntry] = []
        query = wire_names({"agent_id": agent, "session_id": session_id, "tab_id": tab_id, "limit": PAGE_SIZE})
        for _ in range(PAGES_MAX):
            page = await self._link.ask(get("/audit", wire.AuditPage, query))
            found += page.entries
            if page.next_cursor is None:
                break
            query["cursor"] = page.next_cursor
        return found

    async def _free(self, path: str, meant: Mapping[str, Any]) -> None:
        query = wire_names({"force": "true", **meant})
        # Not to be repeated: by then it may be the next one's.
        await self._link.send(Call(method="DELETE", path=path, answer=bytes, query=query))

    async def _post(self, path: str, answer: type[Answer]) -> Answer:
        return await self._link.ask(Call(method="POST", path=path, answer=answer))


def _lock_options(lease_ms: int | None, owner: int | wire.Owner | None, agent: str | None) -> dict[str, Any]:
    owned = wire.Owner(pid=owner) if isinstance(owner, int) else owner
    return wire_names({"lease_ms": lease_ms, "owner": owned, "agent_id": agent})


def _submission(
    *, session: AsyncSession | str | None = None, tab: AsyncTab | str | None = None, **fields: Any
) -> dict[str, Any]:
    """The task as it is sent; a handle of a tab names its session, too, so that it is no other's by then."""
    if isinstance(tab, AsyncTab):
        session, tab = tab.session, tab.id
    session_id = session.id if isinstance(session, AsyncSession) else session
    return submission(tab_id=tab, session_id=session_id, **fields)
