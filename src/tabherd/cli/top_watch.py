"""Looking at a server again and again, for `top`.

Invariants: the server is looked at no more often than every quarter of a second, however much happens; one that is
restarted is found again, and meanwhile what was last seen is kept and says that it is from before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, Final

import msgspec

from ..client.aio import AsyncTabherd
from ..errors import TabherdError
from .events import NOWHERE, shortly_before
from .snapshot import Snapshot, look

# What is kept is sent at once: after this much silence there is no more of it.
SILENCE_S: Final = 0.5
# However much happens, the server is asked no more often than this.
PAUSE_S: Final = 0.25


class Watch:
    """Looks at the server again and again and keeps what it last saw."""

    def __init__(self, interval_s: float, events_max: int) -> None:
        self._interval_s = interval_s
        self._latest: Snapshot | None = None
        self._events: deque[dict[str, Any]] = deque(maxlen=events_max)
        self._events_max = events_max
        # Something happened on the server: it is worth a look before the interval is over.
        self._hint = asyncio.Event()
        # There is something new to show.
        self.changed = asyncio.Event()

    @property
    def latest(self) -> Snapshot:
        assert self._latest is not None, "the first look comes before the first frame"
        return msgspec.structs.replace(self._latest, events=list(self._events))

    def look_soon(self) -> None:
        """Something was done: do not wait for the interval to show what came of it."""
        self._hint.set()

    async def once(self) -> Snapshot:
        """One look, with what has happened lately."""
        async with AsyncTabherd(patience_s=0) as herd:
            self._latest = await look(herd)
            await self._listen(herd, silence_s=SILENCE_S)
        return self.latest

    async def run(self) -> None:
        """Go on for ever. The first look may fail; later ones that do are shown."""
        while True:
            try:
                # Anew each time: a server that was restarted may listen elsewhere.
                async with AsyncTabherd(patience_s=0) as herd:
                    listener = asyncio.create_task(self._listen_on(herd))
                    try:
                        await self._look_on(herd)
                    finally:
                        listener.cancel()
                        await asyncio.wait([listener])
            except TabherdError as error:
                if self._latest is None:
                    raise
                self._show(msgspec.structs.replace(self._latest, is_connected=False, problem=error.message))
            await asyncio.sleep(self._interval_s)

    async def _look_on(self, herd: AsyncTabherd) -> None:
        while True:
            self._hint.clear()
            self._show(await look(herd))
            await asyncio.sleep(PAUSE_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._interval_s - PAUSE_S)):
                    await self._hint.wait()

    def _show(self, snapshot: Snapshot) -> None:
        self._latest = snapshot
        self.changed.set()

    async def _listen_on(self, herd: AsyncTabherd) -> None:
        while True:
            # Why the stream broke is told by the looks, which need the same server.
            with suppress(TabherdError):
                await self._listen(herd, silence_s=None)
            await asyncio.sleep(self._interval_s)

    async def _listen(self, herd: AsyncTabherd, silence_s: float | None) -> None:
        newest = await anext(aiter(herd.events(after=NOWHERE, silence_s=silence_s)))
        self._events.clear()
        async for event in herd.events(after=shortly_before(newest.id, self._events_max), silence_s=silence_s):
            self._events.append(event.data)
            self._hint.set()
            if silence_s is not None and event.id == newest.id:
                return
