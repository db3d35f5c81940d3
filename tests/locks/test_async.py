"""`async_advisory_lock` and `async_advisory_lock_or_skip`, on files and on PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest
from tests.locks.company import LIMIT_S

from tabherd.errors import LockDeadlock, LockReentered, LockTimedOut
from tabherd.locks import (
    advisory_lock,
    advisory_lock_or_skip,
    async_advisory_lock,
    async_advisory_lock_or_skip,
    async_advisory_locks,
)


async def is_free(url: str, namespace: int, key: int) -> bool:
    """Whether another task could have the lock now."""

    async def attempt() -> bool:
        async with async_advisory_lock_or_skip(namespace, key, url=url) as acquired:
            return acquired

    return await asyncio.create_task(attempt())


async def until_awaited(url: str, label: str, by: int = 1) -> None:
    async with asyncio.timeout(LIMIT_S):
        while sum(len(row.waiters) for row in await async_advisory_locks(url) if row.label == label) < by:
            await asyncio.sleep(0.002)


async def test_the_lock_is_held_in_the_block_and_released_after_it(url: str, namespace: int) -> None:
    async with async_advisory_lock(namespace, 1, url=url) as lock:
        lock.check()
        assert not await is_free(url, namespace, 1)
    assert await is_free(url, namespace, 1)


async def test_tasks_and_threads_exclude_each_other(url: str, namespace: int) -> None:
    def attempt() -> bool:
        with advisory_lock_or_skip(namespace, 1, url=url) as acquired:
            return acquired

    async with async_advisory_lock(namespace, 1, url=url):
        assert await asyncio.to_thread(attempt) is False
    assert await asyncio.to_thread(attempt) is True


async def test_a_lock_that_is_not_free_in_time_is_an_error(url: str, namespace: int) -> None:
    async def wait() -> None:
        async with async_advisory_lock(namespace, 1, timeout=0.05, url=url):
            raise AssertionError

    async with async_advisory_lock(namespace, 1, url=url):
        with pytest.raises(LockTimedOut):
            await asyncio.create_task(wait())


async def test_two_tasks_of_one_thread_are_two_holders(url: str, namespace: int) -> None:
    order: list[str] = []

    async def second() -> None:
        async with async_advisory_lock(namespace, 1, url=url):
            order.append("second")

    async with async_advisory_lock(namespace, 1, url=url):
        waiting = asyncio.create_task(second())
        await until_awaited(url, f"{namespace}:1")
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_a_nested_acquisition_in_one_task_is_refused_at_once(url: str, namespace: int) -> None:
    async with async_advisory_lock(namespace, 1, url=url):
        with pytest.raises(LockReentered):
            async with async_advisory_lock(namespace, 1, url=url):
                pass
        async with async_advisory_lock_or_skip(namespace, 1, url=url) as acquired:
            assert acquired is False


async def test_a_task_that_would_block_the_loop_its_holder_needs_is_told_so(url: str, namespace: int) -> None:
    async def block() -> None:
        with advisory_lock(namespace, 1, url=url):
            raise AssertionError

    async with async_advisory_lock(namespace, 1, url=url):
        with pytest.raises(LockDeadlock):
            await asyncio.create_task(block())


def test_a_loop_inside_a_block_is_nested_in_it(url: str, namespace: int) -> None:
    async def nested() -> None:
        async with async_advisory_lock(namespace, 1, url=url):
            raise AssertionError

    with advisory_lock(namespace, 1, url=url), pytest.raises(LockReentered):
        asyncio.run(nested())


async def test_a_lock_that_another_task_releases_leaves_no_trace(url: str, namespace: int) -> None:
    block = async_advisory_lock(namespace, 1, url=url)
    await block.__aenter__()

    async def release() -> None:
        await block.__aexit__(None, None, None)

    await asyncio.create_task(release())
    async with async_advisory_lock(namespace, 1, url=url):
        pass


async def test_an_exception_in_the_block_releases_the_lock(url: str, namespace: int) -> None:
    with pytest.raises(KeyError):
        async with async_advisory_lock(namespace, 1, url=url):
            raise KeyError
    assert await is_free(url, namespace, 1)


async def test_a_cancelled_holder_releases_the_lock(url: str, namespace: int) -> None:
    holds = asyncio.Event()

    async def hold() -> None:
        async with async_advisory_lock(namespace, 1, url=url):
            holds.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await holds.wait()
    task.cancel()
    await asyncio.wait((task,))
    assert await is_free(url, namespace, 1)


async def test_a_cancelled_waiter_leaves_the_line_and_those_behind_it_are_served(url: str, namespace: int) -> None:
    async def wait() -> bool:
        async with async_advisory_lock(namespace, 1, url=url):
            return True

    async with async_advisory_lock(namespace, 1, url=url):
        first = asyncio.create_task(wait())
        await until_awaited(url, f"{namespace}:1")
        second = asyncio.create_task(wait())
        await until_awaited(url, f"{namespace}:1", by=2)
        first.cancel()
        await asyncio.wait((first,))
        assert first.cancelled()
    assert await second is True


async def test_a_cancellation_at_any_moment_leaves_no_lock(url: str, namespace: int) -> None:
    async def use() -> None:
        async with async_advisory_lock(namespace, 1, url=url):
            await asyncio.sleep(0)

    for turns in range(0, 60, 3):
        task = asyncio.create_task(use())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        # Not skipped, since the database may still be busy with ending the connection.
        async with async_advisory_lock(namespace, 1, timeout=LIMIT_S, url=url):
            pass


async def test_a_cancellation_in_the_moment_of_the_grant_passes_the_lock_on(url: str, namespace: int) -> None:
    async def wait() -> None:
        async with async_advisory_lock(namespace, 1, timeout=LIMIT_S, url=url):
            pass

    for _ in range(5):
        block = async_advisory_lock(namespace, 1, url=url)
        await block.__aenter__()
        waiting = asyncio.create_task(wait())
        await until_awaited(url, f"{namespace}:1")
        await block.__aexit__(None, None, None)
        waiting.cancel()
        await asyncio.wait((waiting,))
        async with async_advisory_lock(namespace, 1, timeout=LIMIT_S, url=url):
            pass


def test_every_loop_of_a_process_can_lock(url: str, namespace: int) -> None:
    async def use() -> bool:
        async with async_advisory_lock(namespace, 1, url=url):
            return True

    assert [asyncio.run(use()) for _ in range(3)] == [True] * 3
