"""The lane of an event loop: order, batches, bounds, and jobs whose callers have left."""

from __future__ import annotations

import asyncio

import pytest

from tabherd.errors import StoreUnavailable
from tabherd.store.base import PENDING_MAX
from tabherd.store.lane import BATCH_MAX
from tabherd.store.postgres_lane import LoopLane


class Engine:
    """Serves when it is let, and keeps what it was given."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.is_free = asyncio.Event()
        self.is_free.set()

    async def serve(self, batch: list[int]) -> list[int | Exception]:
        self.batches.append(batch)
        await self.is_free.wait()
        return [ValueError(job) if job < 0 else job * 10 for job in batch]


async def test_jobs_of_one_moment_share_a_batch_and_are_answered_each() -> None:
    engine = Engine()
    lane = LoopLane(engine.serve)
    assert await asyncio.gather(*(lane.submit(job) for job in range(3))) == [0, 10, 20]
    assert engine.batches == [[0, 1, 2]]


async def test_what_arrives_while_a_batch_is_served_forms_the_next() -> None:
    engine = Engine()
    lane = LoopLane(engine.serve)
    engine.is_free.clear()
    first = lane.submit(1)
    await asyncio.sleep(0)
    others = [lane.submit(job) for job in (2, 3)]
    engine.is_free.set()
    assert await asyncio.gather(first, *others) == [10, 20, 30]
    assert engine.batches == [[1], [2, 3]]


async def test_a_job_that_arrives_when_the_last_one_is_answered_is_served() -> None:
    """Whoever is woken by an answer runs before the loop has cleaned up after the one who served it."""
    engine = Engine()
    lane = LoopLane(engine.serve)
    answered: list[int] = []

    def again(future: asyncio.Future[int]) -> None:
        answered.append(future.result())
        if len(answered) < 50:
            lane.submit(len(answered)).add_done_callback(again)

    lane.submit(0).add_done_callback(again)
    # A job that nobody serves would leave this waiting.
    async with asyncio.timeout(10):
        while len(answered) < 50:
            await asyncio.sleep(0)
    assert answered == [job * 10 for job in range(50)]


async def test_an_exception_is_the_answer_of_its_job_alone() -> None:
    lane = LoopLane(Engine().serve)
    answers = await asyncio.gather(*(lane.submit(job) for job in (1, -1, 2)), return_exceptions=True)
    assert (answers[0], answers[2]) == (10, 20)
    assert isinstance(answers[1], ValueError)


async def test_a_batch_that_raises_answers_everybody_and_the_lane_goes_on() -> None:
    engine = Engine()

    async def serve(batch: list[int]) -> list[int | Exception]:
        if batch == [0]:
            raise RuntimeError("bug")
        return await engine.serve(batch)

    lane = LoopLane(serve)
    with pytest.raises(RuntimeError):
        await lane.submit(0)
    assert await lane.submit(1) == 10


async def test_a_job_whose_caller_has_left_is_served_all_the_same() -> None:
    engine = Engine()
    lane = LoopLane(engine.serve)
    lane.submit(1).cancel()
    assert await lane.submit(2) == 20
    assert engine.batches == [[1, 2]]


async def test_batches_and_the_queue_are_bounded() -> None:
    engine = Engine()
    lane = LoopLane(engine.serve)
    engine.is_free.clear()
    jobs = [lane.submit(job) for job in range(PENDING_MAX)]
    with pytest.raises(StoreUnavailable) as refused:
        lane.submit(0)
    assert (refused.value.details["cause"], refused.value.retryable) == ("overloaded", True)
    engine.is_free.set()
    await asyncio.gather(*jobs)
    assert {len(batch) for batch in engine.batches} == {BATCH_MAX}


async def test_no_more_batches_are_served_at_once_than_the_lane_is_wide() -> None:
    engine = Engine()
    lane = LoopLane(engine.serve, width=2)
    engine.is_free.clear()
    jobs: list[asyncio.Future[int]] = []
    for job in range(4):
        jobs.append(lane.submit(job))
        await asyncio.sleep(0)
    assert engine.batches == [[0], [1]]
    engine.is_free.set()
    assert await asyncio.gather(*jobs) == [0, 10, 20, 30]


async def test_closing_serves_what_was_accepted_and_refuses_the_rest() -> None:
    engine = Engine()
    batches: list[int] = []
    lane = LoopLane(engine.serve, on_batch=lambda _, size: batches.append(size))
    jobs = [lane.submit(job) for job in range(3)]
    await lane.close()
    assert [job.result() for job in jobs] == [0, 10, 20]
    assert batches == [3]
    with pytest.raises(StoreUnavailable) as refused:
        lane.submit(4)
    assert refused.value.details["cause"] == "closed"
