"""How long many queues are, kept so that a sum over all of them costs as little as over one.

Answers in O(log longest): how many items would be taken if each queue gave up to n. Queues are anonymous; whoever owns
one says when it has grown or shrunk by an item.
"""

from __future__ import annotations


class Lengths:
    """The lengths of all queues that are not empty."""

    __slots__ = ("_size", "_tree")

    def __init__(self) -> None:
        # A Fenwick tree over 1.._size, a power of two. At n: how many queues have at least n items, which is how many
        # give an n-th one.
        self._size = 64
        self._tree = [0] * (self._size + 1)

    def grown(self, length: int) -> None:
        """A queue has this many items, one more than before."""
        while length > self._size:
            self._double()
        self._add(length, 1)

    def shrunk(self, length: int) -> None:
        """A queue has this many items, one fewer than before."""
        self._add(length + 1, -1)

    def sum_up_to(self, most: int) -> int:
        """The items of all queues if each gave at most that many."""
        at, total, tree = min(most, self._size), 0, self._tree
        while at > 0:
            total += tree[at]
            at &= at - 1
        return total

    def at(self, number: int) -> int:
        """How many queues have an item of this number, from 1."""
        if number > self._size:
            return 0
        # Of the sum up to it, what is not in the sum up to the one before: the paths meet soon.
        tree, count, below = self._tree, self._tree[number], number - 1
        end = number & below
        while below != end:
            count -= tree[below]
            below &= below - 1
        return count

    def _add(self, at: int, delta: int) -> None:
        tree, size = self._tree, self._size
        while at <= size:
            tree[at] += delta
            at += at & -at

    def _double(self) -> None:
        # Nothing is in the new half; only its last node covers the old one.
        self._tree += [0] * self._size
        self._tree[-1] = self._tree[self._size]
        self._size *= 2
