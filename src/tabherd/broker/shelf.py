"""What one session has of files, in memory: their names, sizes and states, and whether there is room for more.

Invariants:
- Names are unique, whatever a file is and however it ended.
- What is on its way counts with what it is expected to be, so two downloads cannot each take the last free bytes.
- A file's state only moves away from `in_progress`.
- Cancelled ones take no room, and only the latest are remembered.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, Literal

import msgspec

from .file_names import clean_name, unique_name

# Cancelled downloads that are still listed.
CANCELED_MAX: Final = 100
# An address is for people to read, and a data: one may be the whole file.
URL_MAX: Final = 2_000


class FileState(StrEnum):
    """How far a file is."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELED = "canceled"  # spelt as browsers do


class ShelfFile(msgspec.Struct, kw_only=True):
    """One file of a session."""

    # Under which it is served.
    name: str
    # Under which it is on disk: of a download, the browser's id of it; of an upload, the name itself.
    disk_name: str
    source: Literal["download", "upload"]
    state: FileState
    created_at: int
    # What is there of it now.
    size_bytes: int = 0
    # What it is expected to be; 0: nobody knows.
    total_bytes: int = 0
    # Where it came from; empty for uploads.
    url: str = ""
    # Why it was cancelled.
    reason: str = ""
    # It began under an earlier life of this node: nobody but the disk tells what becomes of it.
    is_unheard: bool = False

    @property
    def claimed_bytes(self) -> int:
        """What it takes of the room that there is."""
        return 0 if self.state is FileState.CANCELED else max(self.size_bytes, self.total_bytes)

    @property
    def is_running(self) -> bool:
        return self.state is FileState.IN_PROGRESS


class Shelf:
    """The files of one session."""

    def __init__(self, *, max_bytes: int, max_files: int) -> None:
        self.max_bytes = max_bytes
        self.max_files = max_files
        # By name, oldest first.
        self._files: dict[str, ShelfFile] = {}
        # Downloads by the browser's id of them.
        self._downloads: dict[str, ShelfFile] = {}

    def __iter__(self) -> Iterator[ShelfFile]:
        return iter(list(self._files.values()))

    @property
    def used_bytes(self) -> int:
        return sum(file.claimed_bytes for file in self._files.values())

    @property
    def count(self) -> int:
        """How many files take room."""
        return sum(file.state is not FileState.CANCELED for file in self._files.values())

    @property
    def is_over(self) -> bool:
        """Whether it has more than fits."""
        return self.used_bytes > self.max_bytes

    def named(self, name: str) -> ShelfFile | None:
        return self._files.get(name)

    def download(self, guid: str) -> ShelfFile | None:
        return self._downloads.get(guid)

    def add_download(self, guid: str, url: str, suggested_name: str, at_ms: int) -> ShelfFile:
        """A download that begins."""
        return self._add(
            ShelfFile(
                name=clean_name(suggested_name),
                disk_name=guid,
                source="download",
                state=FileState.IN_PROGRESS,
                created_at=at_ms,
                url=url[:URL_MAX],
            )
        )

    def add_upload(self, name: str, total_bytes: int, at_ms: int) -> ShelfFile:
        """An upload that begins; nobody else gets its name."""
        free = unique_name(clean_name(name), self._files)
        return self._add(
            ShelfFile(
                name=free,
                disk_name=free,
                source="upload",
                state=FileState.IN_PROGRESS,
                created_at=at_ms,
                total_bytes=total_bytes,
            )
        )

    def put_back(self, file: ShelfFile) -> None:
        """A file that was found on disk."""
        self._add(file)

    def remove(self, file: ShelfFile) -> None:
        """It never was."""
        del self._files[file.name]
        self._downloads.pop(file.disk_name, None)

    def complete(self, file: ShelfFile, size_bytes: int) -> None:
        """All of it is there."""
        assert file.is_running, "a file's state only moves away from in_progress"
        file.state, file.is_unheard = FileState.COMPLETED, False
        file.size_bytes = file.total_bytes = size_bytes

    def cancel(self, file: ShelfFile, reason: str) -> list[ShelfFile]:
        """Nothing of it is there. Answers with those that are forgotten, because there are too many like it."""
        assert file.is_running, "a file's state only moves away from in_progress"
        file.state, file.is_unheard, file.reason = FileState.CANCELED, False, reason
        file.size_bytes = 0
        canceled = [other for other in self._files.values() if other.state is FileState.CANCELED]
        forgotten = canceled[:-CANCELED_MAX]
        for other in forgotten:
            self.remove(other)
        return forgotten

    def _add(self, file: ShelfFile) -> ShelfFile:
        file.name = unique_name(file.name, self._files)
        self._files[file.name] = file
        if file.source == "download":
            self._downloads[file.disk_name] = file
        return file
