"""One small function per route: call the broker's verb, hand its answer back."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, structs

from .. import metrics, wire
from ..broker.events import Subscription
from ..broker.history import SAMPLES_MAX
from ..broker.views import rfc3339
from ..cluster.membership import boot_id
from ..errors import ResourceNotFound
from . import pages, peer_events, sse
from .auth import act_for, as_controller
from .cdp.discovery import with_addresses
from .merged_events import MergedSubscription, Place
from .reload import told_names
from .route import EVENT_STREAM, JSON, Call, Raw, Service, Stream, headers_of


class SessionsQuery(wire.Request, frozen=True, kw_only=True):
    # Only sessions of this agent.
    agent_id: wire.Agent | None = None
    # Only sessions in this state, or in one of these, separated by commas.
    state: wire.Name | None = None
    # By when they began: asc for oldest first, desc for newest first.
    order: Literal["asc", "desc"] = "asc"
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    # Where the page before ended.
    cursor: Annotated[str, Meta(max_length=200)] = ""


class ReleaseQuery(wire.Request, frozen=True, kw_only=True):
    # Refuse unless the lease is still at this fence.
    fence: int | None = None
    # pool: keep the tab for the next one of its key; default where a profile is shared. close: default elsewhere.
    disposition: Literal["close", "pool"] | None = None


class NodeQuery(wire.Request, frozen=True, kw_only=True):
    # The node that is meant; default: the one that is asked.
    node: wire.Identifier | None = None


class StatsQuery(wire.Request, frozen=True, kw_only=True):
    # Whose callers that wait are named: the caller's own, or all that it may see (an admin sees everybody's).
    waiters: Literal["own", "all"] = "own"


class HistoryQuery(wire.Request, frozen=True, kw_only=True):
    # How many of the last intervals.
    limit: Annotated[int, Meta(ge=1, le=SAMPLES_MAX)] = SAMPLES_MAX


class UnlockQuery(wire.Request, frozen=True, kw_only=True):
    # What the lock was answered with.
    ticket: Annotated[str, Meta(max_length=100)] = ""
    # Free it whoever has it, without the ticket; only for admins.
    force: bool = False
    # With force: refuse unless this controller still has it.
    holder: Annotated[str, Meta(max_length=300)] | None = None


class ReadyQuery(wire.Request, frozen=True, kw_only=True):
    # Whether a session could be opened in this pool; otherwise, in any.
    pool: Annotated[str, Meta(max_length=200)] | None = None


class AuditQuery(wire.Request, frozen=True, kw_only=True):
    agent_id: wire.Agent | None = None
    session_id: wire.Identifier | None = None
    tab_id: wire.Identifier | None = None
    # By when it was done: asc for oldest first, desc for newest first.
    order: Literal["asc", "desc"] = "asc"
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    # Where the page before ended.
    cursor: Annotated[str, Meta(max_length=200)] = ""


class TokensQuery(wire.Request, frozen=True, kw_only=True):
    # Only tokens of this agent.
    agent_id: wire.Agent | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    # Where the page before ended.
    cursor: Annotated[str, Meta(max_length=200)] = ""


class EventsQuery(wire.Request, frozen=True, kw_only=True):
    # Event types, separated by commas; `session.*` stands for all of a kind.
    types: Annotated[str, Meta(max_length=2_000)] | None = None
    agent_id: wire.Agent | None = None
    tab_id: wire.Identifier | None = None
    task_id: wire.Identifier | None = None


# --- About the server -------------------------------------------------------------------------------------------


async def docs(service: Service, call: Call) -> Raw:
    return pages.DOCS


async def openapi(service: Service, call: Call) -> Raw:
    return Raw(await service.openapi.encoded(), headers_of({"content-type": JSON}))


async def health(service: Service, call: Call) -> wire.Health:
    return wire.Health(status="ok", version=service.version, node=service.node_id)


async def ready(service: Service, call: Call) -> wire.Readiness:
    pools = await service.broker.readiness(call.query.pool)
    return wire.Readiness(status="ready", version=service.version, node=service.node_id, pools=pools)


async def show_metrics(service: Service, call: Call) -> Raw:
    return Raw(service.metrics.render(), headers_of({"content-type": metrics.CONTENT_TYPE}))


async def events(service: Service, call: Call) -> Stream:
    query: EventsQuery = call.query
    if query.agent_id is not None:
        act_for(call.caller, query.agent_id, "agentId")
    # Agents see what is theirs; what has no agent (browsers, the node) is the admin's.
    agent_id = query.agent_id if call.caller.is_admin else call.caller.agent_id
    filter = {"agent_id": agent_id, "tab_id": query.tab_id, "task_id": query.task_id}
    types, place = sse.parse_types(query.types), call.head.last_event_id
    subscription: Subscription | MergedSubscription
    if service.cluster_events is None:
        subscription = service.events.subscribe(types=types, after=sse.parse_position(place), **filter)
    else:
        after = Place.parse(place.decode("latin-1")) if place else None
        subscription = await service.cluster_events.subscribe(types=types, after=after, **filter)

    async def cut_short() -> bytes:
        assert call.badge is not None, "whoever listens has shown a credential"
        over = await service.guard.outlived(call.badge)
        return sse.farewell(over, service.broker.clock())

    headers = headers_of({"content-type": EVENT_STREAM})
    return Stream(sse.stream(subscription), subscription.close, headers, cut_short)


async def node_events(service: Service, call: Call) -> Stream:
    """All that happens here, for another node, which has vouched for itself with the cluster's key."""
    if call.hop is None or call.hop.client is not None:
        raise ResourceNotFound("There is nothing here but for other nodes.")
    chunks, subscription = peer_events.told(service.events, sse.parse_position(call.head.last_event_id))
    return Stream(chunks, subscription.close, headers_of({"content-type": EVENT_STREAM}))


