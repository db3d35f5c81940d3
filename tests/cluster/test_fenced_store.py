"""A node that was declared dead writes nothing, and hears so."""

from __future__ import annotations

import pytest

from tabherd.broker.patience import patiently
from tabherd.cluster import fenced_store
from tabherd.cluster.fenced_store import FencedStore, is_fenced
from tabherd.core.lifecycle import NodeState
from tabherd.core.model import Node, Secret, changed
from tabherd.errors import StoreUnavailable
from tabherd.store.base import IN_DOUBT, Add, Applied, Conflict, Delete, Insert, Op, Outcome, Update, is_in_doubt
from tabherd.store.memory import MemoryStore


async def stored_node(store: MemoryStore) -> Node:
    outcome = await store.apply(Insert(Node(id="nod_1", epoch=1, url="http://a.test", pid=1, started_at=1)))
    assert isinstance(outcome, Applied)
    (node,) = outcome.rows
    assert isinstance(node, Node)
    return node


async def test_a_living_node_writes_as_ever_and_gets_the_same_answers() -> None:
    store = MemoryStore()
    fenced = FencedStore(store, await stored_node(store), pytest.fail)
    row = Secret(id="a", value="1")
    assert await fenced.apply(Insert(row)) == Applied((changed(row, version=1),))
    assert await fenced.apply(Add("n", 1), Insert(row)) == Conflict(1, "exists", changed(row, version=1))
    assert await fenced.apply(Add("n", 5, cap=3)) == Conflict(0, "cap", value=0)


@pytest.mark.parametrize("end", ["declared dead", "forgotten", "begun anew"])
async def test_nothing_lands_once_its_life_is_over(end: str) -> None:
    store = MemoryStore()
    node = await stored_node(store)
    told: list[bool] = []
    fenced = FencedStore(store, node, lambda: told.append(True))
    match end:
        case "declared dead":
            await store.apply(Update(changed(node, state=NodeState.DEAD)))
        case "forgotten":
            store = MemoryStore()
            fenced = FencedStore(store, node, lambda: told.append(True))
        case _:
            await store.apply(Update(node, numbered="epoch"))
    with pytest.raises(StoreUnavailable) as refused:
        await fenced.apply(Insert(Secret(id="late", value="1")))
    assert is_fenced(refused.value)
    assert told == [True]
    assert await store.get(Secret, "late") is None


async def test_whoever_is_patient_does_not_wait_for_a_life_that_is_over() -> None:
    store = MemoryStore()
    node = await stored_node(store)
    fenced = FencedStore(store, node, lambda: None)
    await store.apply(Update(changed(node, state=NodeState.DEAD)))
    with pytest.raises(StoreUnavailable):
        await patiently(lambda: fenced.apply(Add("n", 1)))


async def test_a_node_that_does_not_trust_itself_is_refused_before_anything_is_asked() -> None:
    def refuse() -> None:
        raise StoreUnavailable("paused", cause="paused")

    store = MemoryStore()
    fenced = FencedStore(store, await stored_node(store), pytest.fail, refuse)
    for question in (
        fenced.get(Secret, "a"),
        fenced.select(Secret),
        fenced.counter("n"),
        fenced.apply(Insert(Secret(id="a", value="1"))),
    ):
        with pytest.raises(StoreUnavailable, match="paused"):
            await question
    assert await store.get(Secret, "a") is None


class Forgetful(MemoryStore):
    """A store whose next answers are lost, after the write or before it."""

    def __init__(self) -> None:
        super().__init__()
        # Of each answer that is lost: whether its write happens.
        self.losses: list[bool] = []

    async def apply(self, *ops: Op) -> Outcome:
        if not self.losses:
            return await super().apply(*ops)
        if self.losses.pop(0):
            await super().apply(*ops)
        raise StoreUnavailable("nobody answers", cause=IN_DOUBT)


@pytest.mark.parametrize("losses", [[True], [False], [True, True], [False, True]])
async def test_a_change_whose_answer_was_lost_is_answered_as_if_it_had_not_been(
    losses: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fenced_store, "RETRY_S", 0)
    store = Forgetful()
    fenced = FencedStore(store, await stored_node(store), pytest.fail)
    await fenced.apply(Insert(Secret(id="a", value="1")))
    await fenced.apply(Insert(Secret(id="b", value="1")))
    store.losses = losses
    changed_row = Secret(id="a", value="2", version=1)
    outcome = await fenced.apply(Add("n", 1, cap=1), Update(changed_row), Delete(Secret, "b", 1))
    assert outcome == Applied((None, changed(changed_row, version=2), None))
    assert await store.counter("n") == 1, "it happened once"


async def test_a_change_that_met_somebody_elses_is_in_conflict_also_after_a_lost_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fenced_store, "RETRY_S", 0)
    store = Forgetful()
    fenced = FencedStore(store, await stored_node(store), pytest.fail)
    await store.apply(Insert(Secret(id="a", value="1")))
    await store.apply(Update(Secret(id="a", value="theirs", version=1)))
    store.losses = [True]
    outcome = await fenced.apply(Update(Secret(id="a", value="ours", version=1)))
    assert outcome == Conflict(0, "version", Secret(id="a", value="theirs", version=2))


async def test_whoever_makes_something_new_hears_that_nobody_knows() -> None:
    store = Forgetful()
    fenced = FencedStore(store, await stored_node(store), pytest.fail)
    store.losses = [True]
    with pytest.raises(StoreUnavailable) as unheard:
        await fenced.apply(Insert(Secret(id="a", value="1")))
    assert is_in_doubt(unheard.value)
