"""The same random history on every engine gives the same outcomes and the same contents.

The seed is part of the test's name, so `pytest 'NAME'` with the name of a failed one replays it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tabherd.core.lifecycle import LeaseState
from tabherd.core.model import TABLES, Row, Session, Tab
from tabherd.store.base import Add, Delete, Insert, Op, Outcome, Put, Require, Store, Update
from tabherd.store.memory import MemoryStore

from .conftest import ENGINES
from .samples import session, tab

# Of which few are replayed in every run.
HISTORIES = 30
TRANSACTIONS = 250
# Few ids and low caps, so that operations meet.
IDS = ("a", "b", "c", "d")
COUNTERS = ("x", "y")


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "memory"])
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.soak if seed >= 3 else ()) for seed in range(HISTORIES)]
)
async def test_a_random_history_reads_the_same_as_in_memory(
    engine: str, seed: int, in_memory: Path, postgres_url: Callable[[], str]
) -> None:
    chance = random.Random(seed)
    history = [_transaction(chance) for _ in range(TRANSACTIONS)]
    # Handed over in bursts: engines that batch see batches of every size, and must not show it.
    bursts = [chance.choice((1, 2, 7, 40)) for _ in range(TRANSACTIONS)]
    reference, engine_store = MemoryStore(), ENGINES[engine](in_memory, postgres_url)
    try:
        assert await _replay(engine_store, history, bursts) == await _replay(reference, history, bursts)
        assert await _contents(engine_store) == await _contents(reference)
    finally:
        await engine_store.close()


def _transaction(chance: random.Random) -> tuple[Op, ...]:
    return tuple(_op(chance) for _ in range(chance.choice((1, 1, 2, 3, 6))))


def _op(chance: random.Random) -> Op:
    kind: type[Row] = chance.choice((Session, Tab))
    id = chance.choice(IDS)
    # Low versions, so that guards hold about as often as not.
    version = chance.choice((0, 1, 1, 1, 2, 2, 3, 4))
    number = chance.choice((None, "fence" if kind is Session else "generation"))
    fields = {"version": version, "created_at": chance.randrange(1_000)}
    row: Row = session(id, state=chance.choice(list(LeaseState)), **fields) if kind is Session else tab(id, **fields)
    match chance.randrange(8):
        case 0 | 1:
            return Insert(row, numbered=number)
        case 2 | 3:
            return Update(row, numbered=number)
        case 4:
            return Put(row)
        case 5:
            return Delete(kind, id, version)
        case 6:
            return Require(kind, id, version)
        case _:
            return Add(chance.choice(COUNTERS), chance.choice((-2, -1, 1, 1, 2)), cap=chance.choice((None, 2, 4)))


async def _replay(store: Store, history: list[tuple[Op, ...]], bursts: list[int]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    sizes = iter(bursts)
    while len(outcomes) < len(history):
        burst = history[len(outcomes) : len(outcomes) + next(sizes)]
        outcomes += await asyncio.gather(*(store.apply(*ops) for ops in burst))
    return outcomes


async def _contents(store: Store) -> dict[str, object]:
    contents: dict[str, object] = {table.name: await store.select(table.row) for table in TABLES.values()}
    for name in (*COUNTERS, "seq:fence", "seq:generation"):
        contents[name] = await store.counter(name)
    return contents


def test_histories_reach_every_outcome() -> None:
    """The comparison would prove nothing if the guards never held, or never failed."""
    chance = random.Random(0)
    store = MemoryStore()

    async def reasons() -> set[str]:
        outcomes = [await store.apply(*_transaction(chance)) for _ in range(1_000)]
        return {getattr(outcome, "reason", "applied") for outcome in outcomes}

    assert asyncio.run(reasons()) == {"applied", "exists", "missing", "version", "cap"}
