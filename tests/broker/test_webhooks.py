"""Webhooks are delivered from disk at least once, retried with care, and never at another's expense."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from email.utils import formatdate

import msgspec
import pytest
import structlog
from tests.broker.outbox import PUBLIC, SECRET, Scene, body_of, ended_task, in_scene

from tabherd import __version__
from tabherd.broker import webhook_queue, webhooks
from tabherd.broker.webhook_send import Reply
from tabherd.core.lifecycle import DeliveryState
from tabherd.core.model import Task
from tabherd.store.base import Insert

# --- A delivery -------------------------------------------------------------------------------------------------


@in_scene()
async def test_the_end_of_a_task_is_posted_to_its_callback_url(scene: Scene) -> None:
    task = await scene.end_task(url="https://hooks.test/in?of=ada")
    await scene.settled()
    ((_, post),) = scene.sent
    assert post.target.authority == "hooks.test"
    assert post.target.path == "/in?of=ada"
    assert [str(address) for address in post.addresses] == [PUBLIC]
    assert post.body == body_of(task)
    assert post.headers["X-Tabherd-Task-ID"] == task.id
    assert post.headers["Content-Type"] == "application/json"
    assert post.headers["User-Agent"] == f"tabherd/{__version__}"


@pytest.mark.parametrize("event", ["task.done", "task.failed", "task.cancelled", "task.rejected"])
@in_scene()
async def test_the_receiver_hears_how_the_task_ended(scene: Scene, event: str) -> None:
    await scene.end_task(event=event)
    await scene.settled()
    assert scene.sent[0][1].headers["X-Tabherd-Event"] == event


@in_scene()
async def test_timestamp_and_body_are_signed_with_the_secret(scene: Scene) -> None:
    await scene.end_task()
    await scene.settled()
    ((at, post),) = scene.sent
    timestamp = post.headers["X-Tabherd-Timestamp"]
    assert timestamp == str(at // 1000)
    signed = hmac.new(SECRET, timestamp.encode() + b"." + post.body, hashlib.sha256).hexdigest()
    assert post.headers["X-Tabherd-Signature"] == f"sha256={signed}"


@in_scene()
async def test_nothing_is_sent_before_the_end_of_the_task_is_on_disk(scene: Scene) -> None:
    task = ended_task()
    delivery = scene.webhooks.delivery_for(task, "task.done", body_of(task))
    await asyncio.sleep(100)
    assert scene.sent == []
    await scene.store.apply(Insert(task), Insert(delivery))
    scene.webhooks.committed(delivery)
    await scene.settled()
    assert len(scene.sent) == 1


@in_scene()
async def test_a_delivery_that_is_announced_twice_is_sent_once(scene: Scene) -> None:
    await scene.end_task()
    scene.webhooks.committed(scene.row())
    await scene.settled()
    await asyncio.sleep(100)
    assert len(scene.sent) == 1


@in_scene()
async def test_a_delivery_that_is_over_is_not_made_again_when_it_is_announced_late(scene: Scene) -> None:
    await scene.end_task()
    await scene.settled()
    scene.webhooks.committed(scene.row())
    await asyncio.sleep(100)
    assert len(scene.sent) == 1


@in_scene()
async def test_a_delivery_begins_at_once(scene: Scene) -> None:
    await asyncio.sleep(webhooks.LOOK_AGAIN_MS / 1000 + 1)
    began = scene.loop.clock_ms()
    await scene.end_task()
    await scene.settled()
    assert scene.sent[0][0] - began < 10


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
@in_scene()
async def test_any_2xx_is_success(scene: Scene, status: int) -> None:
    scene.behaviour["hooks.test"] = status
    await scene.end_task()
    await scene.settled()
    view = await scene.view()
    assert (view.state, view.attempts, view.error, view.next_attempt_at) == ("delivered", 1, "", None)


@in_scene()
async def test_a_delivery_is_told_to_the_agent_and_counted(scene: Scene) -> None:
    with structlog.testing.capture_logs() as logs:
        await scene.end_task(url="https://hooks.test/in?token=geheim")
        await scene.settled()
    (event,) = scene.news()
    assert event.type == "webhook.delivered"
    assert event.fields == {"taskId": "tsk_1", "agentId": "ada", "host": "hooks.test", "attempts": 1}
    assert scene.count("delivered") == 1
    assert logs == [{"event": "webhook delivered", "log_level": "debug", **event.fields}]


# --- Failure ----------------------------------------------------------------------------------------------------


@in_scene()
async def test_a_receiver_that_fails_is_tried_five_times_and_then_given_up(scene: Scene) -> None:
    scene.behaviour["hooks.test"] = 500
    with structlog.testing.capture_logs() as logs:
        await scene.end_task()
        await scene.settled()
        await asyncio.sleep(100_000)
    assert len(scene.sent) == 5
    view = await scene.view()
    assert (view.state, view.attempts, view.next_attempt_at) == ("failed", 5, None)
    assert view.error == "It answered 500."
    assert (scene.count("retried"), scene.count("failed")) == (4, 1)
    (event,) = scene.news()
    assert (event.type, event.fields["reason"], event.fields["attempts"]) == ("webhook.failed", "It answered 500.", 5)
    again = [("info", "webhook is tried again", attempts) for attempts in range(1, 5)]
    said = [(line["log_level"], line["event"], line["attempts"]) for line in logs]
    assert said == [*again, ("warning", "webhook given up", 5)]
    assert {(line["taskId"], line["host"], line["error"]) for line in logs} == {
        ("tsk_1", "hooks.test", "It answered 500.")
    }


@in_scene()
async def test_pauses_double_and_are_spread(scene: Scene) -> None:
    scene.behaviour["hooks.test"] = "broken"
    await scene.end_task()
    await scene.settled()
    assert len(scene.pauses_ms) == 4
    for pause_ms, base_ms in zip(scene.pauses_ms, [1_000, 2_000, 4_000, 8_000], strict=True):
        assert base_ms / 2 <= pause_ms <= base_ms * 3 / 2 + 5
        assert abs(pause_ms - base_ms) > 5


@in_scene()
async def test_those_that_failed_together_are_not_tried_together(scene: Scene) -> None:
    scene.behaviour["hooks.test"] = "broken"
    for number in range(4):
        await scene.end_task(f"tsk_{number}")
    await scene.until(lambda: len(scene.sent) == 8)
    assert len({at for at, _ in scene.sent[4:]}) == 4


@in_scene(attempts_max=100)
async def test_pauses_do_not_grow_for_ever(scene: Scene) -> None:
    scene.behaviour["hooks.test"] = "broken"
    await scene.end_task()
    await scene.until(lambda: len(scene.sent) == 30, within_s=1_000_000)
    assert max(scene.pauses_ms) <= webhooks.RETRY_MAX_MS * 3 / 2 + 5


@in_scene()
async def test_between_attempts_the_view_says_why_and_when_next(scene: Scene) -> None:
    scene.behaviour["hooks.test"] = 503
    await scene.end_task()
    await scene.until(lambda: scene.row().attempts == 1)
    view = await scene.view()
    assert (view.state, view.attempts, view.error) == ("pending", 1, "It answered 503.")
    assert view.next_attempt_at is not None
    assert scene.row().due_at > scene.loop.clock_ms()


@in_scene()
async def test_a_receiver_that_recovers_hears_of_it(scene: Scene) -> None:
    scene.behaviour["hooks.test"] = 500
    await scene.end_task()
    await scene.until(lambda: scene.row().attempts == 2)
    scene.behaviour["hooks.test"] = 200
    await scene.settled()
    view = await scene.view()
    assert (view.state, view.attempts, view.error) == ("delivered", 3, "")


@in_scene()
async def test_the_task_is_not_touched_by_what_becomes_of_its_webhook(scene: Scene) -> None:
    scene.behaviour["hooks.test"] = 500
    task = await scene.end_task()
    await scene.settled()
    assert await scene.store.get(Task, task.id) == msgspec.structs.replace(task, version=1)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@in_scene(attempts_max=1)
async def test_redirects_are_not_followed(scene: Scene, status: int) -> None:
    scene.behaviour["hooks.test"] = status
    await scene.end_task()
    await scene.settled()
    assert (await scene.view()).error == f"It answered {status}; redirects are not followed."


@pytest.mark.parametrize(
    ("wish", "least_ms", "most_ms"),
    [
        ("60", 60_000, 60_100),
        ("1000000", webhooks.RETRY_AFTER_MAX_MS, webhooks.RETRY_AFTER_MAX_MS + 100),
        ("9" * 5_000, webhooks.RETRY_AFTER_MAX_MS, webhooks.RETRY_AFTER_MAX_MS + 100),
        ("0", 500, 1_600),
        ("-5", 500, 1_600),
        ("soon", 500, 1_600),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 500, 1_600),
        ("Thu, 01 Jan 9999999 00:00:00 GMT", 500, 1_600),
        ("Thu, 99999999999999 Feb 2000 00:00:00 GMT", 500, 1_600),
        (formatdate(1_000 + 120, usegmt=True), 119_000, 120_100),
        (formatdate(1_000 + 120), 119_000, 120_100),
    ],
)
@in_scene()
async def test_a_receivers_wish_to_wait_is_heard_within_bounds(
    scene: Scene, wish: str, least_ms: int, most_ms: int
) -> None:
    scene.behaviour["hooks.test"] = Reply(status=429, retry_after=wish)
    await scene.end_task()
    await scene.until(lambda: len(scene.sent) == 2)
    assert least_ms <= scene.pauses_ms[0] <= most_ms


# --- One at the expense of another ------------------------------------------------------------------------------


@in_scene()
async def test_a_slow_receiver_delays_only_itself(scene: Scene) -> None:
    scene.behaviour["slow.test"] = "hang"
    began = scene.loop.clock_ms()
    for number in range(200):
        await scene.end_task(f"tsk_s{number:03}", "https://slow.test/")
    for number in range(50):
        await scene.end_task(f"tsk_f{number:03}", "https://fast.test/")
    await scene.until(lambda: all(scene.row(f"tsk_f{n:03}").state is DeliveryState.DELIVERED for n in range(50)))
    assert scene.loop.clock_ms() - began < 1_000
    assert scene.peak["slow.test"] == 4


@in_scene(max_inflight=3, max_inflight_per_host=1)
async def test_no_more_than_the_limits_are_under_way(scene: Scene) -> None:
    for number in range(20):
        await scene.end_task(f"tsk_{number:02}", f"https://host{number % 5}.test/")
    await scene.settled()
    assert scene.peak[""] == 3
    assert max(scene.peak[f"host{number}.test"] for number in range(5)) == 1


@in_scene()
async def test_what_does_not_fit_into_memory_waits_on_disk_and_is_delivered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_queue, "HELD_MAX", 10)
    monkeypatch.setattr(webhook_queue, "HELD_PER_HOST_MAX", 4)
    monkeypatch.setattr(webhooks, "PAGE", 3)
    held: list[int] = []

    def look() -> bool:
        held.append(len(scene.webhooks._queue))
        return False

    scene.loop.watches.append(look)
    for number in range(100):
        await scene.end_task(f"tsk_{number:03}", f"https://host{number % 7}.test/")
    await scene.settled()
    assert len(scene.sent) == 100
    assert max(held) == 10


@in_scene()
async def test_the_backlog_of_one_host_does_not_take_the_places_of_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_queue, "HELD_MAX", 20)
    monkeypatch.setattr(webhook_queue, "HELD_PER_HOST_MAX", 5)
    scene.behaviour["slow.test"] = "hang"
    for number in range(100):
        await scene.end_task(f"tsk_{number:03}", "https://slow.test/")
    began = scene.loop.clock_ms()
    await scene.end_task("tsk_other", "https://fast.test/")
    await scene.until(lambda: scene.row("tsk_other").state is DeliveryState.DELIVERED)
    assert scene.loop.clock_ms() - began < 1_000
