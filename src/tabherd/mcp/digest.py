"""Makes a snapshot as short as a model wants to read it, and still all that it can act upon.

A snapshot that is short enough stays as it is. Of one that is too long, long texts are clipped, then lines without a
ref go, from the end, and only then lines with one. What was left out is said in the last line, together with how to see
it.
"""

from __future__ import annotations

import re
from typing import Final

# Less than 1 000 tokens, the last line included, also where refs and quotes make them short.
CHARS_MAX: Final = 2_800
# What is kept of a long text when there is not room for all.
CLIP: Final = 100
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_REF: Final = " [ref="


def digest(snapshot: str, chars_max: int = CHARS_MAX) -> str:
    """The snapshot, or the most useful part of it and a line that says so."""
    return snapshot if len(snapshot) <= chars_max else _shortened(snapshot.split("\n"), chars_max)


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
    """With its texts short. What stands between them, the refs above all, stays whole."""
    return _TEXT.sub(_clip, line)


def _clip(text: re.Match[str]) -> str:
    # An escape that was cut in two would not end with the text.
    return text[0] if len(text[1]) <= CLIP else f'"{text[1][:CLIP].rstrip(chr(92))}…"'


def _rank(line: str) -> int:
    if _REF in line:
        return 0
    return 1 if line.lstrip().startswith("heading ") else 2
