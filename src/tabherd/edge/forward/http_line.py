"""A connection on which HTTP/1.1 is spoken with another node: one request, then its answer, then the next.

Invariants:
- One request at a time, never two: a second one is begun only after `rest` found the first in perfect order.
- An answer says how long it is. One that would end with its connection could not be told from half of one.
- What comes in is bounded: heads and trailers by `HEAD_MAX_BYTES`, bodies by not reading on while the reader is behind.
- Whatever is not such an answer ends the connection; what came of the answer before that is still read.
"""

from __future__ import annotations

import asyncio
from typing import Final

import httptools
import msgspec

from ...cluster.hop import MISDIRECTED_HEADER
from ...cluster.peer import Peer
from .failures import Lost
from .line import Line
from .request import Fields

HEAD_MAX_BYTES: Final = 64 << 10
# What may wait for the reader before the other side is made to wait.
HIGH_WATER_BYTES: Final = 64 << 10
MISDIRECTED: Final = 421
TOO_LARGE: Final = "its answer has too large a head"
_BODILESS: Final = frozenset({204, 304})


class AnswerHead(msgspec.Struct, frozen=True):
    """What an answer begins with; names in lower case."""

    status: int
    headers: Fields

    @property
    def is_misdirected(self) -> bool:
        """Whether what was asked for is not there, and nothing was done."""
        return self.status == MISDIRECTED and any(name == MISDIRECTED_HEADER for name, _ in self.headers)


class HttpLine(Line):
    """One connection for requests. Its user calls `begin`, writes, and then reads `head` and `read` to the end."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer)
        # Since when it waits for a request, by the loop's clock; set by whoever keeps it.
        self.idle_since = 0.0
        # Whether it had served an earlier request.
        self.was_kept = False
        # Whether the whole of the request was handed to the transport.
        self.is_sent = False
        # Whether anything at all of the answer came.
        self.has_heard = False
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        # Between begin and rest.
        self._is_busy = False
        # Whether the answer will have no body because none was asked for.
        self._is_bodiless = False
        self._fields: list[tuple[bytes, bytes]] = []
        # The head of the answer, once it is there.
        self._head: AnswerHead | None = None
        # What came of the body and was not read.
        self._pieces: list[bytes] = []
        self._unread_bytes = 0
        self._is_paused = False
        # Whether the answer is all there.
        self._is_over = False
        # Whether another request may follow on this connection.
        self._is_lasting = False
        # What came since the last progress: endless heads and trailers are noticed by it.
        self._idle_bytes = 0
        # What is wrong with the answer, found while the parser was at work, which cannot be left from inside.
        self._wrong = ""
        # Wakes the one reader.
        self._waiter: asyncio.Future[None] | None = None

    # --- The request ----------------------------------------------------------------------------------------

    def begin(self, data: bytes, *, is_head: bool, is_whole: bool) -> None:
        """Write a request: its head, and its body as far as it is there."""
        assert not self._is_busy, "one request at a time"
        self._is_busy = True
        self._is_bodiless = is_head
        self.write(data, is_last=is_whole)

    def write(self, data: bytes, *, is_last: bool) -> None:
        """More of the request's body."""
        assert self.transport is not None, "it was dialled"
        if self.failure is None:
            self.transport.write(data)
            self.is_sent = is_last

    # --- The answer -----------------------------------------------------------------------------------------

    async def head(self) -> AnswerHead:
        """The head of the answer. Raises Lost."""
        while self._head is None:
            await self._news()
        return self._head

    @property
    def is_read(self) -> bool:
        """Whether there is nothing more of the answer to be read."""
        return self._is_over and not self._pieces

    async def read(self) -> bytes:
        """What came of the body; empty at its end. Raises Lost, after everything that had come was read."""
        while not self._pieces:
            if self._is_over:
                return b""
            await self._news()
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._unread_bytes = 0
        if self._is_paused and self.failure is None and self.transport is not None:
            self._is_paused = False
            self.transport.resume_reading()
        return data

    def rest(self) -> bool:
        """Be ready for another request; False when that cannot be."""
        if not (self._is_over and self.is_sent and self._is_lasting and not self._is_paused and self.failure is None):
            return False
        self._is_busy = self.is_sent = self.has_heard = self._is_over = False
        self._head = None
        self._pieces.clear()
        self._unread_bytes = 0
        return True

    async def _news(self) -> None:
        """Wait for something to change. Raises Lost when nothing will any more."""
        if self.failure is not None:
            raise Lost(self.failure)
        assert self._waiter is None, "one reader at a time"
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def ended(self) -> None:
        # It knows our methods, and we know it.
        self._parser = None
        self._wake()

    # --- asyncio's and the parser's callbacks ---------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            return
        if not self._is_busy or self._is_over:
            # Nobody asked.
            self.abort("it spoke out of turn")
            return
        self.has_heard = True
        self._idle_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._wrong = self._wrong or "its answer is not HTTP"
        if self._idle_bytes > HEAD_MAX_BYTES:
            self._wrong = self._wrong or TOO_LARGE
        if self._wrong:
            # After a whole answer that concerns only the connection: `rest` will say so.
            self.abort(self._wrong)
        elif self._unread_bytes > HIGH_WATER_BYTES and not self._is_over and self.transport is not None:
            self._is_paused = True
            self.transport.pause_reading()
        self._wake()

    def on_message_begin(self) -> None:
        self._fields = []
        if self._is_over:
            self._wrong = "it spoke out of turn"

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if self._head is not None or self._wrong:
            return
        if self._parser.get_http_version() != "1.1" or not 100 <= status <= 599 or status == 101:
            self._wrong = f"its answer is HTTP/{self._parser.get_http_version()} with status {status}"
            return
        if status < 200:
            # Not the answer yet, and it does not count as progress towards it.
            return
        lengths = [field for field in self._fields if field[0] in (b"content-length", b"transfer-encoding")]
        is_bodiless = self._is_bodiless or status in _BODILESS
        if not is_bodiless and not (
            len(lengths) == 1 and (lengths[0][0] == b"content-length" or lengths[0][1].lower() == b"chunked")
        ):
            self._wrong = "its answer does not say how long it is"
            return
        if self._idle_bytes > HEAD_MAX_BYTES and sum(map(_size, self._fields)) > HEAD_MAX_BYTES:
            self._wrong = TOO_LARGE
            return
        self._is_lasting = self._parser.should_keep_alive()
        self._head = AnswerHead(status, self._fields)
        self._idle_bytes = 0
        if self._is_bodiless:
            # The parser does not know that no body follows, so it cannot read another answer.
            self._is_over, self._is_lasting = True, False

    def on_body(self, body: bytes) -> None:
        if not self._is_bodiless and not self._wrong:
            self._pieces.append(body)
            self._unread_bytes += len(body)
            self._idle_bytes = 0

    def on_message_complete(self) -> None:
        if self._head is not None and not self._wrong:
            self._is_over = True


def _size(field: tuple[bytes, bytes]) -> int:
    return len(field[0]) + len(field[1])
