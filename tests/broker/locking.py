"""What the tests of named locks do again and again: take one, wait for it, give it back, and look what there is."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.broker.house import ADA, BOB, House
from tests.broker.lock_backend import PROGRAM

from tabherd import wire
from tabherd.broker.caller import Caller
from tabherd.core.model import NamedLock
from tabherd.locks.base import AsyncHold, named_key

NAME = "account:x"

Asking = asyncio.Task[wire.LockView]


async def take(house: House, caller: Caller = ADA, name: str = NAME, controller: str = "", **fields: Any) -> Any:
    request = wire.AcquireLock(**fields)
    return await house.broker.named_locks.acquire(caller, name, request, controller=controller)


async def ask(house: House, caller: Caller = BOB, name: str = NAME, controller: str = "", **fields: Any) -> Asking:
    """Somebody who waits in line by the time this returns."""
    fields.setdefault("wait_ms", 60_000)
    before = house.broker.named_locks._queue.waiting
    asking = asyncio.ensure_future(take(house, caller, name, controller, **fields))
    await house.until(lambda: house.broker.named_locks._queue.waiting > before or asking.done())
    return asking


async def drop(house: House, lock: wire.LockView, caller: Caller = ADA) -> None:
    assert lock.ticket is not None
    await house.broker.named_locks.release(caller, lock.name, lock.ticket)


async def renew(house: House, lock: wire.LockView, caller: Caller = ADA, lease_ms: int | None = None) -> wire.LockView:
    assert lock.ticket is not None
    return await house.broker.named_locks.renew(caller, lock.name, lock.ticket, lease_ms)


async def program_takes(house: House, name: str = NAME) -> AsyncHold:
    """A program of its own has the lock."""
    hold = await house.locks.try_acquire(named_key(name), PROGRAM)
    assert hold is not None
    return hold


def is_free(house: House, name: str = NAME) -> bool:
    return named_key(name) not in house.locks.holds


def rows(house: House) -> list[NamedLock]:
    return house.disk.rows(NamedLock)


def told(house: House) -> list[tuple[str, Any]]:
    return [(type, reason) for type, reason in house.news() if type.startswith("lock.")]
