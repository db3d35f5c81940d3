"""Many distinct integers in order, of which any may come and go, and whose places can be asked for.

Invariant: the chunks, one after the other, are in ascending order, and none is empty unless it is the only one. So a
change moves one chunk's items and no others, however many there are; one that comes last or leaves first, which is the
usual case of a queue, moves next to nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from operator import itemgetter

# A chunk with more is split in two: moving so many items costs about as much as the call that does it.
CHUNK_MAX = 2_048

_first = itemgetter(0)


class Ordered:
    """Distinct integers, lowest first."""

    __slots__ = ("_chunks", "count")

    def __init__(self) -> None:
        self._chunks: list[list[int]] = [[]]
        # How many there are.
        self.count = 0

    @property
    def first(self) -> int:
        """The lowest; there must be one."""
        return self._chunks[0][0]

    def add(self, item: int) -> None:
        """It must not be here yet."""
        self.count += 1
        last = self._chunks[-1]
        if not last or last[-1] < item:
            last.append(item)
            if len(last) > CHUNK_MAX:
                # What came before stays together, or chunks would be half empty where items come in order.
                self._chunks.append([last.pop()])
            return
        at = self._chunk_of(item)
        chunk = self._chunks[at]
        insort(chunk, item)
        if len(chunk) > CHUNK_MAX:
            self._chunks.insert(at + 1, chunk[CHUNK_MAX // 2 :])
            del chunk[CHUNK_MAX // 2 :]

    def remove(self, item: int) -> None:
        """It must be here."""
        at = self._chunk_of(item)
        chunk = self._chunks[at]
        place = bisect_left(chunk, item)
        assert chunk[place] == item, f"{item} is not here"
        del chunk[place]
        self.count -= 1
        if not chunk and len(self._chunks) > 1:
            del self._chunks[at]

    def index(self, item: int) -> int:
        """How many are lower, whether it is here or not."""
        at = self._chunk_of(item)
        chunks = self._chunks
        place = bisect_left(chunks[at], item)
        if at <= len(chunks) // 2:
            return sum(map(len, chunks[:at])) + place
        # Those that come last are asked for most, and there are fewer chunks behind them than before them.
        return self.count - sum(map(len, chunks[at:])) + place

    def _chunk_of(self, item: int) -> int:
        """Where it is, or belongs."""
        chunks = self._chunks
        if len(chunks) == 1 or item < chunks[1][0]:
            return 0
        return bisect_right(chunks, item, key=_first) - 1
