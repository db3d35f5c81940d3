"""The thread that serves jobs in batches. `Held` stands in for an engine whose speed the test decides."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from tabherd.errors import StoreUnavailable
from tabherd.store.base import PENDING_MAX
from tabherd.store.lane import BATCH_MAX, Lane


class Held:
    """Serves a batch when the test lets it, and remembers the batches. A job is answered with its double."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.is_finished = False
        self.is_serving = threading.Event()
        self._permits = threading.Semaphore(0)

    def serve(self, batch: list[int]) -> list[int | Exception]:
        self.batches.append(batch)
        self.is_serving.set()
        assert self._permits.acquire(timeout=30)
        if -1 in batch:
            raise KeyError("a bug of the engine")
        return [job * 2 if job >= 0 else ValueError(job) for job in batch]

    def finish(self) -> None:
        self.is_finished = True

    def let(self, batches: int = 1) -> None:
        self._permits.release(batches)

    async def until_serving(self) -> None:
        await asyncio.to_thread(self.is_serving.wait, 30)
        self.is_serving.clear()


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
async def lane(held: Held) -> AsyncIterator[Lane[int, int]]:
    lane = Lane("test-lane", held.serve, held.finish)
    yield lane
    held.let(1_000)
    await lane.close()


async def test_what_arrives_while_a_batch_is_served_forms_the_next(lane: Lane[int, int], held: Held) -> None:
    first = lane.submit(1)
    await held.until_serving()
    others = [lane.submit(job) for job in (2, 3, 4)]
    held.let(2)
    assert await asyncio.gather(first, *others) == [2, 4, 6, 8]
    assert held.batches == [[1], [2, 3, 4]]


async def test_a_batch_is_bounded(lane: Lane[int, int], held: Held) -> None:
    first = lane.submit(0)
    await held.until_serving()
    others = [lane.submit(job) for job in range(BATCH_MAX + 1)]
    held.let(3)
    await asyncio.gather(first, *others)
    assert [len(batch) for batch in held.batches] == [1, BATCH_MAX, 1]


async def test_waiting_jobs_are_bounded_and_the_refused_may_retry(lane: Lane[int, int], held: Held) -> None:
    first = lane.submit(0)
    await held.until_serving()
    waiting = [lane.submit(job) for job in range(PENDING_MAX)]
    with pytest.raises(StoreUnavailable) as refusal:
        lane.submit(0)
    assert refusal.value.details["cause"] == "overloaded"
    assert refusal.value.retryable
    assert refusal.value.retry_after_ms
    held.let(1 + PENDING_MAX // BATCH_MAX)
    await asyncio.gather(first, *waiting)
    held.let()
    assert await lane.submit(21) == 42


async def test_one_job_can_fail_without_the_others(lane: Lane[int, int], held: Held) -> None:
    first = lane.submit(0)
    await held.until_serving()
    good, bad = lane.submit(1), lane.submit(-7)
    held.let(2)
    assert await first == 0
    assert await good == 2
    with pytest.raises(ValueError, match="-7"):
        await bad


async def test_a_bug_in_the_engine_reaches_its_callers_and_the_lane_goes_on(lane: Lane[int, int], held: Held) -> None:
    held.let(2)
    with pytest.raises(KeyError, match="a bug of the engine"):
        await lane.submit(-1)
    assert await lane.submit(3) == 6


async def test_a_cancelled_caller_does_not_recall_its_job_nor_disturb_others(lane: Lane[int, int], held: Held) -> None:
    first = lane.submit(0)
    await held.until_serving()
    left, stayed = lane.submit(1), lane.submit(2)
    left.cancel()
    held.let(2)
    assert await asyncio.wait_for(stayed, 30) == 4
    assert await first == 0
    assert held.batches == [[0], [1, 2]]


async def test_closing_serves_the_accepted_and_refuses_the_rest(held: Held) -> None:
    lane = Lane("test-lane", held.serve, held.finish)
    accepted = [lane.submit(0)]
    await held.until_serving()
    accepted.append(lane.submit(1))
    closing = asyncio.create_task(lane.close())
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="closed"):
        lane.submit(2)
    assert not held.is_finished
    held.let(2)
    await closing
    assert await asyncio.gather(*accepted) == [0, 2]
    assert held.is_finished


def test_a_loop_that_closed_meanwhile_does_not_stop_the_lane(held: Held) -> None:
    lane = Lane("test-lane", held.serve, held.finish)

    async def leave() -> None:
        lane.submit(1)
        await held.until_serving()
        lane.submit(2)

    asyncio.run(leave())
    held.let(2)

    async def come_back() -> int:
        held.let()
        # Bounded, because a lane that died would leave us waiting.
        answer = await asyncio.wait_for(lane.submit(3), 30)
        await lane.close()
        return answer

    assert asyncio.run(come_back()) == 6
    assert [job for batch in held.batches for job in batch] == [1, 2, 3]


async def test_batches_are_reported_on_the_loop_after_their_callers_are_answered(held: Held) -> None:
    reports: list[tuple[threading.Thread, int, bool]] = []
    lane: Lane[int, int] = Lane(
        "test-lane",
        held.serve,
        held.finish,
        lambda seconds, size: reports.append((threading.current_thread(), size, future.done() and seconds >= 0)),
    )
    held.let()
    future = lane.submit(1)
    await future
    assert reports == [(threading.current_thread(), 1, True)]
    await lane.close()
