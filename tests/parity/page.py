"""Writes the situations into docs/parity.md, so that no line of its tables is typed by a person.

The page has one place for them, between two markers; what stands around is prose.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .catalogue import MODULES, SITUATIONS
from .situation import Outcome, Situation

PAGE: Final = Path(__file__).parents[2] / "docs" / "parity.md"
BEGIN: Final = "<!-- situations -->"
END: Final = "<!-- end of situations -->"


def with_situations(page: str) -> str:
    """The page with what is in the catalogue now; ValueError when it has no place for that."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"{PAGE.name} needs the markers '{BEGIN}' and '{END}' exactly once.")
    before, rest = page.split(BEGIN)
    return "\n".join([before + BEGIN, *_lines(), END + rest.split(END)[1]])


def _lines() -> Iterator[str]:
    differing = [situation for situation in SITUATIONS if situation.difference]
    agreeing = len(SITUATIONS) - len(differing)
    yield ""
    yield f"{len(SITUATIONS)} situations: {agreeing} agree, {len(differing)} differ for a reason."
    for module in MODULES:
        title = (importlib.import_module(f".{module}", __package__).__doc__ or "").splitlines()[0]
        yield from ("", f"### {title.removeprefix('Situations of ').capitalize().rstrip('.')}", "")
        yield from ("| situation | | ends |", "|---|---|---|")
        for situation in importlib.import_module(f".{module}", __package__).SITUATIONS:
            yield f"| `{situation.name}` | {_cell(situation.about)} | {_end(situation)} |"
    yield from ("", "## Differences", "")
    for situation in differing:
        yield f"- **`{situation.name}`** ({_end(situation)}). {situation.about} {situation.difference}"
    yield ""


def _end(situation: Situation) -> str:
    if situation.ours_pinned is None or situation.theirs_pinned is None:
        return f"`{situation.end}`"
    ours, theirs = situation.ours_pinned, situation.theirs_pinned
    return f"ours `{ours.end}`, Playwright's `{theirs.end}`{_also(ours, theirs)}"


def _also(ours: Outcome, theirs: Outcome) -> str:
    return ", the page noticing other things" if ours.end == theirs.end else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
