"""Diagrams say what the tables say, and nothing in them lies on anything else."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from enum import StrEnum

import pytest
from diagram_layout import Arrow, Layout, Machine, Rect, place
from diagrams import LIFECYCLES, diagram, machine_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tabherd.core import lifecycle

SVG = "{http://www.w3.org/2000/svg}"


def test_every_table_has_a_diagram() -> None:
    tables = [
        value
        for name, value in vars(lifecycle).items()
        if name.isupper() and isinstance(value, dict) and isinstance(next(iter(value)), StrEnum)
    ]
    assert len(tables) == len(LIFECYCLES)
    assert all(any(table is each.table for each in LIFECYCLES.values()) for table in tables)


@pytest.mark.parametrize("name", LIFECYCLES)
def test_every_state_and_event_is_on_the_diagram_and_nothing_lies_on_anything_else(name: str) -> None:
    drawn = ElementTree.fromstring(diagram(name))
    written = [text.text or "" for text in drawn.iter(f"{SVG}text")]
    table = LIFECYCLES[name].table
    labels = [event for each in written for event in each.split(", ")]
    for state, moves in table.items():
        assert str(state) in written
        assert all(str(event) in labels for event in moves)
    events = sum(len(moves) for moves in table.values())
    assert len(labels) == len(table) + events
    # A state without moves has a double frame, and no other does.
    doubled = [rect for rect in drawn.iter(f"{SVG}rect") if rect.get("class") == "inner"]
    assert len(doubled) == sum(not moves for moves in table.values())
    check(place(machine_of(table)))


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Any machine whose states are in the order of life: those in one row have no moves between them."""
    size = draw(st.integers(1, 7))
    states = tuple(f"state_{n}" * draw(st.integers(1, 2)) for n in range(size))
    # One chain keeps every two states in rows of their own, so that any other move may be added.
    moves = {(n, n + 1): "next" for n in range(size - 1)}
    for source, target in draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=12)):
        moves[source, target] = draw(st.sampled_from(["go", "give_up", "a_long_event, another"]))
    return Machine(states, tuple((states[one], states[other], events) for (one, other), events in moves.items()))


@pytest.mark.release
@given(machine=machines())
@settings(max_examples=15, deadline=None)
def test_nothing_lies_on_anything_else_in_any_machine(machine: Machine) -> None:
    check(place(machine))


def test_the_same_machine_is_always_drawn_the_same_way() -> None:
    machine = machine_of(LIFECYCLES["node"].table)
    assert place(machine) == place(machine)


def check(layout: Layout) -> None:
    things = [*layout.boxes, *layout.labels]
    for one, other in itertools.combinations(things, 2):
        assert are_apart(one, other), f"{one} lies on {other}"
    for thing in things:
        assert thing.x - thing.width / 2 >= 0
        assert thing.x + thing.width / 2 <= layout.width
        assert thing.y + thing.height / 2 <= layout.height
    for arrow in layout.arrows:
        # One line from box to box, with one gap in it: that of its label.
        gaps = [(one[2:], other[:2]) for one, other in itertools.pairwise(arrow.pieces) if one[2:] != other[:2]]
        half = arrow.label.height / 2 * (-1 if arrow.is_return else 1)
        (gap,) = gaps
        assert gap == ((arrow.label.x, arrow.label.y - half), (arrow.label.x, arrow.label.y + half))
        for thing in things:
            # Its ends touch the boxes it joins and the label it carries, and run into none of them.
            assert not any(is_inside(x, y, thing) for x, y in points(arrow)), f"{arrow} runs through {thing}"


def are_apart(one: Rect, other: Rect) -> bool:
    return (
        abs(one.x - other.x) >= (one.width + other.width) / 2 or abs(one.y - other.y) >= (one.height + other.height) / 2
    )


def is_inside(x: float, y: float, thing: Rect) -> bool:
    return abs(x - thing.x) < thing.width / 2 - 0.5 and abs(y - thing.y) < thing.height / 2 - 0.5


def points(arrow: Arrow) -> Iterator[tuple[float, float]]:
    """Along each piece as it is drawn: a curve whose handles are at half of its height."""
    for x1, y1, x2, y2 in arrow.pieces:
        middle = (y1 + y2) / 2
        for step in range(21):
            t = step / 20
            near, far = (1 - t) ** 2, t**2
            yield (
                x1 * near * (1 + 2 * t) + x2 * far * (3 - 2 * t),
                y1 * (1 - t) ** 3 + middle * 3 * t * (1 - t) + y2 * t**3,
            )
