"""The worker's server, and a place where npx finds the clients, for all tests of this directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.server.conftest import Server

from .documented import DIRECTORY


@pytest.fixture
def server(shared_server: Server) -> Server:
    return shared_server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory in which the clients are installed, and which they may write to."""
    (tmp_path / "node_modules").symlink_to(DIRECTORY / "node_modules")
    return tmp_path
