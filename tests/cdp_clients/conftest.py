"""One server with one Chromium, and a place where npx finds the clients, for all tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.running import running_server
from tests.server.conftest import Server

from .documented import DIRECTORY

# One Chromium for all. `solo` has room for one session at a time, which ends as soon as its client is gone.
SETTINGS = """
[pools.default]
browsers_max = 1
warm = 1
max_active = 20
probe_limit_ms = 30000

[pools.solo]
browsers_max = 1
warm = 1
max_active = 1
disconnect_grace_s = 0
probe_limit_ms = 30000
"""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("clients")
    config = directory / "tabherd.toml"
    config.write_text(SETTINGS)
    with running_server(directory / "state", {"TABHERD_CONFIG": str(config)}) as started:
        yield Server(started.state, started)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory in which the clients are installed, and which they may write to."""
    (tmp_path / "node_modules").symlink_to(DIRECTORY / "node_modules")
    return tmp_path
