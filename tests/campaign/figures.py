"""The arithmetic of a soak: percentiles, slopes with their uncertainty, and fairness. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

# Neighbouring samples are alike: they are drawn together, or the uncertainty would look smaller than it is.
BLOCK: Final = 12
DRAWS: Final = 400


class Slope(msgspec.Struct, frozen=True):
    """How fast something grows, per hour, with the interval that has the true value nineteen times out of twenty."""

    per_h: float
    low: float
    high: float

    @property
    def is_growth(self) -> bool:
        """Whether it grows for sure."""
        return self.low > 0


def slope_of(times_s: Sequence[float], values: Sequence[float], seed: int = 1) -> Slope:
    """By least squares; its uncertainty by drawing blocks of what is left over, again and again."""
    assert len(times_s) == len(values), "one value for each time"
    if len(values) < 3:
        return Slope(0.0, 0.0, 0.0)
    rise, start = _line(times_s, values)
    rest = [value - start - rise * at for at, value in zip(times_s, values, strict=True)]
    # Of few samples blocks are shorter: if one were all of them, every draw would be the same.
    chance, size = Random(seed), min(BLOCK, max(1, len(rest) // 4))
    rises = []
    for _ in range(DRAWS):
        drawn: list[float] = []
        while len(drawn) < len(rest):
            begin = chance.randrange(len(rest) - size + 1)
            drawn += rest[begin : begin + size]
        rises.append(_line(times_s, [start + rise * at + off for at, off in zip(times_s, drawn, strict=False)])[0])
    rises.sort()
    return Slope(*(round(each * 3600, 3) for each in (rise, rises[DRAWS // 40], rises[-DRAWS // 40 - 1])))


def _line(times_s: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """The rise of the best line, and its value at time zero."""
    middle_s, middle = sum(times_s) / len(times_s), sum(values) / len(values)
    spread = sum((at - middle_s) ** 2 for at in times_s)
    if not spread:
        return 0.0, middle
    both = sum((at - middle_s) * (value - middle) for at, value in zip(times_s, values, strict=True))
    rise = both / spread
    return rise, middle - rise * middle_s


def percentile(values: Sequence[float], share: float) -> float | None:
    """The least value that is not below that share of all; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)


def jain(values: Sequence[float]) -> float:
    """1 when all have the same, one divided by their number when one has everything."""
    if not values or not any(values):
        return 1.0
    return round(sum(values) ** 2 / (len(values) * sum(value**2 for value in values)), 4)
