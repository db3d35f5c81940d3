"""What a control connection asks for that is on other nodes: one connection to each of them, on the client's behalf.

Invariants:
- Every request that is sent on is answered once: by the other node, or, when the connection to it ends first, with
  `outcome_unknown` for a command and `node_unreachable` for the rest. Nothing is ever sent twice, but to another node
  after the first has said that it does not have the thing and did nothing.
- Requests are sent on in the order in which they came.
- What a client holds on another node ends with the client's own connection, and the client is told when it ends with
  the other one.
- A connection that came from another node sends nothing on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias, assert_never

import msgspec

from .. import logs, wire
from ..cluster.elsewhere import Elsewhere
from ..cluster.hop import Hop
from ..cluster.peer import Peer
from ..cluster.places import Kind
from ..errors import NodeUnreachable, OutcomeUnknown, TabherdError, from_wire
from .auth import Address
from .envelope import Command, Message
from .forward.failures import RETRY_AFTER_MS, unreachable
from .forward.request import Fields
from .lock_messages import LockWork
from .peer_socket import PeerSocket
from .routing import HOPS_TRIED_MAX, Routing

log = logs.get_logger("control")

PATH: Final = "/ws"
# How long the other node may take to greet.
GREETING_LIMIT_S: Final = 5.0
# Events after which a tab lock is nobody's.
_ENDS_OF_LOCKS: Final = frozenset({"lock_released", "lock_expired"})

# What a connection does on behalf of one message; everything but hello and beats.
Work: TypeAlias = Command | wire.CancelCommand | wire.TakeTabLock | wire.RenewTabLock | wire.ReleaseTabLock | LockWork


class Asked(Protocol):
    """A message that waits for its answer."""

    @property
    def message(self) -> Message: ...

    # As it came.
    @property
    def data(self) -> bytes: ...


class Speaker(Protocol):
    """The client's connection, as far as it is needed here."""

    def pass_back(self, kind: wire.ServerMessage, payload: Any, said: Message | None) -> None:
        """Say to the client what another node said."""

    def hold_reading(self, is_held: bool) -> None:
        """Another node does not keep up with the client, or does again."""

    def lock_ended(self, tab_id: str) -> None:
        """Tell the client that a tab lock of its own is over, with the connection that it lived by."""


class Refused(Exception):
    """Another node's error, as it is to be passed back."""

    def __init__(self, payload: msgspec.Raw) -> None:
        super().__init__("refused by another node")
        self.payload = payload


class _Misdirected(Exception):
    """It is not on the node that was asked."""


class _Said(msgspec.Struct, rename="camel"):
    """What of another node's message is looked at."""

    message_type: wire.ServerMessage
    payload: msgspec.Raw
    request_id: str = ""


class _Glance(msgspec.Struct, rename="camel"):
    """What of a payload is looked at, whatever it is."""

    type: Any = None
    tab_id: Any = None
    details: Any = None

    @property
    def is_misdirected(self) -> bool:
        """Whether the thing is not there, and nothing was done."""
        return isinstance(self.details, dict) and self.details.get("misdirected") is True


_said: Final = msgspec.json.Decoder(_Said).decode
_glance: Final = msgspec.json.Decoder(_Glance).decode


