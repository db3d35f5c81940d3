"""Named locks of a real server whose locks are those of a PostgreSQL: shared with programs on any machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.rig.postgres import Postgres, running_postgres

from tabherd.locks import advisory_lock, advisory_lock_or_skip

from .conftest import Server, events_of, with_settings

pytestmark = [pytest.mark.server, pytest.mark.browser]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as started:
        yield started


@pytest.fixture(scope="module")
def on_postgres(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("server") / "state", {"LOCKS__URL": postgres.tcp_url}) as server:
        yield server


def test_callers_and_programs_exclude_each_other(on_postgres: Server, postgres: Postgres) -> None:
    with on_postgres.client() as admin:
        lock = admin.post("/locks/account:x").json()
        with advisory_lock_or_skip("account", "x", url=postgres.url) as is_mine:
            assert not is_mine
        assert admin.delete("/locks/account:x", params={"ticket": lock["ticket"]}).status_code == 204
        with advisory_lock("account", "x", url=postgres.url):
            busy = admin.post("/locks/account:x")
            assert (busy.status_code, busy.json()["code"]) == (504, "lock_timed_out")
        again = admin.post("/locks/account:x", json={"waitMs": 60_000}).json()
        assert again["fence"] > lock["fence"]
        admin.delete("/locks/account:x", params={"ticket": again["ticket"]})


def test_a_holder_is_told_when_the_database_has_dropped_its_lock(on_postgres: Server, postgres: Postgres) -> None:
    with on_postgres.client() as admin, postgres.connect() as operator:
        lock = admin.post("/locks/account:y").json()
        with events_of(on_postgres, "lock.lost") as lost:
            operator.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
            assert next(lost)["name"] == "account:y"
        renewed = admin.post("/locks/account:y/renew", json={"ticket": lock["ticket"]})
        assert (renewed.status_code, renewed.json()["code"]) == (409, "lock_lost")
        free = admin.post("/locks/account:y", json={"waitMs": 60_000})
        assert free.status_code == 200, free.text


def test_settings_never_show_the_password_of_the_database(tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.tcp_url.replace("postgres@", "postgres:hunter2@")
    with with_settings(tmp_path / "state", {"LOCKS__URL": url}) as server, server.client() as admin:
        assert "hunter2" not in admin.get("/config").text
        assert "127.0.0.1" in admin.get("/config").text
