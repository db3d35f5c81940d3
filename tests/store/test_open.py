"""Addresses of stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tabherd.errors import InvalidRequest, StoreUnavailable
from tabherd.store import open as open_module
from tabherd.store.base import Add
from tabherd.store.memory import MemoryStore
from tabherd.store.open import open_store
from tabherd.store.postgres import PostgresStore
from tabherd.store.sqlite import SqliteStore


async def test_an_empty_address_is_the_default_file(tmp_path: Path) -> None:
    store = open_store("", tmp_path / "default.db")
    assert isinstance(store, SqliteStore)
    await store.close()
    assert (tmp_path / "default.db").is_file()


async def test_a_sqlite_address_names_its_file_percent_encoded_or_not(tmp_path: Path) -> None:
    for name, spelled in (("a.db", "a.db"), ("with space?.db", "with%20space%3F.db")):
        store = open_store(f"sqlite://{tmp_path}/{spelled}", tmp_path / "default.db")
        await store.close()
        assert (tmp_path / name).is_file()
    assert not (tmp_path / "default.db").exists()


def test_the_memory_address_has_no_file(tmp_path: Path) -> None:
    assert isinstance(open_store("memory://", tmp_path / "default.db"), MemoryStore)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite://relative.db",
        "sqlite:///directory/",
        "sqlite:///a.db?mode=ro",
        "memory://name",
        "/plain/path.db",
        "nonsense",
    ],
)
def test_any_other_address_is_refused_before_anything_is_made(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        open_store(url, tmp_path / "default.db")
    assert refusal.value.details["field"] == "store"
    assert url in refusal.value.message
    assert list(tmp_path.iterdir()) == []


async def test_commits_are_reported_to_whoever_asked(tmp_path: Path) -> None:
    commits: list[tuple[float, int]] = []
    store = open_store("", tmp_path / "default.db", on_commit=lambda seconds, size: commits.append((seconds, size)))
    await store.apply(Add("n", 1))
    await store.close()
    ((seconds, size),) = commits
    assert seconds > 0
    assert size == 1


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
async def test_a_postgres_address_is_connected_to_when_it_is_first_used(scheme: str, tmp_path: Path) -> None:
    store = open_store(f"{scheme}://user@127.0.0.1:1/db", tmp_path / "default.db")
    assert isinstance(store, PostgresStore)
    with pytest.raises(StoreUnavailable):
        await store.counter("n")
    await store.close()


def test_without_the_driver_of_postgres_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_module, "find_spec", lambda _: None)
    with pytest.raises(InvalidRequest, match=r"pip install 'tabherd\[postgres\]'"):
        open_store("postgresql://host/db", tmp_path / "default.db")
