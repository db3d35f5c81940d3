"""What has a place in the rows of a diagram while it is laid out: states, labels of moves, and bends."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Literal


@dataclass(eq=False, slots=True)
class Item:
    """One of them; compared and looked up by identity, because two labels may well be alike."""

    kind: Literal["state", "label", "bend"]
    text: str
    row: int
    # How far it reaches to the left and to the right of the line on which its arrows meet it.
    left: float
    right: float
    # Where that line is.
    x: float = 0.0
    # What it is joined to in the row above, and in the row below.
    above: list[Item] = field(default_factory=list)
    below: list[Item] = field(default_factory=list)


Rows = list[list[Item]]


def join(chain: list[Item]) -> None:
    """Tie the items of one move together, from the top down."""
    for upper, lower in itertools.pairwise(chain):
        upper.below.append(lower)
        lower.above.append(upper)


def places(rows: Rows) -> dict[Item, int]:
    """Where in its row each item stands."""
    return {item: at for row in rows for at, item in enumerate(row)}
