"""The track record names tests that exist, so that whoever doubts it can run them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs" / "track-record.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| what")
]
COMMANDS = sorted({command for row in ROWS for command in re.findall(r"`([^`]+)`", row[-1])})


def test_every_bug_says_what_it_was_how_it_was_found_since_when_and_what_shows_it() -> None:
    assert len(ROWS) > 20
    assert [row for row in ROWS if len(row) != 4 or not all(row)] == []


def is_there(command: str) -> bool:
    path, _, name = command.removeprefix("pytest ").partition("::")
    found = ROOT / path
    if not found.exists():
        return False
    defined = rf"^(async )?def {re.escape(name)}\("
    return not name or re.search(defined, found.read_text(encoding="utf-8"), re.MULTILINE) is not None


def test_every_command_names_what_is_there() -> None:
    named = [command for command in COMMANDS if not command.startswith(("make ", "python -m "))]
    assert [command for command in named if not is_there(command)] == []
