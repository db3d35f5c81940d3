"""Hints between the nodes of a simulated cluster: they come late, twice, in another order, or never.

As on PostgreSQL, whoever was cut off from the database has heard nothing, and looks at everything when it is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tabherd.cluster.hints import Hearer, Hearers

if TYPE_CHECKING:
    from .node import NodeLife
    from .world import World

# How often a hint is lost or comes twice, and how late it may be, now and then by much.
LOST_RATE = 0.15
TWICE_RATE = 0.1
LATE_S = 0.004
VERY_LATE_RATE = 0.1
VERY_LATE_S = 1.5


class Hearsay:
    """Implements `Hints` for one life of a node."""

    def __init__(self, world: World, life: NodeLife) -> None:
        self._world = world
        self._life = life
        self.hearers = Hearers()

    def tell(self, topic: str, text: str = "") -> None:
        world, chance = self._world, self._world.pace
        if not self._life.line.is_open:
            return
        for other in world.lives:
            if other is self._life or other.is_over:
                continue
            for _ in range(2 if chance.random() < TWICE_RATE else 1):
                if chance.random() >= LOST_RATE:
                    late_s = VERY_LATE_S if chance.random() < VERY_LATE_RATE else LATE_S
                    other.process.call_later(chance.random() * late_s, other.hints.hear, topic, text)

    def listen(self, topic: str, hearer: Hearer) -> None:
        self.hearers.add(topic, hearer)

    def hear(self, topic: str, text: str) -> None:
        if self._life.line.is_open and not self._life.is_over:
            self.hearers.hear(topic, text)

    def reconnected(self) -> None:
        """Nobody knows what was missed."""
        if not self._life.is_over:
            self.hearers.hear_all()
