"""What must hold of webhooks in a simulated cluster; what must of a single call is `tests.sim.webhook_rules`'s.

Invariants (checked at every write of a delivery or of a task's end, at every call, and when one arrives):
- that somebody is to be told is written in the transaction of the task's end, and with no other;
- what is told is the end that is on disk, after it is, signed and with the headers that say so;
- a call is made by the node that has the delivery, when it is due; only of one that others have ended may a call follow
  that it had begun;
- each attempt is written down before there is another: a node's end costs one attempt that nobody counts, for each life
  that ended in the middle of one, and nothing else makes them more than the settings say;
- it is delivered if the receiver said so to whoever writes that down, and is given up after the last attempt only;
- a delivery is taken only from a node that is over, as it is; what is over stays over; what becomes of a delivery is
  never written together with a task.
At the end: every task that has ended and names a callback was told of or given up, whoever died meanwhile; nothing
waits on disk or in any node's memory, and no delivery is kept longer than its task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from tests.sim.webhook_rules import wrong_in, wrong_moment

from tabherd.broker.webhook_send import Post, Reply
from tabherd.core.lifecycle import DELIVERY, TASK, DeliveryState, NodeState, is_terminal
from tabherd.core.model import ArchivedTask, Delivery, Node, Row, Task, changed

if TYPE_CHECKING:
    from .node import NodeLife
    from .world import World

# By how much the clocks of two nodes may differ, if the database is fast.
CLOCKS_MS = 150


class Attempt(msgspec.Struct):
    """A call that is not written down yet."""

    # When it began; whether its caller has heard that it was taken, and how long it was asked to wait.
    at: int
    is_taken: bool = False
    wished_ms: int = 0


class WebhookRules:
    """The judge of webhooks."""

    def __init__(self, world: World) -> None:
        self._world = world
        # How often the end of each task was sent.
        self._sent: Counter[str] = Counter()
        # By task: the attempts that are not written down, by whose they are.
        self._open: dict[str, dict[NodeLife, Attempt]] = {}
        # When nobody said in time whom to call, by whose attempts these were.
        self._unfound: dict[NodeLife, list[int]] = {}
        # Deliveries that are over.
        self._over: set[str] = set()

    # --- Calls ----------------------------------------------------------------------------------------------

    def calls(self, life: NodeLife, post: Post) -> None:
        """A node makes a call."""
        world, task_id, node_id = self._world, post.headers["X-Tabherd-Task-ID"], life.node.id
        world.tell(f"{node_id} tells of {task_id}")
        for wrong in wrong_moment(post, life.clock()):
            world.violate(wrong)
        unwritten = self._open.setdefault(task_id, {})
        if life in unwritten:
            world.violate(f"{node_id} tells of {task_id} again before it is written down that it did")
        # Nobody writes those down any more.
        lost = sum(other.is_over or other.is_shut_out for other in unwritten)
        if life.is_shut_out:
            self._check_late(life, task_id)
            lost += 1
        else:
            self._check_call(life, task_id)
            if lost < len(unwritten):
                world.violate(f"{node_id} tells of {task_id} while another node does")
        unwritten[life] = Attempt(world.loop.clock_ms())
        self._sent[task_id] += 1
        most = world.config.webhooks.attempts_max + lost
        if self._sent[task_id] > most:
            world.violate(f"{task_id} is told of {self._sent[task_id]} times, and may be {most} times")

    def found_nobody(self, life: NodeLife) -> None:
        """An attempt of the node ended before there was a call."""
        self._unfound.setdefault(life, []).append(self._world.loop.clock_ms())

    def heard(self, life: NodeLife, post: Post, reply: Reply) -> None:
        """Whoever called has an answer."""
        attempt = self._open[post.headers["X-Tabherd-Task-ID"]].get(life)
        if attempt is not None:
            attempt.is_taken = 200 <= reply.status < 300
            attempt.wished_ms = int(reply.retry_after or 0) * 1000

    def arrived(self, post: Post) -> None:
        """A call reaches the receiver."""
        for wrong in wrong_in(post, self._world.task_rules.ends.get(post.headers["X-Tabherd-Task-ID"])):
            # Noted only: whoever called may be gone.
            self._world.note_violation(wrong)

    def _check_call(self, life: NodeLife, task_id: str) -> None:
        world, row = self._world, self._world.database.row(Delivery, task_id)
        if row is None or is_terminal(DELIVERY, row.state):
            world.violate(f"{task_id} is told of although that is {row.state if row else 'not'} on disk")
        if row.node_id != life.node.id:
            world.violate(f"{life.node.id} tells of {task_id}, which {row.node_id} is to tell of")
        early_ms = row.due_at - world.loop.clock_ms()
        if early_ms > self._unsure_ms:
            world.violate(f"{task_id} is told of {early_ms} ms before it is due")

    def _check_late(self, life: NodeLife, task_id: str) -> None:
        """One that others have ended may not know yet; one that has left knows."""
        node = self._world.database.row(Node, life.node.id)
        if node is not None and node.epoch == life.node.epoch and node.state is NodeState.LEFT:
            self._world.violate(f"{life.node.id} tells of {task_id} after it has left")

    @property
    def _unsure_ms(self) -> float:
        """By how much clocks may differ that were set by a database as slow as this one was."""
        return CLOCKS_MS + 1000 * self._world.database.slowest_s

    # --- Rows -----------------------------------------------------------------------------------------------

    def wrote(
        self, before: Mapping[tuple[type[Row], str], Row | None], rows: Sequence[Row], writer: NodeLife | None
    ) -> None:
        """Rows have landed together."""
        world = self._world
        if world.is_violated:
            return
        tasks = {row.id: row for row in rows if type(row) is Task}
        deliveries = {row.id: row for row in rows if isinstance(row, Delivery)}
        for task in tasks.values():
            old = before[Task, task.id]
            has_ended = is_terminal(TASK, task.state) and not (isinstance(old, Task) and is_terminal(TASK, old.state))
            if has_ended and task.callback_url and task.id not in deliveries:
                world.violate(f"{task.id} ends, and it is not written that somebody is to be told")
        for row in deliveries.values():
            standing = before[Delivery, row.id]
            if standing is None:
                if row.id not in tasks or not is_terminal(TASK, tasks[row.id].state):
                    world.violate(f"it is written that somebody is to be told of {row.id}, but not its end")
                continue
            assert isinstance(standing, Delivery)
            if tasks:
                world.violate(f"what became of the delivery of {row.id} is written together with {sorted(tasks)}")
            self._check_change(standing, row, writer)

    def removed(self, gone: Delivery, writer: NodeLife | None) -> None:
        """A delivery is forgotten: with its task, or when it is over and the task has gone before."""
        world = self._world
        if world.is_violated:
            return
        if self._is_known(gone.id):
            world.violate(f"the delivery of {gone.id} is forgotten, and its task is not")
        if not is_terminal(DELIVERY, gone.state):
            attempt = self._written_down(gone, writer)
            if not attempt.is_taken and gone.attempts + 1 < world.config.webhooks.attempts_max:
                world.violate(f"the delivery of {gone.id} is forgotten after {gone.attempts + 1} attempts")
            self._over.add(gone.id)

    def _check_change(self, old: Delivery, new: Delivery, writer: NodeLife | None) -> None:
        world = self._world
        if is_terminal(DELIVERY, old.state):
            world.violate(f"the delivery of {new.id} was {old.state} and is {new.state}")
        if old.node_id != new.node_id:
            self._check_taken_on(old, new)
            return
        attempt = self._written_down(old, writer)
        if new.attempts != old.attempts + 1:
            world.violate(f"attempt {old.attempts + 1} to tell of {new.id} is written down as {new.attempts}")
        if attempt.is_taken != (new.state is DeliveryState.DELIVERED):
            answer = "took it" if attempt.is_taken else "did not say that it took it"
            world.violate(f"the delivery of {new.id} is {new.state}, and the receiver {answer}")
        attempts_max = world.config.webhooks.attempts_max
        if not attempt.is_taken and (new.state is DeliveryState.FAILED) != (new.attempts >= attempts_max):
            world.violate(f"the delivery of {new.id} is {new.state} after {new.attempts} of {attempts_max} attempts")
        if is_terminal(DELIVERY, new.state):
            self._over.add(new.id)
        else:
            self._check_pause(new, attempt)

    def _check_taken_on(self, old: Delivery, new: Delivery) -> None:
        world = self._world
        node = world.database.row(Node, old.node_id)
        if node is not None and node.state is NodeState.UP:
            world.violate(f"the delivery of {new.id} is taken from {old.node_id}, which lives")
        if new != changed(old, node_id=new.node_id, version=new.version):
            world.violate(f"the delivery of {new.id} is not what it was when {new.node_id} takes it on")
        world.tell(f"the delivery of {new.id} moves from {old.node_id} to {new.node_id}")

    def _check_pause(self, row: Delivery, attempt: Attempt) -> None:
        """Doubled with each attempt; from half to one and a half times as long, or what the receiver asked for."""
        world, unsure_ms = self._world, self._unsure_ms
        pause_ms = world.config.webhooks.retry_ms << (row.attempts - 1)
        earliest = attempt.at + max(pause_ms * 0.5, attempt.wished_ms) - unsure_ms
        latest = world.loop.clock_ms() + max(pause_ms * 1.5, attempt.wished_ms) + unsure_ms
        if not earliest <= row.due_at <= latest:
            world.violate(f"{row.id} is told of again after {row.due_at - attempt.at} ms, for attempt {row.attempts}")

    def _written_down(self, row: Delivery, writer: NodeLife | None) -> Attempt:
        """The attempt that is counted from now on."""
        world = self._world
        attempt = self._open.get(row.id, {}).pop(writer, None) if writer is not None else None
        if attempt is None and writer is not None and self._unfound.get(writer):
            return Attempt(self._unfound[writer].pop(0))
        if attempt is None:
            name = writer.node.id if writer is not None else "nobody"
            world.violate(f"{name} writes down that it told of {row.id}, and has not")
        return attempt

    def _is_known(self, task_id: str) -> bool:
        database = self._world.database
        return database.row(Task, task_id) is not None or database.row(ArchivedTask, task_id) is not None

    def pending_of(self, node_id: str) -> list[str]:
        """What that node is to tell."""
        rows = self._world.database.rows(Delivery).values()
        return [row.id for row in rows if row.node_id == node_id and not is_terminal(DELIVERY, row.state)]

    # --- At the end -----------------------------------------------------------------------------------------

    def left(self) -> Iterator[str]:
        world = self._world
        rows = world.database.rows(Delivery).values()
        if pending := [row.id for row in rows if not is_terminal(DELIVERY, row.state)]:
            yield f"deliveries wait for ever: {pending}"
        if orphans := [row.id for row in rows if not self._is_known(row.id)]:
            yield f"deliveries are kept of tasks that nobody knows: {orphans}"
        for task_id, end in world.task_rules.ends.items():
            if end.callback_url and task_id not in self._over:
                yield f"the end of {task_id} was never told, after {self._sent[task_id]} attempts"
        for machine in world.machines.values():
            if machine.current is not None and (held := len(machine.current.broker.tasking.webhooks._queue)):
                yield f"{machine.node_id} has {held} deliveries in mind that are over"
