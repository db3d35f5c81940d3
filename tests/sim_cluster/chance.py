"""What chance decides in a simulated cluster: on behalf of whoever does something, or of whoever takes a step.

Choices are those of a deed, times and mishaps those of a pace (see `tests.sim.script`). Both follow from the seed and
the name of whoever has them, and travel with the tasks that are started on its behalf, also into the processes of
nodes. So a deed can be left out, and the others stay what they were.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from contextvars import Context, ContextVar
from random import Random
from typing import Any, TypeVar

from tests.sim.fakes import Life
from tests.sim.lives import VERB
from tests.sim.script import PACE, Deed
from tests.sim.verb_rules import ASKER

T = TypeVar("T")
# Whose choices are made.
_CHOICES: ContextVar[Random] = ContextVar("choices")


class Choices:
    """What is chosen by whoever does something now."""

    def random(self) -> float:
        return _CHOICES.get().random()

    def choice(self, options: Sequence[T]) -> T:
        return _CHOICES.get().choice(options)

    def randrange(self, *bounds: int) -> int:
        return _CHOICES.get().randrange(*bounds)


class Steps:
    """How long the step takes that is taken now, and whether it goes wrong."""

    def random(self) -> float:
        return PACE.get().random()

    def strikes(self, what: str, rate: float) -> bool:
        return PACE.get().strikes(what, rate)

    def shuffle(self, things: MutableSequence[Any]) -> None:
        PACE.get().shuffle(things)


class Touch(Life):
    """A life of which every mishap can be left out, and that says whose cookies it brings."""

    def __init__(self, chance: Any, tell: Callable[[str], None], put_cookies: Callable[[str], None]) -> None:
        super().__init__(chance, tell)
        self._put_cookies = put_cookies

    def puts_cookies(self, context_id: str) -> None:
        self._put_cookies(context_id)

    def strikes(self, what: str, rate: float) -> bool:
        return PACE.get().strikes(what, rate)


def begin(deed: Deed) -> None:
    """From now on it is this deed that chooses, and that steps are taken for."""
    _CHOICES.set(deed)
    deed.begin()


def on_behalf(context: Context) -> Context:
    """A copy of the context in which whoever does something now goes on doing it."""
    copy = context.copy()
    for variable in (_CHOICES, PACE, ASKER, VERB):
        if (value := variable.get(None)) is not None:
            copy.run(variable.set, value)  # type: ignore[arg-type]
    return copy
