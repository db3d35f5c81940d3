"""Finds the order of items within their rows that has the fewest crossings, and of those the straightest.

Rows are ordered by the middle of what their items hang on, from the top down and from the bottom up, and then
neighbours are swapped where that helps; from many starting points, since each finds only the best order near it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from diagram_items import Item, Rows, places
from diagram_position import bentness, settle

# Bounds on the search; more tries change nothing for machines of this size.
TRIES_MAX = 24
SWEEPS_MAX = 12


def order(rows: Rows) -> None:
    """Order each row in place; the same rows are always ordered the same way."""
    # Chance that is the same each time: it only finds starting points.
    chance = random.Random(0)
    best: tuple[tuple[int, float], Rows] | None = None
    for attempt in range(TRIES_MAX):
        trial = [list(row) for row in rows]
        if attempt:
            for row in trial:
                chance.shuffle(row)
        for sweep in range(SWEEPS_MAX):
            _sweep(trial, is_down=sweep % 2 == 0)
        _swap(trial)
        crossings = _crossings(trial)
        if best is None or crossings <= best[0][0]:
            settle(trial)
            worth = (crossings, round(bentness(trial), 3))
            if best is None or worth < best[0]:
                best = worth, trial
    assert best is not None
    rows[:] = best[1]


def _sweep(rows: Rows, *, is_down: bool) -> None:
    """Order each row by the middle of what its items hang on in the row before."""
    place = places(rows)

    def middle(item: Item) -> tuple[float, int]:
        ends = item.above if is_down else item.below
        return (sum(place[end] for end in ends) / len(ends) if ends else place[item], place[item])

    for row in rows[1:] if is_down else rows[-2::-1]:
        row.sort(key=middle)
        place.update({item: at for at, item in enumerate(row)})


def _swap(rows: Rows) -> None:
    """Swap neighbours as long as that saves a crossing."""
    place = places(rows)
    is_better = True
    while is_better:
        is_better = False
        for row in rows:
            for at in range(len(row) - 1):
                one, other = row[at], row[at + 1]
                if _crossed(one, other, place) > _crossed(other, one, place):
                    row[at], row[at + 1] = other, one
                    place[other], place[one] = at, at + 1
                    is_better = True


def _crossed(one: Item, other: Item, place: Mapping[Item, int]) -> int:
    """How many arrows of two neighbours cross if they stand in this order."""
    return sum(
        place[end] > place[far]
        for ends, others in ((one.above, other.above), (one.below, other.below))
        for end in ends
        for far in others
    )


def _crossings(rows: Rows) -> int:
    total = 0
    place = places(rows)
    for row in rows:
        seen: list[int] = []
        for item in row:
            ends = [place[end] for end in item.below]
            total += sum(1 for end in ends for other in seen if other > end)
            seen.extend(ends)
    return total
