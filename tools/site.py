"""Builds the documentation into build/site/: plain pages that need no server, no network and nobody else's code.

`python tools/site.py --out DIRECTORY` builds it elsewhere. Copy the directory to any web server, or open its
index.html from the disk.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from site_html import build
from site_pages import ROOT, SiteError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="where to build it")
    out = parser.parse_args().out
    try:
        count = build(ROOT, out)
    except SiteError as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    print(f"{count} pages: {out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
