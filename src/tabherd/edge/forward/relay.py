"""One client's request on its way through this node: what it sends goes to a line, and the line's answer comes back.

Invariants:
- Constant memory, however long request and answer are: whoever reads slowly slows the other side down.
- A client that leaves takes the line along at once, so that whoever waits for it there stops waiting.
- The request that the other node reads is as long as was said, or is cut off: never shorter, never longer.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.types import Message, Receive, Send

from ..body import ClientLeft
from .failures import CutShort, Lost, WrongNode
from .http_line import AnswerHead, HttpLine
from .request import HOP_BY_HOP

# A body up to this size is taken in whole before anything is sent: it can be sent to another node if this one is the
# wrong one, and a client that sends slowly holds nobody's connection.
WHOLE_MAX_BYTES: Final = 64 << 10
# Each server says for itself what time it is.
_NOT_PASSED: Final = HOP_BY_HOP | {b"date"}
_CLOSE: Final = (b"connection", b"close")


async def gather(receive: Receive) -> tuple[bytes, bool]:
    """The body, and whether that is all of it: what does not fit into `WHOLE_MAX_BYTES` is still to come."""
    message = await _next(receive)
    body: bytes = message.get("body", b"")
    while message.get("more_body", False):
        if len(body) >= WHOLE_MAX_BYTES:
            return body, False
        message = await _next(receive)
        body += message.get("body", b"")
    return body, True


def as_chunk(data: bytes) -> bytes:
    """A piece of a body whose length nobody has said; an empty one would say that the body ends."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class Relay:
    """One request and its client."""

    def __init__(self, receive: Receive, send: Send, *, is_whole: bool, rest_bytes: int | None) -> None:
        self._receive = receive
        self._send = send
        # Whether all of the body was sent with the head.
        self._is_whole = is_whole
        # How much of the body is to follow, if the client has said so; otherwise it goes in chunks.
        self._rest_bytes = rest_bytes
        # Whether the client has been told anything.
        self._has_begun = False
        self._has_left = False

    async def run(self, line: HttpLine) -> None:
        """Carry the request's rest and its answer.

        Raises WrongNode or Lost before the client was told anything, CutShort after that, and ClientLeft at any time.
        """
        following = asyncio.get_running_loop().create_task(self._follow(line))
        try:
            head = await line.head()
            if head.is_misdirected:
                raise WrongNode
            await self._pass_back(head, line)
        except Lost as lost:
            if self._has_left:
                raise ClientLeft from None
            if self._has_begun:
                raise CutShort(str(lost)) from None
            raise
        finally:
            following.cancel()
            if following.done() and not following.cancelled():
                # A client that left is no error; whatever else ended it is, and is told.
                following.result()

    async def _pass_back(self, head: AnswerHead, line: HttpLine) -> None:
        headers = [field for field in head.headers if field[0] not in _NOT_PASSED]
        if not line.is_sent:
            # The answer came before the whole of the request, and nobody will read the rest of it.
            headers.append(_CLOSE)
        self._has_begun = True
        await self._send({"type": "http.response.start", "status": head.status, "headers": headers})
        while True:
            data = await line.read()
            is_last = line.is_read
            await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})
            if is_last:
                return

    async def _follow(self, line: HttpLine) -> None:
        """Pass on what the client still sends, and cut the line when it leaves."""
        try:
            if not self._is_whole:
                await self._pump(line)
            while True:
                await _next(self._receive)
        except ClientLeft:
            self._has_left = True
            line.abort("the client left")
        except Exception:
            # Nobody else would end it.
            line.abort("the request could not be read")
            raise

    async def _pump(self, line: HttpLine) -> None:
        is_last = False
        while not is_last:
            message = await _next(self._receive)
            data: bytes = message.get("body", b"")
            is_last = not message.get("more_body", False)
            if self._rest_bytes is None:
                data = as_chunk(data) + (b"0\r\n\r\n" if is_last else b"")
            else:
                self._rest_bytes -= len(data)
                if self._rest_bytes < 0 or (is_last and self._rest_bytes):
                    line.abort("the request is not as long as it says")
                    return
            line.write(data, is_last=is_last)
            await line.drain()


async def _next(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    return message
