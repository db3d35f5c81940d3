"""How long many queues are, kept so that a sum over all of them costs as little as over one.

Answers in O(log longest): how many items would be taken if each queue gave up to n. Queues are anonymous; whoever owns
one says how its length changes.
"""

from __future__ import annotations


class Lengths:
    """The lengths of all queues that are not empty."""

    __slots__ = ("_counts", "_size", "_sums")

    def __init__(self) -> None:
        # Two Fenwick trees over the lengths 1.._size: how many queues are that long, and their lengths added up.
        self._size = 64
        self._counts = [0] * (self._size + 1)
        self._sums = [0] * (self._size + 1)

    def move(self, old: int, new: int) -> None:
        """A queue's length has changed; 0: there is none."""
        if new > self._size:
            self._grow(new)
        if old:
            self._add(old, -1)
        if new:
            self._add(new, 1)

    def sum_up_to(self, most: int) -> int:
        """The items of all queues if each gave at most that many."""
        shorter_count, shorter_sum = self._read(min(most, self._size))
        count, _ = self._read(self._size)
        return shorter_sum + (count - shorter_count) * most

    def _add(self, length: int, delta: int) -> None:
        at = length
        while at <= self._size:
            self._counts[at] += delta
            self._sums[at] += delta * length
            at += at & -at

    def _read(self, length: int) -> tuple[int, int]:
        """How many queues are at most that long, and their lengths added up."""
        count = total = 0
        while length:
            count += self._counts[length]
            total += self._sums[length]
            length -= length & -length
        return count, total

    def _grow(self, needed: int) -> None:
        known = [(length, self._at(length)) for length in range(1, self._size + 1)]
        while self._size < needed:
            self._size *= 2
        self._counts = [0] * (self._size + 1)
        self._sums = [0] * (self._size + 1)
        for length, count in known:
            if count:
                self._add(length, count)

    def _at(self, length: int) -> int:
        return self._read(length)[0] - self._read(length - 1)[0]
