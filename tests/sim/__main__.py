"""Run simulated histories: `--seeds N` plays N, from `--first F` on, in `--workers W` processes; `--seed K` replays one
and prints it. A violation is told as the shortest history that shows it, and the others are played even so.
`--coverage` adds which verbs were under way when what went wrong; `--ablations` writes the page that says how each
safeguard is proven; `--docs` puts the last line into docs/campaigns.md.
"""

from __future__ import annotations

import argparse
import sys
import time

from bench.rig.machine import this_machine
from tests.campaign.page import publish

from .campaign import FAILURES_MAX, Played, campaign
from .coverage import Coverage
from .minimise import Failure, minimise, play
from .world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--ablations", action="store_true")
    parser.add_argument("--docs", action="store_true")
    args = parser.parse_args()
    if args.ablations:
        from .ablation_page import write

        return write()
    if args.seed is not None:
        return _replay(args.seed)
    machine = this_machine()
    all_played, began = Played(0, Coverage(), []), time.perf_counter()
    for played in campaign(range(args.first, args.first + args.seeds), args.workers):
        all_played.add(played)
        for failure in played.failures:
            _tell(failure)
        if len(all_played.failures) >= FAILURES_MAX:
            print(f"{len(all_played.failures)} violations: enough to look at")
            return 1
    elapsed_s = time.perf_counter() - began
    coverage, count = all_played.coverage, all_played.count
    if args.coverage:
        print(coverage.table())
    calls, faults = coverage.verbs.total(), coverage.faults.total()
    said = (
        f"{count} histories, {calls} calls, {faults} faults, {len(all_played.failures)} violations, "
        f"{count / elapsed_s:.0f} histories/s ({elapsed_s:.0f} s)"
    )
    print(said)
    if args.docs:
        publish("histories", f"make sim SEEDS={args.seeds}", said, machine)
    return 1 if all_played.failures else 0


def _replay(seed: int) -> int:
    failure = play(World, seed)
    if failure is not None:
        return _tell(failure)
    world = World(seed)
    world.run()
    print("\n".join(world.history))
    print(f"seed {seed}: no violation")
    return 0


def _tell(failure: Failure) -> int:
    print(minimise(World, failure).story(), flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
