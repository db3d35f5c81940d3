"""What the server publishes while the demo runs: kept as evidence, and waited for by the story."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ...client.aio import AsyncTabherd
from .record import Happening, now_ms


class Watch:
    """Follows the events, through restarts of the server, from the start to the end of its `async with`."""

    def __init__(self, admin: AsyncTabherd) -> None:
        self._admin = admin
        self.happenings: list[Happening] = []
        self._heard = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow(), name="watch")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._task is not None, "it was entered"
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def until(self, is_so: Callable[[list[Happening]], bool], limit_s: float) -> bool:
        """Wait until that can be said of what has happened; whether it could be in time."""
        try:
            async with asyncio.timeout(limit_s), self._heard:
                await self._heard.wait_for(lambda: is_so(self.happenings))
        except TimeoutError:
            return False
        return True

    async def _follow(self) -> None:
        async for event in self._admin.events(types="session.*,session_recovered,session_lost,browser.*,reset"):
            session, reason = event.data.get("sessionId", ""), event.data.get("reason", "")
            async with self._heard:
                self.happenings.append(Happening(at_ms=now_ms(), type=event.type, session=session, reason=reason))
                self._heard.notify_all()
