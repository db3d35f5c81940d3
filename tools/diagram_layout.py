"""Places the boxes, labels and arrows of a state machine in layers from the top down, so that none lies on another.

States have rows of their own, and so have the labels of moves: between two rows of states there is one of labels. A
move over several rows has a bend in each row that it passes, which keeps its place free like a box does. So boxes,
labels and bends of one row need only be apart from their neighbours, and an arrow, which runs straight through rows
and swings aside only between them, never runs over a box or a label. The same machine is always placed the same way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from diagram_items import Item, Rows, join
from diagram_order import order
from diagram_position import PORT_APART, PORT_INSET, Ports, settle, straighten

BOX_HEIGHT = 34
LABEL_HEIGHT = 18
# Of the monospaced faces that browsers use, the widest; in pixels, for 13 px and 12 px of height.
BOX_CHARACTER = 8.0
LABEL_CHARACTER = 7.4
# Between two rows: an arrow that swings far aside gets more room to do so.
SWING_MIN = 18
SWING_MAX = 44
# Room on all sides, and above it for the dots from which states begin.
MARGIN = 10
START_ROOM = 26
# The loop of a move that leads back to its own state, beside the box.
LOOP_WIDTH = 26


@dataclass(frozen=True, slots=True)
class Machine:
    """States in the order in which life goes through them, and moves: from, to, names of the events."""

    states: tuple[str, ...]
    moves: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Rect:
    """A box or a label: its text and where it is; x and y are those of its middle."""

    text: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Arrow:
    """One move: its label, and pieces from point to point in the direction of the move."""

    label: Rect
    pieces: tuple[tuple[float, float, float, float], ...]
    # It leads up, to a state that comes earlier in life.
    is_return: bool


@dataclass(frozen=True, slots=True)
class Loop:
    """A move that changes nothing: it leaves its box at the right side, at this point, and comes back to it."""

    label: Rect
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything in its place."""

    width: float
    height: float
    boxes: tuple[Rect, ...]
    arrows: tuple[Arrow, ...]
    loops: tuple[Loop, ...]
    # The names of states in which something begins, and of those in which nothing happens any more.
    starts: frozenset[str]
    ends: frozenset[str]

    @property
    def labels(self) -> tuple[Rect, ...]:
        return (*(arrow.label for arrow in self.arrows), *(loop.label for loop in self.loops))


def place(machine: Machine) -> Layout:
    """The layout of a machine."""
    rank = _ranks(machine)
    rows, chains = _items(machine, rank)
    order(rows)
    settle(rows)
    ports = straighten(rows, chains)
    shift = MARGIN - min(item.x - item.left for row in rows for item in row)
    for row in rows:
        for item in row:
            item.x += shift
    return _drawn(machine, rank, rows, chains, ports)


def _ranks(machine: Machine) -> dict[str, int]:
    """The row of each state, counted in states: below all that lead to it from earlier in life."""
    age = {state: at for at, state in enumerate(machine.states)}
    rank = dict.fromkeys(machine.states, 0)
    for state in machine.states:
        for source, target, _ in machine.moves:
            if target == state and age[source] < age[target]:
                rank[target] = max(rank[target], rank[source] + 1)
    return rank


def _moves(machine: Machine) -> list[tuple[str, str, str]]:
    """The moves from one state to another."""
    return [move for move in machine.moves if move[0] != move[1]]


def _own(machine: Machine) -> dict[str, str]:
    """The events that leave a state as it is."""
    return {source: events for source, target, events in machine.moves if source == target}


def _items(machine: Machine, rank: Mapping[str, int]) -> tuple[Rows, list[list[Item]]]:
    """Everything that needs a place, row by row; and each move as the chain of items along which it runs down."""
    rows: Rows = [[] for _ in range(2 * max(rank.values()) + 1)]
    states = {state: _state(state, machine, rank) for state in machine.states}
    for item in states.values():
        rows[item.row].append(item)
    chains = []
    for source, target, events in _moves(machine):
        assert rank[source] != rank[target], f"{source} and {target} are in one row: states are not in order of life."
        is_return = rank[source] > rank[target]
        top, bottom = (states[target], states[source]) if is_return else (states[source], states[target])
        chain = [top]
        for row in range(top.row + 1, bottom.row):
            # The label is near the state that the move leaves, where whoever reads it begins to look.
            if row == (bottom.row - 1 if is_return else top.row + 1):
                half = len(events) * LABEL_CHARACTER / 2 + 3
                chain.append(Item("label", events, row, half, half))
            else:
                chain.append(Item("bend", "", row, 1.0, 1.0))
            rows[row].append(chain[-1])
        chain.append(bottom)
        join(chain)
        chains.append(chain)
    return rows, chains


