"""What a plot shows: the numbers of one run that a table cannot hold, and nothing of how they are drawn.

A benchmark returns plots beside its figures. Those of a run that is written into the documentation are kept as JSON
beside their drawings, so that a drawing can be made anew without a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

# How many points of a distribution are kept; more cannot be told apart on a page.
DISTRIBUTION_POINTS: Final = 60

# Pairs of x and y, by x.
Points = list[tuple[float, float]]


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """Several series over one pair of axes."""

    title: str
    # What the axes count, with the unit.
    x: str
    y: str
    # By name, at most `SERIES_MAX` of the drawing; the first is ours.
    series: dict[str, Points]
    kind: Literal["lines", "bars"] = "lines"
    is_log_x: bool = False
    is_log_y: bool = False
    # Drawn across: what is held against it.
    bar: float | None = None
    bar_name: str = ""


def distribution(samples: Sequence[float]) -> Points:
    """How many percent of the samples are not above which value."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    picked = sorted({round(last * step / DISTRIBUTION_POINTS) for step in range(DISTRIBUTION_POINTS + 1)})
    return [(_rounded(ordered[index]), _rounded(100 * (index + 1) / len(ordered))) for index in picked]


def points(pairs: Sequence[tuple[float, float]]) -> Points:
    """As they are, with as many digits as a benchmark knows."""
    return [(_rounded(x), _rounded(y)) for x, y in sorted(pairs)]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}") if abs(value) < 1_000 else float(round(value))
