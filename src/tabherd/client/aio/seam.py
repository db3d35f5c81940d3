"""Where the two flavours differ: how this one sleeps, beats, tells who asks, and reads and writes files.

Everything else of the synchronous flavour is made from this one.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from asyncio import sleep as sleep
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx

from ..beats import Beats
from ..pulse import Pulse
from ..task_pulse import TaskPulse

if TYPE_CHECKING:
    from .link import AsyncLink

PIECE_BYTES = 1 << 20
# A name for each task that has asked for a lock; an id() would come again.
_parties: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()


def party() -> str:
    """Who asks for a lock: this task of this process. A task that has a lock and asks for it again waits for itself."""
    task = asyncio.current_task()
    assert task is not None, "a client for asyncio is used in a task"
    return f"pid-{os.getpid()}-{_parties.setdefault(task, uuid4().hex[:12])}"


def pulse_for(link: AsyncLink, transport: httpx.AsyncBaseTransport | None) -> tuple[Pulse | TaskPulse, Beats | None]:
    """What beats for the sessions; from a task where requests cannot be sent from another thread."""
    if transport is not None:
        return TaskPulse(link.beat), None
    beats = Beats(link.address)
    return Pulse(beats.send), beats


async def read_pieces(path: Path) -> AsyncIterator[bytes]:
    """The file, piece by piece."""
    with await asyncio.to_thread(path.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece


async def write_file(path: Path, content: bytes) -> None:
    """Write the file anew."""
    await asyncio.to_thread(path.write_bytes, content)


async def write_pieces(path: Path, pieces: AsyncIterator[bytes]) -> None:
    """The same, piece by piece."""
    with await asyncio.to_thread(path.open, "wb") as file:
        async for piece in pieces:
            await asyncio.to_thread(file.write, piece)
