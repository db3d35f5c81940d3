"""A thread that serves jobs in batches: what arrives while one batch is served forms the next.

This is how an event loop talks to a blocking engine at the price of one hand-over per batch, and what makes commits
group commits. Invariants: jobs are served in the order of `submit`; every accepted job is served exactly once, whether
or not its caller still waits; an answer is delivered on the caller's loop; jobs that wait are bounded.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

from ..errors import StoreUnavailable
from .base import PENDING_MAX

Job = TypeVar("Job")
Answer = TypeVar("Answer")

# Called on the event loop after a batch, with how long the engine took over it and how many jobs it had.
OnBatch: TypeAlias = Callable[[float, int], None]

# Bounds what one batch costs, and so how long its first job waits for its last. Far above what one loop produces
# during a commit, and far below PENDING_MAX.
BATCH_MAX = 1_000
# When a full queue has probably moved on: it drains in PENDING_MAX / BATCH_MAX batches of some tens of milliseconds.
RETRY_AFTER_MS = 250


class Lane(Generic[Job, Answer]):
    """`serve` gets a batch and gives one answer, or one exception, per job; `finish` runs last, in the same thread."""

    def __init__(
        self,
        name: str,
        serve: Callable[[list[Job]], list[Answer | Exception]],
        finish: Callable[[], None],
        on_batch: OnBatch | None = None,
    ) -> None:
        self._serve = serve
        self._finish = finish
        self._on_batch = on_batch
        # Jobs not yet taken into a batch; guarded, with `_is_closing`, by `_changed`.
        self._waiting: list[tuple[Job, asyncio.Future[Answer]]] = []
        self._is_closing = False
        self._changed = threading.Condition()
        # A daemon, so that a process that forgot to close can end: an interrupted commit is a crash, which is safe.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> asyncio.Future[Answer]:
        """Take the job now; the future has its answer. Cancelling the future does not recall the job."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        with self._changed:
            if self._is_closing:
                raise StoreUnavailable("The store is closed.", cause="closed", retryable=False)
            if len(self._waiting) >= PENDING_MAX:
                raise StoreUnavailable(
                    f"{PENDING_MAX} operations wait for the disk already.",
                    action="Retry after retryAfterMs; if it stays so, the disk is too slow for the load.",
                    retry_after_ms=RETRY_AFTER_MS,
                    cause="overloaded",
                )
            self._waiting.append((job, future))
            # Whoever finds the list empty sleeps; nobody else needs waking.
            if len(self._waiting) == 1:
                self._changed.notify()
        return future

    async def close(self) -> None:
        """Refuse new jobs, serve the accepted ones, and return when the thread has ended."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _run(self) -> None:
        while batch := self._take():
            began = time.perf_counter()
            answers = self._answers([job for job, _ in batch])
            took_s = time.perf_counter() - began
            self._deliver([(future, answer) for (_, future), answer in zip(batch, answers, strict=True)], took_s)
        self._finish()

    def _take(self) -> list[tuple[Job, asyncio.Future[Answer]]]:
        """The next batch; empty when closing and nothing is left."""
        with self._changed:
            while not self._waiting and not self._is_closing:
                self._changed.wait()
            batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
            return batch

    def _answers(self, jobs: list[Job]) -> list[Answer | Exception]:
        try:
            return self._serve(jobs)
        except Exception as error:  # noqa: BLE001 - a bug reaches those who wait, instead of leaving them waiting
            return [error] * len(jobs)

    def _deliver(self, settled: list[tuple[asyncio.Future[Answer], Answer | Exception]], took_s: float) -> None:
        # All futures belong to one loop except in programs that run several in turn.
        for loop in {future.get_loop() for future, _ in settled}:
            mine = [pair for pair in settled if pair[0].get_loop() is loop]
            try:
                loop.call_soon_threadsafe(self._settle, mine, took_s)
            except RuntimeError:
                # The loop is closed, so nobody waits. The jobs are done all the same.
                continue

    def _settle(self, settled: list[tuple[asyncio.Future[Answer], Answer | Exception]], took_s: float) -> None:
        for future, answer in settled:
            # The caller may have been cancelled meanwhile.
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        if self._on_batch is not None:
            self._on_batch(took_s, len(settled))
