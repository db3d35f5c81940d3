"""Named locks of a real server whose locks are those of a PostgreSQL: shared with programs on any machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.rig.postgres import Postgres, running_postgres

from tabherd.locks import advisory_lock, advisory_lock_or_skip

from .conftest import SPARING, Server, events_of, with_settings

pytestmark = [pytest.mark.server, pytest.mark.browser]


def test_callers_and_programs_exclude_each_other_and_a_lock_that_the_database_dropped_is_lost(tmp_path: Path) -> None:
    with running_postgres() as postgres:
        url = postgres.tcp_url.replace("postgres@", "postgres:hunter2@")
        with with_settings(tmp_path / "state", SPARING | {"LOCKS__URL": url}) as server:
            exclude_each_other(server, postgres)
            is_told_of_the_loss(server, postgres)
            with server.client() as admin:
                shown = admin.get("/config").text
            assert "127.0.0.1" in shown
            assert "hunter2" not in shown


def exclude_each_other(server: Server, postgres: Postgres) -> None:
    with server.client() as admin:
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


def is_told_of_the_loss(server: Server, postgres: Postgres) -> None:
    with server.client() as admin, postgres.connect() as operator:
        lock = admin.post("/locks/account:y").json()
        with events_of(server, "lock.lost") as lost:
            operator.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
            assert next(lost)["name"] == "account:y"
        renewed = admin.post("/locks/account:y/renew", json={"ticket": lock["ticket"]})
        assert (renewed.status_code, renewed.json()["code"]) == (409, "lock_lost")
        free = admin.post("/locks/account:y", json={"waitMs": 60_000})
        assert free.status_code == 200, free.text
