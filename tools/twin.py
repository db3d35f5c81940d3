"""Writes the synchronous client (client/sync) from the asynchronous one (client/aio), so that both are always alike.

Only the spelling differs: `async` and `await` go, and names lose their `Async`. What really differs, sleeping, beating
and the disk, is in `seam.py` of each and written by hand. `--check` changes nothing and says what is stale.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLIENT = ROOT / "src" / "tabherd" / "client"
BY_HAND = ("seam.py",)
NOTICE = "# Written by tools/twin.py from client/aio; change that and run 'make docs'.\n"

SPELLING = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\ba(close|read|iter_lines|iter_bytes)\(", r"\1("),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsync([A-Z])", r"\1"),
    (
        r"\bThe client for asyncio; the one that waits for each answer is made from it\.",
        "The client that waits for each answer.",
    ),
)


def twin(source: str) -> str:
    """The synchronous spelling of an asynchronous module."""
    for pattern, spelling in SPELLING:
        source = re.sub(pattern, spelling, source)
    ruff = [sys.executable, "-m", "ruff"]
    source = NOTICE + source
    for command in (["check", "--select=I", "--fix", "-q"], ["format", "-q"]):
        done = subprocess.run(
            [*ruff, *command, "--stdin-filename", str(CLIENT / "sync" / "twin.py"), "-"],
            input=source,
            capture_output=True,
            text=True,
            check=True,
        )
        source = done.stdout
    return source


def stale() -> dict[Path, str]:
    """The files that are not what they should be, with what they should be."""
    wanted = {
        CLIENT / "sync" / path.name: twin(path.read_text())
        for path in (CLIENT / "aio").glob("*.py")
        if path.name not in BY_HAND
    }
    return {path: text for path, text in wanted.items() if not path.exists() or path.read_text() != text}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 and name the stale files")
    is_check = parser.parse_args().check
    found = stale()
    for path, text in found.items():
        if is_check:
            print(f"{path.relative_to(ROOT)} is stale; run 'make docs'.")
        else:
            path.write_text(text, encoding="utf-8")
    if not is_check:
        print(f"client/sync: {len(found)} files changed.")
    return 1 if is_check and found else 0


if __name__ == "__main__":
    sys.exit(main())
