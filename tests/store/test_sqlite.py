"""What the SQLite store does when the world or a caller misbehaves, and how it shares commits."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tabherd.core.model import Command, Session, Tab
from tabherd.errors import StoreUnavailable
from tabherd.store.base import PENDING_MAX, Add, Applied, Delete, Insert, Put
from tabherd.store.lane import BATCH_MAX
from tabherd.store.sqlite import SqliteStore

from .samples import session, tab


@pytest.fixture
def commits() -> list[int]:
    """The sizes of the batches that were committed."""
    return []


@pytest.fixture
async def store(tmp_path: Path, commits: list[int]) -> AsyncIterator[SqliteStore]:
    # A lock that a test holds for a moment is waited for, however long a moment is on a busy machine.
    store = SqliteStore(tmp_path / "store.db", on_commit=lambda _, size: commits.append(size), busy_ms=60_000)
    yield store
    await store.close()


@contextmanager
def held_by_another(path: Path) -> Iterator[Callable[[], Any]]:
    """Another program has the file locked for writing until the yielded function is called."""
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        yield lambda: shell.execute("ROLLBACK")


async def first_batch_taken(store: SqliteStore) -> None:
    """Wait until the writer is busy with what was submitted so far."""
    while store._writer._waiting:
        await asyncio.sleep(0)


# --- Sharing a commit -------------------------------------------------------------------------------------------


async def test_transactions_that_arrive_during_a_commit_share_the_next(
    store: SqliteStore, tmp_path: Path, commits: list[int]
) -> None:
    with held_by_another(tmp_path / "store.db") as let_go:
        first = asyncio.create_task(store.apply(Add("n", 1)))
        await asyncio.sleep(0)
        await first_batch_taken(store)
        others = [asyncio.create_task(store.apply(Add("n", 1))) for _ in range(99)]
        await asyncio.sleep(0)
        let_go()
        await asyncio.gather(first, *others)
    assert commits == [1, 99]


async def test_sixty_four_rows_cost_no_more_statements_than_one(store: SqliteStore) -> None:
    counts: list[int] = []
    for size in (1, 64):
        statements: list[str] = []
        store._file.writer.set_trace_callback(statements.append)
        ops = [Insert(session(f"{size}-{n}"), numbered="fence") for n in range(size)]
        await store.apply(*ops, Add("n", size))
        store._file.writer.set_trace_callback(None)
        # Distinct, because a statement is traced again for each trigger it fires.
        counts.append(len(set(statements)))
    assert counts == [5, 5]


async def test_a_counter_at_zero_leaves_no_row(store: SqliteStore) -> None:
    await store.apply(Add("up-and-down", 1))
    await store.apply(Add("up-and-down", -1))
    await store.apply(Add("at-once", 1), Add("at-once", -1))
    assert store._file.writer.execute("SELECT * FROM counters").fetchall() == []


# --- A transaction that has a bug -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "poison",
    [session("bad", state="no such state"), session("bad", deadline_at=2**63), session("bad", created_at="soon")],
    ids=["state", "overflow", "type"],
)
async def test_a_poisoned_transaction_fails_alone(
    store: SqliteStore, tmp_path: Path, commits: list[int], poison: Session
) -> None:
    with held_by_another(tmp_path / "store.db") as let_go:
        first = asyncio.create_task(store.apply(Add("n", 1)))
        await asyncio.sleep(0)
        await first_batch_taken(store)
        batch = [
            asyncio.create_task(store.apply(Insert(poison if n == 5 else session(f"s{n}")), Add("n", 1)))
            for n in range(10)
        ]
        await asyncio.sleep(0)
        let_go()
        answers = await asyncio.gather(first, *batch, return_exceptions=True)
    # They did share a batch; otherwise this would prove nothing.
    assert commits == [1, 10]
    failed = answers.pop(6)
    assert isinstance(failed, Exception)
    assert not isinstance(failed, StoreUnavailable)
    assert all(isinstance(answer, Applied) for answer in answers)
    assert await store.get(Session, "bad") is None
    assert await store.counter("n") == 10 == len(await store.select(Session)) + 1


async def test_a_read_that_has_a_bug_fails_alone(store: SqliteStore) -> None:
    await store.apply(Insert(session("s")))
    good, bad, other = await asyncio.gather(
        store.get(Session, "s"), store.get(Session, "\ud800"), store.counter("n"), return_exceptions=True
    )
    assert isinstance(good, Session)
    assert isinstance(bad, UnicodeEncodeError)
    assert other == 0


# --- The world ----------------------------------------------------------------------------------------------------


async def test_a_lock_that_lasts_too_long_refuses_the_batch_and_the_store_goes_on(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", busy_ms=20)
    with held_by_another(tmp_path / "store.db"):
        answers = await asyncio.gather(*(store.apply(Add("n", 1)) for _ in range(5)), return_exceptions=True)
    for answer in answers:
        assert isinstance(answer, StoreUnavailable)
        assert answer.details["cause"] == "locked"
        assert answer.retryable
        assert str(tmp_path / "store.db") in answer.message
    # Each caller has an exception of its own: a shared one would collect everybody's traceback.
    assert len({id(answer) for answer in answers}) == 5
    assert await store.counter("n") == 0
    assert isinstance(await store.apply(Add("n", 1)), Applied)
    await store.close()


async def test_reading_goes_on_while_another_program_holds_the_file(store: SqliteStore, tmp_path: Path) -> None:
    await store.apply(Insert(session("s")))
    with held_by_another(tmp_path / "store.db"):
        assert await store.get(Session, "s") == session("s", version=1)


def command(id: str, outcome_bytes: int) -> Command:
    return Command(
        id=id,
        node_id="n",
        tab_id="t",
        session_id="s",
        agent_id="a",
        kind="evaluate",
        state="completed",  # type: ignore[arg-type]
        created_at=1,
        outcome="x" * outcome_bytes,
    )


async def test_a_full_store_acknowledges_nothing_and_works_again_when_there_is_room(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", size_max_bytes=1_000_000)
    assert isinstance(await store.apply(Insert(command("first", 500_000)), Add("n", 1)), Applied)
    with pytest.raises(StoreUnavailable) as refused:
        await store.apply(Insert(command("second", 500_000)), Insert(tab("t")), Add("n", 1))
    assert refused.value.details["cause"] == "full"
    assert "free some space" in refused.value.message
    assert [row.id for row in await store.select(Command)] == ["first"]
    assert await store.select(Tab) == []
    assert await store.counter("n") == 1

    assert isinstance(await store.apply(Delete(Command, "first", 1)), Applied)
    assert isinstance(await store.apply(Insert(command("second", 500_000)), Add("n", 1)), Applied)
    assert await store.counter("n") == 2
    await store.close()


@contextmanager
def files_no_larger_than(limit_bytes: int) -> Iterator[None]:
    """Let the system refuse writes past this offset: a real I/O error, in any directory and as any user."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_failing_disk_acknowledges_nothing_and_the_store_works_again_afterwards(
    store: SqliteStore, tmp_path: Path
) -> None:
    await store.apply(Insert(session("before")), Add("n", 1))
    log_bytes = (tmp_path / "store.db-wal").stat().st_size
    with files_no_larger_than(log_bytes + 5_000):
        answers = await asyncio.gather(
            *(store.apply(Insert(tab(f"t{n}", title="x" * 2_000)), Add("n", 1)) for n in range(20)),
            return_exceptions=True,
        )
        for answer in answers:
            assert isinstance(answer, StoreUnavailable)
            assert answer.details["cause"] == "io_error"
        assert isinstance(await store.get(Session, "before"), Session)
    assert await store.select(Tab) == []
    assert await store.counter("n") == 1
    assert isinstance(await store.apply(Insert(tab("after")), Add("n", 1)), Applied)
    assert await store.counter("n") == 2


