"""Which locks a program means: what it says, the environment, the file of settings, the store."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tabherd.config import Locks
from tabherd.errors import InvalidRequest
from tabherd.locks.configured import default_url, place_of
from tabherd.locks.open import open_async_backend, open_backend


def test_without_any_setting_locks_are_files_of_the_state_directory(tmp_path: Path) -> None:
    place = place_of(None)
    assert place.url == (tmp_path / "state" / "locks").as_uri()
    assert (place.max_connections, place.keepalive_s) == (25, 10)


def test_a_store_that_is_sqlite_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TABHERD_STORE", f"sqlite:///{tmp_path}/x.db")
    assert place_of(None).url == (tmp_path / "state" / "locks").as_uri()


def test_a_store_that_is_postgresql_has_the_locks_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABHERD_STORE", "postgresql://host/db")
    assert place_of(None).url == "postgresql://host/db"


def test_the_setting_for_locks_wins_over_the_store(tmp_path: Path) -> None:
    assert default_url("postgresql://host/db", Locks(url="file:///here"), tmp_path) == "file:///here"


def test_the_file_of_settings_is_read(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "tabherd.toml").write_text('[locks]\nurl = "file:///there"\nmax_connections = 7\n')
    assert (place_of(None).url, place_of(None).max_connections) == ("file:///there", 7)


def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tabherd.toml").write_text("[locks]\nmax_connections = 7\nkeepalive_s = 3\n")
    monkeypatch.setenv("TABHERD_CONFIG", str(tmp_path / "tabherd.toml"))
    monkeypatch.setenv("TABHERD_LOCKS__MAX_CONNECTIONS", "9")
    assert (place_of(None).max_connections, place_of(None).keepalive_s) == (9, 3)


def test_an_address_that_is_given_wins_over_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABHERD_LOCKS__URL", "file:///there")
    assert place_of("file:///here").url == "file:///here"


def test_a_mistake_elsewhere_in_the_settings_is_not_a_locks_business(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "tabherd.toml").write_text("[pools.default]\nbrowsers_max = -1\n")
    assert place_of(None).url.startswith("file:///")


@pytest.mark.parametrize("wrong", ["max_connections = 0", "keepalive_s = 'x'", "nonsense = 1"])
def test_a_mistake_in_the_settings_of_locks_is_refused(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "tabherd.toml").write_text(f"[locks]\n{wrong}\n")
    with pytest.raises(InvalidRequest, match="locks"):
        place_of(None)


@pytest.mark.parametrize(
    "url", ["sqlite:///x", "file://host/x", "file:relative", "nonsense", "http://h/", "file:///x?y"]
)
def test_an_address_that_means_nothing_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="address"):
        open_backend(url)


def test_neither_an_address_nor_a_directory_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        open_backend(None)


async def test_without_the_driver_one_sentence_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tabherd.locks.open.find_spec", lambda name: None)
    for opening in (open_backend, open_async_backend):
        with pytest.raises(InvalidRequest, match=r"pip install 'tabherd\[postgres\]'"):
            opening("postgresql://host/db")
    assert importlib.util.find_spec("psycopg") is not None


def test_importing_the_library_imports_neither_the_driver_nor_the_server() -> None:
    code = """
import sys, tabherd.locks
print([name for name in sys.modules if name.partition(".")[0] in ("psycopg", "uvicorn", "starlette", "httpx", "picows")
       or name.startswith(("tabherd.broker", "tabherd.edge", "tabherd.store", "tabherd.browsers", "tabherd.client"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
