"""Whoever wants to hear of the end of tasks in a simulated history, and what must hold of what it hears.

Invariants:
- the end of a task is told only when it is on disk, and as it is there, signed and with the headers that say so;
- every task that ended and has a callback is told of until the receiver took it, or as often as the settings say; a
  kill may cost an attempt, and never the last one;
- nothing is sent any more once it is on disk that the receiver has taken it, or that it was given up;
- no delivery is left waiting (at the end).
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

import msgspec

from tabherd.broker.broker import Broker
from tabherd.broker.task_rows import task_view
from tabherd.broker.webhook_send import Post, Reply, Unanswered
from tabherd.core.lifecycle import DELIVERY, DeliveryState, is_terminal
from tabherd.core.model import Delivery, Task
from tabherd.egress.policy import Address

from .fakes import Life
from .lives import VERB

if TYPE_CHECKING:
    from .world import World

RECEIVER = "receiver.test"
CALLBACK_URL = f"http://{RECEIVER}/ended"
# What brokers in a history sign with.
SECRET = b"secret"
# How often it refuses, and how often it never answers.
REFUSE_RATE = 0.25
SILENT_RATE = 0.1


class Receiver:
    """Hears of the ends of tasks, and judges what it hears."""

    def __init__(self, world: World) -> None:
        self._world = world
        # How often each was sent, and how often it was taken.
        self._sent: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()

    def listen(self, broker: Broker, life: Life) -> None:
        """This broker sends to it."""

        webhooks = broker.tasking.webhooks

        async def send(post: Post) -> Reply:
            for wrong in wrong_moment(post, webhooks._clock()):
                self._world.violate(wrong)
            return await self._hear(post, life)

        webhooks._resolve = resolve
        webhooks._send = send

    async def _hear(self, post: Post, life: Life) -> Reply:
        world, task_id = self._world, post.headers["X-Tabherd-Task-ID"]
        VERB.set("deliver webhook")
        await life.step(10.0)
        world.coverage.verbs["deliver webhook"] += 1
        self._sent[task_id] += 1
        world.tell(f"the receiver hears that {task_id} is {told_state(post)}")
        delivery = world.disk.rows(Delivery).get(task_id)
        for wrong in wrong_in(post, world.task_rules.ends.get(task_id)):
            world.violate(wrong)
        if delivery is None or is_terminal(DELIVERY, delivery.state):
            world.violate(f"{task_id} is told of although that is {delivery.state if delivery else 'not'} on disk")
        if self._sent[task_id] > world.config.webhooks.attempts_max + len(world.lives) + self._doubts:
            world.violate(f"{task_id} is told of {self._sent[task_id]} times")
        if life.strikes("receiver refuses", REFUSE_RATE):
            return Reply(status=503)
        if life.strikes("receiver is silent", SILENT_RATE):
            raise Unanswered("It did not answer in time.")
        self._taken[task_id] += 1
        await life.step(10.0)
        return Reply(status=200)

    def left(self) -> Iterator[str]:
        """Of whose end nobody has heard."""
        pending = [row.id for row in self._world.disk.rows(Delivery).values() if row.state is DeliveryState.PENDING]
        if pending:
            yield f"deliveries wait for ever: {pending}"
        for task_id, end in self._world.task_rules.ends.items():
            is_given_up = self._sent[task_id] >= self._world.config.webhooks.attempts_max
            if end.callback_url and not self._taken[task_id] and not is_given_up:
                yield f"the end of {task_id} was never told, after {self._sent[task_id]} attempts"

    @property
    def _doubts(self) -> int:
        """Answers of the disk that were lost: each may hide that an attempt is written down."""
        return self._world.coverage.faults["answer of a write is lost"]


async def resolve(name: str) -> Sequence[Address]:
    """Where the receiver is."""
    return (IPv4Address("127.0.0.1"),)


def told_state(post: Post) -> str:
    """What the task has become, as the receiver is told."""
    return str(msgspec.json.decode(post.body)["state"])


def wrong_in(post: Post, end: Task | None) -> Iterator[str]:
    """What a receiver is told that is not so, of a task that has ended like that on disk, if it has."""
    headers, told = post.headers, told_state(post)
    task_id = headers["X-Tabherd-Task-ID"]
    if end is None:
        yield f"the receiver is told that {task_id} is {told} before that is on disk"
        return
    if end.state != told:
        yield f"the receiver is told that {task_id} is {told}, on disk it is {end.state}"
    if post.body != msgspec.json.encode(task_view(end, end.state)):
        yield f"the receiver is told of {task_id} what is not on disk: {post.body.decode()}"
    if headers["X-Tabherd-Event"] != f"task.{end.state}":
        yield f"the end of {task_id} is told as {headers['X-Tabherd-Event']}, it is {end.state}"
    signed = headers["X-Tabherd-Timestamp"].encode() + b"." + post.body
    if headers["X-Tabherd-Signature"] != f"sha256={hmac.new(SECRET, signed, hashlib.sha256).hexdigest()}":
        yield f"the end of {task_id} is told with a signature that is not right"


def wrong_moment(post: Post, now: int) -> Iterator[str]:
    """Whether an attempt that is made now, by the clock of whoever makes it, says another time."""
    timestamp = int(post.headers["X-Tabherd-Timestamp"])
    if timestamp != now // 1000:
        yield f"the end of {post.headers['X-Tabherd-Task-ID']} is told at {now} ms, and says {timestamp} s"
