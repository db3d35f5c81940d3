"""What every store does, on every engine."""

from __future__ import annotations

import asyncio

import pytest

from tabherd.core.lifecycle import LeaseState
from tabherd.core.model import TABLES, Node, Session, Tab, changed
from tabherd.errors import InvalidRequest, StoreUnavailable
from tabherd.store.base import Add, Applied, Conflict, Delete, Insert, Op, Put, Require, Store, Update

from .samples import full_rows, only_row, session, tab

# --- Rows -------------------------------------------------------------------------------------------------------


async def test_an_inserted_row_has_version_one_and_another_over_it_is_refused(store: Store) -> None:
    assert await store.apply(Insert(session("s", version=7))) == Applied((session("s", version=1),))
    first = await store.get(Session, "s")
    assert first == session("s", version=1)
    assert await store.apply(Insert(session("s", agent_id="second"))) == Conflict(0, "exists", row=first)
    assert await store.get(Session, "s") == first
    # Ids of different tables do not meet.
    assert isinstance(await store.apply(Insert(tab("s"))), Applied)


async def test_an_update_replaces_the_version_that_it_names_and_no_other(store: Store) -> None:
    assert await store.apply(Update(session("s"))) == Conflict(0, "missing")
    row = only_row(await store.apply(Insert(session("s"))))
    current = session("s", version=2, state=LeaseState.ACTIVE)
    assert await store.apply(Update(changed(row, state=LeaseState.ACTIVE))) == Applied((current,))
    assert await store.apply(Update(changed(row, phase="older"))) == Conflict(0, "version", row=current)
    assert await store.get(Session, "s") == current


async def test_a_put_writes_over_anything_and_versions_still_grow(store: Store) -> None:
    assert only_row(await store.apply(Put(session("s")))).version == 1
    assert only_row(await store.apply(Put(session("s", phase="again")))).version == 2
    assert await store.get(Session, "s") == session("s", version=2, phase="again")


async def test_a_delete_needs_the_current_version_and_leaves_room_for_another(store: Store) -> None:
    row = only_row(await store.apply(Insert(session("s"))))
    assert await store.apply(Delete(Session, "s", 2)) == Conflict(0, "version", row=row)
    assert await store.apply(Delete(Session, "s", 1)) == Applied((None,))
    assert await store.get(Session, "s") is None
    assert await store.apply(Delete(Session, "s", 1)) == Conflict(0, "missing")
    assert only_row(await store.apply(Insert(session("s")))).version == 1


async def test_require_passes_on_the_version_it_names_and_zero_means_absent(store: Store) -> None:
    row = only_row(await store.apply(Insert(session("s"))))
    for op in (Require(Session, "s", 1), Require(Session, "none", 0)):
        assert await store.apply(op) == Applied((None,))
    assert await store.apply(Require(Session, "s", 2)) == Conflict(0, "version", row=row)
    assert await store.apply(Require(Session, "s", 0)) == Conflict(0, "exists", row=row)
    assert await store.apply(Require(Session, "none", 1)) == Conflict(0, "missing")
    assert await store.get(Session, "s") == row


async def test_every_field_of_every_row_type_comes_back_as_it_went_in(store: Store) -> None:
    for row in full_rows():
        stored = changed(row, version=1)
        assert only_row(await store.apply(Insert(row))) == stored
        assert await store.get(type(row), row.id) == stored
        assert await store.select(type(row)) == [stored]
        # Also as the row that a conflict shows, which takes another way out of the engine.
        assert await store.apply(Insert(row)) == Conflict(0, "exists", row=stored)
    widest = only_row(await store.apply(Insert(session("s", deadline_at=2**63 - 1, owner_pid=-(2**63)))))
    assert await store.get(Session, "s") == widest


# --- Transactions -----------------------------------------------------------------------------------------------


async def test_when_one_operation_is_refused_none_happens(store: Store) -> None:
    await store.apply(Insert(session("old")))
    outcome = await store.apply(
        Insert(session("new"), numbered="fence"),
        Add("live", 1),
        Put(tab("t")),
        Delete(Session, "old", 1),
        Require(Session, "none", 1),
    )
    assert outcome == Conflict(4, "missing")
    assert await store.get(Session, "new") is None
    assert await store.get(Tab, "t") is None
    assert await store.get(Session, "old") == session("old", version=1)
    assert await store.counter("live") == 0


async def test_operations_see_those_before_them_in_their_transaction(store: Store) -> None:
    outcome = await store.apply(
        Insert(session("s")),
        Update(session("s", version=1, phase="second")),
        Delete(Session, "s", 2),
        Require(Session, "s", 0),
        Insert(session("s", phase="fifth")),
        Add("n", 2, cap=2),
        Add("n", -1),
        Add("n", 1, cap=2),
    )
    assert isinstance(outcome, Applied)
    assert [row.version if row else None for row in outcome.rows] == [1, 2, None, None, 1, None, None, None]
    assert await store.get(Session, "s") == session("s", version=1, phase="fifth")
    assert await store.counter("n") == 2


