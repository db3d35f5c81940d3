"""Draws a plot as an SVG picture that can be read in light and in dark, and without colours.

Series differ by dashes and by marks as well as by colour, and are named in a legend in the order in which they end. The
same plot always gives the same bytes, so that a picture changes only with its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

import msgspec

from .plot import Plot, Points

WIDTH: Final = 760
HEIGHT: Final = 380
# Where the axes are: left, top, right, bottom.
LEFT: Final = 64
TOP: Final = 44
RIGHT: Final = 520
BOTTOM: Final = 326
LEGEND: Final = 536
LEGEND_STEP: Final = 22
TICKS: Final = 7
# So close to the axis a label ends.
GAP: Final = 8
# Marks on a line: more would hide it.
MARKS_MAX: Final = 9
# Light and dark; the dashes of each series; its mark.
COLOURS: Final = (
    ("#1f5fae", "#7fb2f5"),
    ("#a5521d", "#eba873"),
    ("#2c7a4b", "#7fd0a0"),
    ("#7a3fa0", "#c9a0ea"),
    ("#8a6d00", "#e0c65c"),
    ("#b02a4c", "#f08ca6"),
    ("#46566e", "#aab7cc"),
    ("#0f7d85", "#6fd3d9"),
)
DASHES: Final = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 4", "1 3", "14 3 3 3 3 3")
SERIES_MAX: Final = len(COLOURS)


class _Axis(msgspec.Struct, frozen=True, kw_only=True):
    """From values to places."""

    low: float
    high: float
    is_log: bool
    begin: float
    end: float

    def place(self, value: float) -> float:
        part = (self._scaled(value) - self._scaled(self.low)) / (self._scaled(self.high) - self._scaled(self.low))
        return self.begin + part * (self.end - self.begin)

    def ticks(self) -> list[float]:
        if self.is_log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            decades = [10.0**power for power in range(first, last + 1)]
            steps = (1, 2, 5) if len(decades) <= 3 else (1,)
            found = [decade * step for decade in decades for step in steps]
        else:
            step = _nice((self.high - self.low) / TICKS)
            found = [step * number for number in range(math.floor(self.low / step), math.ceil(self.high / step) + 1)]
        return [tick for tick in found if self.low <= tick * (1 + 1e-9) and tick <= self.high * (1 + 1e-9)]

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.is_log else value


def drawn(plot: Plot) -> str:
    """The picture."""
    if not 1 <= len(plot.series) <= SERIES_MAX or not all(plot.series.values()):
        raise ValueError(
            f"{plot.title!r} has {len(plot.series)} series; 1 to {SERIES_MAX}, none of them empty, can be told apart"
        )
    return "\n".join(_lines(plot)) + "\n"


def description(plot: Plot) -> str:
    """What a reader hears who does not see it."""
    ends = "; ".join(
        f"{name} from {_number(line[0][1])} to {_number(line[-1][1])}" for name, line in plot.series.items()
    )
    return f"{plot.y} over {plot.x}: {ends}."


def _lines(plot: Plot) -> Iterator[str]:
    x, y = _axes(plot)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" aria-labelledby="title description">'
    )
    yield f'<title id="title">{escape(plot.title)}</title>'
    yield f'<desc id="description">{escape(description(plot))}</desc>'
    yield f"<style>\n{_style(len(plot.series))}\n</style>"
    yield f'<text class="bold" x="{LEFT}" y="20">{escape(plot.title)}</text>'
    yield from _grid(plot, x, y)
    for number, line in enumerate(plot.series.values()):
        if plot.kind == "bars":
            yield from _bars(number, line, len(plot.series), x, y)
        else:
            yield from _line(number, line, x, y)
    if plot.bar is not None:
        at = y.place(plot.bar)
        yield f'<line class="bar" x1="{LEFT}" x2="{RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
    yield from _legend(plot)
    yield "</svg>"


def _axes(plot: Plot) -> tuple[_Axis, _Axis]:
    xs = [x for line in plot.series.values() for x, _ in line]
    ys = [y for line in plot.series.values() for _, y in line] + ([plot.bar] if plot.bar is not None else [])
    x_low, x_high = _span(xs, is_log=plot.is_log_x)
    y_low, y_high = _span(ys, is_log=plot.is_log_y)
    if plot.kind == "bars":
        # Room for half a bar at either end.
        x_low, x_high = min(xs) - 0.75, max(xs) + 0.75
    if not plot.is_log_y:
        # From nothing: a line that begins above it tells of differences that are not there.
        y_low, y_high = min(0.0, y_low), y_high * 1.05
    return (
        _Axis(low=x_low, high=x_high, is_log=plot.is_log_x, begin=LEFT, end=RIGHT),
        _Axis(low=y_low, high=y_high, is_log=plot.is_log_y, begin=BOTTOM, end=TOP),
    )


def _span(values: Sequence[float], *, is_log: bool) -> tuple[float, float]:
    low, high = min(values), max(values)
    if is_log and low <= 0:
        raise ValueError("nothing at or below 0 has a place on a logarithmic axis")
    if low == high:
        return (low / 2, high * 2) if is_log else (low - 1, high + 1)
    return low, high


def _grid(plot: Plot, x: _Axis, y: _Axis) -> Iterator[str]:
    for tick in y.ticks():
        at = y.place(tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text class="quiet end" x="{LEFT - GAP}" y="{at:.1f}">{_number(tick)}</text>'
    for tick in x.ticks():
        at = x.place(tick)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{BOTTOM}" y2="{BOTTOM + 4}"/>'
        yield f'<text class="quiet middle" x="{at:.1f}" y="{BOTTOM + 15}">{_number(tick)}</text>'
    yield f'<path class="axis" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"/>'
    yield f'<text class="quiet middle" x="{(LEFT + RIGHT) / 2:.0f}" y="{BOTTOM + 36}">{escape(plot.x)}</text>'
    middle = (TOP + BOTTOM) / 2
    yield (
        f'<text class="quiet middle" transform="rotate(-90 14 {middle:.0f})" x="14" y="{middle:.0f}">'
        f"{escape(plot.y)}</text>"
    )


def _line(number: int, line: Points, x: _Axis, y: _Axis) -> Iterator[str]:
    places = [(x.place(px), y.place(py)) for px, py in line]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    yield f'<polyline class="line s{number}" points="{path}"/>'
    step = max(1, math.ceil(len(places) / MARKS_MAX))
    # Not all begin with the first point, so that marks of lines that lie on each other are both seen.
    for px, py in places[(number if len(places) > MARKS_MAX else 0) % step :: step]:
        yield _mark(number, px, py)


def _bars(number: int, line: Points, count: int, x: _Axis, y: _Axis) -> Iterator[str]:
    """Those of several series stand side by side."""
    slot = (x.place(1) - x.place(0)) * 0.8
    width = slot / count
    for px, py in line:
        left, top = x.place(px) - slot / 2 + number * width, y.place(py)
        yield (
            f'<rect class="block f{number}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" '
            f'height="{max(0.0, BOTTOM - top):.1f}"/>'
        )


def _mark(number: int, px: float, py: float) -> str:
    match number % 4:
        case 0:
            return f'<circle class="mark f{number}" cx="{px:.1f}" cy="{py:.1f}" r="3.5"/>'
        case 1:
            return f'<rect class="mark f{number}" x="{px - 3.2:.1f}" y="{py - 3.2:.1f}" width="6.4" height="6.4"/>'
        case 2:
            return f'<path class="mark f{number}" d="M{px:.1f} {py - 4.4:.1f}l4.4 7.6h-8.8z"/>'
        case _:
            return f'<path class="mark f{number}" d="M{px:.1f} {py - 4.6:.1f}l4.6 4.6l-4.6 4.6l-4.6 -4.6z"/>'


def _legend(plot: Plot) -> Iterator[str]:
    for number, name in enumerate(plot.series):
        at = TOP + 8 + number * LEGEND_STEP
        if plot.kind == "bars":
            yield f'<rect class="block f{number}" x="{LEGEND + 8}" y="{at - 5}" width="12" height="10"/>'
        else:
            yield f'<path class="line s{number}" d="M{LEGEND} {at}h30"/>'
            yield _mark(number, LEGEND + 15, at)
        yield f'<text x="{LEGEND + 38}" y="{at}">{escape(name)}</text>'
    if plot.bar is not None:
        at = TOP + 8 + len(plot.series) * LEGEND_STEP
        yield f'<line class="bar" x1="{LEGEND}" x2="{LEGEND + 30}" y1="{at}" y2="{at}"/>'
        yield f'<text x="{LEGEND + 38}" y="{at}">{escape(plot.bar_name)}</text>'


def _style(count: int) -> str:
    rules = [
        'svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; '
        "font-size: 12px; }",
        "text { fill: #1b2433; dominant-baseline: central; }",
        ".middle { text-anchor: middle; }",
        ".end { text-anchor: end; }",
        ".bold { font-weight: 600; font-size: 14px; }",
        ".quiet { fill: #5b6880; font-size: 11px; }",
        ".grid { stroke: #d5dbe5; stroke-width: 1; }",
        ".axis { fill: none; stroke: #6b7a92; stroke-width: 1.2; }",
        ".bar { stroke: #1b2433; stroke-width: 1.2; stroke-dasharray: 3 3; }",
        ".line { fill: none; stroke-width: 1.8; }",
    ]
    dark = [
        "text { fill: #e4eaf3; }",
        ".quiet { fill: #9aa8bf; }",
        ".grid { stroke: #2e3a4f; }",
        ".axis { stroke: #8593ab; }",
        ".bar { stroke: #e4eaf3; }",
    ]
    for number, (light, dim) in enumerate(COLOURS[:count]):
        dashes = f" stroke-dasharray: {DASHES[number]};" if DASHES[number] else ""
        rules += [f".s{number} {{ stroke: {light};{dashes} }}", f".f{number} {{ fill: {light}; }}"]
        dark += [f".s{number} {{ stroke: {dim}; }}", f".f{number} {{ fill: {dim}; }}"]
    inner = "\n".join(f"  {rule}" for rule in dark)
    return "\n".join(rules) + f"\n@media (prefers-color-scheme: dark) {{\n{inner}\n}}"


def _nice(step: float) -> float:
    """The next of 1, 2 and 5 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
