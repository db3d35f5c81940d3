"""`python -m bench [NAME ...] [--quick] [--json FILE] [--docs]`: run the named benchmarks, or all, and show figures.

The exit status is 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import pkgutil
import signal
import sys
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

import bench
from bench import Figure, number
from bench.rig.machine import this_machine
from bench.rig.page import PAGE, section, with_figures


def main() -> int:
    known = sorted(m.name for m in pkgutil.iter_modules(bench.__path__) if not m.ispkg and not m.name.startswith("_"))
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="leave out, or make shorter, what takes minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--docs", action="store_true", help=f"also write them into {PAGE.name}")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(known):
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    if chosen.docs and chosen.quick:
        parser.error("--docs wants every figure: leave out --quick")

    # Being told to end is no reason to leave servers and browsers behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    machine, date = this_machine(), datetime.datetime.now(datetime.UTC).date().isoformat()
    Console().print(str(machine), highlight=False)
    results: dict[str, dict[str, Figure]] = {}
    for name in chosen.names or known:
        results[name] = _run(name, is_quick=chosen.quick)
        Console().print(_table(name, results[name]))
        if chosen.docs:
            page = with_figures(PAGE.read_text("utf-8"), name, section(name, results[name], machine, date))
            PAGE.write_text(page, "utf-8")
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    return 0 if all(figure.is_met for figures in results.values() for figure in figures.values()) else 1


def _run(name: str, *, is_quick: bool) -> dict[str, Figure]:
    module = importlib.import_module(f"bench.{name}")
    figures: dict[str, Figure] = module.run()
    more = getattr(module, "run_short" if is_quick else "run_long", None)
    return figures | more() if more is not None else figures


def _table(name: str, figures: dict[str, Figure]) -> Table:
    table = Table("figure", title=name)
    for heading in ("ours", "unit", "10 % to 90 %", "bar", "others in this run"):
        table.add_column(heading, justify="right" if heading in ("ours", "bar") else "left")
    for label, figure in figures.items():
        others = ", ".join(f"{other} {number(value)}" for other, value in figure.others.items())
        spread = " to ".join(number(end) for end in figure.spread) if figure.spread else ""
        table.add_row(label, number(figure.ours), figure.unit, spread, _bar(figure), others)
    return table


def _bar(figure: Figure) -> str:
    if not figure.bar:
        return ""
    return f"[green]{figure.bar}[/]" if figure.is_met else f"[bold red]{figure.bar} MISSED[/]"


if __name__ == "__main__":
    sys.exit(main())
