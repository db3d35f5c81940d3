"""Gives the items of ordered rows their positions: in order, apart from each other, and arrows as straight as may be.

Every item wants to be where its arrows run straight. Neighbours whose wishes collide move together, to where both are
content with it most. Then what is left of small swings is taken out: a move over several rows is one straight line
wherever there is a free lane for it, and arrows meet their box below or above where they come from.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from diagram_items import Item, Rows, places

# Between neighbours of one row.
APART = 16.0
# The least of that, for a line that would else have to swing.
APART_MIN = 9.0
# Between the ends of arrows along one side of a box, and from its corners.
PORT_APART = 14.0
PORT_INSET = 13.0
# Bounds on the search; more rounds change nothing for machines of this size.
SETTLINGS_MAX = 40
STRAIGHTENINGS_MAX = 6

# Where along its side an arrow from one item to another meets the first, from its middle.
Ports = dict[tuple[Item, Item], float]


def settle(rows: Rows) -> None:
    """Move items to where their arrows are straight, as near as the order and the room between them allow."""
    ports = even_ports(rows)
    for row in rows:
        x = 0.0
        for item in row:
            item.x = x + item.left
            x += item.left + item.right + APART
    for settling in range(SETTLINGS_MAX):
        for row in rows if settling % 2 == 0 else reversed(rows):
            wishes, weights = [], []
            for item in row:
                pulls = [
                    (other.x + ports[other, item] - ports[item, other], _pull(item, other))
                    for other in (*item.above, *item.below)
                ]
                weight = sum(pull for _, pull in pulls)
                wishes.append(sum(x * pull for x, pull in pulls) / weight if pulls else item.x)
                weights.append(weight or 0.01)
            gaps = [one.right + APART + other.left for one, other in itertools.pairwise(row)]
            for item, x in zip(row, _apart(wishes, weights, gaps), strict=True):
                item.x = x


def straighten(rows: Rows, chains: Iterable[Sequence[Item]]) -> Ports:
    """Take small swings out of moves, without moving a state; answers with where arrows meet their boxes."""
    order = places(rows)
    ports = even_ports(rows)
    for _ in range(STRAIGHTENINGS_MAX):
        for chain in chains:
            run: list[Item] = []
            low, high = float("-inf"), float("inf")
            for item in chain[1:-1]:
                least, most = _room(item, rows[item.row], order[item])
                if run and max(low, least) > min(high, most):
                    _align(run, chain, low, high, ports)
                    run, low, high = [], float("-inf"), float("inf")
                run.append(item)
                low, high = max(low, least), min(high, most)
            _align(run, chain, low, high, ports)
        ports = _nearest_ports(rows)
    return ports


def bentness(rows: Rows) -> float:
    """How far all arrows swing aside; less is nicer."""
    ports = even_ports(rows)
    return sum(
        abs(item.x + ports[item, end] - end.x - ports[end, item]) * _pull(item, end)
        for row in rows
        for item in row
        for end in item.below
    )


def even_ports(rows: Rows) -> Ports:
    """Arrows at equal distances along the sides of boxes, in the order of where they come from."""
    order = places(rows)
    ports: Ports = {}
    for item in order:
        for side in (item.above, item.below):
            for at, end in enumerate(sorted(side, key=order.__getitem__)):
                ports[item, end] = (at - (len(side) - 1) / 2) * PORT_APART if item.kind == "state" else 0.0
    return ports


def _nearest_ports(rows: Rows) -> Ports:
    """Arrows where they come from, as far as that is above or below the box and they stay apart."""
    order = places(rows)
    ports: Ports = {}
    for item in order:
        for side in (item.above, item.below):
            ends = sorted(side, key=order.__getitem__)
            if item.kind != "state":
                ports.update({(item, end): 0.0 for end in ends})
                continue
            wishes = [end.x - item.x for end in ends]
            spots = _apart(wishes, [1.0] * len(ends), [PORT_APART] * (len(ends) - 1))
            for at, (end, spot) in enumerate(zip(ends, spots, strict=True)):
                least = PORT_INSET - item.left + at * PORT_APART
                most = item.left - PORT_INSET - (len(ends) - 1 - at) * PORT_APART
                ports[item, end] = min(max(spot, least), most)
    return ports


def _pull(one: Item, other: Item) -> float:
    """How much a bent arrow between the two disturbs: most of all where it only passes by."""
    return {0: 1.0, 1: 2.0, 2: 6.0}[sum(item.kind != "state" for item in (one, other))]


def _apart(wishes: Sequence[float], weights: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """The positions nearest to the wishes that keep their order and the gaps: those that collide move as one."""
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    groups: list[tuple[float, float, int]] = []
    for wish, weight, offset in zip(wishes, weights, offsets, strict=False):
        middle, total, size = wish - offset, weight, 1
        while groups and groups[-1][0] > middle:
            before = groups.pop()
            middle = (before[0] * before[1] + middle * total) / (before[1] + total)
            total, size = total + before[1], size + before[2]
        groups.append((middle, total, size))
    settled = [middle for middle, _, size in groups for _ in range(size)]
    return [middle + offset for middle, offset in zip(settled, offsets, strict=False)]


def _room(item: Item, row: Sequence[Item], at: int) -> tuple[float, float]:
    """How far an item could move to the left and to the right among its neighbours."""
    least = row[at - 1].x + row[at - 1].right + APART_MIN + item.left if at else float("-inf")
    most = row[at + 1].x - row[at + 1].left - APART_MIN - item.right if at + 1 < len(row) else float("inf")
    return least, most


def _align(
    run: Sequence[Item], chain: Sequence[Item], low: float, high: float, ports: Mapping[tuple[Item, Item], float]
) -> None:
    """Put a run of items below each other, where that bends the whole move least; or leave them as they are."""
    ends = (chain[0].x + ports[chain[0], chain[1]], chain[-1].x + ports[chain[-1], chain[-2]])

    def bend(spots: Sequence[float]) -> tuple[float, float]:
        for item, spot in zip(run, spots, strict=True):
            item.x = spot
        way = [ends[0], *(item.x for item in chain[1:-1]), ends[1]]
        swings = [abs(one - other) for one, other in itertools.pairwise(way)]
        # Few swings first, then short ones: two that are small look worse than one that is not.
        return round(sum(min(swing, APART) for swing in swings), 3), round(sum(swings), 3)

    tries = [[item.x for item in run]]
    tries += [[min(max(spot, low), high)] * len(run) for spot in (*tries[0], *ends)]
    bend(min(tries, key=bend))