# --- Sessions ---------------------------------------------------------------------------------------------------


async def open_session(service: Service, call: Call) -> wire.SessionView:
    request: wire.OpenSession = call.body
    if request.agent_id is not None:
        act_for(call.caller, request.agent_id, "agentId")
    if call.hop is not None and call.hop.boot_id != boot_id():
        # A process of another machine: nobody here can see whether it lives.
        request = structs.replace(request, owner=None)
    grant = "" if call.hop is None else call.hop.grant
    return with_addresses(service, call, await service.broker.sessions.open(call.caller, request, grant=grant))


async def undo_open_session(service: Service, call: Call, answer: wire.SessionView) -> None:
    await service.broker.sessions.release(call.caller, answer.session_id, answer.fence)


async def list_sessions(service: Service, call: Call) -> wire.SessionPage:
    query: SessionsQuery = call.query
    if query.agent_id is not None:
        act_for(call.caller, query.agent_id, "agentId")
    page = await service.broker.sessions.list(
        call.caller,
        agent_id=query.agent_id,
        state=query.state,
        limit=query.limit,
        cursor=query.cursor,
        newest_first=query.order == "desc",
    )
    return structs.replace(page, sessions=[with_addresses(service, call, view) for view in page.sessions])


async def get_session(service: Service, call: Call) -> wire.SessionView:
    return with_addresses(service, call, await service.broker.sessions.get(call.caller, call.id))


async def heartbeat(service: Service, call: Call) -> wire.HeartbeatAnswer:
    return await service.broker.sessions.heartbeat(call.caller, call.id, call.body)


async def release_session(service: Service, call: Call) -> None:
    query: ReleaseQuery = call.query
    await service.broker.sessions.release(call.caller, call.id, query.fence, query.disposition)


async def take_over_session(service: Service, call: Call) -> wire.SessionView:
    view = await service.broker.sessions.take_over(call.caller, call.id, call.body.agent_id)
    return with_addresses(service, call, view)


async def get_state(service: Service, call: Call) -> wire.StorageState:
    return await service.broker.sessions.state(call.caller, call.id)


async def put_state(service: Service, call: Call) -> None:
    await service.broker.sessions.put_state(call.caller, call.id, call.body)


# --- Tabs -------------------------------------------------------------------------------------------------------


async def list_session_tabs(service: Service, call: Call) -> wire.TabPage:
    return await service.broker.tabs.of_session(call.caller, call.id)


async def open_tab(service: Service, call: Call) -> wire.TabView:
    return await service.broker.commands.open_tab(call.caller, call.id, call.body)


async def list_tabs(service: Service, call: Call) -> wire.TabList:
    return service.broker.tabs.list(call.caller)


async def get_tab(service: Service, call: Call) -> wire.TabView:
    return service.broker.tabs.get(call.caller, call.id)


async def close_tab(service: Service, call: Call) -> None:
    await service.broker.commands.run(call.caller, call.id, wire.Close())


async def hand_off(service: Service, call: Call) -> wire.TabView:
    request: wire.Handoff = call.body
    return await service.broker.tabs.hand_off(call.caller, call.id, request.by)


async def resume(service: Service, call: Call) -> wire.TabView:
    return await service.broker.tabs.resume(call.caller, call.id)


# --- Commands ---------------------------------------------------------------------------------------------------


async def run_action(service: Service, call: Call) -> wire.CommandView:
    action: wire.AnyAction = call.body
    caller = call.caller if action.controller_id is None else as_controller(call.caller, action.controller_id)
    return await service.broker.commands.run(caller, call.id, action)


async def run_steps(service: Service, call: Call) -> wire.CommandView:
    steps: wire.Steps = call.body
    caller = call.caller if steps.controller_id is None else as_controller(call.caller, steps.controller_id)
    return await service.broker.commands.run(caller, call.id, steps)


async def lock_tab(service: Service, call: Call) -> wire.TabLockView:
    request: wire.LockTab = call.body
    caller = call.caller if request.controller_id is None else as_controller(call.caller, request.controller_id)
    return await service.broker.tab_locks.lock(caller, call.id, request)


