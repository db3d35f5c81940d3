"""Makes a snapshot as short as a model wants to read it, and still all that it can act upon.

First without loss: lines that only say "here comes an item" go, and the cells of a table's row share one line. If that
is still too long, long texts are clipped, then lines without a ref go, from the end, and only then lines with one. What
was left out is said in the last line, together with how to see it.
"""

from __future__ import annotations

from typing import Final

# Less than 1 000 tokens, the last line included, also where refs and quotes make them short.
CHARS_MAX: Final = 2_800
# What is kept of a long text when there is not room for all.
CLIP: Final = 140
INDENT: Final = "  "
# Say nothing by themselves; what is in them does.
WRAPPERS: Final = frozenset(("listitem", "generic", "rowgroup"))
CELLS: Final = ("cell ", "columnheader ", "rowheader ", "gridcell ")
_REF: Final = " [ref="


def digest(snapshot: str, chars_max: int = CHARS_MAX) -> str:
    """The snapshot without what is of no use, or the most useful part of it and a line that says so."""
    lines = _joined(_unwrapped(snapshot.splitlines()))
    whole = "\n".join(lines)
    return whole if len(whole) <= chars_max else _shortened(lines, chars_max)


def _unwrapped(lines: list[str]) -> list[str]:
    """Without wrappers; what was in them stands in their place."""
    kept: list[str] = []
    # How deep the wrappers are that the line is in, outermost first.
    within: list[int] = []
    for line in lines:
        depth = _depth(line)
        while within and depth <= within[-1]:
            within.pop()
        if line.strip() in WRAPPERS:
            within.append(depth)
        else:
            kept.append(line[len(INDENT) * len(within) :])
    return kept


def _joined(lines: list[str]) -> list[str]:
    """With the cells of each row behind it, where they are nothing but text."""
    joined: list[str] = []
    start = 0
    while start < len(lines):
        line = lines[start]
        end = start + 1
        if line.strip() == "row":
            while end < len(lines) and _depth(lines[end]) > _depth(line):
                end += 1
            inside = [each.strip() for each in lines[start + 1 : end]]
            if inside and all(each.startswith(CELLS) and _REF not in each for each in inside):
                line = f"{line} {' | '.join(each.partition(' ')[2] for each in inside)}"
            else:
                end = start + 1
        joined.append(line)
        start = end
    return joined


def _shortened(lines: list[str], chars_max: int) -> str:
    lines = [_clipped(line) for line in lines]
    # Useful lines come first, each kind in the page's order.
    order = sorted(range(len(lines)), key=lambda number: (_rank(lines[number]), number))
    kept: set[int] = set()
    left = chars_max
    for number in order:
        left -= len(lines[number]) + 1
        if left < 0:
            break
        kept.add(number)
    shown = [line for number, line in enumerate(lines) if number in kept]
    gone = len(lines) - len(kept)
    note = f"{gone} of {len(lines)} lines left out" if gone else "long texts clipped"
    return "\n".join([*shown, f"... truncated: {note}. See a part with selector or ref, or all with full."])


def _clipped(line: str) -> str:
    if len(line) <= CLIP:
        return line
    # The ref stands behind the name; without it a long link could not be clicked.
    name, ref, behind = line.rpartition(_REF)
    return f"{name[:CLIP]}…{ref}{behind.partition(']')[0]}]" if ref else f"{line[:CLIP]}…"


def _rank(line: str) -> int:
    if _REF in line:
        return 0
    return 1 if line.lstrip().startswith("heading ") else 2


def _depth(line: str) -> int:
    return (len(line) - len(line.lstrip(" "))) // len(INDENT)
