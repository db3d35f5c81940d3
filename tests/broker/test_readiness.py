"""Whether a node admits sessions: the pools that could, and a store that takes writes.

The store is asked once for all who want to know it at once, and no more often.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.house import ADMIN, House, in_house

from tabherd.broker import readiness
from tabherd.broker.readiness import Readiness
from tabherd.errors import Draining, InvalidRequest, NoBrowser, StoreUnavailable
from tabherd.store.base import Op, Outcome
from tabherd.store.memory import MemoryStore


class Disk(MemoryStore):
    """A store whose writes can be refused or held up."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.cause = ""
        self.lets_through = asyncio.Event()
        self.lets_through.set()

    async def apply(self, *ops: Op) -> Outcome:
        self.writes += 1
        await self.lets_through.wait()
        if self.cause:
            raise StoreUnavailable("The store /secret/place cannot be used.", cause=self.cause, path="/secret/place")
        return await super().apply(*ops)


@pytest.fixture
def always_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "FRESH_S", 0.0)


async def refusal(asked: Readiness) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as refused:
        await asked.refuse_unwritable()
    return refused.value


@pytest.mark.usefixtures("always_anew")
async def test_a_store_that_takes_no_writes_is_told_until_it_does() -> None:
    disk = Disk()
    asked = Readiness(disk)
    await asked.refuse_unwritable()
    disk.cause = "read_only"
    for _ in range(2):
        error = await refusal(asked)
        assert error.details == {"cause": "read_only"}
        # Strangers may ask.
        assert "/secret/place" not in error.message
    disk.cause = ""
    await asked.refuse_unwritable()


async def test_one_write_answers_all_who_ask_within_a_moment() -> None:
    disk = Disk()
    asked = Readiness(disk)
    disk.lets_through.clear()
    waiting = [asyncio.create_task(asked.refuse_unwritable()) for _ in range(100)]
    await asyncio.sleep(0)
    # One that leaves takes nobody else's answer away.
    waiting.pop(0).cancel()
    disk.lets_through.set()
    await asyncio.gather(*waiting)
    await asked.refuse_unwritable()
    assert disk.writes == 1


async def test_a_store_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "LIMIT_S", 0.01)
    disk = Disk()
    asked = Readiness(disk)
    disk.lets_through.clear()
    for _ in range(3):
        assert (await refusal(asked)).details == {"cause": "slow"}
    assert disk.writes == 1
    monkeypatch.setattr(readiness, "LIMIT_S", 60.0)
    disk.lets_through.set()
    await asked.refuse_unwritable()


# --- The pools --------------------------------------------------------------------------------------------------

SPARE = {"spare": {"browsers_min": 0, "browsers_max": 1, "warm": 0}}


@in_house(pools=SPARE)
async def test_a_pool_that_starts_a_browser_for_its_first_caller_is_ready_for_it(house: House) -> None:
    ready = house.broker.readiness
    assert await ready() == {"default": "ready", "spare": "idle"}
    assert await ready("spare") == {"spare": "idle"}
    opening = asyncio.ensure_future(house.open(pool="spare"))
    await house.until(lambda: house.broker._pools["spare"].slots)
    assert await ready("spare") == {"spare": "idle"}
    await opening
    assert await ready("spare") == {"spare": "ready"}
    with pytest.raises(InvalidRequest):
        await ready("none")


@in_house(pools=SPARE)
async def test_a_pool_whose_browsers_do_not_start_is_unready_and_takes_the_node_out_only_with_all_others(
    house: House,
) -> None:
    house.launcher._fail_rate = 1.0
    next(iter(house.processes.values())).die("killed")
    await house.until(lambda: house.browsers[0].state == "broken")
    assert await house.broker.readiness() == {"default": "unready", "spare": "idle"}
    with pytest.raises(NoBrowser) as refused:
        await house.broker.readiness("default")
    # Nothing of why: strangers may ask.
    assert refused.value.details == {"pools": {"default": "unready"}}
    with pytest.raises(NoBrowser):
        await house.open(pool="spare")
    with pytest.raises(NoBrowser) as refused:
        await house.broker.readiness()
    assert refused.value.details == {"pools": {"default": "unready", "spare": "unready"}}


@in_house(pools=SPARE)
async def test_a_node_that_starts_or_drains_is_not_ready_whatever_its_pools_are(house: House) -> None:
    house.operations.drain(ADMIN)
    with pytest.raises(Draining):
        await house.broker.readiness()
    await house.broker.stop()
    house._begin()
    with pytest.raises(NoBrowser):
        await house.broker.readiness()
    await house.broker.start()
    assert await house.broker.readiness("spare") == {"spare": "idle"}
