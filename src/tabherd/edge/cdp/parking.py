"""What a client sends to a tab that somebody else holds waits here, in order, and goes on when the hold is over.

A hold is another controller's running command or tab lock, a person who has the tab, or a quarantine. It is looked at
again whenever the tab's gate has changed. How much waits is bounded; beyond it messages are refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from ...broker.registry import LiveTab, Registry
from ...core.gate import Hold

# Messages that may wait for one tab, and their bytes.
PARKED_MAX: Final = 1_000
PARKED_MAX_BYTES: Final = 8 << 20


class _Queue:
    def __init__(self, tab: LiveTab) -> None:
        self.tab = tab
        self.waiting: deque[tuple[Callable[[], None], int]] = deque()
        self.size_bytes = 0


class Parking:
    """The messages of one client that wait, by page."""

    def __init__(self, registry: Registry, controller_id: str) -> None:
        self._registry = registry
        self._controller_id = controller_id
        self._queues: dict[str, _Queue] = {}

    def hold_on(self, page_id: str) -> Hold | None:
        """What a message to that page must wait for now."""
        tab = self._registry.on_target(page_id)
        if tab is None or not tab.gate.is_held:
            return None
        return tab.gate.hold_for(self._controller_id)

    def is_waiting(self, page_id: str) -> bool:
        """Whether a message to that page has to wait: for a hold, or for those that waited before it."""
        tab = self._registry.on_target(page_id)
        # The shortest way for what nearly every message finds: nobody holds the tab.
        return page_id in self._queues or (
            tab is not None and tab.gate.is_held and tab.gate.hold_for(self._controller_id) is not None
        )

    def put(self, page_id: str, size_bytes: int, go: Callable[[], None]) -> bool:
        """Have it wait; `go` sends it. False when there is no room."""
        queue = self._queues.get(page_id)
        if queue is None:
            tab = self._registry.on_target(page_id)
            assert tab is not None, "there was a hold on it"
            queue = self._queues[page_id] = _Queue(tab)
            tab.gate.watch(self._look_again)
        if len(queue.waiting) >= PARKED_MAX or queue.size_bytes + size_bytes > PARKED_MAX_BYTES:
            return False
        queue.waiting.append((go, size_bytes))
        queue.size_bytes += size_bytes
        return True

    def close(self) -> None:
        """Nothing that waits goes anywhere any more."""
        for queue in self._queues.values():
            queue.tab.gate.unwatch(self._look_again)
        self._queues.clear()

    def _look_again(self) -> None:
        # Not from inside the gate, which is in the middle of a change.
        asyncio.get_running_loop().call_soon(self._release)

    def _release(self) -> None:
        for page_id, queue in list(self._queues.items()):
            while queue.waiting and self.hold_on(page_id) is None:
                go, size_bytes = queue.waiting.popleft()
                queue.size_bytes -= size_bytes
                go()
            if not queue.waiting and self._queues.get(page_id) is queue:
                del self._queues[page_id]
                if all(other.tab is not queue.tab for other in self._queues.values()):
                    queue.tab.gate.unwatch(self._look_again)
