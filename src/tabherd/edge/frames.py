"""Text messages that leave a WebSocket together: written as frames here, and handed over in one piece.

picows gives every message a system call of its own, which is the quickest way for one message, and of many that came
in together costs more than all other work on them. Whoever has one in hand and knows that more is about to follow puts
it into a bundle. What is in a bundle leaves with the next message that is sent, and at the latest when the event loop
gets to it, before anything more is read: it is never held back for what may come.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final

from picows import WSTransport

# Longest message that is put into a bundle; of longer ones it is not the call that costs.
BUNDLED_MAX_BYTES: Final = 8_192
# Messages in one bundle: whoever gets them shall be at work on them while the rest is still read.
BUNDLED_MAX: Final = 32

# A whole text message; its length in seven bits, or in two bytes more.
_TEXT: Final = 0x81
_LONG: Final = 126
_MASKED: Final = 0x80
# Masks keep scripts in pages from making intermediaries see what is not there. Here no script writes, and nobody is in
# between: the standard is kept to in form, with a mask that changes nothing.
_MASK: Final = bytes(4)

_short_head: Final = struct.Struct("!BB").pack
_long_head: Final = struct.Struct("!BBH").pack


def server_frame(message: bytes) -> bytes:
    """As servers write it."""
    size = len(message)
    head = _short_head(_TEXT, size) if size < _LONG else _long_head(_TEXT, _LONG, size)
    return head + message


def client_frame(message: bytes) -> bytes:
    """As clients write it."""
    size = len(message)
    head = _short_head(_TEXT, _MASKED | size) if size < _LONG else _long_head(_TEXT, _MASKED | _LONG, size)
    return head + _MASK + message


class Bundle:
    """What is about to leave one socket."""

    def __init__(self, frame: Callable[[bytes], bytes]) -> None:
        self._frame = frame
        # Empty most of the time: look before you send.
        self.frames: list[bytes] = []

    def add(self, transport: WSTransport, message: bytes) -> None:
        """Have it leave with what follows; it must not be longer than `BUNDLED_MAX_BYTES`."""
        if not self.frames:
            asyncio.get_running_loop().call_soon(self.send, transport)
        self.frames.append(self._frame(message))
        if len(self.frames) >= BUNDLED_MAX:
            self.send(transport)

    def send(self, transport: WSTransport) -> None:
        """Whatever is in it leaves now; after a close it goes nowhere."""
        frames, self.frames = self.frames, []
        if frames and not transport.is_close_frame_sent and not transport.underlying_transport.is_closing():
            transport.underlying_transport.write(b"".join(frames))
