"""A WebSocket to another node, on behalf of a client of this one.

Messages are handed on inside the socket's own callback. A side that does not read makes the other side's reading stop.
A node that is gone without a word is noticed by its silence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from picows import WSCloseCode, WSError, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from .. import logs
from ..cluster.peer import Peer
from .forward.failures import unreachable
from .forward.request import Fields

log = logs.get_logger("control")

# How long the other node may take to let us in.
HANDSHAKE_LIMIT_S: Final = 5.0
# After so much silence it is asked for a sign of life, and has so long to give one.
SILENCE_S: Final = 5.0
# Beyond what a client may send: answers can be longer.
MESSAGE_MAX_BYTES: Final = 256 << 20

_TEXT: Final = WSMsgType.TEXT


class PeerSocket(WSListener):
    """The socket. Made by `connect`."""

    def __init__(
        self, receive: Callable[[bytes], None], ended: Callable[[], None], hold: Callable[[bool], None]
    ) -> None:
        self._receive = receive
        # Told once, when nothing more comes.
        self._ended = ended
        # Told whether the client should stop sending for a while.
        self._hold = hold
        # None before the handshake, and after the end.
        self._transport: WSTransport | None = None
        self._pieces: list[bytes] = []

    async def connect(self, peer: Peer, target: str, headers: Fields) -> None:
        """Open it; raises `NodeUnreachable`, also when the node does not let us in."""
        try:
            await ws_connect(
                lambda: self,
                f"ws://{urlsplit(peer.url).netloc}{target}",
                websocket_handshake_timeout=HANDSHAKE_LIMIT_S,
                enable_auto_ping=True,
                auto_ping_idle_timeout=SILENCE_S,
                auto_ping_reply_timeout=SILENCE_S,
                max_frame_size=MESSAGE_MAX_BYTES,
                max_redirects=0,
                extra_headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers],
            )
        except (OSError, WSError) as error:
            # The answer of the other node is not repeated: it is for whoever runs the cluster.
            log.info("a node does not take a control connection", nodeId=peer.node_id, error=str(error)[:200])
            raise unreachable(peer, "it does not take the connection") from None

    def send(self, message: bytes) -> None:
        """Send it; after the end it goes nowhere."""
        if self._transport is not None:
            self._transport.send(_TEXT, message)

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.underlying_transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.underlying_transport.resume_reading()

    def close(self) -> None:
        """Say goodbye, and end. Idempotent."""
        if self._transport is not None:
            self._transport.send_close(WSCloseCode.OK)
            self._transport.disconnect()

    def abort(self) -> None:
        """End it now. Idempotent."""
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    # --- picows' callbacks ----------------------------------------------------------------------------------

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._transport = None
        self._ended()

    def pause_writing(self) -> None:
        self._hold(True)

    def resume_writing(self) -> None:
        self._hold(False)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if kind == _TEXT and frame.fin:
            self._receive(frame.get_payload_as_bytes())
        elif kind in (_TEXT, WSMsgType.CONTINUATION):
            self._pieces.append(frame.get_payload_as_bytes())
            if sum(map(len, self._pieces)) > MESSAGE_MAX_BYTES:
                self.abort()
            elif frame.fin:
                whole, self._pieces = b"".join(self._pieces), []
                self._receive(whole)
        elif kind == WSMsgType.CLOSE:
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()
