"""The table of guarantees names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = sorted({path for words in re.findall(r"`pytest ([^`]+)`", PAGE) for path in re.findall(r"tests/\S+", words)})


def test_every_test_that_is_named_exists() -> None:
    assert len(NAMED) > 5
    assert [path for path in NAMED if not (ROOT / path).is_file() and not list((ROOT / path).glob("test_*.py"))] == []


def test_every_guarantee_has_a_test_and_a_command() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| **")]
    assert rows
    for row in rows:
        guarantee, test, command = (cell.strip() for cell in row.strip("|").split(" | "))
        assert guarantee
        assert test
        assert re.match(r"`(make|pytest) ", command), guarantee
