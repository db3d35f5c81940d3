"""The tasks of one agent that wait, by lane, and the best of those whose lanes are free.

A lane is a bit here, so a set of lanes is one number. Looking for the best passes over lanes that are busy: such a lane
is parked, and comes up again when it is free, so it costs nothing while it stays busy, however many of them there are.

Invariant: of every lane in which tasks wait, either the heap has a rank that is not above its best one, or the lane is
parked with such a rank set aside. So what is stale never comes up late, and is put right when it comes up.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TypeAlias

from .ordered import Ordered
from .round import Seat

# Lower goes first; no two tasks have the same.
Rank: TypeAlias = int

# Stale heads are swept out when there are this many more than live ones.
SLACK = 64


class AgentTasks(Seat):
    """What one agent has."""

    __slots__ = ("_aside", "_heads", "_parked", "_stalls", "id", "in_flight", "lanes", "ranks")

    def __init__(self, id: str) -> None:
        super().__init__()
        self.id = id
        self.in_flight = 0
        # The ranks of all its waiting tasks, and the bits of the lanes in which they wait.
        self.ranks = Ordered()
        self.lanes = 0
        # The ranks of those in each lane, by its bit.
        self._stalls: dict[int, Ordered] = {}
        # A heap of the best task of each lane that is not parked, as rank and bit.
        self._heads: list[tuple[Rank, int]] = []
        # Lanes that were busy when they came up, or when it came to wait there, and what comes up for them again.
        self._parked = 0
        self._aside: dict[int, Rank] = {}

    def add(self, rank: Rank, bit: int, *, is_free: bool) -> None:
        """A task waits in that lane, which is free or not just now."""
        self.ranks.add(rank)
        stall = self._stalls.get(bit)
        if stall is None:
            stall = self._stalls[bit] = Ordered()
            self.lanes |= bit
            if not is_free:
                self._parked |= bit
        stall.add(rank)
        if stall.first == rank:
            self._offer(rank, bit)

    def remove(self, rank: Rank, bit: int) -> None:
        """A task waits there no more."""
        self.ranks.remove(rank)
        stall = self._stalls[bit]
        stall.remove(rank)
        if not stall.count:
            del self._stalls[bit]
            self.lanes ^= bit

    def best(self, free: int) -> Rank:
        """Of those in these lanes; there must be one."""
        ready, heads = self.lanes & free, self._heads
        if not ready & (ready - 1):
            return self._stalls[ready].first
        back = self._parked & ready
        self._parked ^= back
        while back:
            bit = back & -back
            back ^= bit
            heappush(heads, (self._aside.pop(bit), bit))
        while True:
            rank, bit = heads[0]
            if not ready & bit:
                heappop(heads)
                if bit & self.lanes & ~self._parked:
                    self._parked |= bit
                    self._aside[bit] = rank
                continue
            first = self._stalls[bit].first
            if rank == first:
                return rank
            if rank < first:
                # The one that was best has left.
                heapreplace(heads, (first, bit))
            else:
                # A better one is in the heap, too.
                heappop(heads)

    def before(self, rank: Rank, bit: int) -> tuple[int, int]:
        """How many of its tasks in that lane come before this one, and how many there are."""
        stall = self._stalls[bit]
        return stall.index(rank), stall.count

    def rank_anew(self, ranks: dict[Rank, int]) -> None:
        """The same tasks, with other ranks; by rank the bit of the lane."""
        self.ranks, self._stalls = Ordered(), {bit: Ordered() for bit in self._stalls}
        for rank, bit in ranks.items():
            self.ranks.add(rank)
            self._stalls[bit].add(rank)
        self._parked, self._aside = 0, {}
        self._sweep()

    def _offer(self, rank: Rank, bit: int) -> None:
        """The best of a lane is another one, and a better one."""
        if self._parked & bit:
            self._aside[bit] = rank
            return
        heappush(self._heads, (rank, bit))
        if len(self._heads) > 2 * len(self._stalls) + SLACK:
            self._sweep()

    def _sweep(self) -> None:
        self._heads = [(stall.first, bit) for bit, stall in self._stalls.items() if not self._parked & bit]
        heapify(self._heads)
