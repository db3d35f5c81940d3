"""Which tabs have a command at work, readable after `kill -9`.

A page goes on with what it was told when the broker dies. The next life must know which pages those are, or it would
start a command on top of the old one. Writing a row per command would cost a commit each; a mark in a mapped file
costs a microsecond and survives the process, because the pages of the file belong to the kernel. It does not survive
the machine, but neither does Chromium.

A mark is set before anything is sent to the page and cleared when the command is proven stopped, be that in a later
life: one that dies before it has dealt with what it found leaves it to the next. A mark that was torn by a kill in the
middle of writing it reads as none: either nothing had been sent yet, or it was over.
"""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path
from typing import Protocol

MARK_BYTES = 64
# Commands that can run at once; far above the number of tabs a node can have.
MARKS_MAX = 16_384

# A tab, or a task, and the command.
_MARK = re.compile(rb"((?:tab|tsk)_[0-9a-z]{23}) (cmd_[0-9a-z]{28}) *\Z")


class Marks(Protocol):
    """Where running commands are marked, by their tab or by the task that they are run for."""

    def left(self) -> dict[str, int]:
        """Who had a command at work when the last life ended, with the mark, which is to be cleared in the end."""
        ...

    def set(self, marked_id: str, command_id: str) -> int:
        """Mark the tab or task; the number is for `clear`."""
        ...

    def clear(self, mark: int) -> None: ...


class FileMarks:
    """Marks in a mapped file of the state directory."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, MARK_BYTES * MARKS_MAX)
            self._map = mmap.mmap(descriptor, MARK_BYTES * MARKS_MAX)
        finally:
            os.close(descriptor)
        # Places that are free, the lowest last, so that few pages of the file are ever touched.
        self._free = list(range(MARKS_MAX - 1, -1, -1))

    def left(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for place in range(MARKS_MAX):
            start = place * MARK_BYTES
            if not self._map[start]:
                continue
            mark = _MARK.match(self._map[start : start + MARK_BYTES])
            if mark is None or mark[1].decode() in found:
                self._map[start] = 0
            else:
                found[mark[1].decode()] = place
        taken = set(found.values())
        self._free = [place for place in range(MARKS_MAX - 1, -1, -1) if place not in taken]
        return found

    def set(self, marked_id: str, command_id: str) -> int:
        place = self._free.pop()
        start = place * MARK_BYTES
        self._map[start : start + MARK_BYTES] = f"{marked_id} {command_id}".encode().ljust(MARK_BYTES)
        return place

    def clear(self, mark: int) -> None:
        self._map[mark * MARK_BYTES] = 0
        self._free.append(mark)

    def close(self) -> None:
        self._map.close()
