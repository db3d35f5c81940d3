"""The long campaigns, with fresh seeds: `python -m tests.soak [--for 10m] [--seed N] [--docs]`; `make soak SOAK=10m`.

Each campaign runs again and again until its share of the time is over, and at least once. A campaign that fails prints
the one command that replays its find, and the others go on; the exit status is 1 then. Without `--for` every campaign
runs once in its whole length, which takes hours; `--docs` writes those figures into docs/campaigns.md.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

UNITS_S = {"s": 1, "m": 60, "h": 3_600}
# Seeds below this are those of `make test`.
FIRST_FRESH = 1_000_000


class Campaign(NamedTuple):
    """One kind of exploration."""

    name: str
    # Percent of the time.
    share: int
    # The command of one round from that seed on: short, for a bounded run; whole, with what it publishes.
    round_of: Callable[[int], list[str]]
    whole: list[str]


def _pytest(seed: int, *words: str) -> list[str]:
    return ["pytest", f"--hypothesis-seed={seed}", f"--shuffle={seed}", *words]


CAMPAIGNS = (
    Campaign(
        "histories of one node",
        20,
        lambda seed: ["tests.sim", "--first", str(seed), "--seeds", "500"],
        ["tests.sim", "--seeds", "100000"],
    ),
    Campaign(
        "histories of several nodes",
        20,
        lambda seed: ["tests.sim_cluster", "--first", str(seed), "--seeds", "100"],
        ["tests.sim_cluster", "--seeds", "5000"],
    ),
    Campaign(
        "foreign input",
        5,
        lambda seed: ["tests.fuzz", "--first", str(seed), "--cases", "20000"],
        ["tests.fuzz", "--cases", "1000000"],
    ),
    Campaign(
        "searches of the tests",
        15,
        lambda seed: _pytest(
            seed, "-m", "not browser and not server and not release and not soak", "-n", "2", "--sample", "1500"
        ),
        _pytest(1, "-m", "not browser and not server and not release and not soak", "-n", "2"),
    ),
    Campaign(
        "crashes on SQLite",
        10,
        lambda seed: ["tests.campaign", "crash", "--store", "sqlite", "--kills", "3", "--seed", str(seed)],
        ["tests.campaign", "crash", "--store", "sqlite", "--kills", "100"],
    ),
    Campaign(
        "crashes on PostgreSQL",
        10,
        lambda seed: ["tests.campaign", "crash", "--store", "postgres", "--kills", "3", "--seed", str(seed)],
        ["tests.campaign", "crash", "--store", "postgres", "--kills", "100"],
    ),
    Campaign(
        "slow tests",
        15,
        lambda seed: _pytest(seed, "-m", "soak", "-n", "2", "--sample", "40"),
        _pytest(1, "-m", "soak", "-n", "2"),
    ),
    Campaign(
        "a crowd",
        5,
        lambda seed: ["tests.campaign", "soak", "--minutes", "1", "--agents", "30", "--seed", str(seed)],
        ["tests.campaign", "soak", "--minutes", "60"],
    ),
)
# Campaigns whose figures stand in docs/campaigns.md.
PUBLISHED = ("tests.sim", "tests.sim_cluster", "tests.fuzz", "tests.campaign")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--for", dest="limit", default="", metavar="TIME", help="90s, 10m, 2h; else the whole length")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of seeds; else a fresh one")
    parser.add_argument("--only", default="", help="the campaign of that name")
    parser.add_argument("--docs", action="store_true")
    args = parser.parse_args()
    limit_s = _seconds(args.limit) if args.limit else None
    choice_seed = args.seed or int.from_bytes(os.urandom(4))
    choice = random.Random(choice_seed)
    print(f"soak: {args.limit or 'whole'}, seeds chosen from {choice_seed}", flush=True)
    failed = []
    for campaign in CAMPAIGNS:
        if args.only and args.only != campaign.name:
            continue
        share_s = None if limit_s is None else limit_s * campaign.share / 100
        if not run(campaign, choice, share_s, has_docs=args.docs):
            failed.append(campaign.name)
    print(
        f"soak: {f'found something in {failed}; each find is above, with its command' if failed else 'found nothing'}"
    )
    return 1 if failed else 0


def run(campaign: Campaign, choice: random.Random, share_s: float | None, *, has_docs: bool) -> bool:
    """Whether no round of the campaign found anything."""
    print(f"== {campaign.name}", flush=True)
    if share_s is None:
        more = ["--docs"] if has_docs and campaign.whole[0] in PUBLISHED else []
        return _is_clean([*campaign.whole, *more])
    began, is_clean = time.monotonic(), True
    while is_clean:
        is_clean = _is_clean(campaign.round_of(choice.randrange(FIRST_FRESH, 1 << 30)))
        if time.monotonic() - began >= share_s:
            break
    return is_clean


def _is_clean(words: list[str]) -> bool:
    """Run one command; a command that fails is named, so that it can be given again."""
    environment = os.environ | {"HYPOTHESIS_PROFILE": "explore"}
    code = subprocess.run([sys.executable, "-m", *words], env=environment, check=False).returncode
    if code:
        prefix = "HYPOTHESIS_PROFILE=explore " if words[0] == "pytest" else ""
        quoted = " ".join(f"'{word}'" if " " in word else word for word in words)
        print(f"Replay the whole round with: {prefix}.venv/bin/python -m {quoted}", flush=True)
    return not code


def _seconds(said: str) -> float:
    if said[-1:] not in UNITS_S or not said[:-1].isdigit():
        sys.exit(f"SOAK={said} is no time: write 90s, 10m or 2h.")
    return int(said[:-1]) * UNITS_S[said[-1]]


if __name__ == "__main__":
    sys.exit(main())
