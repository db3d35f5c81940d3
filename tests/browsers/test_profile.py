"""Throw-away profile directories."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tabherd.browsers import process, profile


async def test_a_profile_is_removed_with_everything_in_it(tmp_path: Path) -> None:
    place = profile.place(tmp_path, "brw_1")
    (place / "Default" / "Cache").mkdir(parents=True)
    (place / "Default" / "Cache" / "data").write_bytes(b"x")
    await profile.remove(place)
    assert not place.exists()


async def test_removing_what_does_not_exist_is_fine(tmp_path: Path) -> None:
    await profile.remove(tmp_path / "brw_1")


async def test_a_file_that_appears_while_the_tree_is_removed_is_removed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "brw_1"
    place.mkdir()
    rmtree = shutil.rmtree
    tries: list[Path] = []

    def disturbed(path: Path) -> None:
        tries.append(path)
        if len(tries) == 1:
            (place / "late").write_bytes(b"x")
            raise OSError("Directory not empty")
        rmtree(path)

    monkeypatch.setattr(profile.shutil, "rmtree", disturbed)
    await profile.remove(place)
    assert not place.exists()
    assert len(tries) == 2


async def test_the_singleton_directory_that_chromium_keeps_outside_is_removed(tmp_path: Path) -> None:
    outside = tmp_path / "org.chromium.Chromium.abc"
    outside.mkdir()
    place = tmp_path / "brw_1"
    place.mkdir()
    os.symlink(outside / "SingletonSocket", place / "SingletonSocket")
    await profile.remove(place)
    assert not outside.exists()


async def test_a_link_to_somewhere_else_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    place = tmp_path / "brw_1"
    place.mkdir()
    os.symlink(precious / "SingletonSocket", place / "SingletonSocket")
    await profile.remove(place)
    assert precious.is_dir()


@pytest.mark.parametrize("browser_id", ["", ".", "..", "../x", "a/b"])
def test_an_id_that_is_no_plain_name_has_no_place(tmp_path: Path, browser_id: str) -> None:
    with pytest.raises(AssertionError):
        profile.place(tmp_path, browser_id)


def test_the_last_words_are_the_last_lines_only(tmp_path: Path) -> None:
    (tmp_path / profile.LOG_NAME).write_text("\n".join(f"line {number}" for number in range(100_000)))
    words = profile.last_words(tmp_path)
    assert words.endswith("line 99998 | line 99999")
    assert words.count("|") == profile.LOG_LINES_SHOWN - 1


def test_no_log_is_no_words(tmp_path: Path) -> None:
    assert profile.last_words(tmp_path) == ""


async def test_a_crash_collector_that_outlives_its_browser_is_ended(tmp_path: Path) -> None:
    crashes = profile.place(tmp_path, "brw_1") / profile.CRASHES_NAME
    crashes.mkdir(parents=True)
    mark = f"--database={crashes}"
    collector = process.ChildGroup(
        ("/bin/sh", "-c", "sleep 1000; :", mark), log_path=tmp_path / "log", environ=os.environ
    )
    try:
        while not process.with_argument(mark):
            await asyncio.sleep(0.001)
        await profile.remove(crashes.parent)
        await collector.wait_exited()
    finally:
        await collector.end()


async def test_a_profile_below_a_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    await profile.remove(tmp_path / "file" / "brw_1")
    assert profile.last_words(tmp_path / "file" / "brw_1") == ""
