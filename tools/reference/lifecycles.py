"""lifecycles.md, from the transition tables of `tabherd.core.lifecycle`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from tabherd.core import lifecycle


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
    }
    for name, table in tables.items():
        reached = {after for moves in table.values() for after in moves.values()}
        yield from ("", f"## {name}", "", "```mermaid", "stateDiagram-v2")
        first = next(iter(table))
        for state, moves in table.items():
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


def _member_comments(kind: type[StrEnum]) -> dict[str, str]:
    members = re.findall(r'^    \w+ = "(\w+)"  # (.+)$', inspect.getsource(kind), re.MULTILINE)
    return dict(members)
