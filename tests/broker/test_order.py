"""The session mutex and the order of locks: who waits, who is refused, and that nothing is left in the books."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from tabherd.broker import order
from tabherd.broker.order import LockOrderViolated, OrderedStore, Rank, SessionMutex, held, holdings, ordered
from tabherd.core.model import Node
from tabherd.store.base import Add, Applied, Insert, Op, Outcome
from tabherd.store.memory import MemoryStore


@pytest.fixture(autouse=True)
async def clean_books() -> AsyncIterator[None]:
    """Whatever a test does, nobody holds anything in the end."""
    yield
    assert not order._books


def taking(rank: Rank) -> AbstractAsyncContextManager[None]:
    @asynccontextmanager
    async def take() -> AsyncIterator[None]:
        if rank is Rank.SESSION:
            async with SessionMutex("ses_1"):
                yield
        else:
            with held(rank):
                yield

    return take()


async def ready() -> None:
    """Every task that could run has run up to its next wait."""
    for _ in range(5):
        await asyncio.sleep(0)


# --- The order ----------------------------------------------------------------------------------------------------


async def test_session_then_lease_then_store_is_the_order() -> None:
    async with SessionMutex("ses_1"):
        with held(Rank.LEASE), held(Rank.STORE, "apply"):
            assert holdings() == ("session ses_1", "lease", "store apply")
    assert holdings() == ()


@pytest.mark.parametrize("then", Rank)
@pytest.mark.parametrize("first", Rank)
async def test_only_a_later_rank_can_be_taken(first: Rank, then: Rank) -> None:
    async with taking(first):
        if then > first:
            async with taking(then):
                return
        with pytest.raises(LockOrderViolated):
            async with taking(then):
                pytest.fail("taken against the order")


async def test_two_sessions_at_once_are_refused() -> None:
    one, other = SessionMutex("ses_1"), SessionMutex("ses_2")
    async with one:
        with pytest.raises(LockOrderViolated, match=r"takes session ses_2 while it holds session ses_1"):
            await other.__aenter__()
        assert not other.locked()


async def test_a_session_after_another_is_fine() -> None:
    for _ in range(2):
        async with SessionMutex("ses_1"):
            pass
        async with SessionMutex("ses_2"):
            pass


async def test_taking_the_same_session_again_is_refused_at_once_and_changes_nothing() -> None:
    mutex = SessionMutex("ses_1")
    async with mutex:
        with pytest.raises(LockOrderViolated):
            await mutex.__aenter__()
        assert mutex.locked()
        assert holdings() == ("session ses_1",)
    assert not mutex.locked()


async def test_what_was_refused_can_be_done_in_order_afterwards() -> None:
    mutex = SessionMutex("ses_1")
    with held(Rank.STORE), pytest.raises(LockOrderViolated):
        await mutex.__aenter__()
    async with mutex:
        assert mutex.locked()


async def test_an_error_inside_leaves_the_books_clean() -> None:
    mutex = SessionMutex("ses_1")

    async def fail() -> None:
        async with mutex:
            with held(Rank.LEASE):
                raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        await fail()
    assert (mutex.locked(), holdings()) == (False, ())


def test_outside_of_a_task_the_order_holds_too() -> None:
    with held(Rank.STORE), pytest.raises(LockOrderViolated), held(Rank.LEASE):
        pytest.fail("taken against the order")


# --- Tasks --------------------------------------------------------------------------------------------------------


async def test_a_task_that_a_holder_starts_holds_nothing() -> None:
    async def child() -> tuple[str, ...]:
        before = holdings()
        async with SessionMutex("ses_2"):
            return before

    async with SessionMutex("ses_1"):
        with held(Rank.STORE):
            assert await asyncio.create_task(child()) == ()


async def test_those_who_wait_get_the_mutex_in_the_order_in_which_they_came() -> None:
    mutex, served = SessionMutex("ses_1"), []

    async def turn(number: int) -> None:
        async with mutex:
            served.append(number)
            await asyncio.sleep(0)

    async with mutex:
        turns = [asyncio.create_task(turn(number)) for number in range(10)]
        await ready()
        assert served == []
    await asyncio.gather(*turns)
    assert served == list(range(10))


async def test_only_one_task_is_inside() -> None:
    mutex, inside = SessionMutex("ses_1"), 0

    async def turn() -> None:
        nonlocal inside
        async with mutex:
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(turn() for _ in range(20)))


async def test_who_is_cancelled_while_it_waits_holds_nothing_and_blocks_nobody() -> None:
    mutex = SessionMutex("ses_1")

    async def turn() -> None:
        async with mutex:
            pass

    async with mutex:
        cancelled, patient = asyncio.create_task(turn()), asyncio.create_task(turn())
        await ready()
        cancelled.cancel()
        await ready()
        assert cancelled.cancelled()
        assert cancelled not in order._books
    await patient
    assert not mutex.locked()


async def test_who_is_cancelled_while_it_holds_gives_everything_back() -> None:
    mutex = SessionMutex("ses_1")

    async def hold() -> None:
        async with mutex:
            with held(Rank.STORE):
                await asyncio.get_running_loop().create_future()

    holder = asyncio.create_task(hold())
    await ready()
    assert mutex.locked()
    holder.cancel()
    await asyncio.wait([holder])
    assert not mutex.locked()


async def test_a_waiter_that_is_thrown_away_is_struck_from_its_own_books() -> None:
    async def hold() -> None:
        with held(Rank.STORE):
            await asyncio.get_running_loop().create_future()

    working = hold()
    working.send(None)
    closer = asyncio.create_task(asyncio.to_thread(working.close))
    await closer
    assert holdings() == ()


# --- The store ----------------------------------------------------------------------------------------------------

NODE = Node(id="nod_1", epoch=1, url="", pid=1, started_at=1)


class Peeking(MemoryStore):
    """Looks at the books from inside each call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, ...]] = []

    async def apply(self, *ops: Op) -> Outcome:
        self.seen.append(holdings())
        return await super().apply(*ops)


