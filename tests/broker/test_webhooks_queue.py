"""Each delivery is given out once, when it is due, in turns between hosts and within the limits."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tabherd.broker import webhook_queue
from tabherd.broker.webhook_queue import WebhookQueue


def queue_of(max_inflight: int = 10, max_inflight_per_host: int = 10) -> WebhookQueue:
    queue = WebhookQueue(max_inflight=max_inflight, max_inflight_per_host=max_inflight_per_host)
    queue.begin_reading()
    return queue


def take_all(queue: WebhookQueue, now: int = 0) -> list[str]:
    taken = []
    while (task_id := queue.take(now)) is not None:
        taken.append(task_id)
    return taken


def test_hosts_get_turns() -> None:
    queue = queue_of()
    for task_id in ("a1", "a2", "a3", "b1", "c1", "c2"):
        queue.hold(task_id, task_id[0], 0)
    assert take_all(queue) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_what_is_not_due_waits_for_its_moment() -> None:
    queue = queue_of()
    queue.hold("late", "a", 200)
    queue.hold("early", "a", 100)
    assert (take_all(queue, 99), queue.next_due_at) == ([], 100)
    assert (take_all(queue, 100), queue.next_due_at) == (["early"], 200)
    assert (take_all(queue, 200), queue.next_due_at) == (["late"], None)


def test_one_that_failed_waits_again_and_the_next_gets_its_place() -> None:
    queue = queue_of(max_inflight_per_host=1)
    queue.hold("a1", "a", 0)
    queue.hold("a2", "a", 0)
    assert take_all(queue) == ["a1"]
    queue.again("a1", 50)
    assert take_all(queue) == ["a2"]
    queue.over("a2")
    assert take_all(queue, 50) == ["a1"]


def test_a_lowered_limit_holds_for_those_that_have_a_turn_already() -> None:
    queue = queue_of(max_inflight_per_host=3)
    for number in range(5):
        queue.hold(f"a{number}", "a", 0)
    assert [queue.take(0), queue.take(0)] == ["a0", "a1"]
    queue.reconfigure(max_inflight=10, max_inflight_per_host=1)
    assert take_all(queue) == []
    queue.over("a0")
    assert take_all(queue) == []
    queue.over("a1")
    assert take_all(queue) == ["a2"]


def test_a_host_for_which_nothing_is_held_is_forgotten() -> None:
    queue = queue_of()
    queue.hold("a1", "a", 0)
    queue.over(queue.take(0) or "")
    assert queue._receivers == {}


def test_more_is_wanted_at_the_start_and_not_again_while_everything_is_held() -> None:
    queue = WebhookQueue(max_inflight=1, max_inflight_per_host=1)
    assert queue.wants_more
    queue.begin_reading()
    queue.hold("a1", "a", 0)
    queue.over(queue.take(0) or "")
    assert not queue.wants_more


def test_more_is_wanted_when_half_of_what_a_host_may_hold_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_queue, "HELD_PER_HOST_MAX", 4)
    queue = queue_of()
    for number in range(5):
        queue.hold(f"a{number}", "a", 0)
    assert len(queue) == 4
    wanted = []
    for task_id in take_all(queue):
        queue.over(task_id)
        wanted.append(queue.wants_more)
    assert wanted == [False, True, True, True]


def test_more_is_wanted_when_half_of_all_places_are_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_queue, "HELD_MAX", 4)
    queue = queue_of()
    for number in range(5):
        queue.hold(f"a{number}", f"host{number}", 0)
    assert queue.is_full
    wanted = []
    for task_id in take_all(queue):
        queue.over(task_id)
        wanted.append(queue.wants_more)
    assert wanted == [False, True, True, True]


def test_reading_that_was_broken_off_is_wanted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_queue, "HELD_MAX", 1)
    queue = queue_of()
    queue.hold("a1", "a", 0)
    queue.stop_reading()
    queue.over(queue.take(0) or "")
    assert queue.wants_more


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_limits_hold_and_everything_comes_to_its_end(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Random(seed)
    monkeypatch.setattr(webhook_queue, "HELD_MAX", chance.randint(1, 12))
    monkeypatch.setattr(webhook_queue, "HELD_PER_HOST_MAX", chance.randint(1, 6))
    queue = WebhookQueue(
        max_inflight=(most := chance.randint(1, 6)), max_inflight_per_host=(each := chance.randint(1, 3))
    )
    # What is on disk: the moment it is due, by task.
    disk: dict[str, int] = {}
    out: list[str] = []
    now = made = 0

    def host_of(task_id: str) -> str:
        return str(int(task_id) % 5)

    while made < 200 or disk:
        now += 1
        if made < 200:
            task_id = str(made)
            made += 1
            disk[task_id] = now + chance.choice((0, 0, 5))
            queue.hold(task_id, host_of(task_id), disk[task_id])
        if queue.wants_more:
            queue.begin_reading()
            for task_id, due_at in disk.items():
                queue.hold(task_id, host_of(task_id), due_at)
        while (taken := queue.take(now)) is not None:
            assert disk[taken] <= now
            assert taken not in out
            out.append(taken)
        assert len(out) <= most
        assert max(Counter(map(host_of, out)).values(), default=0) <= each
        assert len(queue) <= webhook_queue.HELD_MAX
        if out:
            ended = out.pop(chance.randrange(len(out)))
            if chance.random() < 0.3:
                disk[ended] = now + chance.randint(1, 9)
                queue.again(ended, disk[ended])
            else:
                del disk[ended]
                queue.over(ended)
        assert now < 20_000, f"seed {seed}: something is never given out"
    assert len(queue) == 0
