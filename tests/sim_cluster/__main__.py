"""Run simulated histories of clusters: `--seeds N` plays N, from `--first F` on, in `--workers W` processes; `--seed K`
replays one and prints it. A violation is told as the shortest history that is found to show it, and the others are
played even so; `--ablations` writes the part of the page of safeguards that is about several nodes; `--docs` puts the
last line into docs/campaigns.md.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time

from bench.rig.machine import this_machine
from tests.campaign.page import publish
from tests.sim.campaign import FAILURES_MAX, collect_between
from tests.sim.minimise import Failure, minimise, play

from .world import World

# How long it is looked for a shorter history; one of several nodes takes long.
BUDGET_S = 120.0


def play_one(seed: int) -> Failure | None:
    """What went wrong in that history, if anything did."""
    failure = play(World, seed)  # type: ignore[arg-type]
    gc.collect()
    return failure


def story(failure: Failure, budget_s: float = BUDGET_S) -> str:
    """The shortest history of a violation that is found in the time, in plain words, with the command to replay it."""
    short = minimise(World, failure, budget_s)  # type: ignore[arg-type]
    return short.story().replace("make sim SEED=", "make sim CLUSTER=1 SEED=")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim_cluster", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ablations", action="store_true")
    parser.add_argument("--docs", action="store_true")
    args = parser.parse_args()
    if args.ablations:
        from .ablation_page import write

        return write()
    if args.seed is not None:
        return _replay(args.seed)
    seeds = range(args.first, args.first + args.seeds)
    machine, violations, began = this_machine(), 0, time.perf_counter()
    with multiprocessing.get_context("fork").Pool(args.workers, collect_between, maxtasksperchild=50) as pool:
        for failure in pool.imap(play_one, seeds) if args.workers > 1 else map(play_one, seeds):
            if failure is not None:
                violations += 1
                print(story(failure), flush=True)
                if violations >= FAILURES_MAX:
                    print(f"{violations} violations: enough to look at")
                    return 1
    elapsed_s = time.perf_counter() - began
    rate = len(seeds) / elapsed_s
    said = f"{len(seeds)} histories, {violations} violations, {rate:.1f} histories/s ({elapsed_s:.0f} s)"
    print(said)
    if args.docs:
        publish("histories of several nodes", f"make sim CLUSTER=1 SEEDS={args.seeds}", said, machine)
    return 1 if violations else 0


def _replay(seed: int) -> int:
    world = World(seed)
    try:
        world.run()
    except (AssertionError, RuntimeError) as error:
        print(story(Failure(seed, str(error), world.history, [], world.script.happened, len(world.script.happened))))
        return 1
    print("\n".join(world.history))
    print(f"seed {seed}: no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
