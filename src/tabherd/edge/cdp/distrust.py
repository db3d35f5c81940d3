"""What a client sends while its node does not trust itself waits here, in order, and goes on when it does again.

A node that has not reached the store for a while may have lost its sessions to another one. Its sockets stay open, and
nothing that they send reaches a page until it is known whose that is. A client that sends more than is kept is cut off.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# Messages that may wait, and their bytes; reading stops with the first, so these are what was on its way.
WAITING_MAX: Final = 1_000
WAITING_MAX_BYTES: Final = 8 << 20
# How soon it is noticed that the node trusts itself again.
LOOK_S: Final = 0.05


class Distrust:
    """The messages of one client that wait for its node."""

    def __init__(
        self,
        is_trusted: Callable[[], bool],
        *,
        receive: Callable[[bytes], None],
        hold: Callable[[bool], None],
        cut_off: Callable[[], None],
    ) -> None:
        self._is_trusted = is_trusted
        # Takes a message that has waited.
        self._receive = receive
        # Has the client's socket be read no further, or again.
        self._hold = hold
        self._cut_off = cut_off
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._looking: asyncio.TimerHandle | None = None

    def keeps(self, data: bytes) -> bool:
        """Whether the message has to wait; then it does."""
        if self._looking is None and self._is_trusted():
            return False
        self._bytes += len(data)
        self._waiting.append(data)
        if len(self._waiting) > WAITING_MAX or self._bytes > WAITING_MAX_BYTES:
            self.close()
            self._cut_off()
        elif self._looking is None:
            self._hold(True)
            self._look_later()
        return True

    def close(self) -> None:
        """Nothing that waits goes anywhere any more."""
        if self._looking is not None:
            self._looking.cancel()
        self._waiting.clear()

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        if not self._is_trusted():
            self._look_later()
            return
        self._looking = None
        waiting, self._waiting, self._bytes = self._waiting, deque(), 0
        self._hold(False)
        for data in waiting:
            self._receive(data)
