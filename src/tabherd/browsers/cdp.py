"""A raw CDP client: one WebSocket to a browser, many flat sessions on it.

Invariants:
- Every call ends exactly once: with Chromium's answer, with `TabGone` when its page is detached or crashes (Chromium
  itself would never answer then), or with `BrowserGone` at the very moment the socket dies. Later calls fail at once.
  A cancelled caller leaves nothing behind, and an answer that comes too late is ignored.
- Messages leave in the order of the calls, also under backpressure; what waits for the socket is bounded in bytes.
- Nothing a page can put into a message, and no listener that raises, ends the connection. A peer that does not speak
  CDP is hung up on.

Frames are handled inside the socket's own callback: no task and no queue per frame. Only the envelope of an event is
decoded until somebody turns out to listen.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import structlog
from picows import (
    WSCloseCode,
    WSFrame,
    WSHandshakeError,
    WSListener,
    WSMsgType,
    WSProtocolError,
    WSTransport,
    ws_connect,
)

from .port import BrowserGone, CdpFailure, Listener, TabGone

log = structlog.get_logger(__name__)

# A full-page screenshot or a heap snapshot is one message.
MESSAGE_MAX_BYTES: Final = 256 << 20
# What may wait for a socket that does not take more; a browser that lets this fill up is not keeping up.
UNSENT_MAX_BYTES: Final = 64 << 20
# How long the WebSocket handshake may take.
HANDSHAKE_LIMIT_S: Final = 10.0

# Chromium's code for a session id that does not exist (any more).
SESSION_NOT_FOUND: Final = -32001
# Ours, for a call that could not even be queued.
NOT_QUEUED: Final = -32099

_TEXT: Final = WSMsgType.TEXT
_CONTINUATION: Final = WSMsgType.CONTINUATION
_CLOSE: Final = WSMsgType.CLOSE


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: Any = None


class _Envelope(msgspec.Struct):
    """One incoming message. Results are wanted, so they are decoded in the same pass; parameters mostly are not."""

    id: int | None = None
    method: str = ""
    sessionId: str = ""  # noqa: N815 - the wire's spelling
    params: msgspec.Raw = msgspec.Raw()
    result: dict[str, Any] | None = None
    error: _Error | None = None


class _Call(msgspec.Struct, gc=False):
    """One call that waits for its answer."""

    method: str
    session_id: str
    answer: asyncio.Future[dict[str, Any]]
    # Whether it has been handed to the socket; decides between "never happened" and "nobody knows".
    was_sent: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Envelope).decode
_decode_params = msgspec.json.Decoder(dict[str, Any]).decode


class CdpConnection(WSListener):
    """The socket. Made by `connect`; every method belongs to the event loop it was made on."""

    def __init__(self) -> None:
        # Set by the handshake, before anybody can call.
        self._transport: WSTransport | None = None
        self._last_id = 0
        self._calls: dict[int, _Call] = {}
        # Attached sessions whose renderer has crashed: Chromium would leave their calls unanswered for ever.
        self._crashed: set[str] = set()
        # By (session id, method); tuples, so that a listener may stop itself while it is being called.
        self._listeners: dict[tuple[str, str], tuple[Listener, ...]] = {}
        # Pieces of a fragmented message.
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        # Messages that wait for the socket, while it is paused; None for one that nobody awaits.
        self._unsent: deque[tuple[_Call | None, bytes]] = deque()
        self._unsent_bytes = 0
        self._is_paused = False
        # Why the connection ended; empty while it lives.
        self._end_reason = ""
        self._ended = asyncio.Event()
        # Runs until the socket is closed.
        self._disconnecting: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, ws_url: str) -> CdpConnection:
        """Open the socket, or raise `BrowserGone`."""
        connection = cls()
        try:
            transport, _ = await ws_connect(
                lambda: connection,
                ws_url,
                websocket_handshake_timeout=HANDSHAKE_LIMIT_S,
                max_frame_size=MESSAGE_MAX_BYTES,
                max_redirects=0,
                # Our own callbacks do not raise; if one did, losing a frame is better than losing every call.
                disconnect_on_exception=False,
            )
        except (OSError, WSHandshakeError, TimeoutError) as error:
            raise BrowserGone(f"Cannot connect to {ws_url}: {error}", was_sent=False) from error
        if connection._transport is None:
            # A socket that is lost in the middle of the handshake without an error counts as opened there.
            raise BrowserGone(f"Cannot connect to {ws_url}: it was lost during the handshake", was_sent=False)
        connection._disconnecting = asyncio.create_task(_wait_disconnected(transport))
        return connection

    @property
    def is_closed(self) -> bool:
        return bool(self._end_reason)

    @property
    def calls_waiting(self) -> int:
        """How many calls and expectations are not settled yet."""
        return len(self._calls)

    async def call(
        self, method: str, params: Mapping[str, Any] | None = None, session_id: str | None = None
    ) -> dict[str, Any]:
        """Send one command and wait for its answer; `CdpFailure` when Chromium refuses it."""
        call = _Call(method, session_id or "", asyncio.get_running_loop().create_future())
        call_id = self._send(call, params)
        try:
            return await call.answer
        finally:
            self._calls.pop(call_id, None)
            # An error knows this frame, and the call knows the error. The collector does not see calls, so that ring
            # would never be freed, with all that the frames above have in hand.
            del call

    def post(self, method: str, params: Mapping[str, Any] | None = None, session_id: str | None = None) -> None:
        """Send one command and care for no answer, not even whether the browser is there to take it."""
        if not self._end_reason:
            self._last_id += 1
            self._write(None, _message(self._last_id, method, params, session_id or ""))

    def expect(self, what: str, session_id: str | None = None) -> asyncio.Future[Any]:
        """A future for the caller to settle, e.g. from a listener; it fails when the page or browser goes first."""
        self._check_alive(what, session_id or "")
        call = _Call(what, session_id or "", asyncio.get_running_loop().create_future(), was_sent=True)
        self._last_id += 1
        call_id = self._last_id
        self._calls[call_id] = call

        def is_settled(answer: asyncio.Future[Any]) -> None:
            self._calls.pop(call_id, None)
            # Who expects two things, or does something else meanwhile, may hear of the end there and never look here.
            _ = answer.cancelled() or answer.exception()

        call.answer.add_done_callback(is_settled)
        return call.answer

    def listen(self, session_id: str | None, method: str, listener: Listener) -> Callable[[], None]:
        """Hear an event of one session (None: of the browser); the returned function stops it."""
        key = (session_id or "", method)
        self._listeners[key] = (*self._listeners.get(key, ()), listener)

        def stop() -> None:
            rest = tuple(other for other in self._listeners.get(key, ()) if other is not listener)
            if rest:
                self._listeners[key] = rest
            else:
                self._listeners.pop(key, None)

        return stop

    def session(self, session_id: str) -> CdpSession:
        return CdpSession(self, session_id)

    async def wait_closed(self) -> str:
        """Returns when the connection has ended, with the reason."""
        await self._ended.wait()
        return self._end_reason

    def abort(self, reason: str) -> None:
        """End the connection now: every waiting call fails with that reason before this returns."""
        self._end(reason)
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    async def close(self) -> None:
        """End the connection and wait until the socket is closed. Idempotent."""
        self.abort("The connection was closed by tabherd.")
        if self._disconnecting is not None:
            await asyncio.wait({self._disconnecting})

    # --- What picows calls ------------------------------------------------------------------------------------------

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._end("The browser closed the connection.")

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        while self._unsent and not self._is_paused:
            call, message = self._unsent.popleft()
            self._unsent_bytes -= len(message)
            # A caller that left while its message waited has it withdrawn.
            if call is None or not call.answer.done():
                self._transmit(call, message)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if kind == _TEXT and frame.fin:
            # A view of the read buffer: whatever is kept must be decoded before this callback returns, and is.
            self._receive(frame.get_payload_as_memoryview())
        elif kind in (_TEXT, _CONTINUATION):
            self._collect(frame)
        elif kind == _CLOSE:
            self._end("The browser closed the connection.")
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()

    # --- Outgoing ---------------------------------------------------------------------------------------------------

    def _send(self, call: _Call, params: Mapping[str, Any] | None) -> int:
        self._check_alive(call.method, call.session_id)
        self._last_id += 1
        call_id = self._last_id
        message = _message(call_id, call.method, params, call.session_id)
        self._write(call, message)
        self._calls[call_id] = call
        return call_id

    def _check_alive(self, what: str, session_id: str) -> None:
        if self._end_reason:
            raise BrowserGone(self._end_reason, was_sent=False)
        if session_id in self._crashed:
            raise TabGone(f"The page had crashed before {what}.", was_sent=False)

    def _write(self, call: _Call | None, message: bytes) -> None:
        """Hand it to the socket, or let it wait its turn."""
        if not self._is_paused and not self._unsent:
            self._transmit(call, message)
        elif self._unsent_bytes + len(message) > UNSENT_MAX_BYTES:
            raise CdpFailure("write", NOT_QUEUED, "the browser does not take messages as fast as they come")
        else:
            self._unsent.append((call, message))
            self._unsent_bytes += len(message)

    def _transmit(self, call: _Call | None, message: bytes) -> None:
        assert self._transport is not None, "nobody has this connection before the handshake"
        self._transport.send(_TEXT, message)
        if call is not None:
            call.was_sent = True

    # --- Incoming ---------------------------------------------------------------------------------------------------

    def _collect(self, frame: WSFrame) -> None:
        piece = frame.get_payload_as_bytes()
        self._pieces_bytes += len(piece)
        if self._pieces_bytes > MESSAGE_MAX_BYTES:
            self.abort("The browser sent a message above the size limit.")
            return
        self._pieces.append(piece)
        if frame.fin:
            whole = b"".join(self._pieces)
            self._pieces.clear()
            self._pieces_bytes = 0
            self._receive(whole)

    def _receive(self, payload: memoryview | bytes) -> None:
        try:
            envelope = _decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            try:
                envelope = _decode(_mended(bytes(payload)))
            except (ValueError, RecursionError, msgspec.MsgspecError) as error:
                log.error("the browser sent something that is not CDP", error=str(error), head=bytes(payload[:100]))
                self.abort("The browser sent something that is not CDP.")
                return
        if envelope.id is None:
            self._dispatch(envelope)
            return
        call = self._calls.pop(envelope.id, None)
        # Absent: the caller has left, or never wanted an answer. Done: cancelled, and not yet run to its `finally`.
        if call is None or call.answer.done():
            return
        if envelope.error is None:
            call.answer.set_result(envelope.result or {})
        else:
            call.answer.set_exception(_failure(call, envelope.error))

    def _dispatch(self, event: _Envelope) -> None:
        if event.method == "Target.detachedFromTarget":
            self._detach(_params(event).get("sessionId", ""))
        elif event.method == "Inspector.targetCrashed":
            self._crashed.add(event.sessionId)
            self._fail_session(event.sessionId, "crashed")
        for listener in self._listeners.get((event.sessionId, event.method), ()):
            try:
                # Each gets its own copy: one that changes it must not surprise the next.
                listener(_params(event))
            except Exception:
                # A listener's bug must not take down every other session.
                log.exception("a listener failed", method=event.method)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def _detach(self, session_id: str) -> None:
        self._crashed.discard(session_id)
        self._fail_session(session_id, "was closed")
        for key in [key for key in self._listeners if key[0] == session_id]:
            del self._listeners[key]

    def _fail_session(self, session_id: str, how: str) -> None:
        for call in list(self._calls.values()):
            if call.session_id == session_id and not call.answer.done():
                call.answer.set_exception(TabGone(f"The page {how} during {call.method}.", was_sent=call.was_sent))

    def _end(self, reason: str) -> None:
        if self._end_reason:
            return
        self._end_reason = reason
        self._unsent.clear()
        self._unsent_bytes = 0
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.answer.done():
                call.answer.set_exception(BrowserGone(reason, was_sent=call.was_sent))
        self._listeners.clear()
        self._ended.set()


class CdpSession:
    """One attached target: calls and events carry its session id."""

    __slots__ = ("connection", "session_id")

    def __init__(self, connection: CdpConnection, session_id: str) -> None:
        self.connection = connection
        self.session_id = session_id

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            return await self.connection.call(method, params, self.session_id)
        except CdpFailure as failure:
            if failure.code == SESSION_NOT_FOUND:
                raise TabGone(f"The page was gone before {method}.", was_sent=False) from failure
            raise

    def post(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        self.connection.post(method, params, self.session_id)

    def expect(self, what: str) -> asyncio.Future[Any]:
        return self.connection.expect(what, self.session_id)

    def listen(self, method: str, listener: Listener) -> Callable[[], None]:
        return self.connection.listen(self.session_id, method, listener)


async def _wait_disconnected(transport: WSTransport) -> None:
    try:
        await transport.wait_disconnected()
    except WSProtocolError as error:
        log.error("the browser broke the WebSocket protocol", error=str(error))


def _params(event: _Envelope) -> dict[str, Any]:
    if not event.params:
        return {}
    try:
        return _decode_params(event.params)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # The envelope's decoder skips over parameters without looking into their strings.
        return _decode_params(_mended(bytes(event.params)))


def _mended(payload: bytes) -> str:
    """JSON that the strict decoder refuses, with every half of a surrogate pair made U+FFFD; else ValueError.

    Any page can make such strings (its title, a result) and Chromium passes them on. Hanging up on them would let one
    page cut off every tenant of the browser.
    """
    loose = json.dumps(json.loads(payload.decode("utf-8", "replace")), ensure_ascii=False)
    return loose.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _message(call_id: int, method: str, params: Mapping[str, Any] | None, session_id: str) -> bytes:
    message: dict[str, Any] = {"id": call_id, "method": method}
    if params:
        message["params"] = params
    if session_id:
        message["sessionId"] = session_id
    return _encode(message)


def _failure(call: _Call, error: _Error) -> CdpFailure:
    detail = f": {error.data}" if error.data else ""
    return CdpFailure(call.method, error.code, error.message + detail)