async def test_a_conflict_shows_what_stood_before_the_transaction(store: Store) -> None:
    row = only_row(await store.apply(Insert(session("s")), Add("n", 5)))
    outcome = await store.apply(Update(changed(row, phase="unseen")), Require(Session, "s", 1))
    assert outcome == Conflict(1, "version", row=row)
    outcome = await store.apply(Add("n", 1), Add("n", 1, cap=6))
    assert outcome == Conflict(1, "cap", value=5)
    outcome = await store.apply(Delete(Session, "s", 1), Update(row))
    assert outcome == Conflict(1, "missing", row=row)
    assert await store.apply() == Applied(())


# --- Counters and numbers ---------------------------------------------------------------------------------------


async def test_a_counter_moves_between_zero_and_its_cap_and_not_past_them(store: Store) -> None:
    assert await store.counter("n") == 0
    assert await store.apply(Add("n", 2, cap=2)) == Applied((None,))
    assert await store.apply(Add("n", 1, cap=2)) == Conflict(0, "cap", value=2)
    assert await store.apply(Add("n", -3)) == Conflict(0, "cap", value=2)
    assert await store.counter("n") == 2
    # A cap that was lowered under the counter lets it be worked off.
    assert await store.apply(Add("n", -1, cap=0)) == Applied((None,))
    assert await store.apply(Add("n", 1, cap=0)) == Conflict(0, "cap", value=1)
    assert await store.apply(Add("n", -1)) == Applied((None,))
    assert await store.apply(Add("n", 1, cap=1)) == Applied((None,))


async def test_counters_are_told_apart_by_any_text(store: Store) -> None:
    names = ["a", "A", 'quote " and \\', "ü\n", "", "a.b", "$[0]", "1", "\U0001f411"]
    for value, name in enumerate(names, start=1):
        assert await store.apply(Add(name, value)) == Applied((None,))
    assert [await store.counter(name) for name in names] == list(range(1, len(names) + 1))


async def test_numbers_of_rows_grow_past_conflicts_and_deleted_rows_and_stay_with_their_rows(store: Store) -> None:
    outcome = await store.apply(Insert(session("a"), numbered="fence"), Insert(session("b"), numbered="fence"))
    assert isinstance(outcome, Applied)
    first, second = outcome.rows
    assert isinstance(first, Session)
    assert isinstance(second, Session)
    updated = only_row(await store.apply(Update(first, numbered="fence")))
    assert 0 < first.fence < second.fence < updated.fence
    assert only_row(await store.apply(Update(updated))).fence == updated.fence
    await store.apply(Insert(session("c"), numbered="fence"), Require(Session, "none", 1))
    await store.apply(Delete(Session, "a", 3))
    assert only_row(await store.apply(Insert(session("a"), numbered="fence"))).fence > updated.fence


async def test_a_sequence_cannot_be_moved_by_hand(store: Store) -> None:
    with pytest.raises(AssertionError, match="seq:fence"):
        await store.apply(Add("seq:fence", -1))


# --- Reading ----------------------------------------------------------------------------------------------------


async def test_select_gives_the_rows_that_fit_all_filters_in_the_order_of_ids(store: Store) -> None:
    for id in ("d", "b", "c", "a", "é", "Z"):
        state = LeaseState.ACTIVE if id in "abZé" else LeaseState.CLOSED
        await store.apply(Insert(session(id, state=state, agent_id="x" if id in "acé" else "y")))
    assert [row.id for row in await store.select(Session)] == ["Z", "a", "b", "c", "d", "é"]
    assert [row.id for row in await store.select(Session, {"state": "active"})] == ["Z", "a", "b", "é"]
    assert [row.id for row in await store.select(Session, {"state": "active", "agent_id": "x"})] == ["a", "é"]
    assert [row.id for row in await store.select(Session, {"agent_id": ("x", "y"), "state": ("closed",)})] == ["c", "d"]
    assert await store.select(Session, {"state": ()}) == []
    assert await store.select(Session, {"agent_id": "nobody"}) == []


async def test_select_by_a_field_without_an_index_is_a_bug(store: Store) -> None:
    with pytest.raises(AssertionError, match=r"sessions\.phase"):
        await store.select(Session, {"phase": "x"})


async def test_select_pages_through_everything_exactly_once_in_either_direction(store: Store) -> None:
    ids = [f"s{number:03d}" for number in range(25)]
    await store.apply(*(Insert(session(id, state=LeaseState.ACTIVE)) for id in reversed(ids)))
    for newest_first in (False, True):
        seen: list[str] = []
        while page := await store.select(
            Session, {"state": "active"}, after=seen[-1] if seen else "", limit=10, newest_first=newest_first
        ):
            assert len(page) <= 10
            seen += [row.id for row in page]
        assert seen == sorted(ids, reverse=newest_first)


