"""`python -m tests.parity [--times N] [--only NAME] [--jobs J] [--ours | --both] [--docs]`: run situations many times.

Every run that deviates is printed with its situation and its repetition, and makes the exit status 1.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time

import structlog

from .campaign import play
from .catalogue import BY_NAME, SITUATIONS
from .page import PAGE, with_situations


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("--times", type=int, default=1, metavar="N", help="repetitions of each situation")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this situation; may be repeated")
    parser.add_argument("--jobs", type=int, default=4, metavar="J", help="pages at once")
    side = parser.add_mutually_exclusive_group()
    side.add_argument("--ours", action="store_true", help="repeat only our side (the default)")
    side.add_argument("--both", action="store_true", help="repeat Playwright's side as well")
    parser.add_argument("--docs", action="store_true", help=f"only write the situations into {PAGE.name}")
    chosen = parser.parse_args()
    if chosen.docs:
        PAGE.write_text(with_situations(PAGE.read_text("utf-8")), "utf-8")
        return 0
    if unknown := set(chosen.only or ()) - set(BY_NAME):
        parser.error(f"no situation named {', '.join(sorted(unknown))}")
    situations = [BY_NAME[name] for name in chosen.only] if chosen.only else SITUATIONS

    # Pages that are slow to close are nothing to read about here.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    began = time.perf_counter()
    deviations = asyncio.run(
        play(situations, times=chosen.times, jobs=chosen.jobs, is_ours_only=not chosen.both, tell=_tell)
    )
    print(f"{time.perf_counter() - began:.0f} s")
    print(f"parity: {len(situations)} situations x {chosen.times} repetitions: {deviations} flakes")
    return 1 if deviations else 0


def _tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
