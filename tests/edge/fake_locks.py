"""Named locks that nobody waits for: enough behind the edge for their routes to be tested alone."""

from __future__ import annotations

from tabherd import wire
from tabherd.broker.caller import Caller
from tabherd.errors import LockLost, LockNotFound, LockReentered
from tabherd.locks.base import named_key

AT = "2025-01-01T00:00:00.000Z"


class FakeNamedLocks:
    def __init__(self) -> None:
        self.held: dict[str, wire.LockView] = {}
        self.callers: list[Caller] = []
        self.dropped: list[str] = []

    async def acquire(
        self, caller: Caller, name: str, request: wire.AcquireLock, *, controller: str = "", connection_id: str = ""
    ) -> wire.LockView:
        named_key(name)
        self.callers.append(caller)
        if name in self.held:
            if request.skip:
                return wire.LockView(name=name, acquired=False, holder=self.held[name].holder)
            raise LockReentered("The lock is held.", name=name)
        self.held[name] = wire.LockView(
            name=name,
            holder=f"{caller.agent_id}/{controller}",
            agent_id=caller.agent_id,
            fence=len(self.callers),
            ticket=f"lck_{len(self.callers)}",
            lease_ms=30_000,
            acquired_at=AT,
            expires_at=AT,
        )
        return self.held[name]

    async def renew(self, caller: Caller, name: str, ticket: str, lease_ms: int | None = None) -> wire.LockView:
        lock = self.held.get(name)
        if lock is None or lock.ticket != ticket:
            raise LockLost("The lock is not held.", name=name)
        return lock

    async def release(self, caller: Caller, name: str, ticket: str, reason: str = "released") -> None:
        lock = self.held.get(name)
        if lock is None or lock.ticket != ticket:
            raise LockNotFound("The lock is not held.", name=name)
        del self.held[name]

    async def force(self, caller: Caller, name: str, fence: int | None = None) -> None:
        caller.require("admin")
        if self.held.pop(name, None) is None:
            raise LockNotFound("The lock is not held.", name=name)

    async def list(self, caller: Caller) -> wire.LockPage:
        return wire.LockPage(locks=[wire.HeldLock(name=name, held=True, waiters=0) for name in self.held])

    async def advisory(self, caller: Caller) -> wire.AdvisoryLocks:
        return wire.AdvisoryLocks(advisory_locks=[], count=0)

    def drop_connection(self, connection_id: str) -> None:
        self.dropped.append(connection_id)
