"""Benchmarks: each module here is one, measures ours beside its limit and peers in one run, and returns figures.

A benchmark is a module with `run() -> dict[str, Figure]`; `python -m bench NAME` prints it as a table. Every figure is
comparable only with those of the same run.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured number and what it is held against."""

    ours: float
    unit: str
    # What the same work costs others, or at least, by name, in the same unit.
    others: dict[str, float] = {}
    # The bar: ours must be at most, or at least, this. None where there is none.
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether ours clears the bar; true where there is none."""
        return (self.at_most is None or self.ours <= self.at_most) and (
            self.at_least is None or self.ours >= self.at_least
        )


def percentile(samples: Sequence[float], percent: float) -> float:
    """The sample that so many percent do not exceed."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
