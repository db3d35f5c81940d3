"""Benchmarks: each module here is one, measures ours beside its limit and peers in one run, and returns figures.

A benchmark is a module with `run() -> dict[str, Figure | Plot]` and, where a part of it takes minutes, `run_long()` of
the same kind, which `--quick` leaves out, or replaces by `run_short()` where there is one; `python -m bench NAME`
prints its figures as a table. Every figure is comparable only with those of the same run. What several of them need is
in `bench.rig`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Self

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured number and what it is held against."""

    ours: float
    unit: str
    # What the same work costs others, or at least, by name, in the same unit.
    others: dict[str, float] = {}
    # Others that should be here and are not, by name, and why.
    absent: dict[str, str] = {}
    # The bar: ours must be at most, or at least, this. None where there is none.
    at_most: float | None = None
    at_least: float | None = None
    # The 10th and the 90th percentile of the samples behind ours, where it is their median.
    spread: tuple[float, float] | None = None

    @classmethod
    def median_of(
        cls,
        samples: Sequence[float],
        unit: str,
        *,
        others: Mapping[str, Sequence[float]] | None = None,
        absent: Mapping[str, str] | None = None,
        at_most: float | None = None,
    ) -> Self:
        """The median of ours beside the medians of the others, with the spread of ours."""
        return cls(
            ours=statistics.median(samples),
            unit=unit,
            others={name: statistics.median(theirs) for name, theirs in (others or {}).items()},
            absent=dict(absent or {}),
            at_most=at_most,
            spread=(percentile(samples, 10), percentile(samples, 90)),
        )

    @property
    def is_met(self) -> bool:
        """Whether ours clears the bar; true where there is none."""
        return (self.at_most is None or self.ours <= self.at_most) and (
            self.at_least is None or self.ours >= self.at_least
        )

    @property
    def beside(self) -> str:
        """The others in words, also those that are absent."""
        there = [f"{other} {number(value)}" for other, value in self.others.items()]
        return ", ".join([*there, *(f"{other}: {why}" for other, why in self.absent.items())])

    @property
    def bar(self) -> str:
        """The bar in words; empty where there is none."""
        if self.at_most is not None:
            return f"<= {number(self.at_most)}"
        return f">= {number(self.at_least)}" if self.at_least is not None else ""


def percentile(samples: Sequence[float], percent: float) -> float:
    """The sample that so many percent do not exceed."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def number(value: float) -> str:
    """Three digits are as many as a benchmark knows."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
