"""Where locks are tested: on files and on a PostgreSQL of the test process, by the same tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from bench.rig.postgres import Postgres, running_postgres

from tabherd.locks import configured

_namespaces = itertools.count(os.getpid() * 1_000 % 1_000_000_000)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as started:
        yield started


@pytest.fixture
def operator(postgres: Postgres) -> Iterator[psycopg.Connection]:
    """Somebody with a session of their own, who sees everything."""
    with postgres.connect() as connection:
        yield connection


@pytest.fixture(params=["file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of one backend after the other."""
    if request.param == "file":
        return (tmp_path / "locks").as_uri()
    started: Postgres = request.getfixturevalue("postgres")
    return started.url


@pytest.fixture
def namespace() -> int:
    """One that no other test uses: the database outlives them."""
    return next(_namespaces)


@pytest.fixture(autouse=True)
def _leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No connection is kept for the next test, and no setting of this machine is used."""
    for name in configured.DECIDES[:-1]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TABHERD_STATE", str(tmp_path / "state"))
    yield
    configured.close_all()
