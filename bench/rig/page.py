"""Writes measured figures into docs/benchmarks.md, so that no number there is typed by a person.

Each benchmark has its place on the page, between two markers; what stands around them is prose. A run replaces what is
between the markers of the benchmarks that ran, and with it the date, the machine, the versions and the command, and
the plots of that run in docs/plots: the numbers of each as JSON, and the picture that is drawn from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from bench import Figure, number

from .machine import Machine
from .plot import Plot
from .plot_svg import description, drawn
from .versions import versions_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "benchmarks.md"
PLOTS: Final = PAGE.parent / "plots"


def marked(name: str) -> tuple[str, str]:
    """The markers around a benchmark's place."""
    return f"<!-- figures of {name} -->", f"<!-- end of {name} -->"


def with_figures(page: str, name: str, section: str) -> str:
    """The page with that section in the benchmark's place; ValueError when it has none."""
    begin, end = marked(name)
    place = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    if len(place.findall(page)) != 1:
        raise ValueError(f"The page needs the markers '{begin}' and '{end}' exactly once.")
    return place.sub(lambda _: f"{begin}\n{section}{end}", page)


def section(
    name: str, figures: Mapping[str, Figure], machine: Machine, date: str, plots: Mapping[str, Plot] | None = None
) -> str:
    """What stands between the markers."""
    return "\n".join(_lines(name, figures, machine, date, plots or {})) + "\n"


def write_plots(plots: Mapping[str, Plot]) -> None:
    """Each as its numbers and its picture."""
    PLOTS.mkdir(exist_ok=True)
    for label, plot in plots.items():
        (PLOTS / f"{label}.json").write_bytes(msgspec.json.encode(plot) + b"\n")
        (PLOTS / f"{label}.svg").write_text(drawn(plot), "utf-8")


def kept_plots() -> dict[str, Plot]:
    """Those of the runs that the page shows, by name."""
    return {each.stem: msgspec.json.decode(each.read_bytes(), type=Plot) for each in sorted(PLOTS.glob("*.json"))}


def redraw() -> None:
    """All pictures, from the numbers that are kept."""
    write_plots(kept_plots())


def _lines(
    name: str, figures: Mapping[str, Figure], machine: Machine, date: str, plots: Mapping[str, Plot]
) -> Iterator[str]:
    others = {other for figure in figures.values() for other in figure.others}
    versions = "".join(f", {peer} {version}" for peer, version in versions_of(others).items())
    yield ""
    yield f"`make bench NAME={name}`, {date}. {machine}{f'; beside{versions[1:]}' if versions else ''}."
    yield ""
    yield "| figure | ours | 10 % to 90 % | bar | others in the same run |"
    yield "|---|---|---|---|---|"
    for label, figure in figures.items():
        spread = " to ".join(number(end) for end in figure.spread) if figure.spread else ""
        bar = figure.bar if figure.is_met else f"{figure.bar} **missed**"
        yield f"| `{label}` | {number(figure.ours)} {figure.unit} | {spread} | {bar} | {figure.beside} |"
    yield ""
    for label, plot in plots.items():
        yield f"![{plot.title}. {description(plot)}]({PLOTS.name}/{label}.svg)"
        yield ""
