"""A server with prepared answers, and ways to call the command line in this process, against that or a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.client.canned import CannedServer
from tests.server.conftest import Server
from typer.testing import CliRunner, Result

from tabherd.cli.main import app

Tabherd = Callable[..., Result]


@pytest.fixture
def canned() -> Iterator[CannedServer]:
    with CannedServer() as server:
        yield server


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own; nothing of the user's is found."""
    for name in ("TABHERD_URL", "TABHERD_TOKEN", "TABHERD_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TABHERD_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def tabherd(canned: CannedServer, state: Path, monkeypatch: pytest.MonkeyPatch) -> Tabherd:
    """Call the command line against the prepared server."""
    monkeypatch.setenv("TABHERD_URL", canned.url)
    return lambda *words: CliRunner().invoke(app, words)


@pytest.fixture
def real(shared_server: Server, monkeypatch: pytest.MonkeyPatch) -> Tabherd:
    """Call the command line against the worker's real server."""
    for name in ("TABHERD_URL", "TABHERD_TOKEN", "TABHERD_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TABHERD_STATE", str(shared_server.state))
    return lambda *words: CliRunner().invoke(app, words)
