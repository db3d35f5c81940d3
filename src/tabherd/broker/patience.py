"""Work that must come to its end, however long the store is away and whoever has left meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import structlog

from ..cluster.fenced_store import is_fenced
from ..errors import StoreUnavailable

RETRY_S = 0.5

T = TypeVar("T")
log = structlog.get_logger("store")


async def patiently(write: Callable[[], Awaitable[T]]) -> T:
    """Try until the store takes it. For facts that exist already: what is disposed must not stay counted.

    Only a store that will never take it (it is closed, or others have what was this node's) ends the trying.
    """
    while True:
        try:
            return await write()
        except StoreUnavailable as error:
            if not error.retryable or is_fenced(error):
                raise
            log.warning("a write waits for the store", error=error.message)
            await asyncio.sleep(RETRY_S)


async def to_the_end(work: Coroutine[Any, Any, T], spawn: Callable[[Coroutine[Any, Any, None]], None]) -> T:
    """The answer of work that, once begun, goes on without its caller: cut off between a write and what follows from
    it, memory and disk would no longer say the same.
    """
    doing = asyncio.ensure_future(work)
    spawn(_ended(doing))
    return await asyncio.shield(doing)


async def settled(future: asyncio.Future[Any], limit_s: float) -> None:
    """Returns when it is done, however it ended, or when that time is over.

    `asyncio.wait` for one future, at a third of its price: every command waits like this.
    """
    if future.done():
        return
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    timer = loop.call_later(limit_s, end)
    future.add_done_callback(end)
    try:
        await over
    finally:
        timer.cancel()
        future.remove_done_callback(end)


async def _ended(doing: asyncio.Future[T]) -> None:
    await asyncio.wait([doing])
    if not doing.cancelled():
        # Looked at, or asyncio would complain when its caller has left.
        doing.exception()
