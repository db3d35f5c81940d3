"""How contended named locks are among the callers of this server, for whoever watches: counted per name, bounded.

The backend counts what its own users met. Callers of this server who were refused in its own lines never got that far;
they are counted here, and both are shown together.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..locks.base import Counts

# Names that are remembered; the one that was counted longest ago goes first.
NAMES_MAX: Final = 1_000


class Contention:
    """The counts of each name."""

    def __init__(self) -> None:
        self._counts: dict[str, Counts] = {}

    def __getitem__(self, name: str) -> Counts:
        return self._counts.get(name, Counts())

    def waited(self, name: str) -> None:
        """Somebody found it held and waits."""
        self._note(name, waits=self[name].waits + 1)

    def timed_out(self, name: str) -> None:
        """Somebody waited in vain."""
        self._note(name, timeouts=self[name].timeouts + 1)

    def skipped(self, name: str) -> None:
        """Somebody found it held and went on without it."""
        self._note(name, skips=self[name].skips + 1, consecutive_skips=self[name].consecutive_skips + 1)

    def not_skipped(self, name: str) -> None:
        """Somebody who would have skipped got it: nobody is starving."""
        if self[name].consecutive_skips:
            self._note(name, consecutive_skips=0)

    def _note(self, name: str, **counts: int) -> None:
        # Taken out first, so that it is the last one to go.
        known = self._counts.pop(name, Counts())
        self._counts[name] = msgspec.structs.replace(known, **counts)
        if len(self._counts) > NAMES_MAX:
            del self._counts[next(iter(self._counts))]
