"""`python -m bench [NAME ...] [--json FILE]`: run the named benchmarks, or all of them, and print what they measured.

The exit status is 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

import bench
from bench import Figure


def main() -> int:
    known = sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if not module.name.startswith("_"))
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(known)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(known):
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are: {', '.join(known)}")

    results: dict[str, dict[str, Figure]] = {}
    for name in chosen.names or known:
        results[name] = importlib.import_module(f"bench.{name}").run()
        Console().print(_table(name, results[name]))
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    return 0 if all(figure.is_met for figures in results.values() for figure in figures.values()) else 1


def _table(name: str, figures: dict[str, Figure]) -> Table:
    table = Table("figure", title=name)
    for heading in ("ours", "unit", "bar", "others in this run"):
        table.add_column(heading, justify="right" if heading in ("ours", "bar") else "left")
    for label, figure in figures.items():
        others = ", ".join(f"{other} {_number(value)}" for other, value in figure.others.items())
        table.add_row(label, _number(figure.ours), figure.unit, _bar(figure), others)
    return table


def _bar(figure: Figure) -> str:
    if figure.at_most is None and figure.at_least is None:
        return ""
    wanted = f"<= {_number(figure.at_most)}" if figure.at_most is not None else f">= {_number(figure.at_least or 0)}"
    return f"[green]{wanted}[/]" if figure.is_met else f"[bold red]{wanted} MISSED[/]"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


sys.exit(main())