async def undo_lock_tab(service: Service, call: Call, answer: wire.TabLockView) -> None:
    service.broker.tab_locks.unlock(call.caller, answer.tab_id, answer.ticket)


async def unlock_tab(service: Service, call: Call) -> None:
    query: UnlockQuery = call.query
    if query.force:
        service.broker.tab_locks.force(call.caller, call.id, query.holder)
    else:
        service.broker.tab_locks.unlock(call.caller, call.id, query.ticket)


async def cancel_command(service: Service, call: Call) -> wire.CommandView:
    return await service.broker.commands.cancel(call.caller, call.id)


async def get_command(service: Service, call: Call) -> wire.CommandView:
    return await service.broker.commands.get(call.caller, call.id)


# --- Operations -------------------------------------------------------------------------------------------------


async def list_browsers(service: Service, call: Call) -> wire.BrowserPage:
    return service.broker.operations.browsers(call.caller)


async def restart_browser(service: Service, call: Call) -> wire.BrowserView:
    return service.broker.operations.restart_browser(call.caller, call.id)


async def drain_browser(service: Service, call: Call) -> wire.BrowserView:
    return service.broker.operations.drain_browser(call.caller, call.id)


async def show_stats(service: Service, call: Call) -> wire.Stats:
    query: StatsQuery = call.query
    return service.broker.operations.stats(call.caller, of_all=query.waiters == "all")


async def show_history(service: Service, call: Call) -> wire.History:
    query: HistoryQuery = call.query
    return service.broker.history.view(call.caller, query.limit)


async def list_nodes(service: Service, call: Call) -> wire.NodePage:
    return service.broker.nodes()


async def drain_node(service: Service, call: Call) -> wire.NodeDrain:
    _settle_node(service, call)
    return service.broker.operations.drain(call.caller)


async def resume_node(service: Service, call: Call) -> wire.NodeDrain:
    _settle_node(service, call)
    return service.broker.operations.resume(call.caller)


async def show_config(service: Service, call: Call) -> wire.ConfigView:
    _settle_node(service, call)
    return service.reload.view()


async def change_config(service: Service, call: Call) -> wire.ConfigChanges:
    _settle_node(service, call)
    changes = await service.reload.patch(call.body)
    who = call.caller
    service.broker.auditor.note(
        agent_id=who.agent_id, controller_id=who.controller_id, verb="config", detail=told_names(call.body)
    )
    return wire.ConfigChanges(changed=list(changes.changed), needs_restart=list(changes.needs_restart))


def _settle_node(service: Service, call: Call) -> None:
    """Return if the caller means this node; what another one is told to do, it does itself."""
    query: NodeQuery = call.query
    if service.routing is not None:
        service.routing.settle_node(query.node, call.hop)
    elif query.node not in (None, service.node_id):
        raise ResourceNotFound("There is no such node.", action="GET /nodes lists them.", field="node")


async def show_audit(service: Service, call: Call) -> wire.AuditPage:
    query: AuditQuery = call.query
    return await service.broker.auditor.list(
        call.caller,
        agent_id=query.agent_id,
        session_id=query.session_id,
        tab_id=query.tab_id,
        limit=query.limit,
        cursor=query.cursor,
        newest_first=query.order == "desc",
    )


async def new_agent(service: Service, call: Call) -> wire.AgentToken:
    request: wire.NewAgent = call.body
    token, row = await service.broker.credentials.create(request.agent_id, request.scopes, request.expires_in_s)
    expires_at = rfc3339(row.expires_at) if row.expires_at else None
    until = "" if expires_at is None else f" until {expires_at}"
    _note_token(service, call, "token_new", f"{row.id} for {row.agent_id}: {', '.join(row.scopes)}{until}")
    return wire.AgentToken(
        token_id=row.id, agent_id=row.agent_id, scopes=[*row.scopes], token=token, expires_at=expires_at
    )


async def list_tokens(service: Service, call: Call) -> wire.TokenPage:
    query: TokensQuery = call.query
    if query.agent_id is not None:
        act_for(call.caller, query.agent_id, "agentId")
    return await service.broker.credentials.list(
        call.caller, agent_id=query.agent_id, limit=query.limit, cursor=query.cursor
    )


async def revoke_token(service: Service, call: Call) -> None:
    try:
        row = await service.broker.credentials.revoke_for(call.caller, call.id)
    except ResourceNotFound as error:
        _note_token(service, call, "token_revoke_refused", f"{call.id[:100]}: {error.code}")
        raise
    _note_token(service, call, "token_revoke", f"{row.id} of {row.agent_id}")


def _note_token(service: Service, call: Call, verb: str, detail: str) -> None:
    who = call.caller
    service.broker.auditor.note(agent_id=who.agent_id, controller_id=who.controller_id, verb=verb, detail=detail)
