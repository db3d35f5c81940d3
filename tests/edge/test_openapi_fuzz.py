"""Whatever schemathesis makes of our own description, valid or not, is answered as the description says: no 5xx that is
not documented, no undocumented status, no body of another shape."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tabherd.edge import openapi
from tabherd.edge.routes import ROUTES

from .openapi_seed import SEED_NAME, chosen_seed, replay

OPERATIONS = Path(__file__).with_name("openapi_operations.py")


def play(seed: int | None = None) -> None:
    """Ask every operation, in a process of its own; always the same, or as the seed has it."""
    # What it imports is neither rewritten nor shared with other tests, which would take longer than its requests.
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain"]
    command += ["--noconftest", str(OPERATIONS)]
    env = {name: value for name, value in os.environ.items() if name != SEED_NAME}
    if seed is not None:
        command.append(f"--hypothesis-seed={seed}")
        env[SEED_NAME] = str(seed)
    played = subprocess.run(
        command, cwd=Path(__file__).parents[2], env=env, capture_output=True, text=True, check=False
    )
    assert played.returncode == 0, played.stdout[-20_000:]
    passed = re.search(r"(\d+) passed", played.stdout)
    assert passed is not None, played.stdout
    # All that is described, but for one: the protocol is a browser's to tell.
    described = sum(len(methods) for methods in openapi.document(ROUTES, "1.0")["paths"].values())
    assert int(passed[1]) == described - 1


def test_every_answer_of_every_operation_is_documented() -> None:
    play()


@pytest.mark.soak
def test_every_answer_of_every_operation_is_documented_whatever_the_seed() -> None:
    seed = chosen_seed()
    with replay(seed, __file__):
        play(seed)
