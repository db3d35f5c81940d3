"""One open WebSocket on the server's side, with callbacks; on top of picows.

It keeps the rules of RFC 6455 that picows leaves to its users: fragments, reserved bits, and a closing handshake with a
limit. Callbacks run inside the socket's own read: no task and no queue per message. What is sent is never dropped here;
how much of it waits for a slow reader is bounded, and a reader that lets more pile up is cut off. Whoever has something
that can wait asks `is_paused` first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

from .. import logs
from .frames import BUNDLED_MAX_BYTES, Bundle, server_frame

log = logs.get_logger("sockets")

# How much may wait for a reader before the socket counts as paused.
HIGH_WATER_BYTES: Final = 256 << 10
# How much a reader may be sent while it is behind before it is cut off; what put it behind, one message of any size
# perhaps, does not count.
UNSENT_MAX_BYTES: Final = 32 << 20
# How long the other side has to answer a close, or to read what was sent before it.
CLOSE_LIMIT_S: Final = 5.0
# picows' send lends a larger message's header to the transport, from a buffer that its next send overwrites; uvloop,
# unlike asyncio, does not copy what it cannot write at once, and the stream would be garbled under backpressure.
COPIED_MAX_BYTES: Final = 8_192
# Room for a header in front of such a message, so that both are one piece that is copied when it has to wait.
HEADROOM: Final = bytearray(14)
# Longest reason that fits into a close frame.
REASON_MAX_BYTES: Final = 123

_TEXT: Final = WSMsgType.TEXT


class Socket(WSListener):
    """One open socket. Subclasses hear `opened`, `received`, `received_binary` and `closed`."""

    # Largest message it takes; a larger one closes it with code 1009.
    message_max_bytes: int = 1 << 20

    def __init__(self) -> None:
        # Set by the handshake, before anything can be received.
        self._transport: WSTransport | None = None
        # The pieces of a fragmented message so far; None between messages.
        self._pieces: bytearray | None = None
        self._is_binary = False
        # Cuts the other side off when it does not take part in the close; set when a close was begun.
        self._cutting: asyncio.TimerHandle | None = None
        # Whether the reader is so slow that only what cannot wait should be sent.
        self.is_paused = False
        # What was sent to it in spite of that.
        self._late_bytes = 0
        # What leaves together with the next message.
        self._bundle = Bundle(server_frame)
        # Whether it is over, or was never opened; nothing can be sent.
        self.is_closed = False
        # Called at the end, for whoever keeps count of open sockets.
        self.on_closed: Callable[[], None] = lambda: None

    # --- For subclasses -------------------------------------------------------------------------------------

    def opened(self) -> None:
        """The handshake is done."""

    def received(self, data: bytes) -> None:
        """A whole text message; not checked to be UTF-8."""

    def received_binary(self) -> None:
        """A whole binary message."""

    def heard(self) -> None:
        """Any frame, also a pong."""

    def resumed(self) -> None:
        """It is no longer paused, or over."""

    def closed(self) -> None:
        """It is over; called exactly once, also when the client had left before it was opened."""

    # --- Sending --------------------------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        """What waits for the reader."""
        if self._transport is None or self.is_closed:
            return 0
        size: int = self._transport.underlying_transport.get_write_buffer_size()
        return size

    def send(self, message: bytes) -> None:
        """Send a text message; after the end, or once a close was begun, it goes nowhere."""
        if self._transport is None or self.is_closed or self._cutting is not None:
            return
        if self.is_paused:
            self._late_bytes += len(message)
            if self._late_bytes > UNSENT_MAX_BYTES:
                log.info("a socket does not read and is cut off", unsent=self.unsent_bytes)
                self.abort()
                return
        if self._bundle.frames:
            self._bundle.send(self._transport)
        if len(message) <= COPIED_MAX_BYTES:
            self._transport.send(_TEXT, message)
        else:
            self._transport.send_reuse_external_bytearray(_TEXT, HEADROOM + message, len(HEADROOM))

    def send_with_next(self, message: bytes) -> None:
        """As `send`, for when more is about to follow: see `frames`."""
        if self.is_paused or len(message) > BUNDLED_MAX_BYTES:
            self.send(message)
        elif self._transport is not None and not self.is_closed and self._cutting is None:
            self._bundle.add(self._transport, message)

    def ping(self) -> None:
        """Ask for a sign of life: every client answers by itself."""
        if self._transport is not None and not self.is_closed and self._cutting is None:
            self._transport.send_ping(b"")

    def pause_reading(self) -> None:
        """Take nothing more from the other side; what was read already still arrives."""
        if self._transport is not None and not self.is_closed:
            self._transport.underlying_transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on after `pause_reading`."""
        if self._transport is not None and not self.is_closed:
            self._transport.underlying_transport.resume_reading()

    def close(self, code: WSCloseCode, reason: str = "") -> None:
        """Begin the closing handshake; whoever does not take part is cut off. Idempotent."""
        if self._transport is None or self.is_closed or self._cutting is not None:
            return
        self._bundle.send(self._transport)
        self._transport.send_close(code, reason.encode()[:REASON_MAX_BYTES].decode(errors="ignore"))
        self._cutting = asyncio.get_running_loop().call_later(CLOSE_LIMIT_S, self.abort)

    def abort(self) -> None:
        """Cut it off now; what was not sent is lost. Idempotent."""
        if self._transport is not None and not self.is_closed:
            self._transport.disconnect(graceful=False)

    def shutdown(self) -> None:
        """The server ends."""
        self.close(WSCloseCode.GOING_AWAY, "The server ends.")

    def abandoned(self) -> None:
        """The client had left by the time it was let in."""
        self._end()

    # --- picows' callbacks ----------------------------------------------------------------------------------

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        transport.underlying_transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._guarded(self.opened)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if self.is_closed or (transport.is_close_frame_sent and frame.msg_type != WSMsgType.CLOSE):
            # Whatever comes after a close was begun is not for anybody.
            return
        self._guarded(lambda: self._frame(transport, frame))

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._end()

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self._late_bytes = 0
        self._guarded(self.resumed)

    # --- Parts ----------------------------------------------------------------------------------------------

    def _frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.heard()
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            self.close(WSCloseCode.PROTOCOL_ERROR, "A reserved bit is set.")
            return
        match frame.msg_type:
            case WSMsgType.TEXT | WSMsgType.BINARY:
                if self._pieces is not None:
                    self.close(WSCloseCode.PROTOCOL_ERROR, "A message began inside another.")
                    return
                self._is_binary = frame.msg_type == WSMsgType.BINARY
                if frame.fin:
                    self._message(frame.get_payload_as_bytes())
                else:
                    self._pieces = bytearray(frame.get_payload_as_bytes())
            case WSMsgType.CONTINUATION:
                self._continue(frame)
            case WSMsgType.CLOSE:
                if not transport.is_close_frame_sent:
                    self._bundle.send(transport)
                    transport.send_close(WSCloseCode.OK)
                # Once what was sent is read; a reader that has stopped reading is cut off.
                transport.disconnect()
                if self._cutting is None:
                    self._cutting = asyncio.get_running_loop().call_later(CLOSE_LIMIT_S, self.abort)
            case _:
                # Pings are answered by picows, and a pong says no more than that somebody is there.
                return

    def _continue(self, frame: WSFrame) -> None:
        if self._pieces is None:
            self.close(WSCloseCode.PROTOCOL_ERROR, "There is nothing to continue.")
            return
        self._pieces += frame.get_payload_as_bytes()
        if len(self._pieces) > self.message_max_bytes:
            self._pieces = None
            self.close(WSCloseCode.MESSAGE_TOO_BIG, "The message is too large.")
        elif frame.fin:
            message, self._pieces = bytes(self._pieces), None
            self._message(message)

    def _message(self, data: bytes) -> None:
        if self._is_binary:
            self.received_binary()
        else:
            self.received(data)

    def _guarded(self, callback: Callable[[], None]) -> None:
        """An exception out of a callback is a bug; it costs this socket, told to its client, and nothing else."""
        try:
            callback()
        except Exception:
            log.exception("bug: unexpected exception in a socket")
            self.close(WSCloseCode.INTERNAL_ERROR, "tabherd has a bug.")

    def _end(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self._cutting is not None:
            self._cutting.cancel()
        self.on_closed()
        self._guarded(self.resumed)
        self._guarded(self.closed)
