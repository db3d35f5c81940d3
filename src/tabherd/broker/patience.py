"""Writes that must happen, however long the store is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from ..errors import StoreUnavailable

RETRY_S = 0.5

T = TypeVar("T")
log = structlog.get_logger("store")


async def patiently(write: Callable[[], Awaitable[T]]) -> T:
    """Try until the store takes it. For facts that exist already: what is disposed must not stay counted.

    Only a store that will never come back (it is closed) ends the trying.
    """
    while True:
        try:
            return await write()
        except StoreUnavailable as error:
            if not error.retryable:
                raise
            log.warning("a write waits for the store", error=error.message)
            await asyncio.sleep(RETRY_S)
