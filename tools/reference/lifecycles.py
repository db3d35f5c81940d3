"""lifecycles.md, from the transition tables of `core.lifecycle` and the expiry rules of `core.lease`.

The pictures that it shows are drawn from the same tables by `diagrams`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from diagrams import LIFECYCLES

from tabherd.core.lease import EXPIRY_RULES

from .markdown import row, table


def write() -> Iterator[str]:
    yield from (
        "# Lifecycles",
        "",
        "What can happen to each thing, drawn from the tables in `src/tabherd/core/lifecycle.py` that decide it. A",
        "move that is not here cannot happen. A dot leads to where a thing begins, a double frame is an end, and",
        "arrows that lead up go back to an earlier part of its life.",
    )
    for name, (title, moves_of) in LIFECYCLES.items():
        kind = type(next(iter(moves_of)))
        states, events = _member_comments(kind), _member_comments(_events_of(moves_of))
        yield from ("", f"## {title}", "", f"![Lifecycle: {title}](diagrams/{name}.svg)", "")
        yield from table("state", "what can happen")
        for state, moves in moves_of.items():
            meaning = f"`{state}`: {states[state]}" if state in states else f"`{state}`"
            happens = [
                # What an event means is said where it comes first.
                f"`{event}`" + (f" ({events.pop(event)})" if event in events else "") + f" → `{after}`"
                for event, after in moves.items()
            ]
            yield row(meaning, "<br>".join(happens) or "nothing any more")
    yield from _expiry_rules()


def _events_of(moves_of: Mapping[Any, Mapping[Any, StrEnum]]) -> type[StrEnum]:
    return next(type(event) for moves in moves_of.values() for event in moves)


def _expiry_rules() -> Iterator[str]:
    yield from (
        "",
        "## When a session ends by itself",
        "",
        "The first line that fits a session is its rule; exactly one does. Besides, a session past its deadline serves",
        "nothing any more and is taken down 120 s later (the pool's `deadline_grace_s`), whatever else is true.",
        "",
    )
    yield from table("rule", "who", "what ends it, besides release and deadline")
    for each in EXPIRY_RULES:
        yield row(f"`{each.rule}`", each.holder, each.ends)


def _member_comments(kind: type[StrEnum]) -> dict[str, str]:
    members = re.findall(r'^    \w+ = "(\w+)"  # (.+)$', inspect.getsource(kind), re.MULTILINE)
    return dict(members)