def _state(state: str, machine: Machine, rank: Mapping[str, int]) -> Item:
    """The item of a state, wide enough for its name and for all arrows that meet it on one side."""
    others = [
        target if source == state else source for source, target, _ in _moves(machine) if state in (source, target)
    ]
    below = sum(rank[other] > rank[state] for other in others)
    arrows = max(below, len(others) - below)
    half = max(len(state) * BOX_CHARACTER + 28, (arrows - 1) * PORT_APART + 2 * PORT_INSET) / 2
    own = _own(machine).get(state)
    beside = LOOP_WIDTH + len(own) * LABEL_CHARACTER if own else 0
    return Item("state", state, 2 * rank[state], half, half + beside)


def _drawn(
    machine: Machine, rank: Mapping[str, int], rows: Rows, chains: Iterable[Sequence[Item]], ports: Ports
) -> Layout:
    """Where everything comes to lie on the paper."""
    tops = _tops(rows, ports)
    boxes = {item.text: _rect(item, tops) for row in rows for item in row if item.kind == "state"}
    arrows = []
    for (source, target, _), chain in zip(_moves(machine), chains, strict=True):
        label = next(item for item in chain if item.kind == "label")
        is_return = rank[source] > rank[target]
        arrows.append(Arrow(_rect(label, tops), _pieces(chain, tops, ports, is_return=is_return), is_return))
    loops = []
    for state, events in _own(machine).items():
        edge, width = boxes[state].x + boxes[state].width / 2, len(events) * LABEL_CHARACTER
        label_at = edge + LOOP_WIDTH - 2 + width / 2
        loops.append(Loop(Rect(events, label_at, boxes[state].y, width, LABEL_HEIGHT), edge, boxes[state].y))
    reached = {target for _, target, _ in _moves(machine)}
    return Layout(
        width=max(item.x + item.right for row in rows for item in row) + MARGIN,
        height=tops[-1] + BOX_HEIGHT + MARGIN,
        boxes=tuple(boxes[state] for state in machine.states),
        arrows=tuple(arrows),
        loops=tuple(loops),
        starts=frozenset({machine.states[0], *(state for state in machine.states if state not in reached)}),
        ends=frozenset(machine.states) - {source for source, _, _ in machine.moves},
    )


def _tops(rows: Rows, ports: Ports) -> list[float]:
    """Where each row begins."""
    tops, y = [], float(MARGIN + START_ROOM)
    for at, row in enumerate(rows):
        tops.append(y)
        swings = [abs(item.x + ports[item, end] - end.x - ports[end, item]) for item in row for end in item.below]
        y = float(round(y + _height(at) + min(SWING_MAX, max(SWING_MIN, max(swings, default=0) / 5))))
    return tops


def _height(row: int) -> int:
    return BOX_HEIGHT if row % 2 == 0 else LABEL_HEIGHT


def _rect(item: Item, tops: Sequence[float]) -> Rect:
    height = _height(item.row)
    return Rect(item.text, item.x, tops[item.row] + height / 2, 2 * item.left, height)


def _pieces(
    chain: Sequence[Item], tops: Sequence[float], ports: Ports, *, is_return: bool
) -> tuple[tuple[float, float, float, float], ...]:
    pieces = []
    for upper, lower in itertools.pairwise(chain):
        start, end = upper.x + ports[upper, lower], lower.x + ports[lower, upper]
        bottom = tops[upper.row] + _height(upper.row)
        if upper.kind == "bend":
            pieces.append((start, tops[upper.row], start, bottom))
        pieces.append((start, bottom, end, tops[lower.row]))
    if is_return:
        pieces = [(x2, y2, x1, y1) for x1, y1, x2, y2 in reversed(pieces)]
    return tuple(pieces)
