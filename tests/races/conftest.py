"""Where races are run: with locks in files and rows in SQLite, and with both in a PostgreSQL of the test process."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.rig.postgres import Postgres
from tests.locks.conftest import _leave_nothing as _leave_nothing
from tests.locks.conftest import namespace as namespace
from tests.locks.conftest import postgres as postgres
from tests.locks.conftest import url as url
from tests.races.desk import Cabinet, PostgresCabinet, SqliteCabinet, filled
from tests.races.scene import AGENT, Scene


@pytest.fixture
def cabinet(url: str, namespace: int, tmp_path: Path) -> Cabinet:
    if url.startswith("file:"):
        return filled(SqliteCabinet(tmp_path / "rows.db"))
    return filled(PostgresCabinet(url, f"race_{namespace}"))


@pytest.fixture
def scene(url: str, namespace: int, cabinet: Cabinet) -> Scene:
    """One agent, which works."""
    scene = Scene(url, namespace, cabinet)
    scene.hire(AGENT)
    return scene


@pytest.fixture
def postgres_scene(postgres: Postgres, namespace: int) -> Scene:
    """The same, where only PostgreSQL has the guard."""
    scene = Scene(postgres.url, namespace, filled(PostgresCabinet(postgres.url, f"race_{namespace}")))
    scene.hire(AGENT)
    return scene
