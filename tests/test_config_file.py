"""The configuration file on disk: replaced whole, by one at a time, and never over somebody else's change."""

from __future__ import annotations

import fcntl
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tabherd.config_file import FILE_MAX_BYTES, rewrite, stamp_of
from tabherd.errors import InvalidRequest, StateConflict


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tabherd.toml"
    path.write_bytes(b"one")
    return path


def others(file: Path) -> list[str]:
    """What is in the directory besides the file and the lock."""
    return sorted(
        each.name for each in file.parent.iterdir() if each not in (file, file.with_name(f".{file.name}.lock"))
    )


def test_the_file_is_replaced_by_what_was_made_of_it(file: Path) -> None:
    assert rewrite(file, lambda old: (old or b"") + b" two") == b"one two"
    assert file.read_bytes() == b"one two"
    assert others(file) == []


def test_a_file_that_does_not_exist_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    assert rewrite(path, lambda old: b"made" if old is None else b"") == b"made"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_its_permissions_stay(file: Path) -> None:
    file.chmod(0o644)
    rewrite(file, lambda old: b"two")
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_link_to_it_stays_a_link(file: Path) -> None:
    link = file.with_name("link.toml")
    link.symlink_to(file)
    rewrite(link, lambda old: b"two")
    assert link.is_symlink()
    assert file.read_bytes() == b"two"


def test_who_has_it_open_sees_the_old_one_whole(file: Path) -> None:
    with file.open("rb") as reader:
        rewrite(file, lambda old: b"something longer")
        assert reader.read() == b"one"


def test_without_a_change_it_is_not_even_touched(file: Path) -> None:
    before = stamp_of(file)
    rewrite(file, lambda old: b"one")
    assert stamp_of(file) == before


def test_a_change_that_fails_leaves_it_alone(file: Path) -> None:
    def fail(old: bytes | None) -> bytes:
        raise InvalidRequest("No.")

    with pytest.raises(InvalidRequest, match="No"):
        rewrite(file, fail)
    assert file.read_bytes() == b"one"
    # And the next one is not kept waiting.
    assert rewrite(file, lambda old: b"two", lock_limit_s=0) == b"two"


def test_what_an_editor_wrote_meanwhile_is_not_lost(file: Path) -> None:
    def while_somebody_edits(old: bytes | None) -> bytes:
        file.write_bytes(b"edited")
        return b"two"

    with pytest.raises(StateConflict) as caught:
        rewrite(file, while_somebody_edits)
    assert caught.value.retryable
    assert file.read_bytes() == b"edited"
    assert others(file) == []


def test_a_file_that_somebody_made_meanwhile_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"

    def while_somebody_makes_it(old: bytes | None) -> bytes:
        path.write_bytes(b"edited")
        return b"two"

    with pytest.raises(StateConflict):
        rewrite(path, while_somebody_makes_it)
    assert path.read_bytes() == b"edited"


def test_writers_take_turns_and_none_is_lost(file: Path) -> None:
    file.write_bytes(b"")
    crowd = 8
    start = Barrier(crowd)

    def add(number: int) -> None:
        start.wait()
        rewrite(file, lambda old: (old or b"") + b"%d\n" % number, lock_limit_s=60)

    with ThreadPoolExecutor(crowd) as writers:
        list(writers.map(add, range(crowd)))
    assert sorted(file.read_bytes().split()) == [b"%d" % number for number in range(crowd)]


def test_a_writer_that_finds_another_at_work_is_told_to_come_back(file: Path) -> None:
    with file.with_name(f".{file.name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StateConflict) as caught:
            rewrite(file, lambda old: b"two", lock_limit_s=0)
    assert caught.value.retry_after_ms
    assert file.read_bytes() == b"one"


def test_a_directory_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be written"):
        rewrite(tmp_path / "none" / "tabherd.toml", lambda old: b"two")


def test_a_huge_file_is_none_of_ours(file: Path) -> None:
    os.truncate(file, FILE_MAX_BYTES + 1)
    with pytest.raises(InvalidRequest, match="more than"):
        rewrite(file, lambda old: b"two")


def test_the_stamp_changes_with_the_file(file: Path) -> None:
    seen = {stamp_of(file), stamp_of(file)}
    rewrite(file, lambda old: b"two")
    seen.add(stamp_of(file))
    file.unlink()
    seen.add(stamp_of(file))
    assert len(seen) == 3
    assert stamp_of(file) is None
