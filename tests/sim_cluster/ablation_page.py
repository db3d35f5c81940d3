"""The part of the page of ablations that is about several nodes; the page itself is `tests.sim.ablation_page`'s."""

from __future__ import annotations

import sys

from tests.sim.ablation_page import OTHERS, PAGE, REAL, line_of, rows_of, split

from .ablations import SAFEGUARDS, first_failure, off

# Histories that are tried for one safeguard.
SEEDS_MAX = 400
_HEAD = f"""{OTHERS}
Each safeguard of a cluster can be switched off in the simulator of several nodes, and then that must find something.
This part is written by `python -m tests.sim_cluster --ablations`; `tests/sim_cluster/test_ablations.py` fails when a
safeguard is missing here, and when the history that is named does not notice.

| safeguard | switched off | seed | what it said |
|---|---|---|---|
"""


def rows() -> dict[str, int]:
    """The seed of each safeguard that the page has."""
    return rows_of(split(PAGE.read_text())[1])


def write() -> int:
    """Look for seeds, those that are known first, and write this part; 1 if a safeguard is not proven."""
    first, part = split(PAGE.read_text())
    known, lines, missing = rows_of(part), [], 0
    for safeguard, patch in SAFEGUARDS.items():
        seeds = [*([known[safeguard]] if safeguard in known else []), *range(SEEDS_MAX)]
        failure = first_failure(safeguard, seeds)
        print(f"{failure.seed if failure else 'not found'}\t{safeguard}", flush=True)
        if failure is None:
            missing += 1
        else:
            lines.append(line_of(safeguard, off(patch), failure))
    _, heading, real = part.partition(REAL)
    PAGE.write_text(first + _HEAD + "\n".join(lines) + "\n" + heading + real)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(write())