async def test_a_disk_that_does_not_move_refuses_callers_past_the_bound(tmp_path: Path) -> None:
    # It may take a busy machine long to ask so often; the lock must still be waited for then.
    store = SqliteStore(tmp_path / "store.db", busy_ms=60_000)
    with held_by_another(tmp_path / "store.db") as let_go:
        calls = PENDING_MAX + BATCH_MAX + 1
        tasks = [asyncio.create_task(store.apply(Put(session("s")))) for _ in range(calls)]
        await asyncio.sleep(0)
        let_go()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, StoreUnavailable)]
    assert {error.details["cause"] for error in refused} == {"overloaded"}
    row = await store.get(Session, "s")
    assert row is not None
    assert row.version == calls - len(refused) >= PENDING_MAX
    await store.close()


# --- Callers and loops that leave -------------------------------------------------------------------------------


def test_a_loop_that_ends_does_not_stop_a_commit_nor_the_store(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", busy_ms=60_000)
    with held_by_another(tmp_path / "store.db") as let_go:

        async def leave() -> None:
            task = asyncio.create_task(store.apply(Insert(session("s")), Add("n", 1)))
            await asyncio.sleep(0)
            task.cancel()

        asyncio.run(leave())
        let_go()

    async def come_back() -> tuple[object, int]:
        # A later transaction is answered after the abandoned one took effect.
        await store.apply(Add("n", 1))
        seen = await store.get(Session, "s"), await store.counter("n")
        await store.close()
        return seen

    assert asyncio.run(come_back()) == (session("s", version=1), 2)
