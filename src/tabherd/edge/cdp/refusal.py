"""A refusal for a client that shows its user the answers to commands, but not the body of a refused upgrade.

Puppeteer says no more than "Unexpected server response: 429". So its socket is opened, the first command is answered
with the error, and the socket is closed with it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from picows import WSCloseCode

from ...errors import TabherdError
from ..sockets import Socket
from . import message
from .tenant import CLOSE_CODE_BASE

# How long the client may take to say something.
WAIT_LIMIT_S: Final = 10.0


class Refusal(Socket):
    """A socket that says no."""

    def __init__(self, error: TabherdError) -> None:
        super().__init__()
        self._error = error
        self._limit: asyncio.TimerHandle | None = None

    def opened(self) -> None:
        self._limit = asyncio.get_running_loop().call_later(WAIT_LIMIT_S, self._close)

    def closed(self) -> None:
        if self._limit is not None:
            self._limit.cancel()

    def received(self, data: bytes) -> None:
        try:
            request = message.decode_request(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._close()
            return
        error = self._error
        self.send(message.failure(request.id, "", message.SERVER_ERROR, message.told(error), error))
        self._close()

    def _close(self) -> None:
        self.close(WSCloseCode(CLOSE_CODE_BASE + self._error.status), message.told(self._error))