async def test_every_indexed_field_finds_its_rows(store: Store) -> None:
    for row in full_rows():
        kind, stored = type(row), only_row(await store.apply(Insert(row)))
        for field in TABLES[kind].indexed:
            assert await store.select(kind, {field: getattr(row, field)}) == [stored]
            assert await store.select(kind, {field: ("other", getattr(row, field))}) == [stored]
            assert await store.select(kind, {field: "other"}) == []


async def test_what_was_answered_is_seen_by_every_later_read(store: Store) -> None:
    for number in range(20):
        await store.apply(Put(session("s", phase=str(number))), Add("n", 1))
        row, count, rows = await asyncio.gather(
            store.get(Session, "s"), store.counter("n"), store.select(Session, {"agent_id": "agent"})
        )
        assert row is not None
        assert (row.phase, count, rows) == (str(number), number + 1, [row])


# --- Many at once -----------------------------------------------------------------------------------------------


async def test_two_hundred_at_once_fill_a_cap_exactly(store: Store) -> None:
    outcomes = await asyncio.gather(
        *(store.apply(Insert(session(f"s{n:03d}")), Add("live", 1, cap=50)) for n in range(200))
    )
    assert [isinstance(outcome, Applied) for outcome in outcomes] == [True] * 50 + [False] * 150
    assert {outcome.value for outcome in outcomes if isinstance(outcome, Conflict)} == {50}
    assert await store.counter("live") == 50
    assert len(await store.select(Session)) == 50


async def test_effects_come_in_the_order_of_the_calls(store: Store) -> None:
    outcomes = await asyncio.gather(*(store.apply(Insert(session(f"s{n}"), numbered="fence")) for n in range(200)))
    fences = [only_row(outcome).fence for outcome in outcomes]
    assert fences == sorted(fences)
    assert len(set(fences)) == 200


async def test_of_many_updates_of_one_version_exactly_one_wins(store: Store) -> None:
    row = only_row(await store.apply(Insert(session("s"))))
    for round in range(10):
        outcomes = await asyncio.gather(*(store.apply(Update(changed(row, phase=f"{round}-{n}"))) for n in range(20)))
        (won,) = (outcome for outcome in outcomes if isinstance(outcome, Applied))
        row = only_row(won)
        assert all(isinstance(o, Applied) or (o.reason, o.row) == ("version", row) for o in outcomes)
        assert row.version == round + 2
        assert await store.get(Session, "s") == row


async def test_callers_that_decide_again_on_conflict_lose_nothing(store: Store) -> None:
    await store.apply(Insert(Node(id="n", epoch=0, url="", pid=0, started_at=0)))

    async def grow() -> None:
        row = await store.get(Node, "n")
        assert row is not None
        while isinstance(outcome := await store.apply(Update(changed(row, epoch=row.epoch + 1))), Conflict):
            assert isinstance(outcome.row, Node)
            row = outcome.row

    await asyncio.gather(*(grow() for _ in range(40)))
    row = await store.get(Node, "n")
    assert row is not None
    assert (row.epoch, row.version) == (40, 41)


# --- Leaving ----------------------------------------------------------------------------------------------------


async def test_a_cancelled_caller_leaves_a_whole_transaction_or_none(store: Store) -> None:
    tasks = [
        asyncio.create_task(store.apply(Insert(session(f"s{n:02d}")), Insert(tab(f"s{n:02d}")), Add("n", 1)))
        for n in range(30)
    ]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(answer, Applied) for answer in answers[1::2])
    sessions = [row.id for row in await store.select(Session)]
    assert sessions == [row.id for row in await store.select(Tab)]
    assert len(sessions) == await store.counter("n") >= 15


async def test_close_finishes_what_was_accepted(store: Store) -> None:
    tasks = [asyncio.create_task(store.apply(Add("n", 1))) for _ in range(50)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*tasks) == [Applied((None,))] * 50


async def test_a_closed_store_refuses_everything_and_can_be_closed_again(store: Store) -> None:
    await store.close()
    for call in (store.apply(Add("n", 1)), store.get(Session, "s"), store.select(Session), store.counter("n")):
        with pytest.raises(StoreUnavailable) as refusal:
            await call
        assert refusal.value.details["cause"] == "closed"
    await store.close()


# --- Text that not every engine can hold ------------------------------------------------------------------------


async def test_text_that_cannot_be_stored_is_refused_by_field(store: Store) -> None:
    for text in ("a\0b", "a\ud800b"):
        refused: dict[str, Op] = {
            "title": Insert(tab("t", title=text)),
            "url": Put(tab("t", url=text)),
            "id": Delete(Tab, text, 1),
            "counter": Add(text, 1),
        }
        for field, op in refused.items():
            with pytest.raises(InvalidRequest) as refusal:
                await store.apply(Add("n", 1), op)
            assert refusal.value.details["field"] == field
    assert await store.counter("n") == 0
    # Text that only spells a NUL is kept.
    row = only_row(await store.apply(Insert(tab("t", title='{"a": "\\u0000"}'))))
    assert await store.select(Tab) == [row]
