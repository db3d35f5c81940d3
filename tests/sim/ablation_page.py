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
# The headings of the parts about several nodes and about real pages.
OTHERS = "\n## Several nodes\n"
REAL = "\n## Real pages\n"
_HEAD = f"""# Safeguards and their ablations

Each safeguard of the broker can be switched off in the simulator, and then the simulator must find something. This page
is written by `python -m tests.sim --ablations`; `tests/sim/test_ablations.py` fails when a safeguard is missing here,
and when neither the history that is named nor any of the first {SEEDS_MAX:,} notices that it is switched off. *Seed* is
a history that does, the first one unless a longer campaign has found it, and *what it said* the violation, without the
names in it.

| safeguard | switched off | seed | what it said |
|---|---|---|---|
"""


def rows() -> dict[str, int]:
    """The seed of each safeguard that the page has."""
    return rows_of(split(PAGE.read_text())[0]) if PAGE.exists() else {}


def rows_of(text: str) -> dict[str, int]:
    """The seeds of the safeguards in that part of the page."""
    return {row["safeguard"]: int(row["seed"]) for row in _ROW.finditer(text)}


def split(page: str) -> tuple[str, str]:
    """The page, and its part about several nodes, which is not written here."""
    first, heading, others = page.partition(OTHERS)
    return first, heading + others


def write() -> int:
    """Look for seeds, those that are known first, and write the page; 1 if a safeguard is not proven."""
    names = list(SAFEGUARDS)
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        found = dict(zip(names, pool.imap(_search, names), strict=True))
    lines = [line_of(name, off(SAFEGUARDS[name]), failure) for name, failure in found.items() if failure is not None]
    others = split(PAGE.read_text())[1] if PAGE.exists() else ""
    PAGE.write_text(_HEAD + "\n".join(lines) + "\n" + others)
    missing = [name for name, failure in found.items() if failure is None]
    for name in missing:
        print(f"not found in {SEEDS_MAX} histories: {name}")
    print(f"{len(lines)} safeguards are proven, {len(missing)} are not")
    return 1 if missing else 0


def _search(safeguard: str) -> Failure | None:
    known = rows().get(safeguard)
    return first_failure(safeguard, [*([] if known is None else [known]), *range(SEEDS_MAX)])


def line_of(safeguard: str, off: str, failure: Failure) -> str:
    """A row of the table."""
    said = " ".join(kind_of(failure.what).replace("|", "/").split())
    said = said if len(said) <= _SAID_MAX else f"{said[:_SAID_MAX]}…"
    return f"| {safeguard} | {off} | {failure.seed} | {said} |"
