"""What a batch takes for granted, so that an engine far away need not be asked before it is told.

A task that is submitted has an id that was minted for it, and its node has the row that it wrote itself: nothing is
learnt by loading either. Whoever saves compares all the same, and loads when it was not so. For other rows the answer
is often that they do not stand as expected, and then whoever presumed has asked once too often.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.model import Row, Task
from .base import Insert, Require
from .evaluate import State, Transaction


def presumed(batch: Sequence[Transaction]) -> State | None:
    """The state in which each transaction does what it wants; None if that has to be looked up.

    Of a row that is required it has the version alone, which is all that `evaluate` compares. What it answers in a
    conflict is not for callers.
    """
    state = State({}, {})
    for ops in batch:
        for op in ops:
            match op:
                case Insert(row=row, numbered=None) if type(row) is Task:
                    state.rows.setdefault(Task, {})
                case Require(table=table, id=id, version=version) if version and table is not Task:
                    state.rows.setdefault(table, {}).setdefault(id, Row(id=id, version=version))
                case _:
                    return None
    # Who only asks whether something stands wants to be told; there would be no save that compares.
    return state if Task in state.rows else None
