"""The seed of a long run over our own description: a fresh one, or that of an earlier run which is to be had again."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SEED_NAME: Final = "OPENAPI_SEED"


def chosen_seed() -> int:
    """The one that the environment names, or a fresh one."""
    return int(os.environ.get(SEED_NAME) or secrets.randbelow(1 << 32))


@contextmanager
def replay(seed: int, file: str) -> Iterator[None]:
    """Say the seed, and, when it found something, the one command that finds it again."""
    path = Path(file).relative_to(Path(__file__).parents[2])
    command = f"{SEED_NAME}={seed} .venv/bin/python -m pytest -m soak {path}"
    print(f"seed {seed}, replay it with: {command}")
    try:
        yield
    except BaseException as error:
        error.add_note(f"replay it with: {command}")
        raise
