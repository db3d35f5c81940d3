"""Run simulated histories: `--seed K` replays one and prints it, `--seeds N` runs N, `--first F` from seed F on."""

from __future__ import annotations

import argparse
import sys
import time

from .fakes import Violation
from .world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    seeds = [args.seed] if args.seed is not None else range(args.first, args.first + args.seeds)
    began = time.perf_counter()
    steps = 0
    for seed in seeds:
        world = World(seed)
        try:
            world.run()
        except Violation as violation:
            print("\n".join(world.history))
            print(f"seed {seed}: {violation}\nreplay it with: make sim SEED={seed}")
            return 1
        steps += world.steps
        if args.seed is not None:
            print("\n".join(world.history))
    elapsed = time.perf_counter() - began
    print(f"{len(seeds)} histories, {steps} steps, 0 violations, {len(seeds) / elapsed:.0f} histories/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
