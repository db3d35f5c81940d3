"""Rows as callers see them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from .. import wire
from ..browsers.slot import Slot
from ..core.breaker import BreakerState
from ..core.lease import LeaseTimes
from ..core.lifecycle import CommandState
from ..core.model import Command, Session, Tab


def rfc3339(at_ms: int) -> str:
    """Milliseconds since 1970 as the wire spells a time."""
    moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def tab_brief(row: Tab) -> wire.TabBrief:
    return wire.TabBrief(tab_id=row.id, url=row.url, title=row.title)


def session_view(row: Session, tabs: Iterable[Tab]) -> wire.SessionView:
    return wire.SessionView(
        session_id=row.id,
        agent_id=row.agent_id,
        fence=row.fence,
        state=row.state,
        pool=row.pool,
        key=row.key,
        tier=row.tier,
        node=row.node_id,
        tabs=[tab_brief(tab) for tab in tabs],
        created_at=rfc3339(row.created_at),
        expires_at=rfc3339(row.deadline_at),
        heartbeat_ms=LeaseTimes().heartbeat_ms,
        keep_alive=row.keep_alive,
    )


def command_view(row: Command) -> wire.CommandView:
    outcome = msgspec.json.decode(row.outcome) if row.outcome else {}
    return wire.CommandView(
        command_id=row.id,
        ok=row.state is CommandState.COMPLETED,
        outcome=row.state,
        result=outcome.get("result"),
        error=outcome.get("error"),
        queued_ms=row.queued_ms,
        duration_ms=row.duration_ms,
    )


def browser_view(slot: Slot, sessions: int, circuit: BreakerState) -> wire.BrowserView:
    row = slot.row
    # A browser that was attached to, or just started, has no processes that could be measured.
    usage = slot.usage if slot.usage is not None and slot.usage.processes else None
    return wire.BrowserView(
        browser_id=row.id,
        pool=row.pool,
        state=row.state,
        pid=row.pid,
        product=row.product,
        sessions=sessions,
        sessions_served=row.sessions_served,
        stock=len(slot.stock),
        memory_bytes=None if usage is None else usage.pss_bytes,
        cpu_ms=None if usage is None else usage.cpu_ms,
        cpu_percent=None if slot.cpu_percent is None else round(slot.cpu_percent, 1),
        processes=None if usage is None else usage.processes,
        circuit=circuit,
        suspect=slot.is_suspect,
        last_failure=slot.last_failure,
        started_at=rfc3339(row.started_at),
    )
