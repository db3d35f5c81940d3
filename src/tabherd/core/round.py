"""Whose turn it is: members one behind the other, each of which wants some things, and the first that can have one.

What a member wants is a set of bits, and so is what there is to have. Members come at the end; where somebody left, the
place stays empty until all are numbered anew. Over the places lies a binary tree in which each node has what anybody
below it wants: so the first who wants any of the things that are there is found in O(log members), however many want
only things that are not. A wish goes up only as far as it is news; one that is gone stays in the nodes above until a
search is misled by it, which happens once for many who left, because searches pass where others have just left.

Invariants: places ascend in the order in which members were seated; a leaf is what its member wants, and a node has at
least what its two children have.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from .ordered import Ordered

# So many places are made for each member, and at least so many: numbering anew is rare, and costs little for each turn.
PLACES_PER_MEMBER = 8
PLACES_MIN = 64


class Seat:
    """What a member is to the round."""

    __slots__ = ("place", "serial")

    def __init__(self) -> None:
        # Both are set by the round, and lower goes first. Places may change all at once; a serial stays.
        self.place = -1
        self.serial = -1


Member = TypeVar("Member", bound=Seat)


class Round(Generic[Member]):
    """Members in the order of their turns."""

    __slots__ = ("_members", "_next", "_seated", "_size", "_tree", "_wanting")

    def __init__(self) -> None:
        # A power of two: that many places there are.
        self._size = PLACES_MIN
        # By place; None where nobody sits.
        self._members: list[Member | None] = [None] * self._size
        # Node 1 is the root, the children of n are 2n and 2n + 1, the leaves begin at _size.
        self._tree = [0] * (2 * self._size)
        # The next place that nobody had.
        self._next = 0
        # How often anybody was seated.
        self._seated = 0
        # The places of those who want something.
        self._wanting = Ordered()

    def seat(self, member: Member) -> None:
        """Behind all others; it wants nothing yet."""
        if self._next == self._size:
            self._number_anew()
        self._seated += 1
        member.place, member.serial = self._next, self._seated
        self._members[self._next] = member
        self._next += 1

    def leave(self, member: Member) -> None:
        """It wants nothing any more, and has no place."""
        self.want(member, 0)
        self._members[member.place] = None
        member.place = -1

    def want(self, member: Member, bits: int) -> None:
        """It wants these from now on, and nothing else."""
        tree, at = self._tree, self._size + member.place
        before = tree[at]
        if before == bits:
            return
        if not before:
            self._wanting.add(member.place)
        elif not bits:
            self._wanting.remove(member.place)
        tree[at] = bits
        at >>= 1
        while at:
            union = tree[at] | bits
            if union == tree[at]:
                return
            tree[at] = union
            at >>= 1

    def first(self, bits: int) -> Member | None:
        """Who comes first of those who want any of these."""
        tree, size, at = self._tree, self._size, 1
        if not tree[1] & bits:
            return None
        if self._wanting.count and tree[size + self._wanting.first] & bits:
            # The very first of all can have what it wants more often than not.
            return self._members[self._wanting.first]
        while at < size:
            at *= 2
            if not tree[at] & bits:
                at += 1
                if not tree[at] & bits:
                    # Who wanted it has left, or wants it no more: put right, and look again from above.
                    at >>= 1
                    tree[at] = tree[2 * at] | tree[2 * at + 1]
                    if at == 1:
                        return None
                    at >>= 1
        return self._members[at - size]

    def ahead(self, member: Member) -> int:
        """How many who want something come before it."""
        return self._wanting.index(member.place)

    def _number_anew(self) -> None:
        wants = self._tree[self._size :]
        seated = [(member, wants[place]) for place, member in enumerate(self._members) if member is not None]
        while self._size < PLACES_PER_MEMBER * len(seated):
            self._size *= 2
        while self._size > max(PLACES_MIN, 2 * PLACES_PER_MEMBER * len(seated)):
            self._size //= 2
        self._members = [None] * self._size
        self._tree = tree = [0] * (2 * self._size)
        self._wanting = Ordered()
        self._next = len(seated)
        for place, (member, bits) in enumerate(seated):
            member.place = place
            self._members[place] = member
            tree[self._size + place] = bits
            if bits:
                self._wanting.add(place)
        low, high = self._size, self._size + len(seated)
        while low > 1:
            low, high = low // 2, high // 2
            for at in range(low, high + 1):
                tree[at] = tree[2 * at] | tree[2 * at + 1]
