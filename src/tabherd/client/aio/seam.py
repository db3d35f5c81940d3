"""Where the two flavours differ: how this one sleeps, beats, and reads and writes files.

Everything else of the synchronous flavour is made from this one.
"""

from __future__ import annotations

import asyncio
from asyncio import sleep as sleep
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from ..beats import Beats
from ..pulse import Pulse
from ..task_pulse import TaskPulse

if TYPE_CHECKING:
    from .link import AsyncLink

PIECE_BYTES = 1 << 20


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
