"""Writes what the long campaigns came to into docs/campaigns.md, so that no number there is typed by a person.

Each has its place on the page, between two markers; a run with `--docs` replaces what is between its own.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Final

from bench.rig.machine import Machine
from bench.rig.page import with_figures

PAGE: Final = Path(__file__).parents[2] / "docs" / "campaigns.md"


def publish(name: str, command: str, said: str, machine: Machine) -> None:
    """What that command said at last, and on which machine."""
    today = datetime.datetime.now(datetime.UTC).date()
    section = f"\n`{command}`, {today}. {machine}.\n\n{said.strip()}\n\n"
    PAGE.write_text(with_figures(PAGE.read_text("utf-8"), name, section), "utf-8")
