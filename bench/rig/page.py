"""Writes measured figures into docs/benchmarks.md, so that no number there is typed by a person.

Each benchmark has its place on the page, between two markers; what stands around them is prose. A run replaces what is
between the markers of the benchmarks that ran, and with it the date, the machine and the command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bench import Figure, number

from .machine import Machine

PAGE: Final = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def marked(name: str) -> tuple[str, str]:
    """The markers around a benchmark's place."""
    return f"<!-- figures of {name} -->", f"<!-- end of {name} -->"


def with_figures(page: str, name: str, section: str) -> str:
    """The page with that section in the benchmark's place; ValueError when it has none."""
    begin, end = marked(name)
    place = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    if len(place.findall(page)) != 1:
        raise ValueError(f"docs/benchmarks.md needs the markers '{begin}' and '{end}' exactly once.")
    return place.sub(lambda _: f"{begin}\n{section}{end}", page)


def section(name: str, figures: Mapping[str, Figure], machine: Machine, date: str) -> str:
    """What stands between the markers."""
    return "\n".join(_lines(name, figures, machine, date)) + "\n"


def _lines(name: str, figures: Mapping[str, Figure], machine: Machine, date: str) -> Iterator[str]:
    yield ""
    yield f"`make bench NAME={name}`, {date}. {machine}."
    yield ""
    yield "| figure | ours | 10 % to 90 % | bar | others in the same run |"
    yield "|---|---|---|---|---|"
    for label, figure in figures.items():
        spread = " to ".join(number(end) for end in figure.spread) if figure.spread else ""
        bar = figure.bar if figure.is_met else f"{figure.bar} **missed**"
        others = ", ".join(f"{other} {number(value)}" for other, value in figure.others.items())
        yield f"| `{label}` | {number(figure.ours)} {figure.unit} | {spread} | {bar} | {others} |"
    yield ""
