"""One client's own connection to Chromium.

Chromium scopes sessions, stream handles and interceptions to a connection, and cleans up behind one that ends: hence
one per client. Frames are handed on inside the socket's own callback. A side that does not read makes the other side's
reading stop, so that nothing piles up in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from picows import WSCloseCode, WSFrame, WSHandshakeError, WSListener, WSMsgType, WSTransport, ws_connect

from ... import logs
from ...browsers.port import BrowserGone
from ..frames import BUNDLED_MAX_BYTES, Bundle, client_frame

log = logs.get_logger("cdp")

# As much as Chromium itself gives in one message; of it only the ends are read.
MESSAGE_MAX_BYTES: Final = 256 << 20
# How long the handshake may take.
HANDSHAKE_LIMIT_S: Final = 10.0

_TEXT: Final = WSMsgType.TEXT


class Upstream(WSListener):
    """The socket. Made by `connect`."""

    def __init__(
        self, receive: Callable[[bytes, bool], None], ended: Callable[[], None], hold: Callable[[bool], None]
    ) -> None:
        self._receive = receive
        self._ended = ended
        # Told whether the other side should stop sending for a while.
        self._hold = hold
        # None before the handshake, and after the end.
        self._transport: WSTransport | None = None
        self._pieces: list[bytes] = []
        # What leaves together with the next message.
        self._bundle = Bundle(client_frame)
        # Set when nothing that was sent can take effect any more.
        self.over = asyncio.Event()

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        receive: Callable[[bytes, bool], None],
        ended: Callable[[], None],
        hold: Callable[[bool], None],
    ) -> Upstream:
        """Open the socket, or raise `BrowserGone`."""
        upstream = cls(receive, ended, hold)
        try:
            await ws_connect(
                lambda: upstream,
                url,
                websocket_handshake_timeout=HANDSHAKE_LIMIT_S,
                max_frame_size=MESSAGE_MAX_BYTES,
                max_redirects=0,
                disconnect_on_exception=False,
            )
        except (OSError, WSHandshakeError, TimeoutError) as error:
            raise BrowserGone(f"Cannot connect to the browser: {error}", was_sent=False) from error
        if upstream._transport is None and not upstream.over.is_set():
            # As in `browsers.cdp`: lost in the middle of the handshake.
            raise BrowserGone("Cannot connect to the browser: it was lost during the handshake", was_sent=False)
        return upstream

    def send(self, message: bytes) -> None:
        """Send it; after the end it goes nowhere."""
        if self._transport is not None:
            if self._bundle.frames:
                self._bundle.send(self._transport)
            self._transport.send(_TEXT, message)

    def send_with_next(self, message: bytes) -> None:
        """As `send`, for when more is about to follow: see `frames`."""
        if len(message) > BUNDLED_MAX_BYTES:
            self.send(message)
        elif self._transport is not None:
            self._bundle.add(self._transport, message)

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.underlying_transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.underlying_transport.resume_reading()

    def abort(self) -> None:
        """End it now. Idempotent."""
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    # --- picows' callbacks ------------------------------------------------------------------------------------------

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._transport = None
        self.over.set()
        self._ended()

    def pause_writing(self) -> None:
        self._hold(True)

    def resume_writing(self) -> None:
        self._hold(False)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if kind == _TEXT and frame.fin:
            self._receive(frame.get_payload_as_bytes(), not frame.last_in_buffer)
        elif kind in (_TEXT, WSMsgType.CONTINUATION):
            # Chromium does not send pieces; others that can be attached to may.
            self._pieces.append(frame.get_payload_as_bytes())
            if sum(map(len, self._pieces)) > MESSAGE_MAX_BYTES:
                log.error("the browser sent a message above the size limit")
                self.abort()
            elif frame.fin:
                whole, self._pieces = b"".join(self._pieces), []
                self._receive(whole, False)
        elif kind == WSMsgType.CLOSE:
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()
