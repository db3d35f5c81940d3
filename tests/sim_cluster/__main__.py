"""Run simulated histories of clusters: `--seed K` replays one and prints it, `--seeds N` runs N from `--first F` on."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from typing import NamedTuple

from tests.sim.fakes import Violation

from .world import World


class Played(NamedTuple):
    """One history, and what was wrong with it, if anything."""

    seed: int
    steps: int
    history: list[str]
    violation: str


def play(seed: int) -> Played:
    world = World(seed)
    try:
        world.run()
    except Violation as violation:
        return Played(seed, world.steps, world.history, str(violation))
    except RuntimeError as error:
        # The loop's own word for a history that stands still, or goes round in circles.
        return Played(seed, world.steps, world.history, str(error))
    return Played(seed, world.steps, world.history, "")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim_cluster", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    seeds = [args.seed] if args.seed is not None else list(range(args.first, args.first + args.seeds))
    began = time.perf_counter()
    steps = 0
    with multiprocessing.Pool(args.workers) as pool:
        for played in pool.imap(play, seeds) if args.workers > 1 else map(play, seeds):
            if played.violation:
                print("\n".join(played.history))
                print(f"seed {played.seed}: {played.violation}")
                print(f"replay it with: make sim CLUSTER=1 SEED={played.seed}")
                return 1
            steps += played.steps
            if args.seed is not None:
                print("\n".join(played.history))
    elapsed = time.perf_counter() - began
    print(f"{len(seeds)} histories, {steps} steps, 0 violations, {len(seeds) / elapsed:.1f} histories/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
