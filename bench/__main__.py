"""`python -m bench [NAME ...] [--quick] [--json FILE] [--docs]`: run the named benchmarks, or all, and show figures.

With `--docs` the page of benchmarks and its plots are written, each when its benchmark is through; `--redraw` draws the
plots of the last such run anew and measures nothing. One that fails does not keep the others from being measured. The
exit status is 1 when a bar is missed or a benchmark failed.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import pkgutil
import signal
import sys
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

import bench
from bench import Figure, number
from bench.rig.machine import this_machine
from bench.rig.page import PAGE, redraw, section, with_figures, write_plots
from bench.rig.plot import Plot


def main() -> int:
    known = sorted(m.name for m in pkgutil.iter_modules(bench.__path__) if not m.ispkg and not m.name.startswith("_"))
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="leave out, or make shorter, what takes minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--docs", action="store_true", help=f"also write them into {PAGE.name}")
    parser.add_argument("--redraw", action="store_true", help="draw the plots of the documentation anew, and end")
    chosen = parser.parse_args()
    if chosen.redraw:
        redraw()
        return 0
    if unknown := set(chosen.names) - set(known):
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    if chosen.docs and chosen.quick:
        parser.error("--docs wants every figure: leave out --quick")

    # Being told to end is no reason to leave servers and browsers behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    machine, date = this_machine(), datetime.datetime.now(datetime.UTC).date().isoformat()
    Console().print(str(machine), highlight=False)
    results: dict[str, dict[str, Figure | Plot]] = {}
    failed: list[str] = []
    for name in chosen.names or known:
        # Anew for each: others may have come or gone since the first.
        machine, began_s = this_machine(), time.monotonic()
        try:
            results[name] = _run(name, is_quick=chosen.quick)
        except Exception:  # noqa: BLE001 - it is told, and the run has failed
            Console().print_exception()
            failed.append(name)
            continue
        Console().print(f"{name} took {time.monotonic() - began_s:.0f} s", highlight=False)
        figures, plots = _figures(results[name]), _plots(results[name])
        Console().print(_table(name, figures))
        if chosen.docs:
            write_plots(plots)
            written = section(name, figures, machine, date, plots)
            PAGE.write_text(with_figures(PAGE.read_text("utf-8"), name, written), "utf-8")
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    if failed:
        Console().print(f"[bold red]Failed: {', '.join(failed)}[/]")
    missed = [figure for each in results.values() for figure in _figures(each).values() if not figure.is_met]
    return 1 if failed or missed else 0


def _run(name: str, *, is_quick: bool) -> dict[str, Figure | Plot]:
    module = importlib.import_module(f"bench.{name}")
    measured: dict[str, Figure | Plot] = module.run()
    more = getattr(module, "run_short" if is_quick else "run_long", None)
    return measured | more() if more is not None else measured


def _figures(measured: dict[str, Figure | Plot]) -> dict[str, Figure]:
    return {label: figure for label, figure in measured.items() if isinstance(figure, Figure)}


def _plots(measured: dict[str, Figure | Plot]) -> dict[str, Plot]:
    return {label: plot for label, plot in measured.items() if isinstance(plot, Plot)}


def _table(name: str, figures: dict[str, Figure]) -> Table:
    table = Table("figure", title=name)
    for heading in ("ours", "unit", "10 % to 90 %", "bar", "others in this run"):
        table.add_column(heading, justify="right" if heading in ("ours", "bar") else "left")
    for label, figure in figures.items():
        spread = " to ".join(number(end) for end in figure.spread) if figure.spread else ""
        table.add_row(label, number(figure.ours), figure.unit, spread, _bar(figure), figure.beside)
    return table


def _bar(figure: Figure) -> str:
    if not figure.bar:
        return ""
    return f"[green]{figure.bar}[/]" if figure.is_met else f"[bold red]{figure.bar} MISSED[/]"


if __name__ == "__main__":
    sys.exit(main())
