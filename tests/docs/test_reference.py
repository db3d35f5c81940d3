"""The reference pages are what the code says, and nothing that users can meet is missing from them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

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


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_every_error_code_is_documented_with_a_meaning_and_a_next_step(code: str) -> None:
    row = next(line for line in (REFERENCE / "errors.md").read_text().splitlines() if line.startswith(f"| `{code}`"))
    cells = [cell.strip() for cell in row.strip("|").split(" | ")]
    assert len(cells) == 6
    assert all(cells)


def _keys() -> list[str]:
    sections = (
        *(config.Server, config.Auth, config.Pool, config.Gate),
        *(config.Scheduler, config.Webhooks, config.Retention, config.Cluster),
    )
    return [f"{each.__name__}.{field.name}" for each in sections for field in msgspec.structs.fields(each)]


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


@pytest.mark.parametrize("key", _keys())
def test_every_setting_is_documented_with_a_meaning(key: str) -> None:
    name = key.partition(".")[2]
    rows = [
        line for line in (REFERENCE / "configuration.md").read_text().splitlines() if line.startswith(f"| `{name}` |")
    ]
    assert rows, f"{key} is missing"
    assert all(row.strip("| ").split(" | ")[-1].endswith(".") for row in rows), f"{key} has no comment above it"


@pytest.mark.parametrize("kind", sorted(EVENT_TYPES))
def test_every_event_type_is_documented(kind: str) -> None:
    assert f"| `{kind}` |" in (REFERENCE / "events.md").read_text()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_documented(route: object) -> None:
    assert f"\n## {route.method} {route.path}\n" in (REFERENCE / "http.md").read_text()  # type: ignore[attr-defined]
