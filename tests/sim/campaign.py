"""Many histories in several processes: each seed is played by itself, so it does not matter which process has it."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from .coverage import Coverage
from .minimise import Failure, play
from .world import World

# Seeds that a process is given at once.
CHUNK = 20
# After so many violations the rest is not played.
FAILURES_MAX = 10


class Played(msgspec.Struct):
    """What became of some histories."""

    count: int
    coverage: Coverage
    failures: list[Failure]

    def add(self, other: Played) -> None:
        self.count += other.count
        self.coverage.add(other.coverage)
        self.failures += other.failures


def play_all(seeds: Sequence[int]) -> Played:
    """Those histories, one after the other, in this process."""
    played = Played(len(seeds), Coverage(), [])

    def make(seed: int, **more: Any) -> World:
        world = World(seed, **more)
        worlds.append(world)
        return world

    for seed in seeds:
        worlds: list[World] = []
        failure = play(make, seed)
        if failure is not None:
            played.failures.append(failure)
        played.coverage.add(worlds[0].coverage)
    return played


def campaign(seeds: range, workers: int | None = None) -> Iterator[Played]:
    """Play them in that many processes, as many as there are cores if it is not said; in the order of the seeds."""
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    workers = min(workers or os.cpu_count() or 1, len(chunks))
    if workers <= 1:
        yield from map(play_all, chunks)
        return
    with multiprocessing.get_context("fork").Pool(workers, collect_between) as pool:
        yield from pool.imap(_work, chunks)


def collect_between() -> None:
    """Cycles are collected between histories only: within one, nothing may depend on when that happens."""
    gc.freeze()
    gc.disable()


def _work(seeds: range) -> Played:
    played = Played(0, Coverage(), [])
    for seed in seeds:
        played.add(play_all([seed]))
        # After each: the longer garbage is left lying, the longer it takes to find.
        gc.collect()
    return played