async def test_the_store_is_in_the_books_while_it_works_and_only_then() -> None:
    inner = Peeking()
    store = ordered(inner)
    async with SessionMutex("ses_1"):
        await store.apply(Insert(NODE))
        assert holdings() == ("session ses_1",)
    assert inner.seen == [("session ses_1", "store apply")]


async def test_an_ordered_store_answers_as_the_store_it_wraps() -> None:
    store = OrderedStore(MemoryStore())
    assert isinstance(await store.apply(Insert(NODE), Add("tabs:p", 2)), Applied)
    stored = await store.get(Node, "nod_1")
    assert stored is not None
    assert await store.select(Node, limit=5) == [stored]
    assert await store.select(Node, after="nod_1") == []
    assert await store.counter("tabs:p") == 2
    await store.close()


@pytest.mark.parametrize("call", ["apply", "get", "select", "counter"])
async def test_a_store_call_from_inside_the_store_is_refused(call: str) -> None:
    store = OrderedStore(MemoryStore())
    calls = {
        "apply": lambda: store.apply(),
        "get": lambda: store.get(Node, "nod_1"),
        "select": lambda: store.select(Node),
        "counter": lambda: store.counter("tabs:p"),
    }
    with held(Rank.STORE), pytest.raises(LockOrderViolated):
        await calls[call]()


# --- Without debugging --------------------------------------------------------------------------------------------

OPTIMISED = """
import asyncio
from tabherd.broker import order
from tabherd.store.memory import MemoryStore

async def main():
    one, other, store = order.SessionMutex("ses_1"), order.SessionMutex("ses_2"), MemoryStore()
    with order.held(order.Rank.STORE):
        async with one:
            async with other:
                print(order.holdings(), len(order._books), one.locked(), other.locked())
    print(order.held(order.Rank.LEASE) is order.held(order.Rank.STORE), order.ordered(store) is store, one.locked())

asyncio.run(main())
"""


def test_an_optimised_python_tracks_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-c", OPTIMISED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr, done.stdout.splitlines()) == ("", ["() 0 True True", "True True False"])
