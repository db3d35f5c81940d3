"""lifecycles.md, from the transition tables of `core.lifecycle` and the expiry rules of `core.lease`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from tabherd.core import lifecycle
from tabherd.core.lease import EXPIRY_RULES

from .markdown import row, table


def write() -> Iterator[str]:
    yield from (
        "# Lifecycles",
        "",
        "What can happen to each thing, drawn from the tables in `src/tabherd/core/lifecycle.py` that decide it. A",
        "move that is not drawn here cannot happen.",
    )
    tables: dict[str, Mapping[Any, Mapping[Any, StrEnum]]] = {
        "Browser": lifecycle.BROWSER,
        "Session (lease)": lifecycle.LEASE,
        "Tab": lifecycle.TAB,
        "Command": lifecycle.COMMAND,
        "Task": lifecycle.TASK,
        "Delivery of a webhook": lifecycle.DELIVERY,
        "Node": lifecycle.NODE,
    }
    for name, moves_of in tables.items():
        reached = {after for moves in moves_of.values() for after in moves.values()}
        yield from ("", f"## {name}", "", "```mermaid", "stateDiagram-v2")
        first = next(iter(moves_of))
        for state, moves in moves_of.items():
            if state is first or state not in reached:
                yield f"    [*] --> {state}"
            yield from (f"    {state} --> {after}: {event}" for event, after in moves.items())
            if not moves:
                yield f"    {state} --> [*]"
        yield "```"
        comments = _member_comments(type(first))
        if comments:
            yield ""
            yield from (f"- `{member}`: {comment}." for member, comment in comments.items())
    yield from _expiry_rules()


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
