"""One control connection: what its caller says, what it is answered, and what is released when it ends.

Invariants:
- Every request that could be read is answered exactly once, by `result` or `error` with its requestId, as long as the
  connection lives. Requests are begun in the order in which they came; many are under way at once.
- A mistake in a message costs that message. Only what is not JSON at all, again and again, ends the connection.
- Answers are never dropped. Events wait in the bus while the reader is slow, and a reader that falls behind the bus's
  ring is told so by `reset`.
- However the connection ends, what it held ends with it: queued commands and waits are withdrawn, running ones
  cancelled, tab locks and named locks released, here and on other nodes. Nothing of another connection is touched.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, assert_never

from picows import WSCloseCode

from .. import logs, wire
from ..broker.events import Event, Subscription
from ..broker.registry import LiveSession
from ..broker.views import rfc3339
from ..errors import ControllerQueueLimitExceeded, InvalidRequest, StateConflict, TabherdError, Unauthenticated
from . import envelope, lock_messages
from .auth import Badge, act_for, as_controller
from .envelope import Command, Message, Rejected, ReplayWindow
from .pulse import Pulse
from .relays import Refused, Relays, Work
from .reply import bug_form, wire_form
from .sockets import Socket

if TYPE_CHECKING:
    from .control import ControlChannel

log = logs.get_logger("control")

# Messages that are not JSON at all, before the connection is closed: whoever sends these speaks something else.
MALFORMED_MAX: Final = 10
# Events that are sent before others get their turn.
EVENTS_BATCH: Final = 200
# Fields of an event that name whose it is.
_AGENT_FIELDS: Final = ("agentId", "formerAgentId")
_CONTROLLER_FIELDS: Final = ("lockOwnerControllerId", "controllerId")


class Request:
    """A message that waits for its answer."""

    def __init__(self, message: Message, data: bytes) -> None:
        self.message = message
        # As it came.
        self.data = data
        self.task: asyncio.Task[None] | None = None
        # Set when the broker has accepted it: from then on it ends through the broker, with a recorded outcome.
        self.command_id: str | None = None


class Conversation(Socket):
    """One connection of one controller."""

    def __init__(
        self,
        channel: ControlChannel,
        *,
        number: int,
        badge: Badge,
        subscription: Subscription,
        window: ReplayWindow,
        relays: Relays | None = None,
        is_counted: bool = True,
    ) -> None:
        super().__init__()
        self.message_max_bytes = channel.limits.message_max_bytes
        self.heartbeat_ms = wire.HEARTBEAT_MS
        self._channel = channel
        self._broker = channel.service.broker
        # How sessions know this connection.
        self._id = f"ws_{number}"
        self._badge = badge
        # Who speaks; the name is settled by hello.
        self._caller = badge.caller
        self._has_greeted = False
        self._window = window
        # What is on other nodes; None: there are none.
        self._relays = relays
        # Whether its messages count towards its credential's rate; those that another node passes on did there.
        self._is_counted = is_counted
        self._subscription = subscription
        self._telling: asyncio.Task[None] | None = None
        # Set while the reader keeps up.
        self._writable = asyncio.Event()
        self._writable.set()
        # By requestId.
        self._requests: dict[str, Request] = {}
        # Sessions that live by this connection, by the tab through which each was found.
        self._joined: dict[str, LiveSession] = {}
        # Messages that wait until the credential has been looked at again.
        self._held: deque[bytes] = deque()
        self._checking: asyncio.Task[None] | None = None
        # Looks at the credential while nothing is said.
        self._looking: asyncio.Task[None] | None = None
        self._malformed = 0
        # Messages that were sent.
        self._sent = 0
        self._pulse = Pulse()
        # The next ping.
        self._beating: asyncio.TimerHandle | None = None

    # --- The socket -----------------------------------------------------------------------------------------

    def opened(self) -> None:
        self._beat_later()

    def heard(self) -> None:
        self._pulse.hear()

    def received(self, data: bytes) -> None:
        """A message; it waits while the credential is looked at, which a moment's memory makes rare."""
        if self._checking is None and self._channel.guard.is_fresh(self._badge):
            self._take(data)
            return
        self._held.append(data)
        if self._checking is None:
            # Not one message more is read meanwhile, so what is held is what had been read.
            self.pause_reading()
            self._checking = asyncio.get_running_loop().create_task(self._check())

    def received_binary(self) -> None:
        self._reject(Rejected(error=InvalidRequest("Messages are text.", field="message"), is_malformed=True))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writable.clear()
        if self._relays is not None:
            self._relays.pause(True)

    def resumed(self) -> None:
        self._writable.set()
        if self._relays is not None:
            self._relays.pause(False)

    def shutdown(self) -> None:
        """The server ends: say so, and goodbye."""
        self._tell(None, "node.draining", nodeId=self._channel.service.node_id, stopping=True)
        super().shutdown()

    def closed(self) -> None:
        self._subscription.close()
        if self._beating is not None:
            self._beating.cancel()
        for task in (self._telling, self._checking, self._looking):
            if task is not None:
                task.cancel()
        self._channel.spawn(self._release())

    async def wait_detached(self) -> None:
        """Its commands were turned away at their gates already."""

    def detach(self, error: TabherdError) -> None:
        """A session is over or somebody else's; each verb says so by itself, and the bus tells why."""
        self._joined = {tab: live for tab, live in self._joined.items() if live.row.id != error.details["sessionId"]}

    # --- Beats ----------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Ask for a sign of life, or end the connection when the last ones did not come."""
        if self._pulse.beat(self.unsent_bytes if self.is_paused else 0):
            log.info("a connection is missed", controllerId=self._caller.controller_id)
            self.close(WSCloseCode.POLICY_VIOLATION, "Two pings went unanswered.")
            # It does not take part in anything: what it held is free now, not when the handshake is given up.
            self.abort()
            return
        self.ping()
        self._look_again()
        self._beat_later()

    def _beat_later(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        self._beating = asyncio.get_running_loop().call_later(self.heartbeat_ms / 1000, self.beat)

    # --- Messages -------------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Have whoever only listens leave, too, when its credential is over; it is read on meanwhile."""
        if self._looking is None and not self._channel.guard.is_fresh(self._badge):
            self._looking = asyncio.get_running_loop().create_task(self._leave_if_over())

    async def _leave_if_over(self) -> None:
        over = await self._channel.guard.why_over(self._badge)
        self._looking = None
        if over is not None:
            self._leave(over)

    def _leave(self, over: Unauthenticated) -> None:
        self._say("error", wire_form(over))
        self.close(WSCloseCode.POLICY_VIOLATION, f"{over.code}: {over.message}")

    async def _check(self) -> None:
        """Look at the credential again, then go on with what was held."""
        refusal: TabherdError | None = None
        try:
            await self._channel.guard.recheck(self._badge)
        except TabherdError as error:
            refusal = error
        self._checking = None
        while self._held:
            self._take(self._held.popleft(), refusal)
        if isinstance(refusal, Unauthenticated):
            self._leave(refusal)
        self.resume_reading()

    def _take(self, data: bytes, refusal: TabherdError | None = None) -> None:
        """Act upon one message, unless there is a reason not to."""
        said = envelope.decode(data)
        try:
            if refusal is not None:
                raise refusal
            if self._is_counted:
                self._channel.guard.charge(self._badge)
            if isinstance(said, Rejected):
                self._reject(said)
            else:
                self._window.admit(said.nonce, said.timestamp_ms, self._channel.clock())
                self._act_on(said, data)
        except TabherdError as error:
            self._refuse(said, error)

    def _act_on(self, message: Message, data: bytes) -> None:
        match message.payload:
            case wire.Hello() as hello:
                self._greet(message, hello)
            case wire.Beat():
                if message.type == "ping":
                    self._say("pong", wire.Pong(), message)
            case Command() | wire.CancelCommand() | wire.TakeTabLock() | wire.RenewTabLock() | wire.ReleaseTabLock():
                self._begin(message, message.payload, data)
            case wire.TakeLock() | wire.RenewTakenLock() | wire.ReleaseLock():
                self._begin(message, message.payload, data)
            case _:
                assert_never(message.payload)

    def _greet(self, message: Message, hello: wire.Hello) -> None:
        if self._has_greeted:
            raise StateConflict("This connection has said hello before.", field="messageType")
        caller = self._badge.caller
        if hello.agent_id is not None:
            caller = act_for(caller, hello.agent_id, "payload.agentId")
        if hello.controller_id is not None:
            caller = as_controller(caller, hello.controller_id)
        self._channel.enter(caller.controller_id, self)
        self._caller = caller
        self._has_greeted = True
        if self._relays is not None:
            self._relays.greeting = lambda: envelope.greeting(hello, self._channel.clock())
        self.heartbeat_ms = hello.heartbeat_ms
        self._beat_later()
        service = self._channel.service
        ack = wire.HelloAck(
            node=service.node_id,
            epoch=service.events.epoch,
            agent_id=caller.agent_id,
            controller_id=caller.controller_id,
            heartbeat_ms=self.heartbeat_ms,
            limits=self._channel.limits,
        )
        self._say("hello_ack", ack, message)
        # From now on; what happened while it was silent is not its business.
        self._subscription.position = service.events.last_id
        self._telling = asyncio.get_running_loop().create_task(self._tell_events())

    def _begin(self, message: Message, work: Work, data: bytes) -> None:
        """Start on a request. Tasks run in the order in which they are made, so gates are entered in that order."""
        if not self._has_greeted:
            raise InvalidRequest(
                "The first message is hello.", action="Send hello, wait for hello_ack.", field="messageType"
            )
        if message.request_id in self._requests:
            raise StateConflict("A request with this requestId is not answered yet.", field="requestId")
        if len(self._requests) >= self._channel.limits.in_flight_max:
            raise ControllerQueueLimitExceeded(
                "Too many requests of this connection are not answered yet.",
                retry_after_ms=1_000,
                cap=self._channel.limits.in_flight_max,
            )
        request = self._requests[message.request_id] = Request(message, data)
        request.task = asyncio.get_running_loop().create_task(self._answer(request, work))

    async def _answer(self, request: Request, work: Work) -> None:
        """Do it, and say how it went, once."""
        message = request.message
        logs.bind(requestId=message.request_id, agentId=self._caller.agent_id)
        kind: wire.ServerMessage = "error"
        try:
            payload: Any = await self._done(request, work)
            kind = "result"
        except TabherdError as error:
            payload = wire_form(error)
        except Refused as refused:
            payload = refused.payload
        except Exception:
            log.exception("bug: unexpected exception in a request", messageType=message.type)
            payload = bug_form(message.request_id)
        finally:
            # Before the answer is sent: whoever has it may use the id again.
            del self._requests[message.request_id]
        self._say(kind, payload, message)

    async def _done(self, request: Request, work: Work) -> Any:
        """What it is answered with, by this node or the one that it concerns."""
        if not isinstance(work, lock_messages.LockWork):
            # As the routes of the same verbs do, which not all of these ask by themselves.
            self._caller.require("browse")
        if self._relays is None:
            return await self._perform(request, work)
        return await self._relays.perform(request, work, self, lambda: self._perform(request, work))

    # --- Work -----------------------------------------------------------------------------------------------

    async def _perform(self, request: Request, work: Work) -> Any:
        if not isinstance(work, wire.CancelCommand):
            self._check_node(work.target_node_id)
        match work:
            case Command():
                return await self._broker.commands.run(
                    self._caller,
                    work.tab_id,
                    work.request,
                    on_accepted=lambda command_id, position: self._accepted(request, work, command_id, position),
                )
            case wire.CancelCommand():
                view = await self._broker.commands.cancel(self._caller, work.command_id)
                self._tell(request.message, "cancel_ack", commandId=work.command_id, outcome=view.outcome)
                return view
            case wire.TakeTabLock():
                asked = wire.LockTab(
                    lock_lease_ms=work.lock_lease_ms,
                    wait_policy=work.wait_policy,
                    timeout_ms=work.timeout_ms,
                    session_id=work.session_id,
                    fence=work.fence,
                )
                lock = await self._broker.tab_locks.lock(self._caller, work.tab_session_id, asked)
                self._join(work.tab_session_id)
                return lock
            case wire.RenewTabLock():
                renewed = wire.LockTab(lock_lease_ms=work.lock_lease_ms, ticket=work.ticket)
                return await self._broker.tab_locks.lock(self._caller, work.tab_session_id, renewed)
            case wire.ReleaseTabLock():
                self._broker.tab_locks.unlock(self._caller, work.tab_session_id, work.ticket)
                return wire.TabUnlocked(tab_id=work.tab_session_id, ticket=work.ticket)
            case wire.TakeLock() | wire.RenewTakenLock() | wire.ReleaseLock():
                return await lock_messages.perform(self._broker.named_locks, self._caller, self._id, work)
            case _:
                assert_never(work)

    def _check_node(self, node_id: str | None) -> None:
        here = self._channel.service.node_id
        if node_id is not None and node_id != here:
            raise InvalidRequest(f"This is node {here}.", field="payload.targetNodeId", node=here)

    def _accepted(self, request: Request, command: Command, command_id: str, position: int) -> None:
        request.command_id = command_id
        if position:
            self._tell(request.message, "queued", commandId=command_id, position=position)
        else:
            self._tell(request.message, "routed", commandId=command_id)
        self._join(command.tab_id)

    def _join(self, tab_id: str) -> None:
        """The session of a tab that is used here lives and dies by its connections from now on."""
        live = self._joined.get(tab_id)
        if live is None or live.ended.is_set():
            self._channel.spawn(self._join_now(tab_id))

    async def _join_now(self, tab_id: str) -> None:
        try:
            live = await self._broker.sessions.join(self._caller, tab_id, self._id, self)
        except TabherdError as error:
            # It has ended meanwhile, or cannot be written down now: the next command tries again.
            log.debug("a session was not joined", tabId=tab_id, error=error.code)
            return
        if live is None:
            return
        if self.is_closed:
            self._broker.sessions.disconnect(live, self._id)
        else:
            self._joined = {tab: known for tab, known in self._joined.items() if not known.ended.is_set()}
            self._joined[tab_id] = live

    async def _release(self) -> None:
        """The connection is over: nothing that it held stays, and nothing that it asked for is granted."""
        waiting = [request.task for request in self._requests.values() if request.command_id is None and request.task]
        for task in waiting:
            task.cancel()
        if waiting:
            # A lock that was granted in this very moment is given back by who asked for it.
            await asyncio.wait(waiting)
        if self._relays is not None:
            self._relays.close()
        if self._has_greeted:
            self._broker.drop_controller(self._caller.controller_id)
            self._broker.named_locks.drop_connection(self._id)
            self._channel.leave(self._caller.controller_id)
        for live in {id(live): live for live in self._joined.values()}.values():
            self._broker.sessions.disconnect(live, self._id)
        self._joined.clear()

    # --- Other nodes ----------------------------------------------------------------------------------------

    def drop_the_gone(self) -> None:
        """Nodes came or went."""
        if self._relays is not None:
            self._relays.drop_the_gone()

    def pass_back(self, kind: wire.ServerMessage, payload: Any, said: Message | None) -> None:
        """Say what another node said."""
        self._say(kind, payload, said)

    def hold_reading(self, is_held: bool) -> None:
        """Another node does not keep up, or does again."""
        if is_held:
            self.pause_reading()
        elif self._checking is None:
            self.resume_reading()

    def lock_ended(self, tab_id: str) -> None:
        """A tab lock on another node is over, with the connection there."""
        owner = self._caller.controller_id
        self._tell(None, "lock_released", tabId=tab_id, lockOwnerControllerId=owner, reason="disconnected")

    # --- Speaking -------------------------------------------------------------------------------------------

    async def _tell_events(self) -> None:
        """What happens to what the caller may see, for as long as the connection lives."""
        while not self._subscription.is_ended:
            for _ in range(EVENTS_BATCH):
                event = self._subscription.take()
                if event is None:
                    await self._subscription.wait()
                    break
                if self._is_for_us(event):
                    self._look_again()
                    await self._writable.wait()
                    self._say("event", event.to_wire())
            else:
                await asyncio.sleep(0)

    def _is_for_us(self, event: Event) -> bool:
        caller, fields = self._caller, event.fields
        if event.type == "reset" or (caller.is_admin and caller.agent_id == self._badge.credential.agent_id):
            return True
        return any(fields.get(name) == caller.agent_id for name in _AGENT_FIELDS) or any(
            fields.get(name) == caller.controller_id for name in _CONTROLLER_FIELDS
        )

    def _reject(self, said: Rejected) -> None:
        """Something that cannot be acted upon."""
        self._refuse(said, said.error)
        if said.is_malformed:
            self._malformed += 1
            if self._malformed >= MALFORMED_MAX:
                self.close(WSCloseCode.POLICY_VIOLATION, "Too many messages that are not JSON.")

    def _refuse(self, said: Message | Rejected, error: TabherdError) -> None:
        self._channel.service.metrics.rejected_total.inc(error.code)
        self._say("error", wire_form(error), said)

    def _tell(self, said: Message | None, event: str, **fields: Any) -> None:
        """An event that belongs to this connection only."""
        self._say("event", {"type": event, "at": rfc3339(self._channel.clock()), **fields}, said)

    def _say(self, kind: wire.ServerMessage, payload: Any, said: Message | Rejected | None = None) -> None:
        if self.is_closed:
            return
        self._sent += 1
        self.send(
            envelope.encode(
                kind,
                payload,
                nonce=f"{self._id}-{self._sent}",
                timestamp_ms=self._channel.clock(),
                request_id=None if said is None else said.request_id,
                trace_id=None if said is None else said.trace_id,
            )
        )
