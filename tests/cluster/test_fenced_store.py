"""A node that was declared dead writes nothing, and hears so."""

from __future__ import annotations

import pytest

from tabherd.broker.patience import patiently
from tabherd.cluster.fenced_store import FencedStore, is_fenced
from tabherd.core.lifecycle import NodeState
from tabherd.core.model import Node, Secret, changed
from tabherd.errors import StoreUnavailable
from tabherd.store.base import Add, Applied, Conflict, Insert, Update
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
