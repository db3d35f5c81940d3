"""What tests of actions share: putting a page in a tab, acting on it within a limit, and asking it what happened."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from tabherd import wire
from tabherd.actions.engine import perform
from tabherd.actions.progress import Progress

# A test that waits for what never comes shall fail, not hang.
LIMIT_S = 60


async def show(tab: Any, html: str) -> None:
    """Put this page into the tab."""
    await act(tab, wire.Navigate(url="data:text/html;charset=utf-8," + quote(html)))


async def act(tab: Any, action: wire.AnyAction, progress: Progress | None = None) -> Any:
    async with asyncio.timeout(LIMIT_S):
        return await perform(tab, action, progress)


async def ask(tab: Any, expression: str) -> Any:
    return await act(tab, wire.Evaluate(expression=expression))


class Waiting:
    """An action that is expected to wait; use it as a context manager, and it ends with the test."""

    def __init__(self, tab: Any, action: wire.AnyAction) -> None:
        self.progress = Progress()
        self._running = asyncio.ensure_future(act(tab, action, self.progress))

    async def __aenter__(self) -> Waiting:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    @property
    def is_done(self) -> bool:
        return self._running.done()

    async def until(self, condition: str) -> dict[str, Any]:
        """Returns when it waits for that, with the details."""
        async with asyncio.timeout(LIMIT_S):
            while self.progress.waiting_for != condition or len(self.progress.details) < 1 + (condition != "attached"):
                assert not self._running.done(), f"it ended with {self._running.result()!r} instead of waiting"
                await asyncio.sleep(0.005)
        return self.progress.details

    async def result(self) -> Any:
        return await self._running