class _Open:
    """A request that another node has, or is about to get."""

    def __init__(self, asked: Asked, work: Work) -> None:
        self.asked = asked
        self.work = work
        self.is_sent = False
        # Cancelled when the client has left it.
        self.answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()

    def succeed(self, payload: msgspec.Raw) -> None:
        if not self.answer.done():
            self.answer.set_result(payload)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Relay:
    """One client's connection to one other node."""

    def __init__(self, peer: Peer, hello: bytes, headers: Fields, speaker: Speaker) -> None:
        self.peer = peer
        self.is_over = False
        self._speaker = speaker
        self._is_greeted = asyncio.Event()
        # By requestId, in the order in which they came.
        self._open: dict[str, _Open] = {}
        # Tabs whose lock the client has there.
        self._locked: set[str] = set()
        self._socket = PeerSocket(self._received, self._ended, speaker.hold_reading)
        self._greeting = asyncio.create_task(self._greet(hello, headers), name=f"relay to {peer.node_id}")

    def send(self, asked: Asked, work: Work) -> asyncio.Future[msgspec.Raw]:
        """Its result; raises what the node raised, or that it is lost."""
        request = self._open[asked.message.request_id] = _Open(asked, work)
        request.answer.add_done_callback(lambda _: self._open.pop(asked.message.request_id, None))
        if self._is_greeted.is_set():
            self._pass_on(request)
        return request.answer

    def pause(self, is_paused: bool) -> None:
        """The client does not read fast enough, or does again."""
        if is_paused:
            self._socket.pause_reading()
        else:
            self._socket.resume_reading()

    def close(self) -> None:
        """The client is gone: what it had there is free."""
        self._locked.clear()
        self._greeting.cancel()
        self._socket.close()

    def abort(self) -> None:
        """The node is gone."""
        self._greeting.cancel()
        self._socket.abort()
        self._end(unreachable(self.peer, "it is gone"))

    async def _greet(self, hello: bytes, headers: Fields) -> None:
        try:
            await self._socket.connect(self.peer, PATH, headers)
            self._socket.send(hello)
            async with asyncio.timeout(GREETING_LIMIT_S):
                await self._is_greeted.wait()
        except TimeoutError:
            self._socket.abort()
            self._end(unreachable(self.peer, "it does not greet"))
        except NodeUnreachable as error:
            self._end(error)

    def _pass_on(self, request: _Open) -> None:
        request.is_sent = True
        self._socket.send(request.asked.data)

    # --- What the other node says ---------------------------------------------------------------------------

    def _received(self, data: bytes) -> None:
        try:
            said = _said(data)
        except msgspec.MsgspecError:
            log.error("a node says something that is no message", nodeId=self.peer.node_id)
            self._socket.abort()
            return
        request = self._open.get(said.request_id)
        match said.message_type:
            case "hello_ack":
                self._is_greeted.set()
                for waiting in list(self._open.values()):
                    self._pass_on(waiting)
            case "result" if request is not None:
                self._note_result(request.work)
                request.succeed(said.payload)
            case "error" if request is not None:
                request.fail(_Misdirected() if _glance(said.payload).is_misdirected else Refused(said.payload))
            case "error" if not self._is_greeted.is_set():
                # Whatever it was that we said wrong, it was the greeting.
                self._end(from_wire(msgspec.json.decode(said.payload), 503))
                self._socket.abort()
            case "event":
                self._note_event(_glance(said.payload))
                self._speaker.pass_back("event", said.payload, None if request is None else request.asked.message)
            case _:
                # The answer to a request whose client has left it.
                return

    def _note_result(self, work: Work) -> None:
        match work:
            case wire.TakeTabLock():
                self._locked.add(work.tab_session_id)
            case wire.ReleaseTabLock():
                self._locked.discard(work.tab_session_id)
            case _:
                return

    def _note_event(self, event: _Glance) -> None:
        if event.type in _ENDS_OF_LOCKS:
            self._locked.discard(event.tab_id)

    # --- The end --------------------------------------------------------------------------------------------

    def _ended(self) -> None:
        self._end(unreachable(self.peer, "the connection to it was lost"))

    def _end(self, error: TabherdError) -> None:
        """Nothing more comes from there."""
        self.is_over = True
        for request in list(self._open.values()):
            if request.is_sent and isinstance(request.work, Command):
                sentence = f"Node {self.peer.node_id} was lost while it had the command."
                request.fail(OutcomeUnknown(sentence, nodeId=self.peer.node_id))
            else:
                request.fail(error)
        self._open.clear()
        while self._locked:
            self._speaker.lock_ended(self._locked.pop())


