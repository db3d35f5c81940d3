"""Jobs of an event loop served in batches: what arrives while one batch is served forms the next.

The twin of `lane` for an engine that is awaited instead of blocked on. Invariants: every accepted job is served exactly
once, whether or not its caller still waits; with a width of one they are served in the order of `submit`; jobs that
wait are bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic

from ..errors import StoreUnavailable
from .base import PENDING_MAX
from .lane import BATCH_MAX, RETRY_AFTER_MS, Answer, Job, OnBatch


class LoopLane(Generic[Job, Answer]):
    """`serve` gets a batch and gives one answer, or one exception, per job; so many batches are served at once."""

    def __init__(
        self,
        serve: Callable[[list[Job]], Awaitable[list[Answer | Exception]]],
        *,
        width: int = 1,
        on_batch: OnBatch | None = None,
    ) -> None:
        self._serve = serve
        self._width = width
        self._on_batch = on_batch
        # Jobs not yet taken into a batch.
        self._waiting: list[tuple[Job, asyncio.Future[Answer]]] = []
        # Those that serve; each ends when nothing waits.
        self._servers: set[asyncio.Task[None]] = set()
        self._is_closing = False

    def submit(self, job: Job) -> asyncio.Future[Answer]:
        """Take the job now; the future has its answer. Cancelling the future does not recall the job."""
        if self._is_closing:
            raise StoreUnavailable("The store is closed.", cause="closed", retryable=False)
        if len(self._waiting) >= PENDING_MAX:
            raise StoreUnavailable(
                f"{PENDING_MAX} operations wait for the database already.",
                action="Retry after retryAfterMs; if it stays so, the database is too slow for the load.",
                retry_after_ms=RETRY_AFTER_MS,
                cause="overloaded",
            )
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        # A new one has its turn after this iteration of the loop, so that jobs of one moment share a batch.
        if len(self._servers) < self._width:
            server = asyncio.create_task(self._run())
            self._servers.add(server)
        return future

    async def close(self) -> None:
        """Refuse new jobs, and return when the accepted ones have been served."""
        self._is_closing = True
        if self._servers:
            await asyncio.wait(set(self._servers))

    async def _run(self) -> None:
        try:
            await self._serve_all()
        finally:
            # At once, not when the loop gets to it: whoever submits next has to know that nobody serves.
            server = asyncio.current_task()
            assert server is not None
            self._servers.discard(server)

    async def _serve_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
            began = time.perf_counter()
            answers = await self._answers([job for job, _ in batch])
            took_s = time.perf_counter() - began
            for (_, future), answer in zip(batch, answers, strict=True):
                # The caller may have been cancelled meanwhile.
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
            if self._on_batch is not None:
                self._on_batch(took_s, len(batch))

    async def _answers(self, jobs: list[Job]) -> list[Answer | Exception]:
        try:
            return await self._serve(jobs)
        except Exception as error:  # noqa: BLE001 - a bug reaches those who wait, instead of leaving them waiting
            return [error] * len(jobs)
