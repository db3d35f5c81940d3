"""Messages that wait for a held tab: in order, bounded, and on their way as soon as the hold is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tabherd.core.gate import Gate, GateLimits, Ticket
from tabherd.edge.cdp.parking import PARKED_MAX, PARKED_MAX_BYTES, Parking

PAGE = "T1"


class Tabs:
    """A registry that knows the gates of pages, and nothing else."""

    def __init__(self, *pages: str) -> None:
        limits = GateLimits(tickets_per_tab=20, tickets_per_controller=100)
        self.tabs = {page: SimpleNamespace(gate=Gate(limits)) for page in pages}

    def on_target(self, target_id: str) -> Any:
        return self.tabs.get(target_id)

    def gate(self, page: str = PAGE) -> Gate:
        gate: Gate = self.tabs[page].gate
        return gate


@pytest.fixture
def tabs() -> Tabs:
    return Tabs(PAGE, "T2")


@pytest.fixture
def parking(tabs: Tabs) -> Parking:
    return Parking(tabs, "me")  # type: ignore[arg-type]


@pytest.fixture
def gone() -> list[object]:
    """What has gone on, in order."""
    return []


async def settled() -> None:
    """Until what was to happen soon has happened."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def noting(gone: list[object], what: object) -> Callable[[], None]:
    return lambda: gone.append(what)


async def test_nothing_waits_for_a_free_tab(parking: Parking) -> None:
    assert not parking.is_waiting(PAGE)
    assert not parking.is_waiting("no tab")


async def test_what_waits_goes_on_in_order_when_the_hold_is_over(
    parking: Parking, tabs: Tabs, gone: list[object]
) -> None:
    tabs.gate().pause("a person", 0)
    for number in range(5):
        assert parking.is_waiting(PAGE)
        assert parking.put(PAGE, 1, noting(gone, number))
    await settled()
    assert gone == []
    tabs.gate().resume(1)
    await settled()
    assert gone == [0, 1, 2, 3, 4]
    assert not parking.is_waiting(PAGE)


async def test_a_newcomer_does_not_overtake_those_who_wait(parking: Parking, tabs: Tabs, gone: list[object]) -> None:
    tabs.gate().pause("a person", 0)
    parking.put(PAGE, 1, noting(gone, "first"))
    tabs.gate().resume(1)
    # The hold is over, but the first has not gone on yet.
    assert parking.hold_on(PAGE) is None
    assert parking.is_waiting(PAGE)


async def test_one_that_brings_the_next_hold_about_is_the_last_to_go(
    parking: Parking, tabs: Tabs, gone: list[object]
) -> None:
    tabs.gate().pause("a person", 0)
    parking.put(PAGE, 1, lambda: tabs.gate().pause("another", 2))
    parking.put(PAGE, 1, noting(gone, "late"))
    tabs.gate().resume(1)
    await settled()
    assert gone == []
    tabs.gate().resume(3)
    await settled()
    assert gone == ["late"]


async def test_other_pages_are_not_held_up(parking: Parking, tabs: Tabs, gone: list[object]) -> None:
    for page in (PAGE, "T2"):
        tabs.gate(page).pause("a person", 0)
        parking.put(page, 1, noting(gone, page))
    tabs.gate("T2").resume(1)
    await settled()
    assert gone == ["T2"]


@pytest.mark.parametrize(("controller_id", "is_held_up"), [("me", False), ("somebody", True)])
async def test_ones_own_lock_and_command_are_no_hold(
    controller_id: str, is_held_up: bool, parking: Parking, tabs: Tabs
) -> None:
    for page, lease_ms in ((PAGE, None), ("T2", 1_000)):
        ticket = Ticket(id="1", controller_id=controller_id, agent_id="ada", label="x", entered_at=0, deadline_at=1_000)
        if lease_ms is None:
            tabs.gate(page).enter(ticket, now=0, may_wait=False, controller_tickets=0)
        else:
            tabs.gate(page).lock(ticket, lease_ms=lease_ms, now=0, may_wait=False, controller_tickets=0)
        assert parking.is_waiting(page) is is_held_up


async def test_only_so_many_wait(parking: Parking, tabs: Tabs, gone: list[object]) -> None:
    tabs.gate().pause("a person", 0)
    assert all(parking.put(PAGE, 1, noting(gone, number)) for number in range(PARKED_MAX))
    assert not parking.put(PAGE, 1, noting(gone, "too much"))
    tabs.gate().resume(1)
    await settled()
    assert gone == list(range(PARKED_MAX))


async def test_only_so_many_bytes_wait(parking: Parking, tabs: Tabs, gone: list[object]) -> None:
    tabs.gate().pause("a person", 0)
    assert parking.put(PAGE, PARKED_MAX_BYTES, noting(gone, "large"))
    assert not parking.put(PAGE, 1, noting(gone, "too much"))
    tabs.gate().resume(1)
    await settled()
    tabs.gate().pause("a person", 2)
    assert parking.put(PAGE, PARKED_MAX_BYTES, noting(gone, "large again"))


async def test_what_waits_for_a_page_that_is_replaced_goes_to_its_end(
    parking: Parking, tabs: Tabs, gone: list[object]
) -> None:
    gate = tabs.gate()
    gate.quarantine(0)
    parking.put(PAGE, 1, noting(gone, "old"))
    tabs.tabs["T3"] = tabs.tabs.pop(PAGE)
    gate.lift(1)
    await settled()
    assert gone == ["old"]


async def test_after_the_close_nothing_goes_on(parking: Parking, tabs: Tabs, gone: list[object]) -> None:
    tabs.gate().pause("a person", 0)
    parking.put(PAGE, 1, noting(gone, "late"))
    tabs.gate().resume(1)
    parking.close()
    await settled()
    assert gone == []


async def test_the_gate_is_watched_only_while_something_waits(parking: Parking, tabs: Tabs, gone: list[object]) -> None:
    tabs.gate().pause("a person", 0)
    parking.put(PAGE, 1, noting(gone, "one"))
    assert tabs.gate()._watchers
    tabs.gate().resume(1)
    await settled()
    assert not tabs.gate()._watchers
