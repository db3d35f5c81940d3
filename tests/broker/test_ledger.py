"""Outcomes are readable at once, written behind, and bounded."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tabherd.broker import ledger as ledger_module
from tabherd.broker.ledger import Ledger
from tabherd.core.lifecycle import CommandState
from tabherd.core.model import Command
from tabherd.errors import StoreUnavailable
from tabherd.store.base import Op, Outcome
from tabherd.store.memory import MemoryStore


def ended(number: int, state: CommandState = CommandState.COMPLETED) -> Command:
    return Command(
        id=f"cmd_{number:05}",
        node_id="nod_1",
        tab_id="tab_1",
        session_id="ses_1",
        agent_id="ada",
        kind="text",
        state=state,
        created_at=1,
    )


async def test_an_outcome_is_found_before_it_is_written_and_after() -> None:
    store = MemoryStore()
    ledger = Ledger(store)
    ledger.record(ended(1))
    assert await store.get(Command, "cmd_00001") is None
    assert (await ledger.find("cmd_00001")) == ended(1)
    ledger.start()
    await ledger.stop()
    found = await ledger.find("cmd_00001")
    assert found is not None
    assert found.version == 1


async def test_an_outcome_that_the_store_refuses_costs_no_other_outcome() -> None:
    store = MemoryStore()
    ledger = Ledger(store)
    ledger.start()
    ledger.record(ended(1))
    ledger.record(msgspec.structs.replace(ended(2), controller_id="crd_1/\0"))
    ledger.record(ended(3))
    await ledger.flush()
    ledger.record(ended(4))
    await ledger.stop()
    assert {row.id for row in await store.select(Command)} == {"cmd_00001", "cmd_00003", "cmd_00004"}
    assert ledger.dropped == 1


async def test_a_command_that_has_not_ended_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        Ledger(MemoryStore()).record(ended(1, CommandState.RUNNING))


async def test_outcomes_that_cannot_be_written_wait_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "PENDING_MAX", 3)
    monkeypatch.setattr(ledger_module, "RETRY_S", 0.001)
    store = BrokenStore()
    ledger = Ledger(store)
    ledger.start()
    for number in range(5):
        ledger.record(ended(number))
    await store.was_asked.wait()
    assert ledger.dropped == 2
    assert await ledger.find("cmd_00001") is None
    store.is_broken = False
    await ledger.stop()
    assert len(await store.select(Command)) == 3


class BrokenStore(MemoryStore):
    """Refuses until it is repaired."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = True
        self.was_asked = asyncio.Event()

    async def apply(self, *ops: Op) -> Outcome:
        self.was_asked.set()
        if self.is_broken:
            raise StoreUnavailable("full", cause="full")
        return await super().apply(*ops)
