"""What the messages about named locks do on the control channel: a lock that is taken there lives by its connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from .. import wire
from ..broker.caller import Caller

if TYPE_CHECKING:
    from ..broker.named_locks import NamedLocks

LockWork: TypeAlias = wire.TakeLock | wire.RenewTakenLock | wire.ReleaseLock


async def perform(
    locks: NamedLocks, caller: Caller, connection_id: str, work: LockWork
) -> wire.LockView | wire.LockReleased:
    """Do what the message says for the connection of that id."""
    match work:
        case wire.TakeLock():
            asked = wire.AcquireLock(wait_ms=work.wait_ms, lease_ms=work.lease_ms, owner=work.owner, skip=work.skip)
            # A connection is a controller, under the name that it gave in hello or under its address.
            controller = caller.controller_id.partition("/")[2]
            return await locks.acquire(caller, work.name, asked, controller=controller, connection_id=connection_id)
        case wire.RenewTakenLock():
            return await locks.renew(caller, work.name, work.ticket, work.lease_ms)
        case wire.ReleaseLock():
            await locks.release(caller, work.name, work.ticket)
            return wire.LockReleased(name=work.name, ticket=work.ticket)
        case _:
            assert_never(work)
