"""Rows as callers see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from .. import wire
from ..browsers.slot import Slot
from ..core.breaker import BreakerState
from ..core.gate import GateView, HoldReason
from ..core.lease import LeaseTimes
from ..core.lifecycle import CommandState
from ..core.model import Command, Session, Tab
from .registry import LiveTab


class _Outcome(msgspec.Struct, rename="camel"):
    """The end of a command as it is kept. Most of it is the page's own, and may be long."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: dict[str, msgspec.Raw] | None = None
    dialogs: tuple[wire.DialogView, ...] = ()
    more_dialogs: int = 0


_decode_outcome: Final = msgspec.json.Decoder(_Outcome).decode
_decode_details: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def rfc3339(at_ms: int) -> str:
    """Milliseconds since 1970 as the wire spells a time."""
    return f"{_to_the_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


@lru_cache(maxsize=64)
def _to_the_second(at_s: int) -> str:
    # Most of what is told at one time happened at the same time.
    return datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")


def tab_brief(row: Tab) -> wire.TabBrief:
    return wire.TabBrief(tab_id=row.id, url=row.url, title=row.title)


def session_view(row: Session, tabs: Iterable[Tab], times: LeaseTimes, seen_at: int = 0) -> wire.SessionView:
    return wire.SessionView(
        session_id=row.id,
        agent_id=row.agent_id,
        fence=row.fence,
        state=row.state,
        pool=row.pool,
        key=row.key,
        tier=row.tier,
        node=row.node_id,
        browser_id=row.browser_id,
        tabs=[tab_brief(tab) for tab in tabs],
        created_at=rfc3339(row.created_at),
        expires_at=rfc3339(row.deadline_at),
        heartbeat_ms=times.heartbeat_ms,
        seen_at=rfc3339(max(row.created_at, row.heartbeat_at, seen_at)),
        phase=row.phase,
        keep_alive=row.keep_alive,
        access=row.access,
        reuse=row.reuse,
        end_reason=row.end_reason,
    )


def tab_view(tab: LiveTab, now: int) -> wire.TabView:
    row, gate = tab.row, tab.gate.describe(now)
    return wire.TabView(
        tab_id=row.id,
        session_id=row.session_id,
        agent_id=tab.session.row.agent_id,
        state=row.state,
        url=row.url,
        title=row.title,
        generation=row.generation,
        provenance=row.provenance,
        opener_tab_id=row.opener_tab_id or None,
        created_at=rfc3339(row.created_at),
        holder=_holder(gate),
        waiters=[
            wire.TabWaiter(
                controller_id=waiter.ticket.controller_id,
                agent_id=waiter.ticket.agent_id,
                kind="tab_lock" if waiter.wants_lock else waiter.ticket.label,
                position=waiter.position,
                since=rfc3339(waiter.ticket.entered_at),
            )
            for waiter in gate.waiters
        ],
        expected_wait_ms=gate.expected_wait_ms,
    )


def _holder(gate: GateView) -> wire.Holder | None:
    """What has the tab, the strongest first; with the command that runs, if one does."""
    command_id = gate.holder.id if gate.holder is not None else None
    kind = gate.holder.label if gate.holder is not None else None
    hold = gate.handoff or gate.quarantine
    if hold is not None:
        return wire.Holder(
            reason=hold.reason, controller_id=hold.holder, since=rfc3339(hold.since), command_id=command_id, kind=kind
        )
    if gate.lock is not None:
        return wire.Holder(
            reason=HoldReason.TAB_LOCK,
            controller_id=gate.lock.controller_id,
            since=rfc3339(gate.lock.since),
            agent_id=gate.lock.ticket.agent_id,
            expires_at=rfc3339(gate.lock.expires_at),
            command_id=command_id,
            kind=kind,
        )
    if gate.holder is None or gate.since is None:
        return None
    return wire.Holder(
        reason=HoldReason.COMMAND,
        controller_id=gate.holder.controller_id,
        since=rfc3339(gate.since),
        agent_id=gate.holder.agent_id,
        command_id=command_id,
        kind=kind,
    )


def command_view(row: Command) -> wire.CommandView:
    outcome = _decode_outcome(row.outcome) if row.outcome else _Outcome()
    return wire.CommandView(
        command_id=row.id,
        ok=row.state is CommandState.COMPLETED,
        outcome=row.state,
        result=wire.value_of(outcome.result),
        error=None if outcome.error is None else _error_of(outcome.error),
        queued_ms=row.queued_ms,
        duration_ms=row.duration_ms,
        dialogs=outcome.dialogs,
        more_dialogs=outcome.more_dialogs,
    )


def _error_of(kept: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    error = {name: wire.value_of(value) for name, value in kept.items() if name != "details"}
    if "details" in kept:
        # The steps that were done may be there, with all that pages answered.
        error["details"] = {name: wire.value_of(value) for name, value in _decode_details(kept["details"]).items()}
    return error


def browser_view(slot: Slot, sessions: int, circuit: BreakerState) -> wire.BrowserView:
    row = slot.row
    # A browser that was attached to, or just started, has no processes that could be measured.
    usage = slot.usage if slot.usage is not None and slot.usage.processes else None
    return wire.BrowserView(
        browser_id=row.id,
        node=row.node_id,
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
