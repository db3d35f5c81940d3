"""The route table: every operation of the HTTP interface, in one place.

Open to all, because they say nothing that is anybody's: `/`, `/docs`, `/openapi.json`, `/health` and `/ready`.
`/metrics` and `/events` want a credential, whichever. The rest names its scope; whose things a caller may touch
within it is decided by the broker's verbs.
"""

from __future__ import annotations

from .. import errors as e
from .. import metrics, wire
from . import handlers as h
from .route import EVENT_STREAM, Route

_SEEING_SESSION = (e.SessionNotFound, e.StoreUnavailable)
_OPENING = (e.Capacity, e.QueueFull, e.Draining, e.NoBrowser, e.BrowserCrashed, e.NavigationFailed)
_ON_TAB = (e.TabNotFound, e.NotOwner, e.LeaseLost, e.TabPausedHandoff, e.TabBusy, e.TabLocked)
_ON_GATE = (e.TabQueueLimitExceeded, e.ControllerQueueLimitExceeded, e.QueueWaitTimedOut, e.CommandTimedOut)
_ON_PAGE = (
    e.InvalidSelector,
    e.UnknownAction,
    e.ElementNotFound,
    e.NavigationFailed,
    e.JavascriptError,
    e.PolicyDenied,
)
_ON_BROWSER = (e.TabDead, e.BrowserCrashed, e.OutcomeUnknown, e.Draining, e.StoreUnavailable, e.StateConflict)

ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/",
        summary="A page about this server.",
        handler=h.landing,
        scope=None,
        query=None,
        media="text/html",
    ),
    Route(
        method="GET",
        path="/health",
        summary="Whether the process is alive.",
        handler=h.health,
        scope=None,
        answer=wire.Health,
    ),
    Route(
        method="GET",
        path="/ready",
        summary="Whether a session could be opened now; 503 while starting and draining.",
        handler=h.ready,
        scope=None,
        answer=wire.Health,
        errors=(e.Draining, e.NoBrowser),
    ),
    Route(
        method="GET",
        path="/metrics",
        summary="Metrics for Prometheus.",
        handler=h.show_metrics,
        scope="any",
        media=metrics.CONTENT_TYPE.partition(";")[0],
    ),
    Route(
        method="GET",
        path="/openapi.json",
        summary="This interface, described.",
        handler=h.openapi,
        scope=None,
        answer=dict,
    ),
    Route(
        method="GET",
        path="/docs",
        summary="This interface, described for people.",
        handler=h.docs,
        scope=None,
        query=None,
        media="text/html",
    ),
    Route(
        method="GET",
        path="/events",
        summary="What happens, as server-sent events; resumes from Last-Event-ID or says reset.",
        handler=h.events,
        scope="any",
        query=h.EventsQuery,
        media=EVENT_STREAM,
        errors=(e.QueueFull,),
        waits=True,
    ),
    Route(
        method="POST",
        path="/sessions",
        summary="Lease a session: one isolated context with one tab.",
        handler=h.open_session,
        scope="browse",
        body=wire.OpenSession,
        answer=wire.SessionView,
        status=201,
        errors=(*_OPENING, e.StoreUnavailable, e.StateConflict, e.LeaseLost),
        waits=True,
        undo=h.undo_open_session,
    ),
    Route(
        method="GET",
        path="/sessions",
        summary="The sessions you may see, oldest first.",
        handler=h.list_sessions,
        scope="browse",
        query=h.SessionsQuery,
        answer=wire.SessionPage,
        errors=(e.StoreUnavailable,),
    ),
    Route(
        method="GET",
        path="/sessions/{sessionId}",
        summary="One session, also after it ended. Reading it counts as activity.",
        handler=h.get_session,
        scope="browse",
        answer=wire.SessionView,
        errors=_SEEING_SESSION,
    ),
    Route(
        method="POST",
        path="/sessions/{sessionId}/heartbeat",
        summary="Say that the owner lives. Never moves the deadline.",
        handler=h.heartbeat,
        scope="browse",
        body=wire.Heartbeat,
        answer=wire.HeartbeatAnswer,
        errors=(*_SEEING_SESSION, e.LeaseLost, e.StateConflict),
    ),
    Route(
        method="DELETE",
        path="/sessions/{sessionId}",
        summary="Give the session back.",
        handler=h.release_session,
        scope="browse",
        query=h.ReleaseQuery,
        status=204,
        errors=(*_SEEING_SESSION, e.LeaseLost, e.StateConflict),
    ),
    Route(
        method="GET",
        path="/sessions/{sessionId}/tabs",
        summary="The tabs of a session.",
        handler=h.list_tabs,
        scope="browse",
        answer=wire.TabPage,
        errors=(*_SEEING_SESSION, e.LeaseLost),
    ),
    Route(
        method="POST",
        path="/tabs/{tabId}/action",
        summary="Run one action on a tab, in its turn, and wait for the outcome. `evaluate` needs the scope evaluate.",
        handler=h.run_action,
        scope="browse",
        body=wire.AnyAction,
        answer=wire.CommandView,
        errors=(*_ON_TAB, *_ON_GATE, *_ON_PAGE, *_ON_BROWSER),
        waits=True,
    ),
    Route(
        method="GET",
        path="/commands/{commandId}",
        summary="The one outcome of a command.",
        handler=h.get_command,
        scope="browse",
        answer=wire.CommandView,
        errors=(e.CommandNotFound, e.StoreUnavailable),
    ),
    Route(
        method="GET",
        path="/browsers",
        summary="The browsers of this node.",
        handler=h.list_browsers,
        scope="browse",
        answer=wire.BrowserPage,
    ),
    Route(
        method="POST",
        path="/agents",
        summary="Make a token for an agent; it is shown once.",
        handler=h.new_agent,
        scope="admin",
        body=wire.NewAgent,
        answer=wire.AgentToken,
        status=201,
        errors=(e.StoreUnavailable,),
    ),
)
