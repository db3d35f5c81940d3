"""Writes the pages and diagrams under docs/reference/ from the code they describe; `--check` says which are stale.

Each page has one source: the error catalogue, the configuration structs, the lifecycle tables, the table of event
types, the route table, the structs of the control channel, the command line. What can be derived is never written
twice.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from diagrams import LIFECYCLES, diagram
from reference import cli, configuration, control, errors, events, http, lifecycles

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
DIAGRAMS = REFERENCE / "diagrams"
NOTICE = "<!-- Written by tools/docs.py from the code; change the code and run 'make docs'. -->"

PAGES: Mapping[str, Callable[[], Iterator[str]]] = {
    "cli": cli.write,
    "configuration": configuration.write,
    "control-channel": control.write,
    "errors": errors.write,
    "events": events.write,
    "http": http.write,
    "lifecycles": lifecycles.write,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 and name the stale pages")
    written = dict(files())
    stale = [path for path, text in written.items() if _read(path) != text]
    # A picture of a machine that is no more would stay for ever.
    stale += [path for path in sorted(DIAGRAMS.glob("*")) if path not in written]
    if parser.parse_args().check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale; run 'make docs'.")
        return 1 if stale else 0
    DIAGRAMS.mkdir(exist_ok=True)
    for path in stale:
        if path in written:
            path.write_text(written[path], encoding="utf-8")
        else:
            path.unlink()
    print(f"{len(written)} files in docs/reference, {len(stale)} of them changed.")
    return 0


def files() -> Iterator[tuple[Path, str]]:
    """Every generated page and diagram with the text it should have."""
    for name, write in PAGES.items():
        yield REFERENCE / f"{name}.md", "\n".join((NOTICE, "", *write())).rstrip() + "\n"
    for name in LIFECYCLES:
        yield DIAGRAMS / f"{name}.svg", diagram(name)


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
