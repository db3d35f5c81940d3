"""One CDP client: its socket, its own connection to Chromium, and the judgement on every message in between.

Invariants:
- Nothing reaches Chromium that `rules` did not let pass for the kind of session it was sent to, as it was judged.
- Nothing reaches the client that is not its own.
- While somebody else holds a tab, what the client sends to it waits in order, bounded; answers always pass. See
  `parking`.
- Once detached, nothing of the client's takes effect any more: `wait_detached` returns when that is certain.
- A message costs no task and no queue; what is not to be changed keeps its bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec
from picows import WSCloseCode, WSFrame, WSMsgType, WSTransport

from ... import logs
from ...browsers.port import BrowserGone, CdpFailure
from ...errors import BodyTooLarge, TabherdError, TabQueueLimitExceeded
from ..pulse import Pulse
from ..sockets import Socket
from . import message, rules
from .answers import Answers
from .dialogs import ClientDialogs
from .distrust import Distrust
from .emulation import TargetDomain
from .first_document import RUN
from .hearing import Hearing
from .house import House
from .kept_back import BINDING_CALLED, EARLY, KeptBack
from .message import Request
from .ownership import Ownership
from .parking import Parking
from .plans import Plan, Plans
from .replies import HOOKED, Hook, Replies
from .rules import Forward, Kind, Rule
from .targets import TargetWatch
from .tree import Node, Tree
from .upstream import Upstream

log = logs.get_logger("cdp")

# How often the other side must give a sign of life, and its credential is looked at again.
BEAT_S: Final = 15.0
# The largest frame that is taken, to be refused in words if it is not read. A larger one closes the socket.
FRAME_MAX_BYTES: Final = 64 << 20
# Messages that cannot be read before the client is taken for something else.
MALFORMED_MAX: Final = 20
# Commands that may wait for Chromium's answer in one session.
IN_FLIGHT_MAX: Final = 10_000
# How long Chromium may take to show that it has taken in all that was sent.
SETTLE_LIMIT_S: Final = 2.0
# What sends a page to another document.
LEAVING: Final = frozenset({"Page.navigate", "Page.navigateToHistoryEntry", "Page.reload"})
# What ends sessions, or what they hear of their pages.
PARTING: Final = frozenset({"Page.disable", "Target.setAutoAttach"})
# Close codes are HTTP's status codes from here on.
CLOSE_CODE_BASE: Final = 4_000

_TEXT: Final = WSMsgType.TEXT


class Tenant(Socket):
    """One client. Made by `open`, which connects it to its browser."""

    message_max_bytes = FRAME_MAX_BYTES

    def __init__(
        self,
        *,
        own: Ownership,
        parking: Parking,
        plans: Plans,
        house: House,
        root: Node,
        may_wait: bool,
    ) -> None:
        super().__init__()
        self._own = own
        self._parking = parking
        self._plans = plans
        self._house = house
        self._traffic = house.traffic
        # What waits while the node does not trust itself; None: it always does.
        self._distrust = (
            None
            if house.is_trusted is None
            else Distrust(house.is_trusted, receive=self.received, hold=self._hold_client, cut_off=self._refuse_flood)
        )
        # Whether messages to a held tab wait; else they are refused.
        self._may_wait = may_wait
        # Set by `open`, before anything can be received.
        self._upstream: Upstream | None = None
        self._targets: TargetDomain | None = None
        self._replies: Replies | None = None
        self._answers: Answers | None = None
        self._hearing: Hearing | None = None
        self._kept_back: KeptBack | None = None
        self._tree = Tree(root)
        # What is done with answers that are not simply handed on, by session and id.
        self._hooks: dict[tuple[bytes, int], Hook] = {}
        # Our own messages count down from the client's lowest.
        self._last_id = message.CLIENT_ID_MIN
        self._is_detached = False
        # Whether the message in hand came together with the next one.
        self._is_followed = False
        self._malformed = 0
        self._tasks: set[asyncio.Task[None]] = set()
        # Answers to our own messages that are still to come.
        self._awaited: set[asyncio.Future[dict[str, Any]]] = set()
        # Why it is to be closed as soon as it is open.
        self._ending: TabherdError | None = None
        self._dialogs = ClientDialogs(self, self._tree, house.registry, self._give_up)
        # What was sent to sessions that are about to part with their pages, by session.
        self._parting: dict[str, list[bytes]] = {}
        self._pulse = Pulse()
        self._beating: asyncio.TimerHandle | None = None

    @property
    def watch(self) -> TargetWatch:
        """Of the browser that it is connected to."""
        return self._own.watch

    async def connect(self, url: str) -> None:
        """Connect to the browser, or to one page of it; raises `BrowserGone`."""
        self._upstream = await Upstream.connect(
            url, receive=self._from_browser, ended=self._browser_ended, hold=self._hold_client
        )
        info = await self.inject("Target.getTargetInfo", {}, "")
        self._targets = TargetDomain(self, self._own, info["targetInfo"]["targetId"])
        self._replies = Replies(self, self._targets, self._own)
        self._answers = Answers(self, self._targets, self._tree, self._close_browser)
        self._hearing = Hearing(
            self,
            own=self._own,
            targets=self._targets,
            tree=self._tree,
            answers=self._answers,
            place=lambda guid, directory: self._house.place(self, guid, directory),
            left=self._dialogs.leave,
        )
        self._kept_back = KeptBack(self, self._targets, self._send_kept)

    # --- The socket -------------------------------------------------------------------------------------------------

    def opened(self) -> None:
        self._beat_later()
        if self._ending is not None:
            # Its session or browser ended while it was let in.
            self.close_with(self._ending)
        elif self._upstream is not None and self._upstream.over.is_set():
            self._house.browser_ended(self)

    def heard(self) -> None:
        self._pulse.hear()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        # The common case without detours: a whole message, none in pieces before it, and no close begun. Everything
        # else is as for any socket.
        is_plain = frame.msg_type == _TEXT and frame.fin and not (frame.rsv1 or frame.rsv2 or frame.rsv3)
        if is_plain and self._pieces is None and self._cutting is None and not self.is_closed:
            self._pulse.hear()
            self._is_followed = not frame.last_in_buffer
            try:
                if frame.payload_size > message.MESSAGE_MAX_BYTES:
                    self._refuse_large(frame.get_payload_as_memoryview())
                else:
                    self.received(frame.get_payload_as_bytes())
            except Exception:
                log.exception("bug: unexpected exception in a CDP message")
                self.close(WSCloseCode.INTERNAL_ERROR, "tabherd has a bug.")
        elif len(self._pieces or b"") + frame.payload_size > message.MESSAGE_MAX_BYTES:
            self.close(WSCloseCode.MESSAGE_TOO_BIG, "The message is too large.")
        else:
            super().on_ws_frame(transport, frame)

    def received_binary(self) -> None:
        self.close(WSCloseCode.UNSUPPORTED_DATA, "Messages are text.")

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._upstream is not None:
            self._upstream.pause_reading()

    def resumed(self) -> None:
        if self._upstream is not None:
            self._upstream.resume_reading()

    def closed(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        for task in self._tasks:
            task.cancel()
        self._parking.close()
        if self._distrust is not None:
            self._distrust.close()
        if self._targets is not None:
            self._targets.close()
        if not self._is_detached:
            # One that was detached is on its way already.
            self._spawn_settling()
        self._house.left(self)

    # --- The lease (Connection) -------------------------------------------------------------------------------------

    def detach(self, error: TabherdError) -> None:
        if self._is_detached:
            return
        self._is_detached = True
        self._parking.close()
        if self._distrust is not None:
            self._distrust.close()
        busy = {node.page_id for node in self._tree if node.in_flight}
        for tab in self._own.live.tabs.values():
            if tab.row.target_id in busy:
                # What it began there may go on.
                tab.is_tainted = True
        self.close_with(error)
        self._spawn_settling()

    async def wait_detached(self) -> None:
        if self._upstream is not None:
            await self._upstream.over.wait()

    def close_with(self, error: TabherdError) -> None:
        """Close the client's socket for that reason; one that is not open yet, as soon as it is."""
        self._ending = error
        self.close(WSCloseCode(CLOSE_CODE_BASE + error.status), message.told(error))

    def _spawn_settling(self) -> None:
        """End the connection to Chromium once that harms nobody, and once it has taken in what was sent by a client
        that was detached: it reads on after we have closed it.
        """
        upstream = self._upstream
        if upstream is None:
            return
        # The client may have been slower than its browser.
        upstream.resume_reading()

        async def settle() -> None:
            try:
                await self._dialogs.leave_all()
                if self._is_detached:
                    async with asyncio.timeout(SETTLE_LIMIT_S):
                        await self.inject("Browser.getVersion", {}, "")
            except (TimeoutError, BrowserGone, CdpFailure) as reason:
                log.info("a detached client's browser did not answer", reason=str(reason))
            finally:
                upstream.abort()

        self._house.spawn(settle())

    async def _give_up(self, page_id: str) -> None:
        browser = self._own.live.browser
        try:
            if browser is not None:
                await browser.give_up_tab(page_id)
        except (BrowserGone, CdpFailure) as reason:
            log.info("a stranded page could not be closed", targetId=page_id, reason=str(reason))

    def _part(self, session_ids: list[str], then: Callable[[], object]) -> None:
        """Do that once those sessions may end. What the client sends to them waits, and it is read no further."""
        for id in session_ids:
            # One that parts already goes on waiting: a client may end a session in two ways at once.
            self._parting.setdefault(id, [])

        async def part() -> None:
            await self._dialogs.calm(session_ids)
            then()
            waiting = [data for id in session_ids for data in self._parting.pop(id, [])]
            if not self._parting:
                self._hold_client(False)
            for data in waiting:
                self.received(data)

        self._hold_client(True)
        self.spawn(part())

    # --- From the client --------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        if self._is_detached or (self._distrust is not None and self._distrust.keeps(data)):
            return
        self._traffic.from_clients += 1
        try:
            request = message.decode_request(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._refuse_malformed(str(error))
            return
        node = self._tree.find(request.sessionId or "")
        if node is None:
            self._refuse(request, message.SESSION_NOT_FOUND, "Session with given id not found.")
            return
        if self._parting and node.session_id in self._parting:
            self._parting[node.session_id].append(data)
            return
        plan = self._plans.find(node.kind, request.method)
        if node.page_id and not plan.is_answer and self._parking.is_waiting(node.page_id):
            self._park(node.page_id, node, plan, request)
        elif plan.is_plain:
            self._forward(node, request, request.params)
        else:
            self._perform(node, plan, request)

    def _perform(self, node: Node, plan: Plan, request: Request, *, has_waited: bool = False) -> None:
        """Do what the rules say."""
        if plan.rule is Rule.PASS:
            if plan.is_noted and self._is_kept(node, request):
                return
            if self._forward(node, request, request.params) and request.method == RUN:
                self._let_run(node)
        elif plan.rule is Rule.DENY:
            self._deny(request, plan)
        else:
            try:
                params = message.decode_params(request.method, request.params)
            except BodyTooLarge as error:
                self._refuse_typed(request, error)
                return
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._refuse(request, message.INVALID_PARAMS, "Invalid parameters")
                return
            assert self._targets is not None
            if request.method == "Target.attachToTarget" and self._targets.is_browser(params.get("targetId")):
                # Puppeteer's way to one more session with the browser's powers; Chromium has a method for it.
                again = Request(id=request.id, method="Target.attachToBrowserTarget", sessionId=request.sessionId)
                self._perform(node, self._plans.find(node.kind, again.method), again)
            elif plan.rule is Rule.CHECK:
                self._check(node, request, params, has_waited)
            else:
                assert self._answers is not None
                self._answers.give(node, request, params)

    def _forward(self, node: Node, request: Request, params: bytes | msgspec.Raw, own_id: int | None = None) -> bool:
        """Hand it to Chromium, under its own id or one of ours; whether that was possible."""
        if not message.CLIENT_ID_MIN <= request.id <= message.CLIENT_ID_MAX:
            self._refuse(request, message.INVALID_REQUEST, "Message must have an integer 'id' property of 32 bits.")
            return False
        if node.in_flight >= IN_FLIGHT_MAX:
            self._refuse(request, message.SERVER_ERROR, f"{IN_FLIGHT_MAX} commands wait for their answers already.")
            return False
        node.in_flight += 1
        assert self._upstream is not None
        id = request.id if own_id is None else own_id
        send = self._upstream.send_with_next if self._is_followed else self._upstream.send
        send(message.request(id, request.method, node.session_bytes, params))
        return True

    def _let_run(self, node: Node) -> None:
        """Open the gate for a target that its client lets run, once Chromium has taken in all that was sent before.

        The gate is another connection, whose messages would overtake: a popup would run without the scripts that its
        client has just added to it.
        """
        targets, target_id = self._targets, node.target_id
        assert targets is not None
        if targets.is_waiting(target_id):
            self.inject("Browser.getVersion", {}, "").add_done_callback(lambda _: targets.runs(target_id))

    def _check(self, node: Node, request: Request, params: dict[str, Any], has_waited: bool) -> None:
        page_id = "" if has_waited else self._page_named(node, request.method, params)
        if page_id and self._parking.is_waiting(page_id):
            self._park(page_id, node, self._plans.find(node.kind, request.method), request)
            return
        unread = {name: value for name, value in params.items() if isinstance(value, msgspec.Raw)}
        judged = {name: value for name, value in params.items() if name not in unread} if unread else params
        verdict = rules.check(node.kind, request.method, judged, self._own, self._own.tenancy)
        if not isinstance(verdict, Forward):
            if verdict.is_denial:
                self._house.denied(self, request.method)
            self._refuse(request, verdict.code, verdict.message)
            return
        if request.method == "Browser.setDownloadBehavior" and isinstance(params.get("downloadPath"), str):
            self._own.client_dir = params["downloadPath"]
        own_id = None
        if request.method in LEAVING:
            self._dialogs.dismiss(node.session_id)
        elif request.method == "Target.detachFromTarget" and (ending := self._ended_by(verdict.params)):
            self._part(ending, lambda: self._forward(node, request, message.encode(verdict.params)))
            return
        if request.method in HOOKED:
            # The client may use its own id twice, and one answer would be taken for the other.
            own_id = self._last_id = self._last_id - 1
        if self._forward(node, request, message.encode(verdict.params | unread), own_id) and own_id is not None:
            assert self._replies is not None
            hook = self._replies.hook_for(request.method, verdict.params, node.session_id)
            self._hooks[node.session_bytes, own_id] = lambda payload: hook(message.with_id(payload, request.id))

    def _page_named(self, node: Node, method: str, params: Mapping[str, Any]) -> str:
        """The page that a message to the browser is about, if somebody's hold on it matters."""
        if node.page_id or method not in _ABOUT_A_PAGE:
            return ""
        target_id = params.get("targetId")
        # Who holds somebody else's page, and whether anybody does, is not this client's business.
        return target_id if isinstance(target_id, str) and self._own.owns_target(target_id) else ""

    def _park(self, page_id: str, node: Node, plan: Plan, request: Request) -> None:
        """Have it wait until nobody else holds the tab, or refuse it if its client does not want to wait."""
        hold = self._parking.hold_on(page_id)
        # Not the whole message that it is a part of, which may be much larger.
        request.params = request.params.copy()
        if hold is not None and not self._may_wait:
            self._refuse_typed(request, self._house.held(page_id, hold))
        elif not self._parking.put(page_id, len(request.params), lambda: self._unpark(node, plan, request)):
            self._refuse_typed(
                request, TabQueueLimitExceeded("Too much waits for this tab already.", retry_after_ms=1_000)
            )

    def _unpark(self, node: Node, plan: Plan, request: Request) -> None:
        if self._is_detached or self.is_closed:
            return
        if self._tree.find(node.session_id) is node:
            self._perform(node, plan, request, has_waited=True)
        else:
            self._refuse(request, message.SESSION_NOT_FOUND, "Session with given id not found.")

    # --- What is noticed on the way ---------------------------------------------------------------------------------

    def _is_kept(self, node: Node, request: Request) -> bool:
        """Take note of it; whether it is to wait until its window has a document."""
        match request.method:
            case "Page.enable" if node.kind is Kind.PAGE:
                self._dialogs.take(node)
            case method if method in PARTING:
                # A page's own is about its frames and workers.
                if method == "Page.disable" or node.kind is Kind.TAB:
                    return self._is_parting(node, request)
            case method if method in LEAVING:
                self._dialogs.dismiss(node.session_id)
            case method if method in EARLY:
                assert self._kept_back is not None
                return self._kept_back.keeps(node, request)
            case _:
                pass
        return False

    def _send_kept(self, node: Node, request: Request) -> None:
        """The window that it is for has a document."""
        plan = self._plans.find(node.kind, request.method)
        if self._parking.is_waiting(node.page_id):
            self._park(node.page_id, node, plan, request)
        else:
            self._unpark(node, plan, request)

    def _ended_by(self, params: Mapping[str, Any]) -> list[str]:
        """The sessions that hear of dialogs and end when these are detached."""
        if (session_id := params.get("sessionId")) is not None:
            return self._dialogs.ending_with(session_id)
        named = [node for node in self._tree if node.target_id == params.get("targetId")]
        return sorted({id for node in named for id in self._dialogs.ending_with(node.session_id)})

    def _is_parting(self, node: Node, request: Request) -> bool:
        """Whether it is to wait until the sessions that it may end can."""
        ending = self._dialogs.ending_with(node.session_id)

        def part() -> None:
            if request.method == "Page.disable":
                self._dialogs.leave(node.session_id)
            self._forward(node, request, request.params)

        if ending:
            self._part(ending, part)
        return bool(ending)

    # --- From the browser -------------------------------------------------------------------------------------------

    def _from_browser(self, payload: bytes, is_followed: bool) -> None:
        self._traffic.from_browsers += 1
        if payload.startswith(message.REPLY):
            session_bytes = message.session_of_reply(payload)
            node = self._tree.find_by_bytes(session_bytes)
            if node is not None and node.in_flight:
                node.in_flight -= 1
            if self._hooks:
                hook = self._hooks.pop((session_bytes, message.id_of_reply(payload)), None)
                if hook is not None:
                    hook(payload)
                    return
        elif payload.startswith(message.LOOKED_AT):
            if self._hearing is not None:
                self._hearing.hear(payload)
            return
        elif payload.startswith(message.DIALOG):
            self._dialogs.note(payload)
        elif payload.startswith(BINDING_CALLED) and self._is_told_otherwise(payload):
            return
        if is_followed:
            self.send_with_next(payload)
        else:
            self.send(payload)

    def _is_told_otherwise(self, payload: bytes) -> bool:
        """Whether the client hears of this call of a binding from its window's gate, or later."""
        kept_back = self._kept_back
        return kept_back is not None and kept_back.is_listening and kept_back.takes_call(payload)

    def _browser_ended(self) -> None:
        self._hooks.clear()
        for answer in list(self._awaited):
            if not answer.done():
                answer.set_exception(BrowserGone("The connection has ended.", was_sent=True))
        if not self._is_detached:
            self._house.browser_ended(self)

    def _refuse_flood(self) -> None:
        self.close(WSCloseCode.TRY_AGAIN_LATER, "The node waits for its store.")

    def _hold_client(self, is_held: bool) -> None:
        if is_held:
            self.pause_reading()
        else:
            self.resume_reading()

    # --- Parts ------------------------------------------------------------------------------------------------------

    def inject(self, method: str, params: Mapping[str, Any], session_id: str) -> asyncio.Future[dict[str, Any]]:
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        # Nobody need look at it.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        answer.add_done_callback(self._awaited.discard)
        node = self._tree.find(session_id)
        if node is None or self._upstream is None or self._upstream.over.is_set():
            answer.set_exception(BrowserGone("The connection has ended.", was_sent=False))
            return answer
        self._last_id -= 1

        def settle(payload: bytes) -> None:
            got = message.decode_answer(payload)
            if answer.done():
                return
            if got.error is None:
                answer.set_result(got.result or {})
            else:
                failure = got.error
                answer.set_exception(CdpFailure(method, failure.get("code", 0), failure.get("message", "")))

        node.in_flight += 1
        self._awaited.add(answer)
        self._hooks[node.session_bytes, self._last_id] = settle
        self._upstream.send(message.request(self._last_id, method, node.session_bytes, message.encode(dict(params))))
        return answer

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _close_browser(self) -> None:
        self._house.asked_to_close(self)
        self.close(WSCloseCode.OK, "The client closed its browser.")

    def _refuse(self, request: Request, code: int, text: str) -> None:
        self.send(message.failure(request.id, request.sessionId or "", code, text))

    def _refuse_typed(self, request: Request, error: TabherdError) -> None:
        session_id = request.sessionId or ""
        self.send(message.failure(request.id, session_id, message.SERVER_ERROR, message.told(error), error))

    def _deny(self, request: Request, plan: Plan) -> None:
        if not plan.is_known:
            self._refuse(request, message.METHOD_NOT_FOUND, f"'{request.method[:100]}' wasn't found")
            return
        self._house.denied(self, request.method)
        refusal = rules.denial(request.method)
        self._refuse(request, refusal.code, refusal.message)

    def _refuse_large(self, data: memoryview) -> None:
        id, session_id = message.ends_of(data)
        error = message.too_large("The message has", len(data), message.MESSAGE_MAX_BYTES)
        self.send(message.failure(id, session_id, message.SERVER_ERROR, message.told(error), error))

    def _refuse_malformed(self, why: str) -> None:
        self._malformed += 1
        if self._malformed > MALFORMED_MAX:
            self.close(WSCloseCode.PROTOCOL_ERROR, "This is not CDP.")
            return
        self.send(message.failure(None, "", message.PARSE_ERROR, f"The message cannot be read: {why[:200]}"))

    def _beat_later(self) -> None:
        self._beating = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        if self._pulse.beat(self.unsent_bytes if self.is_paused else 0):
            log.info("a CDP client does not read, or is gone", unsent=self.unsent_bytes)
            self.abort()
            return
        self.ping()
        self._house.spawn(self._house.check_badge(self))
        self._beat_later()


# Methods of the browser that are about one page.
_ABOUT_A_PAGE: Final = frozenset({"Target.closeTarget", "Target.activateTarget"})
