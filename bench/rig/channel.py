"""A CDP client with as little as possible in the way: what is measured is the way to Chromium and back, not the client.

Messages are put together once, and the next one is sent from inside the callback that has read an answer: no task, no
future and no decoding per message. Every answer is checked to be the one that was due.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, Self

import msgspec
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

# Longer than anything that is measured may take.
ANSWER_LIMIT_S: Final = 120.0
MESSAGE_MAX_BYTES: Final = 64 << 20
# What is evaluated, and what the answer to it ends with before the session's id.
EXPRESSION: Final = "1 + 1"
_VALUE: Final = b'"value":2,'

_TEXT: Final = WSMsgType.TEXT


class Channel(WSListener):
    """One connection, and the session on the page that was attached to. Made by `connect`."""

    def __init__(self) -> None:
        self._transport: WSTransport | None = None
        self._last_id = 0
        # The message up to its id, and from there on.
        self._request = (b"", b"")
        # One call that is decoded: its id and who waits for it.
        self._called: tuple[int, asyncio.Future[Any]] | None = None
        # The run that is measured.
        self._run: _Run | None = None

    @classmethod
    async def connect(cls, url: str) -> Self:
        channel = cls()
        await ws_connect(lambda: channel, url, max_frame_size=MESSAGE_MAX_BYTES)
        return channel

    async def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """One call on the connection itself, with its answer decoded; for all that is not measured."""
        assert self._transport is not None
        self._last_id += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._called = self._last_id, answer
        message = {"id": self._last_id, "method": method, "params": params or {}}
        self._transport.send(_TEXT, msgspec.json.encode(message))
        return await asyncio.wait_for(answer, ANSWER_LIMIT_S)

    async def attach(self, target_id: str) -> None:
        """Have the session that is measured on this page."""
        attached = await self.call("Target.attachToTarget", {"targetId": target_id, "flatten": True})
        message = {"method": "Runtime.evaluate", "params": {"expression": EXPRESSION}}
        # As clients put it: the id first.
        body = msgspec.json.encode(message | {"sessionId": attached["sessionId"]})
        self._request = b'{"id":', b"," + body[1:]

    async def round_trips_us(self, count: int) -> list[float]:
        """So many evaluates, each sent when the answer to the one before is there."""
        run = await self._measured(count, in_flight=1)
        return [(there - sent) / 1000 for sent, there in zip(run.answered_ns, run.answered_ns[1:], strict=False)]

    async def per_second(self, count: int, in_flight: int) -> float:
        """How many evaluates are answered in a second while so many are always on their way."""
        run = await self._measured(count, in_flight)
        return count / (run.answered_ns[-1] - run.answered_ns[0]) * 1e9

    def close(self) -> None:
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    # --- picows' callbacks ------------------------------------------------------------------------------------------

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        for waiting in (self._called and self._called[1], self._run and self._run.over):
            if waiting is not None and not waiting.done():
                waiting.set_exception(ConnectionResetError("the other side closed the connection"))

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type != _TEXT:
            return
        payload = frame.get_payload_as_bytes()
        if self._run is not None:
            self._answered(self._run, payload)
        elif self._called is not None:
            call_id, answer = self._called
            message = msgspec.json.decode(payload)
            if message.get("id") != call_id or answer.done():
                return
            if "result" in message:
                answer.set_result(message["result"])
            else:
                answer.set_exception(RuntimeError(f"refused: {message['error']}"))

    # --- Parts ------------------------------------------------------------------------------------------------------

    async def _measured(self, count: int, in_flight: int) -> _Run:
        assert self._request[0], "attach first"
        assert self._run is None, "one run at a time"
        first = self._last_id + 1
        self._run = run = _Run(due=first, last=first + count - 1, over=asyncio.get_running_loop().create_future())
        try:
            run.answered_ns.append(time.perf_counter_ns())
            for _ in range(min(in_flight, count)):
                self._send_next()
            await asyncio.wait_for(run.over, ANSWER_LIMIT_S)
        finally:
            self._run = None
        return run

    def _send_next(self) -> None:
        assert self._transport is not None
        self._last_id += 1
        before, after = self._request
        self._transport.send(_TEXT, b"%b%d%b" % (before, self._last_id, after))

    def _answered(self, run: _Run, payload: bytes) -> None:
        run.answered_ns.append(time.perf_counter_ns())
        if not payload.startswith(b'{"id":%d,' % run.due) or _VALUE not in payload:
            if payload.startswith(b'{"id":') and not run.over.done():
                run.over.set_exception(RuntimeError(f"{payload[:300]!r} is not the answer to {run.due}"))
            else:
                # An event; it is nobody's round trip.
                run.answered_ns.pop()
            return
        run.due += 1
        if self._last_id < run.last:
            self._send_next()
        elif run.due > run.last:
            run.over.set_result(None)


class _Run(msgspec.Struct, kw_only=True):
    # The id of the answer that comes next: one page answers in the order in which it was asked.
    due: int
    last: int
    over: asyncio.Future[None]
    # When the run began, and when each answer was there.
    answered_ns: list[int] = []
