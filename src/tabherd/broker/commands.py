"""Running one command on one tab: gate, fence, page, outcome.

Every accepted command ends in exactly one outcome, and two commands never overlap on a tab. A command whose time ran
out, or whose caller left, may still be at work inside the page, so its tab is quarantined: nobody is granted the tab
until the page behind it has been replaced. After every wait the lease is checked again, because the session may have
changed hands or ended meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from .. import wire
from ..browsers.port import BrowserGone, CdpFailure, TabPort
from ..config import Config
from ..core import lease
from ..core.gate import Granted, Ticket
from ..core.lifecycle import COMMAND, TAB, CommandEvent, CommandState, TabEvent, advance
from ..core.model import Command, Tab, changed
from ..errors import (
    BrowserCrashed,
    CommandNotFound,
    CommandTimedOut,
    LeaseLost,
    OutcomeUnknown,
    QueueWaitTimedOut,
    TabherdError,
    TabNotFound,
)
from ..metrics import Metrics
from ..store.base import Applied, Store, Update
from .caller import Caller
from .events import EventBus
from .ids import Ids, epoch_of_command
from .leases import Leases, Perform
from .ledger import OUTCOME_MAX_CHARS, Ledger, unseen
from .marks import Marks
from .patience import patiently
from .registry import LiveTab, Registry
from .sessions import Spawn
from .views import command_view

log = structlog.get_logger("commands")


class Commands:
    """The command verbs."""

    def __init__(
        self,
        *,
        config: Config,
        node_id: str,
        epoch: int,
        store: Store,
        registry: Registry,
        leases: Leases,
        ledger: Ledger,
        marks: Marks,
        events: EventBus,
        metrics: Metrics,
        ids: Ids,
        clock: Callable[[], int],
        refuse_when_draining: Callable[[], None],
        spawn: Spawn,
        perform: Perform,
    ) -> None:
        self._gate_config = config.gate
        self._node_id = node_id
        self._epoch = epoch
        self._store = store
        self._registry = registry
        self._leases = leases
        self._ledger = ledger
        self._marks = marks
        self._events = events
        self._metrics = metrics
        self._ids = ids
        self._clock = clock
        self._refuse_when_draining = refuse_when_draining
        self._spawn = spawn
        self._perform = perform

    async def run(self, caller: Caller, tab_id: str, action: wire.AnyAction) -> wire.CommandView:
        """Run the action and answer with its result; a failure is raised, with the command's id in its details."""
        self._refuse_when_draining()
        kind = str(action.__struct_config__.tag)
        tab = self._owned_tab(caller, tab_id, action)
        caller.require("evaluate" if kind == "evaluate" else "browse")
        now = self._clock()
        timeout_ms = max(action.timeout_ms or self._gate_config.timeout_ms, self._gate_config.timeout_floor_ms)
        command = Command(
            id=self._ids.mint_command(),
            node_id=self._node_id,
            tab_id=tab_id,
            session_id=tab.row.session_id,
            agent_id=caller.agent_id,
            kind=kind,
            state=CommandState.QUEUED,
            created_at=now,
        )
        ticket = Ticket(
            id=command.id,
            controller_id=caller.controller_id,
            agent_id=caller.agent_id,
            label=kind,
            entered_at=now,
            deadline_at=now + timeout_ms,
        )
        decision = tab.gate.enter(
            ticket,
            now=now,
            may_wait=action.wait_policy == "wait_with_timeout",
            controller_tickets=self._registry.tickets.get(caller.controller_id, 0),
        )
        self._registry.count_ticket(caller.controller_id, 1)
        try:
            return await self._run_accepted(caller, tab, action, command, ticket, isinstance(decision, Granted))
        finally:
            self._registry.count_ticket(caller.controller_id, -1)

    async def get(self, caller: Caller, command_id: str) -> wire.CommandView:
        """The one outcome of a command that ended."""
        command = await self._ledger.find(command_id)
        if command is None:
            epoch = epoch_of_command(command_id)
            if epoch is None or epoch >= self._epoch:
                raise CommandNotFound("No such command, or it has not ended yet.")
            # Accepted by an earlier life of this node, which died before it could write the outcome down.
            return command_view(unseen(command_id, self._node_id))
        if not caller.may_see(command.agent_id):
            raise CommandNotFound("No such command, or it has not ended yet.")
        return command_view(command)

    # --- Parts ----------------------------------------------------------------------------------------------

    async def _run_accepted(
        self, caller: Caller, tab: LiveTab, action: wire.AnyAction, command: Command, ticket: Ticket, is_granted: bool
    ) -> wire.CommandView:
        """From an accepted ticket to the recorded outcome. The ticket is returned on every path."""
        try:
            if not is_granted:
                await self._wait_for_grant(tab, ticket)
            queued_ms = self._clock() - ticket.entered_at
            self._metrics.gate_wait_seconds.observe(queued_ms / 1000)
            # The wait may have been long: decide again whether this caller may touch this tab.
            if self._owned_tab(caller, tab.row.id, action) is not tab:
                raise LeaseLost("The tab changed hands while the command waited.", tabId=tab.row.id)
        except BaseException as error:
            self._leave(tab, ticket)
            self._settle(command, _event_of(error, CommandState.QUEUED), error=error)
            raise
        command = changed(command, state=advance(COMMAND, command.state, CommandEvent.GRANT), queued_ms=queued_ms)
        tab.session.seen_at = self._clock()
        is_proven_stopped = True
        assert tab.mark is None, "the command before was never proven stopped"
        tab.mark = self._marks.set(tab.row.id, command.id)
        try:
            result = await self._run_granted(tab, action, ticket)
        except BaseException as error:
            is_proven_stopped = not isinstance(error, CommandTimedOut | LeaseLost | asyncio.CancelledError)
            self._settle(command, _event_of(error, CommandState.RUNNING), error=error)
            raise
        else:
            if isinstance(action, wire.Navigate):
                tab.row = changed(tab.row, url=result["url"], title=result["title"] or "")
            return command_view(self._settle(command, CommandEvent.COMPLETE, result=result))
        finally:
            tab.session.seen_at = self._clock()
            if is_proven_stopped:
                self._unmark(tab)
            else:
                # Before the ticket goes back: nobody may be granted the tab in between.
                self.quarantine(tab)
            self._leave(tab, ticket)

    async def _wait_for_grant(self, tab: LiveTab, ticket: Ticket) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tab.waiting[ticket.id] = granted
        try:
            async with asyncio.timeout((ticket.deadline_at - self._clock()) / 1000):
                await granted
        except TimeoutError:
            raise QueueWaitTimedOut(
                "The command's time ran out while it waited for the tab.", tabId=tab.row.id, commandId=ticket.id
            ) from None
        finally:
            del tab.waiting[ticket.id]

    async def _run_granted(self, tab: LiveTab, action: wire.AnyAction, ticket: Ticket) -> Any:
        """Perform it within what is left of its time; raises what the caller should hear."""
        running = asyncio.ensure_future(self._perform(tab.port, action))
        tab.running = running
        try:
            await asyncio.wait([running], timeout=max(0.0, (ticket.deadline_at - self._clock()) / 1000))
            if not running.done():
                raise CommandTimedOut(
                    "The command's time ran out while it ran; the tab is quarantined until its page is replaced.",
                    tabId=tab.row.id,
                )
            if running.cancelled() and tab.session.is_lost:
                raise OutcomeUnknown("The browser died while the command ran.", tabId=tab.row.id)
            if running.cancelled():
                raise LeaseLost("The session ended while the command ran.", sessionId=tab.row.session_id)
            return running.result()
        except BrowserGone as error:
            if error.was_sent:
                raise OutcomeUnknown("The browser died while the command ran.", tabId=tab.row.id) from error
            raise BrowserCrashed("The browser died before the command was sent.", tabId=tab.row.id) from error
        finally:
            tab.running = None
            if not running.done():
                running.cancel()

    def _leave(self, tab: LiveTab, ticket: Ticket) -> None:
        """Return the ticket and wake whoever is next."""
        for granted in tab.gate.leave(ticket.id, now=self._clock()):
            self._wake(tab, granted)

    def _wake(self, tab: LiveTab, granted: Ticket) -> None:
        waiter = tab.waiting.get(granted.id)
        if waiter is None or waiter.done():
            # It gave up in this very moment and has not been scheduled since; its own way out returns the ticket.
            return
        waiter.set_result(None)

    def _settle(
        self, command: Command, event: CommandEvent, *, result: Any = None, error: BaseException | None = None
    ) -> Command:
        """Record the one terminal outcome."""
        if isinstance(error, TabherdError):
            error.details.setdefault("commandId", command.id)
            body: dict[str, Any] = {"error": error.to_wire()}
        else:
            body = {"result": result}
        ended_at = self._clock()
        ended = changed(
            command,
            state=advance(COMMAND, command.state, event),
            ended_at=ended_at,
            duration_ms=ended_at - command.created_at - command.queued_ms,
            outcome=msgspec.json.encode(body).decode(),
        )
        self._metrics.commands_total.labels(command.kind, ended.state).inc()
        self._metrics.command_seconds.labels(command.kind).observe(ended.duration_ms / 1000)
        is_small = len(ended.outcome) <= OUTCOME_MAX_CHARS
        self._ledger.record(ended if is_small else changed(ended, outcome='{"result":null}'))
        return ended

    def _owned_tab(self, caller: Caller, tab_id: str, action: wire.Action) -> LiveTab:
        """The tab, if it lives here, is the caller's, and the lease named by the caller is the present one."""
        tab = self._registry.tab(tab_id)
        if tab is None:
            ended = self._registry.ended(tab_id)
            if ended is not None and caller.may_see(ended.agent_id):
                raise LeaseLost(
                    f"The session has ended: {ended.reason}.", sessionId=ended.session_id, reason=ended.reason
                )
        if tab is None or not caller.may_see(tab.session.row.agent_id):
            raise TabNotFound("No such tab.")
        session = tab.session.row
        if tab.session.is_ending:
            raise LeaseLost("The session is ending.", sessionId=session.id, tabId=tab_id)
        if action.session_id is not None and action.session_id != session.id:
            raise LeaseLost("The tab is not part of that session.", sessionId=action.session_id, tabId=tab_id)
        lease.check_fence(session, action.fence, self._clock())
        return tab

    # --- Quarantine -----------------------------------------------------------------------------------------

    def quarantine(self, tab: LiveTab) -> None:
        """Let nobody on the tab until its page has been replaced: a command may still be at work in it."""
        if self._registry.tab(tab.row.id) is not tab:
            self._unmark(tab)
            return  # The session has ended; its context takes the page with it.
        tab.gate.quarantine(self._clock())
        tab.row = changed(tab.row, state=advance(TAB, tab.row.state, TabEvent.QUARANTINE))
        self._publish("tab.quarantined", tab)
        self._spawn(self._replace_page(tab))

    async def _replace_page(self, tab: LiveTab) -> None:
        """Put a blank page behind the tab: only that proves that nothing of the old one goes on."""
        session = tab.session
        async with session.mutex:
            if self._registry.tab(tab.row.id) is not tab:
                self._unmark(tab)
                return
            old_target_id = tab.row.target_id
            try:
                port = await session.browser.new_tab(session.row.context_id)
                await session.browser.close_tab(old_target_id)
                await self._record_replacement(tab, port)
            except (BrowserGone, CdpFailure) as error:
                log.warning("page could not be replaced", tabId=tab.row.id, error=str(error))
                failed = True
            else:
                failed = False
        self._unmark(tab)
        if failed:
            await patiently(lambda: self._leases.end(session, "tab_lost"))
            return
        self._publish("tab.rebuilt", tab, generation=tab.row.generation)
        for granted in tab.gate.lift(self._clock()):
            self._wake(tab, granted)

    def _unmark(self, tab: LiveTab) -> None:
        if tab.mark is not None:
            self._marks.clear(tab.mark)
            tab.mark = None

    def _publish(self, event: str, tab: LiveTab, **fields: Any) -> None:
        session = tab.session.row
        self._events.publish(event, tabId=tab.row.id, sessionId=session.id, agentId=session.agent_id, **fields)

    async def _record_replacement(self, tab: LiveTab, port: TabPort) -> None:
        rebuilding = advance(TAB, tab.row.state, TabEvent.REBUILD)
        replaced = changed(
            tab.row,
            state=advance(TAB, rebuilding, TabEvent.REBUILT),
            target_id=port.target_id,
            generation=tab.row.generation + 1,
            url="about:blank",
            title="",
        )
        outcome = await patiently(lambda: self._store.apply(Update(replaced)))
        assert isinstance(outcome, Applied), "a tab row has one writer, the node that hosts it"
        stored = outcome.rows[0]
        assert isinstance(stored, Tab)
        tab.row = stored
        tab.follow(port)


def _event_of(error: BaseException, state: CommandState) -> CommandEvent:
    """What an error that ended a command means for its lifecycle."""
    match error:
        case CommandTimedOut() | QueueWaitTimedOut():
            return CommandEvent.TIME_OUT
        case asyncio.CancelledError() | LeaseLost():
            return CommandEvent.CANCEL
        case OutcomeUnknown() if state is CommandState.RUNNING:
            return CommandEvent.LOSE
        case _:
            return CommandEvent.FAIL
