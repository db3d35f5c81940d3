"""Runs cases against targets, and says how to run one of them again.

A case is its seed: the target, the good input and each mutation follow from the number alone.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from .mutation import mutated
from .targets import TARGETS, Target


class Crash(NamedTuple):
    """A case that was answered with something that is no refusal."""

    seed: int
    target: str
    case: bytes
    trace: str

    @property
    def told(self) -> str:
        again = f".venv/bin/python -m tests.fuzz --seed {self.seed}"
        return f"{self.target}: {self.case!r}\n{self.trace}replay it with: {again}"


class Tally(NamedTuple):
    """What came of a campaign."""

    cases: int
    refused: int
    # By target.
    taken: Counter[str]
    crashes: list[Crash]
    seconds: float


def case_of(seed: int, targets: tuple[Target, ...] = TARGETS) -> tuple[Target, bytes]:
    """The target of that seed, and what it is given."""
    target = targets[seed % len(targets)]
    return target, mutated(Random(seed), target.seeds)


def run(seeds: Iterable[int], targets: tuple[Target, ...] = TARGETS, crashes_max: int = 20) -> Tally:
    """Run the cases of those seeds; ends early after so many crashes."""
    began = time.perf_counter()
    cases, refused, taken, crashes = 0, 0, Counter[str](), list[Crash]()
    for seed in seeds:
        target, case = case_of(seed, targets)
        cases += 1
        try:
            target.read(case)
        except target.refusals:
            refused += 1
        except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
            crashes.append(Crash(seed, target.name, case, traceback.format_exc()))
            if len(crashes) >= crashes_max:
                break
        else:
            taken[target.name] += 1
    return Tally(cases, refused, taken, crashes, time.perf_counter() - began)
