"""MCP over streamable HTTP: one MCP session is one agent, with a desk of its own inside this server.

The tools run on the same client as everywhere, connected to this very application and carrying the credential that
opened the session, so authentication, scopes and limits are the same code. Invariants:

- A session answers only to the credential, and the agent, that opened it; to others it does not exist.
- It ends by DELETE, after `[server] mcp_idle_s` without a request or an open stream, and with the server; what it
  leased is given back each time. It ends with its credential, too, whose leases then run out.
- How many there are is bounded, in all and per credential.
- Two of its requests that are being answered have two ids: the answer to one would be taken for that to the other.

Sessions are what ties a caller to its leases, so the revisions of MCP that have them are spoken: a client that offers a
later one is told which to use, and falls back by itself.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import httpx
import msgspec
from starlette.types import Message, Receive, Scope, Send

from .. import logs
from ..broker.ids import EPOCH_CHARS, decode, encode
from ..client.aio import AsyncTabherd
from ..errors import Capacity, Draining, InvalidRequest, ResourceNotFound
from ..mcp.desk import Desk, Line
from ..mcp.extra import require_sdk
from .body import read_body
from .reply import AS_JSON
from .route import Call, Passed, Service

if TYPE_CHECKING:
    from mcp.server.streamable_http import StreamableHTTPServerTransport

    from ..config import Config, Server
    from ..mcp.server import McpServer
    from .auth import Badge, Guard

log = logs.get_logger("mcp")

SESSION_HEADER: Final = b"mcp-session-id"
VERSION_HEADER: Final = b"mcp-protocol-version"
# How often idle sessions are looked for.
REAP_EVERY_S: Final = 5.0
# How long the end of a session waits for its calls to stop.
END_LIMIT_S: Final = 5.0
RETRY_AFTER_MS: Final = 5_000

# A way into this application, for the caller of that name.
Inside = Callable[[str], httpx.AsyncBaseTransport]


async def send_message(service: Service, call: Call) -> Passed:
    return _passed(service, call)


async def listen(service: Service, call: Call) -> Passed:
    return _passed(service, call)


async def end_mcp_session(service: Service, call: Call) -> Passed:
    return _passed(service, call)


def _passed(service: Service, call: Call) -> Passed:
    """Any request to `/mcp`, once its credential is known. A session lives on the node that opened it."""
    require_sdk()
    if service.routing is not None and call.head.mcp_session_id is not None:
        service.routing.settle_epoch(_epoch_of(call.head.mcp_session_id))

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await service.mcp.answer(call, scope, receive, send)

    return Passed(answer)


def _epoch_of(session_id: bytes) -> int | None:
    """The life of a node that opened the session; None if it is not an id of ours."""
    tail = session_id.decode("latin-1").removeprefix("mcp_")
    try:
        return decode(tail[:EPOCH_CHARS])
    except ValueError:
        return None


class McpSession:
    """One MCP session while it is open."""

    def __init__(self, id: str, badge: Badge, agent_id: str, desk: Desk, now_s: float) -> None:
        from mcp.server.streamable_http import StreamableHTTPServerTransport

        self.id = id
        self.badge = badge
        self.agent_id = agent_id
        self.desk = desk
        self.transport: StreamableHTTPServerTransport = StreamableHTTPServerTransport(mcp_session_id=id)
        # Requests that are being answered, open streams among them.
        self.requests = 0
        # Since when there are none.
        self.idle_since_s = now_s
        # The ids of those that wait for an answer.
        self._asked: set[str] = set()
        self.loop: asyncio.Task[None] | None = None

    def is_of(self, call: Call) -> bool:
        """Whether it answers to that caller."""
        is_same_agent = call.head.agent_id is None or call.caller.agent_id == self.agent_id
        return self.badge.credential.id == _credential_of(call) and is_same_agent

    @contextmanager
    def answering(self, request_id: str | None) -> Iterator[None]:
        """While a request of that id, if it has one, is being answered."""
        if request_id is None:
            yield
            return
        if request_id in self._asked:
            raise InvalidRequest("A request with this id is being answered.", field="id")
        self._asked.add(request_id)
        try:
            yield
        finally:
            self._asked.discard(request_id)

    async def start(self, on_over: Callable[[McpSession, BaseException | None], None]) -> None:
        """Be ready for its first request; call back when its loop has ended, and with what."""
        is_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.loop = asyncio.create_task(self._serve(is_ready), name=self.id)
        self.loop.add_done_callback(lambda loop: on_over(self, None if loop.cancelled() else loop.exception()))
        await asyncio.wait((is_ready, self.loop), return_when=asyncio.FIRST_COMPLETED)

    async def end(self) -> None:
        """Stop its calls and give back what it leased."""
        await self.transport.terminate()
        if self.loop is not None:
            await asyncio.wait((self.loop,), timeout=END_LIMIT_S)
            self.loop.cancel()
        await self.desk.close()

    async def _serve(self, is_ready: asyncio.Future[None]) -> None:
        from mcp.server.runner import serve_loop

        async with self.transport.connect() as (incoming, outgoing):
            is_ready.set_result(None)
            await serve_loop(_server(), incoming, outgoing, lifespan_state=self.desk, session_id=self.id)


class McpSessions:
    """The MCP sessions of this server."""

    def __init__(
        self,
        settings: Server,
        guard: Guard,
        inside: Inside,
        port: int,
        epoch: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._guard = guard
        # Of this life of the node.
        self._epoch = epoch
        self._inside = inside
        self._url = f"http://127.0.0.1:{port}"
        self._clock = clock
        self._sessions: dict[str, McpSession] = {}
        # Looks for idle ones while there are any.
        self._reaping: asyncio.Task[None] | None = None
        # Ends of sessions whose loops have ended.
        self._ending: set[asyncio.Future[None]] = set()
        # No more are opened: the server stops.
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._sessions)

    def reconfigure(self, config: Config) -> None:
        """Go by other limits from now on; no session is ended for them."""
        self._settings = config.server

    async def answer(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or raise the refusal."""
        headers = dict(scope["headers"])
        session = self._named(call, headers)
        match scope["method"], session:
            case "DELETE", McpSession():
                await self._end(session)
                await _send(204, b"", send)
            case "GET", McpSession():
                await self._pass(session, scope, receive, send)
            case "POST", McpSession():
                body = await read_body(call.head, receive, self._settings.body_max_bytes)
                with session.answering(_asked_id(body)):
                    await self._pass(session, scope, _replayed(bytes(body), receive), send)
            case "POST", None:
                body = await read_body(call.head, receive, self._settings.body_max_bytes)
                opening = _request(body)
                # The SDK takes a second or more to import: in a thread, so that nobody else waits for it.
                await asyncio.to_thread(_server)
                version = headers.get(VERSION_HEADER, b"").decode("latin-1")
                if version and not _has_sessions(version):
                    await _send(400, _unsupported(version, opening), send)
                else:
                    await self._open(call, opening, scope, _replayed(bytes(body), receive), send)
            case method, _:
                raise InvalidRequest(f"{method} needs the header Mcp-Session-Id.", field="Mcp-Session-Id")

    async def reap(self) -> None:
        """End the sessions that nobody has used for too long, and those whose credential is over."""
        due_s = self._clock() - self._settings.mcp_idle_s
        for session in [*self._sessions.values()]:
            if not session.requests and session.idle_since_s <= due_s:
                log.info("idle MCP session ended", mcpSessionId=session.id, agentId=session.agent_id)
                await self._end(session)
            elif (over := await self._guard.why_over(session.badge)) is not None:
                log.info("MCP session ended", mcpSessionId=session.id, agentId=session.agent_id, reason=over.message)
                await self._end(session)

    async def close(self) -> None:
        """End all of them, and open no more. Idempotent."""
        self._is_closed = True
        if self._reaping is not None:
            self._reaping.cancel()
        await asyncio.gather(*(self._end(session) for session in [*self._sessions.values()]))

    # --- Parts ----------------------------------------------------------------------------------------------

    def _named(self, call: Call, headers: dict[bytes, bytes]) -> McpSession | None:
        """The session that the request names; None if it names none."""
        named = headers.get(SESSION_HEADER)
        if named is None:
            return None
        session = self._sessions.get(named.decode("latin-1"))
        if session is None or not session.is_of(call):
            raise ResourceNotFound(
                "There is no such MCP session.", action="Initialize a new one; what the old one leased was given back."
            )
        return session

    async def _open(self, call: Call, opening: _Request, scope: Scope, receive: Receive, send: Send) -> None:
        if opening.method != "initialize":
            raise InvalidRequest("The first request of an MCP session is initialize.", field="Mcp-Session-Id")
        _check_hello(opening)
        self._refuse_beyond_caps(_credential_of(call))
        session = self._new(call)
        self._sessions[session.id] = session
        if self._reaping is None or self._reaping.done():
            self._reaping = asyncio.create_task(self._reap_forever(), name="mcp-reaper")
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await session.start(self._over)
            await self._pass(session, scope, receive, watched)
        finally:
            # Nothing was opened by an opening that was refused, or whose client left before it was answered.
            if not 200 <= status < 300:
                await self._end(session)

    def _new(self, call: Call) -> McpSession:
        # The node's epoch first, so that other nodes know whose it is.
        session_id = f"mcp_{encode(self._epoch, EPOCH_CHARS)}{secrets.token_hex(16)}"
        # An admin that names nobody is an agent of its own in each session.
        is_named = not call.caller.is_admin or call.head.agent_id is not None
        agent_id = call.caller.agent_id if is_named else f"mcp-{secrets.token_hex(4)}"
        _, _, token = (call.head.authorization or b"").decode("latin-1").partition(" ")

        async def connect(client_name: str) -> Line:
            herd = AsyncTabherd(
                self._url,
                token.strip() or None,
                agent=agent_id,
                patience_s=0,
                environ={},
                transport=self._inside(session_id),
            )
            return Line(herd, agent_id)

        assert call.badge is not None, "whoever opens a session has shown a credential"
        return McpSession(session_id, call.badge, agent_id, Desk(connect), self._clock())

    def _refuse_beyond_caps(self, credential_id: str) -> None:
        if self._is_closed:
            raise Draining("The server is stopping.", retry_after_ms=RETRY_AFTER_MS)
        of_credential = sum(session.badge.credential.id == credential_id for session in self._sessions.values())
        per_credential, in_all = self._settings.mcp_sessions_per_credential, self._settings.mcp_sessions_max
        for count, cap, whose in (
            (of_credential, per_credential, "This credential"),
            (len(self._sessions), in_all, "This server"),
        ):
            if count >= cap:
                raise Capacity(
                    f"{whose} has all the MCP sessions it may have ({count} of {cap}).",
                    action="End one with DELETE, or wait until idle ones end.",
                    retry_after_ms=RETRY_AFTER_MS,
                    reason="mcp_cap",
                    count=count,
                    cap=cap,
                )

    async def _pass(self, session: McpSession, scope: Scope, receive: Receive, send: Send) -> None:
        session.requests += 1
        try:
            await session.transport.handle_request(scope, receive, send)
        finally:
            session.requests -= 1
            session.idle_since_s = self._clock()

    async def _end(self, session: McpSession) -> None:
        """Forgotten first, so that nobody finds it while it ends."""
        if self._sessions.pop(session.id, None) is not None:
            await session.end()

    def _over(self, session: McpSession, error: BaseException | None) -> None:
        """Its loop has ended, most likely because the session did."""
        if error is not None:
            log.error("bug: an MCP session broke", mcpSessionId=session.id, error=repr(error))
        ending = asyncio.ensure_future(self._end(session))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _reap_forever(self) -> None:
        while self._sessions:
            await asyncio.sleep(REAP_EVERY_S)
            await self.reap()


