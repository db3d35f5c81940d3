"""Draws every state machine of `core.lifecycle` from its own table: one SVG each under docs/reference/diagrams/.

`tools/docs.py` writes them with the other generated pages and says when one is stale; this file alone prints one, to
look at it: `python tools/diagrams.py tab > tab.svg`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from diagram_layout import Machine, place
from diagram_svg import draw

from tabherd.core import lifecycle


class Lifecycle(NamedTuple):
    """One machine: what it is called on paper, and its table."""

    title: str
    table: Mapping[Any, Mapping[Any, StrEnum]]


# By the name of the file that shows it. A test compares this with the tables that there are.
LIFECYCLES: Final[Mapping[str, Lifecycle]] = {
    "browser": Lifecycle("Browser", lifecycle.BROWSER),
    "session": Lifecycle("Session (lease)", lifecycle.LEASE),
    "tab": Lifecycle("Tab", lifecycle.TAB),
    "command": Lifecycle("Command", lifecycle.COMMAND),
    "task": Lifecycle("Task", lifecycle.TASK),
    "delivery": Lifecycle("Delivery of a webhook", lifecycle.DELIVERY),
    "node": Lifecycle("Node", lifecycle.NODE),
}


def machine_of(table: Mapping[Any, Mapping[Any, StrEnum]]) -> Machine:
    """The machine that a table describes; several events between the same two states are one move."""
    moves: dict[tuple[str, str], list[str]] = {}
    for state, outcomes in table.items():
        for event, after in outcomes.items():
            moves.setdefault((str(state), str(after)), []).append(str(event))
    return Machine(
        states=tuple(str(state) for state in table),
        moves=tuple((source, target, ", ".join(events)) for (source, target), events in moves.items()),
    )


def describe(machine: Machine) -> str:
    """The same in words, for whoever cannot see the picture."""
    return "; ".join(f"{source} to {target} on {events}" for source, target, events in machine.moves) + "."


def diagram(name: str) -> str:
    """The SVG of one of them."""
    title, table = LIFECYCLES[name]
    machine = machine_of(table)
    return draw(place(machine), f"Lifecycle: {title}", describe(machine))


if __name__ == "__main__":
    sys.stdout.write(diagram(sys.argv[1]))
