"""What a session has of files: names, room, and states that only move one way."""

from __future__ import annotations

import pytest

from tabherd.broker.shelf import CANCELED_MAX, URL_MAX, FileState, Shelf


def shelf(max_bytes: int = 1_000, max_files: int = 10) -> Shelf:
    return Shelf(max_bytes=max_bytes, max_files=max_files)


def test_files_of_one_name_are_told_apart_whatever_they_are() -> None:
    files = shelf()
    first = files.add_download("g1", "", "a.txt", 1)
    second = files.add_upload("a.txt", 5, 2)
    third = files.add_download("g2", "", "a.txt", 3)
    assert [file.name for file in files] == ["a.txt", "a (1).txt", "a (2).txt"]
    assert [files.named(file.name) for file in (first, second, third)] == [first, second, third]
    assert second.disk_name == "a (1).txt"


def test_a_cancelled_file_keeps_its_name_to_itself() -> None:
    files = shelf()
    files.cancel(files.add_download("g1", "", "a.txt", 1), "canceled")
    assert files.add_download("g2", "", "a.txt", 2).name == "a (1).txt"


def test_what_is_on_its_way_counts_with_what_it_will_be() -> None:
    files = shelf(max_bytes=1_000)
    first, second = (files.add_download(guid, "", guid, 1) for guid in ("g1", "g2"))
    first.size_bytes, first.total_bytes = 10, 600
    assert not files.is_over
    second.size_bytes, second.total_bytes = 10, 600
    assert files.is_over
    files.cancel(second, "files_max_bytes")
    assert (files.used_bytes, files.count) == (600, 1)


def test_more_than_was_announced_counts_as_it_comes() -> None:
    files = shelf(max_bytes=1_000)
    file = files.add_download("g1", "", "a", 1)
    file.size_bytes, file.total_bytes = 1_001, 5
    assert files.is_over


def test_a_file_that_has_ended_cannot_end_again() -> None:
    files = shelf()
    whole, gone = files.add_download("g1", "", "a", 1), files.add_download("g2", "", "b", 1)
    files.complete(whole, 5)
    files.cancel(gone, "canceled")
    for end in (lambda: files.complete(gone, 5), lambda: files.cancel(whole, "canceled")):
        with pytest.raises(AssertionError):
            end()
    assert (whole.state, gone.state) == (FileState.COMPLETED, FileState.CANCELED)


def test_only_the_latest_cancelled_files_are_remembered() -> None:
    files = shelf()
    forgotten = []
    for number in range(CANCELED_MAX + 3):
        forgotten += files.cancel(files.add_download(f"g{number}", "", f"{number}", number), "canceled")
    assert [file.disk_name for file in forgotten] == ["g0", "g1", "g2"]
    assert len(list(files)) == CANCELED_MAX
    assert files.download("g0") is None


def test_an_address_that_is_the_file_itself_is_cut() -> None:
    file = shelf().add_download("g1", "data:," + "x" * 1_000_000, "a", 1)
    assert len(file.url) == URL_MAX
