"""The reference pages are what the code says, and nothing that users can meet is missing from them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from tabherd import config
from tabherd.broker.events import EVENT_TYPES
from tabherd.edge.routes import ROUTES
from tabherd.errors import CATALOGUE

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def test_no_generated_page_is_stale() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "docs.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_error_code_is_documented_with_a_meaning_and_a_next_step() -> None:
    lines = (REFERENCE / "errors.md").read_text().splitlines()
    for code in CATALOGUE:
        row = next(line for line in lines if line.startswith(f"| `{code}`"))
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert (len(cells), all(cells)) == (6, True), row


def test_every_section_of_the_configuration_is_looked_at() -> None:
    written = (REFERENCE / "configuration.md").read_text()
    assert [line for line in written.splitlines() if line.startswith("## ")] == [
        "## Top level",
        "## [server]",
        "## [auth]",
        "## [pools.NAME]",
        "## [gate]",
        "## [scheduler]",
        "## [locks]",
        "## [webhooks]",
        "## [retention]",
        "## [cluster]",
    ]


def test_every_setting_is_documented_with_a_meaning() -> None:
    lines = (REFERENCE / "configuration.md").read_text().splitlines()
    sections = (
        *(config.Server, config.Auth, config.Pool, config.Gate),
        *(config.Scheduler, config.Webhooks, config.Retention, config.Cluster),
    )
    for name in {field.name for each in sections for field in msgspec.structs.fields(each)}:
        rows = [line for line in lines if line.startswith(f"| `{name}` |")]
        assert rows, f"{name} is missing"
        assert all(row.strip("| ").split(" | ")[-1].endswith(".") for row in rows), f"{name} has no comment above it"


def test_every_event_type_and_every_route_is_documented() -> None:
    events, routes = (REFERENCE / "events.md").read_text(), (REFERENCE / "http.md").read_text()
    assert [kind for kind in EVENT_TYPES if f"| `{kind}` |" not in events] == []
    assert [route for route in ROUTES if f"\n## {route.method} {route.path}\n" not in routes] == []
