"""Which webhook is delivered next: each when it is due, receivers in turn, so that a slow one delays only itself.

Pure: moments come in, ids of tasks go out. What is to be sent stays on disk until its turn has come.

Invariants:
- A delivery is held once, and given out to one at a time.
- No more than `max_inflight` are out at once, and no more than `max_inflight_per_host` to one host; hosts that have
  some due and a free place get turns in a circle.
- Memory is bounded, in all and for each host, so that a host that does not keep up does not take the place of others.
  What does not fit stays on disk, and `wants_more` says when there is room to read on.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final

# Deliveries that are known in memory, in all and to one host.
HELD_MAX: Final = 50_000
HELD_PER_HOST_MAX: Final = 5_000


class _Receiver:
    """A host and what is held for it."""

    __slots__ = ("due", "held", "inflight", "is_behind", "is_in_turn")

    def __init__(self) -> None:
        # Whose time has come, in that order.
        self.due: deque[str] = deque()
        self.inflight = 0
        # Due, not due yet and under way.
        self.held = 0
        # Whether it is in the circle.
        self.is_in_turn = False
        # Whether more of it are on disk than are held.
        self.is_behind = False


class WebhookQueue:
    """The deliveries of one node that are not over."""

    def __init__(self, *, max_inflight: int, max_inflight_per_host: int) -> None:
        self._max_inflight = max_inflight
        self._max_inflight_per_host = max_inflight_per_host
        # The host of everything that is held, by task.
        self._hosts: dict[str, str] = {}
        # Hosts for which something is held.
        self._receivers: dict[str, _Receiver] = {}
        # Receivers with something due, in the order of their turns.
        self._turns: deque[_Receiver] = deque()
        # What is not due yet, the earliest first: moment, a number that keeps equal ones in order, task.
        self._later: list[tuple[int, int, str]] = []
        self._order = 0
        self._inflight = 0
        # Whether some are only on disk because there was no room for any host.
        self._is_behind = False
        # Whether it is time to read from disk; true at first, as an earlier life may have left something.
        self.wants_more = True

    def __len__(self) -> int:
        return len(self._hosts)

    @property
    def is_full(self) -> bool:
        return len(self._hosts) >= HELD_MAX

    @property
    def next_due_at(self) -> int | None:
        """When the next one becomes due that is not due yet."""
        return self._later[0][0] if self._later else None

    def hold(self, task_id: str, host: str, due_at: int) -> None:
        """Remember a delivery, unless it is held already, or there is no room and it stays on disk."""
        if task_id in self._hosts:
            return
        receiver = self._receivers.get(host)
        if receiver is not None and receiver.held >= HELD_PER_HOST_MAX:
            receiver.is_behind = True
        elif self.is_full:
            self._is_behind = True
        else:
            if receiver is None:
                receiver = self._receivers[host] = _Receiver()
            receiver.held += 1
            self._hosts[task_id] = host
            self._wait(task_id, due_at)

    def take(self, now: int) -> str | None:
        """The task whose delivery is tried now; it counts as under way until `again` or `over`."""
        self._ripen(now)
        while self._turns and self._inflight < self._max_inflight:
            receiver = self._turns.popleft()
            receiver.is_in_turn = False
            if receiver.inflight >= self._max_inflight_per_host:
                # It gets another turn when one of those comes back.
                continue
            task_id = receiver.due.popleft()
            receiver.inflight += 1
            self._inflight += 1
            self._give_turn(receiver)
            return task_id
        return None

    def again(self, task_id: str, due_at: int) -> None:
        """It failed and is to be tried once more."""
        self._return(task_id)
        self._wait(task_id, due_at)

    def over(self, task_id: str) -> None:
        """It was delivered or given up."""
        receiver = self._return(task_id)
        host = self._hosts.pop(task_id)
        receiver.held -= 1
        if receiver.held == 0:
            del self._receivers[host]
        has_room = receiver.is_behind and receiver.held <= HELD_PER_HOST_MAX // 2
        if has_room or (self._is_behind and len(self._hosts) <= HELD_MAX // 2):
            self.wants_more = True

    def begin_reading(self) -> None:
        """From now on everything on disk is offered to `hold` once; what does not fit is noted anew."""
        self.wants_more = self._is_behind = False
        for receiver in self._receivers.values():
            receiver.is_behind = False

    def stop_reading(self) -> None:
        """There is more on disk than was offered."""
        self._is_behind = True

    def reconfigure(self, *, max_inflight: int, max_inflight_per_host: int) -> None:
        """Other limits; those under way are not affected."""
        self._max_inflight = max_inflight
        self._max_inflight_per_host = max_inflight_per_host
        for receiver in self._receivers.values():
            self._give_turn(receiver)

    def _return(self, task_id: str) -> _Receiver:
        receiver = self._receivers[self._hosts[task_id]]
        assert receiver.inflight > 0, "only what was taken comes back"
        receiver.inflight -= 1
        self._inflight -= 1
        self._give_turn(receiver)
        return receiver

    def _wait(self, task_id: str, due_at: int) -> None:
        self._order += 1
        heapq.heappush(self._later, (due_at, self._order, task_id))

    def _ripen(self, now: int) -> None:
        while self._later and self._later[0][0] <= now:
            _, _, task_id = heapq.heappop(self._later)
            receiver = self._receivers[self._hosts[task_id]]
            receiver.due.append(task_id)
            self._give_turn(receiver)

    def _give_turn(self, receiver: _Receiver) -> None:
        if receiver.due and not receiver.is_in_turn:
            receiver.is_in_turn = True
            self._turns.append(receiver)
