"""Writes the reference pages under docs/reference/ from the code they describe; `--check` only says which are stale.

Each page has one source: the error catalogue, the configuration structs, the lifecycle tables, the table of event
types, the route table, the structs of the control channel, the command line. What can be derived is never written
twice.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from reference import cli, configuration, control, errors, events, http, lifecycles

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
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
    stale = [path for path, text in pages() if _read(path) != text]
    if parser.parse_args().check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale; run 'make docs'.")
        return 1 if stale else 0
    for path, text in pages():
        path.write_text(text, encoding="utf-8")
    print(f"{len(PAGES)} pages in docs/reference, {len(stale)} of them changed.")
    return 0


def pages() -> Iterator[tuple[Path, str]]:
    """Every generated page with the text it should have."""
    for name, write in PAGES.items():
        yield REFERENCE / f"{name}.md", "\n".join((NOTICE, "", *write())).rstrip() + "\n"


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
