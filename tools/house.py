"""The figures of the house, which `make check` prints: how large the package is, and how hard it is to find one's way.

A figure that has passed its goal is followed by the goal. `python tools/house.py --worst` names the places behind the
figures.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1] / "src" / "tabherd"
# A comment or docstring with such a beginning has no subject of its own.
SUBJECTLESS = re.compile(
    r"(It|Its|What|Who|Whose|Whether|Those|That|Which|The same|Whoever|Whatever|Of what)\b",
)
GOALS = {
    "lines": 55_000,
    "files": 260,
    "files in a folder": 18,
    "arguments of a constructor": 8,
    "lines of a function": 80,
    "callable parameters": 60,
    "comments without a subject": 250,
}
# Figures about the largest of its kind; the others are sums.
LARGEST = ("files in a folder", "arguments of a constructor", "lines of a function")
WORST = 10
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Place(NamedTuple):
    """One value of a figure, and where it was found."""

    value: int
    where: str


def comments(source: str) -> Iterator[tuple[int, str]]:
    """The first line of each block of comments, with its number."""
    last = -2
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield token.start[0], token.string.lstrip("# ")
            last = token.start[0]


def look(path: Path) -> Iterator[tuple[str, Place]]:
    """The values that one file adds to the figures."""
    source, name = path.read_text(), path.relative_to(ROOT)
    yield "lines", Place(len(source.splitlines()), str(name))
    yield "files", Place(1, str(name))
    for number, text in comments(source):
        if SUBJECTLESS.match(text):
            yield "comments without a subject", Place(1, f"{name}:{number}")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            where = f"{name}:{node.lineno} {node.name}"
            yield "lines of a function", Place((node.end_lineno or node.lineno) - node.lineno + 1, where)
            if node.name == "__init__":
                yield "arguments of a constructor", Place(len(node.args.args) - 1 + len(node.args.kwonlyargs), where)
        if isinstance(node, ast.arg) and node.annotation is not None and "Callable" in ast.unparse(node.annotation):
            yield "callable parameters", Place(1, f"{name}:{node.lineno} {node.arg}")
        if isinstance(node, Function | ast.ClassDef | ast.Module):
            text = ast.get_docstring(node)
            if text and SUBJECTLESS.match(text):
                yield "comments without a subject", Place(1, f"{name}:{getattr(node, 'lineno', 1)}")


def main() -> None:
    places: dict[str, list[Place]] = {figure: [] for figure in GOALS}
    paths = sorted(ROOT.rglob("*.py"))
    for path in paths:
        for figure, place in look(path):
            places[figure].append(place)
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in paths if path.name != "__init__.py")
    places["files in a folder"] = [Place(count, folder) for folder, count in folders.items()]
    for figure, goal in GOALS.items():
        is_largest = figure in LARGEST
        values = [place.value for place in places[figure]]
        value = max(values) if is_largest else sum(values)
        over = f"{sum(each > goal for each in values)} over {goal}" if is_largest else f"goal {goal:,}"
        print(f"  {figure}: {value:,}" + (f" ({over})" if value > goal else ""))
        if "--worst" in sys.argv and value > goal:
            for place in sorted(places[figure], reverse=True)[:WORST]:
                print(f"    {place.value:>6} {place.where}")


if __name__ == "__main__":
    main()
