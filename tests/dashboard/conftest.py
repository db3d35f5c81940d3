"""One server and one viewing browser for each file; a window of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser
from tests.server.conftest import Server, with_settings

from .rig import Dashboards, viewer

SETTINGS = {"POOLS__DEFAULT__BROWSERS_MAX": "1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("dashboard") / "state", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def viewing() -> Iterator[Browser]:
    with viewer() as browser:
        yield browser


@pytest.fixture
def dashboards(server: Server, viewing: Browser) -> Iterator[Dashboards]:
    """Nothing may go wrong unseen in any of them."""
    opened = Dashboards(viewing, server)
    try:
        yield opened
        assert opened.mistakes == []
    finally:
        opened.close()