class Relays:
    """The connections of one client to other nodes."""

    def __init__(
        self, *, routing: Routing, node_id: str, client: Address | None, credentials: Fields, hop: Hop | None
    ) -> None:
        self._routing = routing
        # This node.
        self._node_id = node_id
        self._client = client
        # As whom the client comes.
        self._credentials = credentials
        # What another node says that has opened this connection; None: the client itself has.
        self._hop = hop
        # By node.
        self._relays: dict[str, _Relay] = {}
        # Held while it is found out where a request belongs, so that none overtakes another.
        self._turn = asyncio.Lock()
        # Makes a greeting, as the client's own; set when that was said.
        self.greeting: Callable[[], bytes] = bytes

    async def perform(
        self, asked: Asked, work: Work, speaker: Speaker, here: Callable[[], Awaitable[Any]]
    ) -> msgspec.Raw | Any:
        """Have it done where it belongs. Raises what the verb raises, or `Refused` for what another node's does."""
        for _ in range(HOPS_TRIED_MAX):
            try:
                async with self._turn:
                    node_id = await self._node_of(work)
                    answer = None if node_id is None else self._relay(node_id, speaker).send(asked, work)
                return await (here() if answer is None else answer)
            except Elsewhere as elsewhere:
                # Only the verb could know, and it did nothing.
                if self._hop is not None:
                    raise _misdirected() from None
                return await self._relay(elsewhere.node_id, speaker).send(asked, work)
            except _Misdirected:
                if (place := _place_of(work)) is not None:
                    self._routing.forget(*place)
        raise NodeUnreachable("What was asked for moves from node to node.", retry_after_ms=RETRY_AFTER_MS)

    def pause(self, is_paused: bool) -> None:
        """The client does not read fast enough, or does again."""
        for relay in self._relays.values():
            relay.pause(is_paused)

    def drop_the_gone(self) -> None:
        """Nodes came or went: whoever waits for one that is gone hears so."""
        for node_id, relay in list(self._relays.items()):
            if not self._is_there(relay.peer):
                del self._relays[node_id]
                relay.abort()

    def close(self) -> None:
        """The client is gone."""
        for relay in self._relays.values():
            relay.close()
        self._relays.clear()

    async def _node_of(self, work: Work) -> str | None:
        """The other node that has what it is about; None: this one sees to it."""
        target = None if isinstance(work, wire.CancelCommand) else work.target_node_id
        if self._hop is None and target not in (None, self._node_id):
            try:
                self._routing.settle_node(target, None)
            except Elsewhere as elsewhere:
                return elsewhere.node_id
        place = _place_of(work)
        if place is not None:
            try:
                await self._routing.settle(*place, self._hop)
            except Elsewhere as elsewhere:
                if self._hop is not None:
                    raise
                return elsewhere.node_id
        return None

    def _is_there(self, peer: Peer) -> bool:
        try:
            return self._routing.peer(peer.node_id) == peer
        except NodeUnreachable:
            return False

    def _relay(self, node_id: str, speaker: Speaker) -> _Relay:
        peer = self._routing.peer(node_id)
        relay = self._relays.get(node_id)
        if relay is None or relay.is_over or relay.peer != peer:
            hop = self._routing.links.hop(peer, "GET", PATH.encode("ascii"), self._client, "")
            relay = _Relay(peer, self.greeting(), (*self._credentials, hop), speaker)
            self._relays[node_id] = relay
        return relay


def _place_of(work: Work) -> tuple[Kind, str] | None:
    """What a message is about that lives on one node; None: it is about none, or only the verb can say."""
    match work:
        case Command():
            return "tab", work.tab_id
        case wire.CancelCommand():
            return "command", work.command_id
        case wire.TakeTabLock() | wire.RenewTabLock() | wire.ReleaseTabLock():
            return "tab", work.tab_session_id
        case wire.TakeLock() | wire.RenewTakenLock() | wire.ReleaseLock():
            return None
        case _:
            assert_never(work)


def _misdirected() -> NodeUnreachable:
    """To the node that sent it here."""
    return NodeUnreachable("It is not here.", retry_after_ms=RETRY_AFTER_MS, misdirected=True)
