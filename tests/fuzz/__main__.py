"""Fuzz every reader of foreign input: `--cases N` runs N from `--first F` on, `--seed K` runs one and shows it;
`--docs` puts the last line into docs/campaigns.md.
"""

from __future__ import annotations

import argparse
import sys

from bench.rig.machine import this_machine
from tests.campaign.page import publish

from .campaign import case_of, run
from .targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--docs", action="store_true")
    args = parser.parse_args()
    if args.seed is not None:
        target, case = case_of(args.seed)
        print(f"{target.name}: {case!r}")
    seeds = range(args.first, args.first + args.cases) if args.seed is None else [args.seed]
    machine = this_machine()
    tally = run(seeds)
    for crash in tally.crashes:
        print(crash.told)
    said = (
        f"{tally.cases} cases on {len(TARGETS)} targets: {tally.taken.total()} taken, {tally.refused} refused, "
        f"{len(tally.crashes)} crashes, {tally.cases / tally.seconds:.0f} cases/s"
    )
    print(said)
    if args.docs:
        publish("input", f"python -m tests.fuzz --cases {args.cases}", said, machine)
    return 1 if tally.crashes else 0


if __name__ == "__main__":
    sys.exit(main())
