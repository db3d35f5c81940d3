"""Whether the other side of a socket is still there, judged once per beat. Pure: no clock and no socket.

Any frame is a sign of life. A reader with a backlog gives its sign by reading on instead: its answer to a ping waits
behind what it has not read yet, and one that talks but never reads is as good as gone.
"""

from __future__ import annotations

from typing import Final

# Beats that may pass without a sign.
MISSED_MAX: Final = 2


class Pulse:
    """The signs of life of one socket."""

    def __init__(self) -> None:
        # Whether anything came since the last beat; being opened counts.
        self._is_heard = True
        # What waited for the reader at the last beat, if it was a backlog; else 0.
        self._backlog_bytes = 0
        # Beats without a sign since the last one that had one.
        self._missed = 0

    def hear(self) -> None:
        """A frame came."""
        self._is_heard = True

    def beat(self, backlog_bytes: int) -> bool:
        """Judge the time since the last beat: whether the other side counts as gone.

        `backlog_bytes` is what waits for a reader that is behind, 0 for one that keeps up.
        """
        if backlog_bytes and self._backlog_bytes:
            is_alive = backlog_bytes < self._backlog_bytes
        else:
            is_alive = self._is_heard or self._backlog_bytes > 0
        self._missed = 0 if is_alive else self._missed + 1
        self._is_heard, self._backlog_bytes = False, backlog_bytes
        return self._missed >= MISSED_MAX