class _Request(msgspec.Struct):
    """What is looked at of a request."""

    method: str = ""
    id: str | int | None = None
    params: dict[str, Any] | None = None


def _request(body: bytes | bytearray) -> _Request:
    try:
        return msgspec.json.decode(body, type=_Request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidRequest("The body is not a JSON-RPC request.", field="body") from None


def _asked_id(body: bytes | bytearray) -> str | None:
    """The id of a request, as the SDK tells them apart; None of what is none, which is the SDK's to refuse."""
    try:
        asked = _request(body)
    except InvalidRequest:
        return None
    return None if asked.id is None or not asked.method else str(asked.id)


def _check_hello(opening: _Request) -> None:
    """Refuse an opening that the SDK would refuse only after the session is there."""
    from mcp_types import InitializeRequestParams
    from pydantic import ValidationError

    try:
        InitializeRequestParams.model_validate(opening.params or {}, by_name=False)
    except ValidationError:
        raise InvalidRequest("The params of initialize are not what MCP has there.", field="params") from None


def _credential_of(call: Call) -> str:
    return call.caller.controller_id.partition("/")[0]


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The channel as it was before the body was read."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return unread.pop() if unread else await receive()

    return again


def _has_sessions(version: str) -> bool:
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

    return version in HANDSHAKE_PROTOCOL_VERSIONS


def _unsupported(version: str, opening: _Request) -> bytes:
    """As the protocol has it, so that clients go on with a version that is spoken here."""
    from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

    error: dict[str, Any] = {
        "code": UNSUPPORTED_PROTOCOL_VERSION,
        "message": "This server speaks the versions of MCP that have sessions.",
        "data": {"supported": [*HANDSHAKE_PROTOCOL_VERSIONS], "requested": version[:100]},
    }
    return msgspec.json.encode({"jsonrpc": "2.0", "id": opening.id, "error": error})


async def _send(status: int, body: bytes, send: Send) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [*AS_JSON] if body else []})
    await send({"type": "http.response.body", "body": body})


@cache
def _server() -> McpServer:
    """The one server that all sessions share; the SDK is imported at its first use."""
    from ..mcp.server import build

    return build()
