"""Heartbeats from tasks: for a client whose transport belongs to one event loop.

Such a client lives inside a program of its own, such as the server itself, whose loop must not be blocked anyway. All
else is as with `Pulse`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

from ..errors import TabherdError
from .pulse import Beating, first_wait_s, next_wait_s


class TaskPulse:
    """Beats for sessions from one task each."""

    def __init__(self, send: Callable[[Beating], Awaitable[Any]]) -> None:
        # Sends one beat and raises the typed error it was refused with.
        self._send = send
        # By the session's id().
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def add(self, session: Beating) -> None:
        """Beat for it from now on."""
        self.remove(session)
        key = id(session)
        task = asyncio.get_running_loop().create_task(self._beat(weakref.ref(session), first_wait_s(session)))
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._tasks.pop(key) if self._tasks.get(key) is done else None)

    def remove(self, session: Beating) -> None:
        """Beat for it no more. Idempotent."""
        if (task := self._tasks.pop(id(session), None)) is not None:
            task.cancel()

    def close(self) -> None:
        """Beat for nobody. Idempotent."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def _beat(self, held: weakref.ref[Beating], wait_s: float | None) -> None:
        while wait_s is not None:
            await asyncio.sleep(wait_s)
            session = held()
            if session is None:
                return
            try:
                await self._send(session)
            except TabherdError as error:
                wait_s = next_wait_s(session, error)
            else:
                wait_s = next_wait_s(session, None)
            # Not held while waiting for the next beat.
            del session
