"""One viewer of a tab: its frames, what it says, and how it ends.

Invariants:
- Never more than `LIVE_UNDER_WAY_MAX` frames are on their way to it: a slow viewer is sent fewer, costs no more memory,
  and sees the newest page all the same.
- What it may not do is answered with `error` and costs that message alone. Before the close comes `ended`, with the
  reason.
- A flood is read no faster than `MESSAGES_PER_WINDOW` allow: it slows its sender and nobody else.
- A credential that is revoked ends it within `CHECK_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec
from picows import WSCloseCode, WSMsgType

from .. import logs
from ..broker.caller import Caller
from ..broker.live_view import LiveView
from ..browsers.screencast import Frame, Look
from ..errors import Draining, InvalidRequest, StateConflict, TabherdError
from ..wire.live import (
    LIVE_UNDER_WAY_MAX,
    LiveAck,
    LiveEnded,
    LiveFrame,
    LiveGive,
    LiveHistory,
    LiveKey,
    LiveMessage,
    LiveMouse,
    LiveNavigate,
    LiveReload,
    LiveSize,
    LiveState,
    LiveTake,
    LiveText,
)
from .auth import Badge
from .pulse import Pulse
from .reply import wire_form
from .sockets import HEADROOM, Socket

if TYPE_CHECKING:
    from .live import LiveDoor

log = logs.get_logger("live")

# How often the credential is looked at, and after how many looks a sign of life is asked for.
CHECK_S: Final = 0.8
CHECKS_PER_BEAT: Final = 18
# How much is read before the sender has to wait for the rest of the window.
MESSAGES_PER_WINDOW: Final = 100
WINDOW_S: Final = 0.1
# Messages that cannot be read before the viewer is taken for something else.
MALFORMED_MAX: Final = 10
# Close codes are HTTP's status codes from here on.
CLOSE_CODE_BASE: Final = 4_000

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
_decode: Final = msgspec.json.Decoder(LiveMessage).decode


class LiveSocket(Socket):
    """One viewer."""

    # A pasted text may be that long, every character of it escaped.
    message_max_bytes = 1 << 20

    def __init__(self, door: LiveDoor, *, badge: Badge, tab_id: str, look: Look, is_counted: bool) -> None:
        super().__init__()
        self._door = door
        self._badge = badge
        self.caller: Caller = badge.caller
        self._tab_id = tab_id
        self._look = look
        # Whether its messages count towards its credential's rate; those that another node passes on did there.
        self._is_counted = is_counted
        # Set while it watches.
        self._view: LiveView | None = None
        # The frames that it has not acknowledged, oldest first.
        self._under_way: list[int] = []
        # Whether a take or a give of it is under way.
        self._is_turning = False
        self._malformed = 0
        # Messages in the present window, and the end of that.
        self._messages = 0
        self._window: asyncio.TimerHandle | None = None
        self._pulse = Pulse()
        self._checks = 0
        self._checking: asyncio.TimerHandle | None = None

    # --- The socket -------------------------------------------------------------------------------------------------

    def opened(self) -> None:
        self._check_later()
        try:
            self._view = self._door.views.watch(self, self._tab_id, self._look)
        except TabherdError as error:
            # It ended while the viewer was let in.
            self.end(error)

    def heard(self) -> None:
        self._pulse.hear()

    def resumed(self) -> None:
        if self._view is not None and not self.is_closed:
            self._view.offer(self)

    def received(self, data: bytes) -> None:
        self._pace()
        try:
            message = _decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._malformed += 1
            if self._malformed >= MALFORMED_MAX:
                self.close(WSCloseCode.POLICY_VIOLATION, "Too many messages that cannot be read.")
                return
            self._refuse("message", InvalidRequest(f"The message cannot be read: {error}", field="message"))
            return
        try:
            if self._is_counted and not isinstance(message, LiveAck):
                self._door.guard.charge(self._badge)
            self._take(message)
        except TabherdError as error:
            self.refuse(message, error)

    def received_binary(self) -> None:
        self.close(WSCloseCode.UNSUPPORTED_DATA, "Messages are text.")

    def shutdown(self) -> None:
        """The server ends."""
        self._say(LiveEnded(error=wire_form(Draining("The server is stopping.", retry_after_ms=1_000))))
        super().shutdown()

    def closed(self) -> None:
        for timer in (self._checking, self._window):
            if timer is not None:
                timer.cancel()
        self._leave()

    # --- The view (Viewer) ------------------------------------------------------------------------------------------

    def show(self, seq: int, frame: Frame) -> bool:
        if self._transport is None or self.is_closed or self._cutting is not None:
            return False
        if self.is_paused or len(self._under_way) >= LIVE_UNDER_WAY_MAX:
            return False
        header = _encode(
            LiveFrame(
                seq=seq,
                width=frame.width,
                height=frame.height,
                scroll_x=frame.scroll_x,
                scroll_y=frame.scroll_y,
                captured_at=frame.captured_at,
            )
        )
        # In one piece with room for picows' own header: see `sockets`.
        message = b"".join((HEADROOM, len(header).to_bytes(4, "big"), header, frame.jpeg))
        self._under_way.append(seq)
        self._transport.send_reuse_external_bytearray(WSMsgType.BINARY, bytearray(message), len(HEADROOM))
        self._door.metrics.live_frames_total.inc()
        return True

    def tell(self, state: LiveState) -> None:
        self._say(state)

    def refuse(self, message: LiveMessage, error: TabherdError) -> None:
        self._refuse(str(message.__struct_config__.tag), error)

    def end(self, error: TabherdError) -> None:
        self._leave()
        self._say(LiveEnded(error=wire_form(error)))
        self.close(WSCloseCode(CLOSE_CODE_BASE + error.status), error.code)

    # --- Messages ---------------------------------------------------------------------------------------------------

    def _take(self, message: LiveMessage) -> None:
        view = self._view
        if view is None:
            return
        match message:
            case LiveAck(seq=seq):
                self._under_way = [sent for sent in self._under_way if sent > seq]
                view.offer(self)
            case LiveSize(width=width, height=height, quality=quality):
                view.resize(self, Look(width=width, height=height, quality=quality))
            case LiveTake(force=force):
                self._turn(message, view.take(self, force=force))
            case LiveGive():
                self._turn(message, view.give(self))
            case LiveMouse() | LiveKey() | LiveText() | LiveNavigate() | LiveHistory() | LiveReload():
                view.act(self, message)
            case _:
                assert_never(message)

    def _turn(self, message: LiveMessage, work: Coroutine[Any, Any, None]) -> None:
        """Take or give, which is written down first and so takes a moment."""
        if self._is_turning:
            work.close()
            raise StateConflict("What you asked for before is still being done.", action="Wait for the next state.")
        self._is_turning = True

        async def turn() -> None:
            try:
                await work
            except TabherdError as error:
                self.refuse(message, error)
            finally:
                self._is_turning = False

        self._door.spawn(turn())

    def _pace(self) -> None:
        self._messages += 1
        loop = asyncio.get_running_loop()
        if self._window is None:
            self._window = loop.call_later(WINDOW_S, self._next_window)
        if self._messages == MESSAGES_PER_WINDOW:
            self.pause_reading()

    def _next_window(self) -> None:
        self._window = None
        if self._messages >= MESSAGES_PER_WINDOW:
            self.resume_reading()
        self._messages = 0

    def _refuse(self, refused: str, error: TabherdError) -> None:
        """Say that a message of that type was not acted upon, and why."""
        self._door.metrics.rejected_total.inc(error.code)
        self._say({"type": "error", "refused": refused, **wire_form(error)})

    def _say(self, message: LiveState | LiveEnded | dict[str, Any]) -> None:
        self.send(_encode(message))

    def _leave(self) -> None:
        if self._view is not None:
            self._view.leave(self)
            self._view = None

    # --- Signs of life, and the credential --------------------------------------------------------------------------

    def _check_later(self) -> None:
        self._checking = asyncio.get_running_loop().call_later(CHECK_S, self._check)

    def _check(self) -> None:
        self._checks += 1
        if self._checks % CHECKS_PER_BEAT == 0:
            if self._pulse.beat(self.unsent_bytes if self.is_paused else 0):
                log.info("a viewer does not read, or is gone", unsent=self.unsent_bytes)
                self.abort()
                return
            self.ping()
        if self._door.guard.is_fresh(self._badge):
            self._check_later()
        else:
            self._door.spawn(self._check_badge())

    async def _check_badge(self) -> None:
        over = await self._door.guard.why_over(self._badge)
        if self.is_closed:
            return
        if over is None:
            self._check_later()
        else:
            self.end(over)
