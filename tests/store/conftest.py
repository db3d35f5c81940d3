"""The engines under test. A test that takes `store` runs once on each; adding an engine is adding one line here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tabherd.store.base import Store
from tabherd.store.memory import MemoryStore
from tabherd.store.sqlite import SqliteStore

# Opens an empty store, which may use the directory.
ENGINES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda directory: SqliteStore(directory / "store.db"),
}


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = ENGINES[request.param](tmp_path)
    yield opened
    await opened.close()
