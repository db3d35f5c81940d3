"""Where the two flavours differ: how this one sleeps, beats, tells who asks, and reads and writes files."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from time import sleep as sleep
from typing import TYPE_CHECKING
from uuid import uuid4

import httpx

from ..beats import Beats
from ..pulse import Pulse

if TYPE_CHECKING:
    from .link import Link

PIECE_BYTES = 1 << 20


class _Party(threading.local):
    """A name for each thread that has asked for a lock; the system's own would come again."""

    def __init__(self) -> None:
        self.name = uuid4().hex[:12]


_party = _Party()


def party() -> str:
    """Who asks for a lock: this thread of this process. One that has a lock and asks for it again waits for itself."""
    return f"pid-{os.getpid()}-{_party.name}"


def pulse_for(link: Link, transport: httpx.BaseTransport | None) -> tuple[Pulse, Beats | None]:
    """What beats for the sessions."""
    beats = Beats(link.address, transport)
    return Pulse(beats.send), beats


def read_pieces(path: Path) -> Iterator[bytes]:
    """The file, piece by piece."""
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def write_file(path: Path, content: bytes) -> None:
    """Write the file anew."""
    path.write_bytes(content)


def write_pieces(path: Path, pieces: Iterator[bytes]) -> None:
    """The same, piece by piece."""
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)
