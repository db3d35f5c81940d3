"""An outbox of webhooks outlives restarts and absences of the store, and goes only where it may by today's settings."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

import msgspec
import pytest
from tests.broker.outbox import PUBLIC, SECRET, Scene, body_of, ended_task, in_scene, settings_of

from tabherd import errors
from tabherd.broker import webhooks
from tabherd.broker.webhook_send import Reply
from tabherd.core.lifecycle import DeliveryState
from tabherd.core.model import ArchivedTask, Delivery, Task
from tabherd.store.base import Delete, Insert

# --- Lives ------------------------------------------------------------------------------------------------------


@in_scene()
async def test_what_an_earlier_life_left_is_delivered_with_the_attempts_it_has_left(scene: Scene) -> None:
    scene.behaviour["hooks.test"] = 500
    await scene.end_task()
    await scene.until(lambda: scene.row().attempts == 3)
    await scene.webhooks.stop()
    scene.begin()
    await scene.webhooks.start()
    await scene.settled()
    assert len(scene.sent) == 5
    assert scene.row().attempts == 5


@in_scene()
async def test_a_restart_does_not_shorten_a_pause(scene: Scene) -> None:
    scene.behaviour["hooks.test"] = Reply(status=503, retry_after="200")
    await scene.end_task()
    await scene.until(lambda: scene.row().attempts == 1)
    await scene.webhooks.stop()
    scene.begin()
    await scene.webhooks.start()
    await scene.until(lambda: len(scene.sent) == 2)
    assert scene.pauses_ms[0] >= 200_000


@in_scene(limit_ms=60_000)
async def test_a_stop_does_not_wait_for_a_receiver_that_hangs(scene: Scene) -> None:
    scene.behaviour["hooks.test"] = "hang"
    await scene.end_task()
    await scene.until(lambda: len(scene.sent) == 1)
    began = scene.loop.clock_ms()
    await scene.webhooks.stop()
    assert scene.loop.clock_ms() - began <= webhooks.STOP_LIMIT_S * 1000 + 1
    assert (scene.row().state, scene.row().attempts) == (DeliveryState.PENDING, 0)


@in_scene()
async def test_an_attempt_under_way_is_written_down_before_the_stop(scene: Scene) -> None:
    await scene.end_task()
    await scene.until(lambda: len(scene.sent) == 1)
    await scene.webhooks.stop()
    assert scene.row().state is DeliveryState.DELIVERED


@in_scene()
async def test_after_a_stop_nothing_begins(scene: Scene) -> None:
    await scene.webhooks.stop()
    await scene.end_task()
    await asyncio.sleep(1_000)
    assert scene.sent == []
    assert scene.row().state is DeliveryState.PENDING


@in_scene()
async def test_deliveries_of_another_node_are_left_to_it(scene: Scene) -> None:
    task = ended_task()
    delivery = scene.webhooks.delivery_for(task, "task.done", body_of(task))
    await scene.store.apply(Insert(task), Insert(msgspec.structs.replace(delivery, node_id="nod_2")))
    await scene.webhooks.stop()
    scene.begin()
    await scene.webhooks.start()
    await asyncio.sleep(1_000)
    assert scene.sent == []


# --- A store that is away ---------------------------------------------------------------------------------------


@in_scene()
async def test_an_attempt_that_cannot_be_written_down_is_not_followed_by_another(scene: Scene) -> None:
    scene.behaviour["hooks.test"] = 500
    await scene.end_task()
    await scene.until(lambda: len(scene.sent) == 1)
    scene.store.is_full = True
    await asyncio.sleep(1_000)
    assert len(scene.sent) == 1
    scene.store.is_full = False
    await scene.until(lambda: scene.row().attempts == 1)
    await scene.settled()
    assert len(scene.sent) == 5


@in_scene()
async def test_a_delivery_is_written_down_when_the_store_is_back_and_not_made_again(scene: Scene) -> None:
    await scene.end_task()
    await scene.until(lambda: len(scene.sent) == 1)
    scene.store.is_away = True
    await asyncio.sleep(100)
    scene.store.is_away = False
    await scene.settled()
    assert (len(scene.sent), scene.row().state) == (1, DeliveryState.DELIVERED)


@in_scene()
async def test_nothing_is_sent_that_cannot_be_read(scene: Scene) -> None:
    delivery = await scene.end_task()
    scene.store.is_away = True
    await asyncio.sleep(100)
    assert scene.sent == []
    scene.store.is_away = False
    await scene.settled()
    assert (await scene.view(delivery.id)).state == "delivered"


# --- Where it goes ----------------------------------------------------------------------------------------------


@in_scene()
async def test_a_name_that_leads_to_a_private_address_is_never_called(scene: Scene) -> None:
    scene.names["hooks.test"] = [["10.1.2.3"]]
    await scene.end_task()
    await scene.settled()
    assert scene.sent == []
    view = await scene.view()
    assert (view.state, view.attempts) == ("failed", 5)
    assert "not a public address" in view.error


@in_scene()
async def test_a_name_that_changes_its_answer_is_judged_anew_at_each_attempt(scene: Scene) -> None:
    scene.behaviour["hooks.test"] = 500
    scene.names["hooks.test"] = [[PUBLIC], ["127.0.0.1"], [PUBLIC], ["::1", "169.254.169.254"]]
    await scene.end_task()
    await scene.settled()
    assert len(scene.looked_up) == 5
    assert [[str(each) for each in post.addresses] for _, post in scene.sent] == [[PUBLIC], [PUBLIC]]


@in_scene()
async def test_of_several_addresses_only_those_that_may_be_called_are_used(scene: Scene) -> None:
    scene.names["hooks.test"] = [["127.0.0.1", "::ffff:10.0.0.1", PUBLIC, "fe80::1", "2a00:1450::1"]]
    await scene.end_task()
    await scene.settled()
    assert [str(each) for each in scene.sent[0][1].addresses] == [PUBLIC, "2a00:1450::1"]


@in_scene(attempts_max=1)
async def test_a_name_that_nobody_knows_is_a_failed_attempt(scene: Scene) -> None:
    scene.names["hooks.test"] = [["unknown"]]
    await scene.end_task()
    await scene.settled()
    assert (await scene.view()).error == "Nobody knows where its host is."


@in_scene(attempts_max=1, limit_ms=7_000)
async def test_a_name_server_that_does_not_answer_counts_towards_the_limit(scene: Scene) -> None:
    scene.names["hooks.test"] = [["hang"]]
    began = scene.loop.clock_ms()
    await scene.end_task()
    await scene.settled()
    assert scene.loop.clock_ms() - began <= 7_100
    assert (await scene.view()).error == "Nobody said in time where its host is."


@in_scene(limit_ms=7_000)
async def test_the_time_of_the_lookup_is_no_longer_there_for_the_answer(scene: Scene) -> None:
    await scene.end_task()
    await scene.settled()
    assert 6.9 < scene.sent[0][1].limit_s < 7.0


@in_scene(allow_hosts=["10.0.0.0/8"])
async def test_a_literal_address_needs_no_lookup(scene: Scene) -> None:
    await scene.end_task(url="http://10.1.2.3:8080/in")
    await scene.settled()
    assert scene.looked_up == []
    assert [str(each) for each in scene.sent[0][1].addresses] == ["10.1.2.3"]


# --- Settings and forgetting ------------------------------------------------------------------------------------


@in_scene(attempts_max=1)
async def test_other_hosts_are_allowed_from_the_next_attempt_on(scene: Scene) -> None:
    with pytest.raises(errors.PolicyDenied):
        scene.webhooks.check("http://10.1.2.3/in")
    scene.webhooks.reconfigure(settings_of(allow_hosts=["10.1.2.3"]))
    scene.webhooks.check("http://10.1.2.3/in")
    await scene.end_task(url="http://10.1.2.3/in")
    await scene.settled()
    assert scene.row().state is DeliveryState.DELIVERED


@pytest.mark.parametrize(("secret", "signs"), [("another", b"another"), ("", SECRET)])
@in_scene()
async def test_another_secret_signs_from_then_on_and_none_changes_nothing(
    scene: Scene, secret: str, signs: bytes
) -> None:
    scene.webhooks.reconfigure(settings_of(secret=secret))
    await scene.end_task()
    await scene.settled()
    post = scene.sent[0][1]
    signed = hmac.new(signs, post.headers["X-Tabherd-Timestamp"].encode() + b"." + post.body, hashlib.sha256)
    assert post.headers["X-Tabherd-Signature"] == f"sha256={signed.hexdigest()}"


@in_scene(max_inflight_per_host=1)
async def test_a_raised_limit_is_used_at_once(scene: Scene) -> None:
    scene.behaviour["hooks.test"] = "hang"
    for number in range(6):
        await scene.end_task(f"tsk_{number}")
    await scene.until(lambda: len(scene.sent) == 1)
    scene.webhooks.reconfigure(settings_of(max_inflight_per_host=3))
    await scene.until(lambda: len(scene.sent) == 3, within_s=1)
    assert scene.peak["hooks.test"] == 3


@in_scene()
async def test_a_task_without_a_callback_has_no_view(scene: Scene) -> None:
    assert await scene.webhooks.view("tsk_1") is None


@in_scene()
async def test_a_delivery_that_is_over_keeps_no_body(scene: Scene) -> None:
    await scene.end_task()
    await scene.settled()
    assert scene.row().body == ""


@in_scene()
async def test_deliveries_that_are_over_are_forgotten_with_their_tasks_and_others_are_kept(scene: Scene) -> None:
    await scene.end_task("tsk_over")
    await scene.settled()
    scene.behaviour["hooks.test"] = Reply(status=503, retry_after="100")
    await scene.end_task("tsk_pending")
    await scene.until(lambda: scene.row("tsk_pending").attempts == 1)
    over = scene.row("tsk_over")
    ops = await scene.webhooks.forget(["tsk_over", "tsk_pending", "tsk_unknown"])
    assert ops == (Delete(Delivery, "tsk_over", over.version),)


@pytest.mark.parametrize("status", [200, 500])
@in_scene()
async def test_a_delivery_whose_task_was_forgotten_meanwhile_leaves_nothing_behind(scene: Scene, status: int) -> None:
    scene.behaviour["hooks.test"] = status
    task = await scene.end_task()
    await scene.store.apply(Delete(Task, task.id, 1))
    await scene.until(lambda: not scene.store.rows(Delivery))
    await asyncio.sleep(1)
    assert [event.type for event in scene.news()] == ["webhook.delivered" if status == 200 else "webhook.failed"]


@in_scene()
async def test_a_delivery_whose_task_is_in_the_archive_can_still_be_seen(scene: Scene) -> None:
    task = await scene.end_task()
    archived = ArchivedTask(**msgspec.structs.asdict(task))
    await scene.store.apply(Delete(Task, task.id, 1), Insert(archived))
    await scene.settled()
    assert (await scene.view()).state == "delivered"
