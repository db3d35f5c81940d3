"""What the routes about named locks do: take the request apart, call the verb, hand back its answer."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, structs

from .. import wire
from ..broker.caller import Caller
from .auth import act_for
from .route import Call, Service


class ReleaseLockQuery(wire.Request, frozen=True, kw_only=True):
    # What the lock was answered with.
    ticket: Annotated[str, Meta(max_length=100)] = ""
    # Free it whoever has it, without the ticket; only for admins.
    force: bool = False
    # With force: refuse unless the lock is still at this fence.
    fence: int | None = None


async def acquire_lock(service: Service, call: Call) -> wire.LockView:
    request: wire.AcquireLock = call.body
    # The address of a connection is no name to be met again by: many callers may share one.
    return await service.broker.named_locks.acquire(
        _caller(call), call.id, request, controller=request.controller_id or ""
    )


async def undo_acquire_lock(service: Service, call: Call, answer: wire.LockView) -> None:
    if answer.ticket is not None:
        await service.broker.named_locks.release(_caller(call), answer.name, answer.ticket, "caller_left")


async def renew_lock(service: Service, call: Call) -> wire.LockView:
    request: wire.RenewLock = call.body
    return await service.broker.named_locks.renew(call.caller, call.id, request.ticket, request.lease_ms)


async def release_lock(service: Service, call: Call) -> None:
    query: ReleaseLockQuery = call.query
    if query.force:
        await service.broker.named_locks.force(call.caller, call.id, query.fence)
    else:
        await service.broker.named_locks.release(call.caller, call.id, query.ticket)


async def list_locks(service: Service, call: Call) -> wire.LockPage:
    return await service.broker.named_locks.list(call.caller)


def merge_locks(mine: wire.LockPage, others: list[wire.LockPage], missing: list[str]) -> wire.LockPage:
    """Every node knows what is held, and who waits in its own line."""
    locks: dict[str, wire.HeldLock] = {}
    for lock in (lock for page in (mine, *others) for lock in page.locks):
        known = locks.get(lock.name)
        if known is None:
            locks[lock.name] = lock
        else:
            shown = known if known.held else lock
            locks[lock.name] = structs.replace(shown, waiters=known.waiters + lock.waiters)
    return wire.LockPage(locks=[lock for _, lock in sorted(locks.items())], unreachable=missing or msgspec.UNSET)


async def list_advisory_locks(service: Service, call: Call) -> wire.AdvisoryLocks:
    return await service.broker.named_locks.advisory(call.caller)


def _caller(call: Call) -> Caller:
    agent_id: str | None = call.body.agent_id
    return call.caller if agent_id is None else act_for(call.caller, agent_id, "agentId")
