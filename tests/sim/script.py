"""What chance decides in one history, so that any part of it can be left out and the rest stays as it was.

Everything that somebody does, and everything that happens to somebody, is a deed with a name of its own, such as
`ada-1 #3`. A deed has its own streams of chance, made of the seed and that name: one for what is chosen, one for how
long each step takes that is done on its behalf. A deed that is left out therefore changes nothing of the others but
what really follows from it, and `minimise` can look for the few that matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextvars import ContextVar
from random import Random


class Pace(Random):
    """How long each step of one deed takes, and which of them fail."""

    def __init__(self, script: Script, name: str) -> None:
        super().__init__(f"{script.seed}/{name}/pace")
        self._script = script
        self._name = name
        self._failures = 0

    def strikes(self, what: str, rate: float) -> bool:
        """Whether that goes wrong now; as one that can be left out by itself."""
        if self.random() >= rate:
            return False
        self._failures += 1
        return self._script.happens(f"{self._name} {what} {self._failures}")


# Whose steps are being taken; every task inherits it from whoever started it.
PACE: ContextVar[Pace] = ContextVar("pace")


class Paces:
    """Chance as the world sees it: the pace of whoever takes the step."""

    def random(self) -> float:
        return PACE.get().random()

    def strikes(self, what: str, rate: float) -> bool:
        return PACE.get().strikes(what, rate)


class Deed(Random):
    """Something that is done, and everything that is chosen in it."""

    def __init__(self, script: Script, name: str) -> None:
        super().__init__(f"{script.seed}/{name}")
        self._script = script
        self._name = name

    def begin(self) -> None:
        """From now on steps are taken on behalf of this deed."""
        PACE.set(Pace(self._script, self._name))


class Script:
    """The deeds of one history."""

    def __init__(self, seed: int, left_out: Collection[str] = ()) -> None:
        self.seed = seed
        self._left_out = frozenset(left_out)
        self._counts: Counter[str] = Counter()
        # Everything that has happened so far, by name.
        self.happened: list[str] = []

    def chance(self, name: str) -> Random:
        """For what is no deed, such as how many there are to be."""
        return Random(f"{self.seed}/{name}")

    def pace(self, name: str) -> Pace:
        """For what nobody in particular does."""
        return Pace(self, name)

    def deed(self, who: str) -> Deed | None:
        """The next thing that they do; None if it is left out."""
        self._counts[who] += 1
        name = f"{who} #{self._counts[who]}"
        return Deed(self, name) if self.happens(name) else None

    def happens(self, name: str) -> bool:
        """Whether that happens; it is remembered if so."""
        if name in self._left_out:
            return False
        self.happened.append(name)
        return True
