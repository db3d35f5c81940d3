"""A test of real pages fails as soon as its safeguard is missing, and the page of ablations says so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sim.ablation_page import PAGE, REAL

from .safeguards import NAME_VARIABLE, SAFEGUARDS, Safeguard

ROOT = Path(__file__).parents[2]
LIMIT_S = 300
# Other plugins take longer to import than most witnesses take to run.
PLUGINS = ("-p", "pytest_asyncio.plugin", "-p", "tests.ablated.plugin", "-p", "no:cacheprovider")


@pytest.mark.server
@pytest.mark.browser
@pytest.mark.parametrize("name", SAFEGUARDS)
def test_a_test_of_real_pages_fails_when_it_is_not_true_that(name: str) -> None:
    witness = SAFEGUARDS[name].witness
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, witness],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        | {NAME_VARIABLE: name, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    # A witness that cannot be found or that breaks before its assertion is no witness.
    assert re.search(r"^\d+ failed(?!.*error)", run.stdout, re.MULTILINE), f"{witness} notices nothing:\n{run.stdout}"


def test_the_page_has_every_safeguard_and_no_other() -> None:
    lines = [line_of(name, safeguard) for name, safeguard in SAFEGUARDS.items()]
    told = PAGE.read_text().partition(REAL)[2]
    assert [line for line in told.splitlines() if line.startswith("| ")][1:] == lines, "\n".join(lines)


def line_of(name: str, safeguard: Safeguard) -> str:
    """The row of the table."""
    return f"| {name} | {safeguard.off} | `{safeguard.witness}` |"
