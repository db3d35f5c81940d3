"""The page that says how each safeguard is proven: what is switched off, which history notices, and what it says."""

from __future__ import annotations

import multiprocessing
import os
import re
from pathlib import Path

from .ablations import off
from .minimise import Failure, kind_of
from .safeguards import SAFEGUARDS, SEEDS_MAX, first_failure

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "ablations.md"
_ROW = re.compile(r"^\| (?P<safeguard>[^|]+) \| (?P<off>[^|]+) \| (?P<seed>\d+) \| (?P<said>[^|]+) \|$", re.MULTILINE)
_SAID_MAX = 110
_HEAD = f"""# Safeguards and their ablations

Each safeguard of the broker can be switched off in the simulator, and then the simulator must find something. This page
is written by `python -m tests.sim --ablations`; `tests/sim/test_ablations.py` fails when a safeguard is missing here,
and when none of {SEEDS_MAX:,} histories notices that it is switched off. *First seed* is the first history that does,
and *what it said* the violation, without the names in it.

| safeguard | switched off | first seed | what it said |
|---|---|---|---|
"""


def rows() -> dict[str, int]:
    """The first seed of each safeguard that the page has."""
    text = PAGE.read_text() if PAGE.exists() else ""
    return {row["safeguard"]: int(row["seed"]) for row in _ROW.finditer(text)}


def write() -> int:
    """Look for the first seeds, those that are known first, and write the page; 1 if a safeguard is not proven."""
    names = list(SAFEGUARDS)
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        found = dict(zip(names, pool.imap(_search, names), strict=True))
    lines = [_line(name, failure) for name, failure in found.items() if failure is not None]
    PAGE.write_text(_HEAD + "\n".join(lines) + "\n")
    missing = [name for name, failure in found.items() if failure is None]
    for name in missing:
        print(f"not found in {SEEDS_MAX} histories: {name}")
    print(f"{len(lines)} safeguards are proven, {len(missing)} are not")
    return 1 if missing else 0


def _search(safeguard: str) -> Failure | None:
    known = rows().get(safeguard)
    return first_failure(safeguard, [*([] if known is None else [known]), *range(SEEDS_MAX)])


def _line(safeguard: str, failure: Failure) -> str:
    said = " ".join(kind_of(failure.what).replace("|", "/").split())
    said = said if len(said) <= _SAID_MAX else f"{said[:_SAID_MAX]}…"
    return f"| {safeguard} | {off(SAFEGUARDS[safeguard])} | {failure.seed} | {said} |"
