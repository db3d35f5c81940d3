"""The event bus: numbered, complete or explicitly reset, and bounded however slow the listener."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabherd.broker import events as module
from tabherd.broker.events import EVENT_TYPES, Event, EventBus, EventId, Subscription
from tabherd.errors import QueueFull


def bus_of(ring: int = 16, epoch: int = 1) -> EventBus:
    return EventBus(epoch=epoch, ring=ring, clock=lambda: 1_700_000_000_123)


def publish(bus: EventBus, count: int, **fields: str) -> None:
    for _ in range(count):
        bus.publish("browser.ready", **fields)


def drain(subscription: Subscription) -> list[Event]:
    taken = []
    while (event := subscription.take()) is not None:
        taken.append(event)
    return taken


def test_events_are_numbered_without_holes_within_an_epoch() -> None:
    bus = bus_of(epoch=7)
    assert [str(bus.publish("browser.ready").id) for _ in range(3)] == ["7-1", "7-2", "7-3"]


def test_an_undeclared_type_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="undeclared"):
        bus_of().publish("session.exploded")


def test_a_reset_cannot_be_published() -> None:
    with pytest.raises(AssertionError):
        bus_of().publish("reset")


def test_every_declared_type_says_what_it_means() -> None:
    assert all(about.endswith(".") for about in EVENT_TYPES.values())


def test_an_event_travels_with_its_id_type_time_and_fields() -> None:
    event = bus_of().publish("session.opened", sessionId="ses_1", agentId="alice")
    assert event.to_wire() == {
        "id": "1-1",
        "type": "session.opened",
        "at": "2023-11-14T22:13:20.123Z",
        "sessionId": "ses_1",
        "agentId": "alice",
    }


def test_a_new_listener_hears_only_what_comes() -> None:
    bus = bus_of()
    publish(bus, 3)
    subscription = bus.subscribe()
    publish(bus, 2)
    assert [event.id.seq for event in drain(subscription)] == [4, 5]


def test_a_listener_resumes_without_a_gap() -> None:
    bus = bus_of()
    publish(bus, 10)
    assert [event.id.seq for event in drain(bus.subscribe(after=EventId(1, 4)))] == [5, 6, 7, 8, 9, 10]


def test_the_oldest_event_of_the_ring_can_still_be_resumed_from() -> None:
    bus = bus_of(ring=4)
    publish(bus, 10)
    assert [event.id.seq for event in drain(bus.subscribe(after=EventId(1, 6)))] == [7, 8, 9, 10]


@pytest.mark.parametrize("after", [EventId(1, 5), EventId(0, 9), EventId(2, 1), EventId(1, 11)])
def test_a_place_before_the_ring_or_of_another_life_is_answered_by_one_reset(after: EventId) -> None:
    bus = bus_of(ring=4)
    publish(bus, 10)
    subscription = bus.subscribe(after=after)
    assert [(event.type, event.id.seq) for event in drain(subscription)] == [("reset", 10)]
    publish(bus, 1)
    assert [event.id.seq for event in drain(subscription)] == [11]


def test_a_slow_listener_gets_a_reset_and_costs_no_memory() -> None:
    bus = bus_of(ring=4)
    subscription = bus.subscribe()
    publish(bus, 1_000)
    assert [event.type for event in drain(subscription)] == ["reset"]
    assert len(bus._ring) == 4


def test_a_reset_passes_every_filter() -> None:
    bus = bus_of(ring=4)
    subscription = bus.subscribe(types=["session.opened"], agent_id="alice", tab_id="tab_1")
    publish(bus, 10)
    assert [event.type for event in drain(subscription)] == ["reset"]


def test_filters_apply_together() -> None:
    bus = bus_of()
    subscription = bus.subscribe(types=["tab.rebuilt"], agent_id="alice", tab_id="tab_1")
    bus.publish("tab.rebuilt", agentId="alice", tabId="tab_2")
    bus.publish("tab.rebuilt", agentId="bob", tabId="tab_1")
    bus.publish("tab.quarantined", agentId="alice", tabId="tab_1")
    wanted = bus.publish("tab.rebuilt", agentId="alice", tabId="tab_1")
    assert drain(subscription) == [wanted]


def test_one_task_can_be_followed() -> None:
    bus = bus_of()
    subscription = bus.subscribe(task_id="tsk_1")
    bus.publish("task.queued", taskId="tsk_2")
    bus.publish("tab.rebuilt", tabId="tsk_1")
    wanted = [bus.publish("task.queued", taskId="tsk_1"), bus.publish("webhook.delivered", taskId="tsk_1")]
    assert drain(subscription) == wanted


def test_an_empty_set_of_types_matches_nothing() -> None:
    bus = bus_of()
    subscription = bus.subscribe(types=[])
    publish(bus, 3)
    assert drain(subscription) == []


async def test_a_waiting_listener_is_woken_by_the_next_event() -> None:
    bus = bus_of()
    subscription = bus.subscribe()
    waiting = asyncio.create_task(anext(subscription))
    await asyncio.sleep(0)
    published = bus.publish("browser.ready")
    assert await waiting == published


async def test_a_listener_that_stops_waiting_is_forgotten() -> None:
    bus = bus_of()
    waiting = asyncio.create_task(anext(bus.subscribe()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert bus._waiting == []


async def test_publishing_starts_no_task() -> None:
    bus = bus_of()
    with bus.subscribe():
        before = asyncio.all_tasks()
        publish(bus, 100)
        assert asyncio.all_tasks() == before


async def test_a_long_scan_without_a_match_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCAN_MAX", 5)
    bus = bus_of(ring=100)
    subscription = bus.subscribe(types=["session.opened"])
    publish(bus, 50)
    wanted = bus.publish("session.opened")
    assert subscription.take() is None
    assert await anext(subscription) == wanted


async def test_closing_the_bus_ends_listeners_after_what_is_left() -> None:
    bus = bus_of()
    subscription = bus.subscribe()
    publish(bus, 2)
    waiting = asyncio.create_task(anext(bus.subscribe()))
    await asyncio.sleep(0)
    bus.close()
    assert [event.id.seq async for event in subscription] == [1, 2]
    with pytest.raises(StopAsyncIteration):
        await waiting


def test_listeners_are_bounded_and_leaving_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SUBSCRIBERS_MAX", 2)
    bus = bus_of()
    first = bus.subscribe()
    bus.subscribe()
    with pytest.raises(QueueFull):
        bus.subscribe()
    first.close()
    first.close()
    bus.subscribe()
    with pytest.raises(QueueFull):
        bus.subscribe()


@pytest.mark.parametrize("text", ["", "-", "1", "1-", "-1", "a-b", "1-2-3", "1--2", "1- 2", "²-1", "1-" + "9" * 50])
def test_an_id_that_is_none_of_ours_is_not_parsed(text: str) -> None:
    assert EventId.parse(text) is None


@settings(deadline=None)
@given(
    ring=st.integers(1, 8),
    moves=st.lists(st.sampled_from(["publish", "take", "resume"]), max_size=60),
)
def test_whatever_happens_there_is_never_a_silent_gap(ring: int, moves: list[str]) -> None:
    bus = bus_of(ring=ring)
    subscription = bus.subscribe()
    last_seen = 0
    for move in moves:
        match move:
            case "publish":
                bus.publish("browser.ready")
            case "resume":
                subscription = bus.subscribe(after=subscription.position)
            case "take" if (event := subscription.take()) is not None:
                assert event.type == "reset" or event.id.seq == last_seen + 1
                last_seen = event.id.seq
    for event in drain(subscription):
        assert event.type == "reset" or event.id.seq == last_seen + 1
        last_seen = event.id.seq
    assert last_seen == bus.last_id.seq
