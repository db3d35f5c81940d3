"""The part of the route table that is about named locks."""

from __future__ import annotations

from .. import errors as e
from .. import wire
from . import lock_handlers as k
from .route import Route

LOCK_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/locks",
        summary="Named locks that callers of any node hold or wait for; who holds them, for their own agent.",
        handler=k.list_locks,
        scope="locks",
        answer=wire.LockPage,
        errors=(e.StoreUnavailable,),
        merge=k.merge_locks,
    ),
    Route(
        method="POST",
        path="/locks/{name}",
        summary="Have the named lock, in turn; with skip, {acquired: false} at once if somebody else has it.",
        handler=k.acquire_lock,
        scope="locks",
        body=wire.AcquireLock,
        answer=wire.LockView,
        errors=(
            e.LockTimedOut,
            e.LockReentered,
            e.LockDeadlock,
            e.LockLost,
            e.NotOwner,
            e.QueueFull,
            e.Capacity,
            e.Draining,
            e.StoreUnavailable,
        ),
        waits=True,
        undo=k.undo_acquire_lock,
    ),
    Route(
        method="POST",
        path="/locks/{name}/renew",
        summary="Start the lease of a lock anew; lock_lost says that it is somebody else's by now, or nobody's.",
        handler=k.renew_lock,
        scope="locks",
        body=wire.RenewLock,
        answer=wire.LockView,
        errors=(e.LockLost, e.NotOwner, e.StoreUnavailable),
    ),
    Route(
        method="DELETE",
        path="/locks/{name}",
        summary="Give a lock back; an admin frees one by force.",
        handler=k.release_lock,
        scope="locks",
        query=k.ReleaseLockQuery,
        status=204,
        errors=(e.LockNotFound, e.NotOwner, e.StateConflict, e.StoreUnavailable),
    ),
    Route(
        method="GET",
        path="/api/advisory-locks",
        summary="Every lock of the backend, also of programs that use tabherd.locks: holder, waiters, contention.",
        handler=k.list_advisory_locks,
        scope="locks",
        answer=wire.AdvisoryLocks,
        errors=(e.StoreUnavailable,),
    ),
)
