"""Running one command on one tab: gate, fence, outcome; what is done to the page is in `performing.py`.

Every accepted command ends in exactly one outcome, and two commands never overlap on a tab. A command whose time ran
out, or whose caller left, may still be at work inside the page, so its tab is quarantined: nobody is granted the tab
until the page behind it has been replaced, or its caller wanted it kept. After every wait the lease is checked again,
because the session may have changed hands or ended meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from .. import wire
from ..core import lease
from ..core.gate import Queued, Ticket
from ..core.lifecycle import COMMAND, CommandEvent, CommandState, TabState, advance
from ..core.model import Command, Idempotency, changed
from ..errors import (
    BrowserCrashed,
    CommandNotFound,
    LeaseLost,
    NotOwner,
    OutcomeUnknown,
    StateConflict,
    TabherdError,
    from_wire,
)
from ..metrics import Metrics
from .accepted import (
    Accepted,
    Cancelled,
    Repeated,
    Request,
    encode_outcome,
    event_of,
    kind_of,
    refuse_foreign_files,
    refuse_paste,
    scopes_of,
    shortened,
)
from .access import Access, is_visible
from .audit import Auditor
from .caller import Caller
from .checkpoints import Checkpoints
from .evidence import details_of
from .files import Files
from .idempotency import Keys
from .ids import Ids, epoch_of_command
from .leases import Perform
from .ledger import OUTCOME_MAX_CHARS, Ledger, unseen
from .marks import Marks
from .patience import to_the_end
from .performing import Performing
from .recovery import Recovery
from .registry import LiveTab, Registry
from .settings import Settings
from .tabs import Tabs
from .turns import Turns
from .views import command_view

CLOSE_UNWANTED = wire.Close(wait_policy="wait_with_timeout")


class Commands:
    """The command verbs."""

    def __init__(
        self,
        *,
        settings: Settings,
        node_id: str,
        epoch: int,
        registry: Registry,
        access: Access,
        turns: Turns,
        tabs: Tabs,
        recovery: Recovery,
        checkpoints: Checkpoints,
        files: Files,
        keys: Keys,
        ledger: Ledger,
        auditor: Auditor,
        marks: Marks,
        metrics: Metrics,
        ids: Ids,
        clock: Callable[[], int],
        refuse_when_draining: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        perform: Perform,
    ) -> None:
        self._settings = settings
        self._node_id = node_id
        self._epoch = epoch
        self._registry = registry
        self._access = access
        self._turns = turns
        self._tabs = tabs
        self._recovery = recovery
        self._checkpoints = checkpoints
        self._keys = keys
        self._ledger = ledger
        self._auditor = auditor
        self._marks = marks
        self._metrics = metrics
        self._ids = ids
        self._clock = clock
        self._refuse_when_draining = refuse_when_draining
        self._spawn = spawn
        self._performing = Performing(
            settings=settings,
            registry=registry,
            tabs=tabs,
            recovery=recovery,
            checkpoints=checkpoints,
            files=files,
            clock=clock,
            perform=perform,
            refuse_untrusted=access.refuse_untrusted,
        )
        # Commands that wait or run, by id.
        self._accepted: dict[str, Accepted] = {}

    # --- Verbs ----------------------------------------------------------------------------------------------

    async def run(
        self,
        caller: Caller,
        tab_id: str,
        request: Request,
        on_accepted: Callable[[str, int], None] = lambda command_id, position: None,
        *,
        before_send: Callable[[], Awaitable[None]] | None = None,
        is_recorded: bool = True,
    ) -> wire.CommandView:
        """Run it and answer with its result; a failure is raised, with the command's id in its details.

        `on_accepted` hears the command's id and its place in the queue, 0 when it runs at once. `before_send` is done
        when it is its turn, before anything reaches the page. What is recorded elsewhere, as the outcome of a task is,
        need not be recorded as that of a command as well.
        """
        self._refuse_when_draining()
        kind = kind_of(request)
        tab = self._access.usable_tab(caller, tab_id, request.session_id, request.fence)
        for scope in scopes_of(request):
            caller.require(scope)
        refuse_foreign_files(request, caller, tab)
        pool = self._settings.current.pools[tab.session.row.pool]
        if pool.isolation != "browser":
            refuse_paste(request, shares_selection=pool.shares_selection)
        if request.idempotency_key is not None:
            earlier = await self._keys.find(caller.agent_id, request.idempotency_key, tab_id, request)
            if earlier is not None:
                return await self._answer_again(caller, earlier)
        accepted = self._accept(caller, tab, kind, request)
        accepted.is_recorded = is_recorded
        if request.idempotency_key is not None:
            accepted.key = self._keys.begin(
                caller.agent_id, request.idempotency_key, tab_id, request, accepted.ticket.id
            )
        self._accepted[accepted.ticket.id] = accepted
        self._registry.count_command(1)
        try:
            on_accepted(accepted.ticket.id, accepted.position)
            view = await self._run_accepted(caller, accepted, request, before_send)
            accepted.ended.set_result(view)
            return view
        except BaseException as error:
            accepted.ended.set_exception(error)
            # Looked at, or asyncio would complain when nobody else wants to know.
            accepted.ended.exception()
            raise
        finally:
            del self._accepted[accepted.ticket.id]
            if accepted.key is not None:
                self._keys.end(accepted.key)
            self._registry.count_command(-1)

    async def open_tab(self, caller: Caller, session_id: str, request: wire.OpenTab) -> wire.TabView:
        """One tab more, and its first page; a tab whose page cannot be opened is closed again."""
        self._refuse_when_draining()
        tab = await self._tabs.open(caller, session_id, request)
        if request.url is not None:
            try:
                await self.run(caller, tab.row.id, wire.Navigate(url=request.url))
            except BaseException:
                # Also when the caller left: nobody else knows of this tab.
                await to_the_end(self.run(caller, tab.row.id, CLOSE_UNWANTED), self._spawn)
                raise
        return self._tabs.get(caller, tab.row.id)

    async def get(self, caller: Caller, command_id: str) -> wire.CommandView:
        """The one outcome of a command that ended, or how far it is."""
        accepted = self._accepted.get(command_id)
        command = accepted.command if accepted is not None else await self._ledger.find(command_id)
        if command is None:
            epoch = epoch_of_command(command_id)
            if epoch is None or epoch == self._epoch or epoch > await self._ledger.latest_epoch(self._epoch):
                raise CommandNotFound("No such command.")
            # Accepted by a life of this or another node that died before it could write the outcome down.
            return command_view(unseen(command_id, self._node_id))
        if not caller.may_see(command.agent_id):
            raise CommandNotFound("No such command.")
        return command_view(command)

    async def cancel(self, caller: Caller, command_id: str) -> wire.CommandView:
        """End a command that waits or runs; what it may have begun in the page ends with the page."""
        accepted = self._accepted.get(command_id)
        if accepted is None:
            ended = await self.get(caller, command_id)
            raise StateConflict(f"The command has ended: {ended.outcome}.", commandId=command_id, outcome=ended.outcome)
        if not caller.may_see(accepted.command.agent_id):
            if not is_visible(caller, accepted.tab.session.row):
                raise CommandNotFound("No such command.")
            raise NotOwner("Only who sent a command may cancel it.", commandId=command_id)
        if caller.agent_id != accepted.tab.session.row.agent_id or caller.is_admin:
            # The owner may be waiting for it elsewhere: its next heartbeat tells.
            accepted.tab.session.cancelled.append(command_id)
        if caller.agent_id != accepted.command.agent_id:
            # Its own entry says that it was cancelled, but not that somebody else did that.
            self._auditor.note(
                agent_id=caller.agent_id,
                controller_id=caller.controller_id,
                verb="cancel",
                tab=accepted.tab,
                command_id=command_id,
                detail=f"{accepted.command.kind} of {accepted.command.agent_id}",
            )
        self._stop(accepted)
        await asyncio.wait([accepted.ended])
        return command_view(accepted.command)

    def drop_controller(self, controller_id: str) -> None:
        """The controller's connection is closed: what it queued is withdrawn, what it runs is cancelled."""
        for accepted in list(self._accepted.values()):
            if accepted.ticket.controller_id == controller_id:
                self._stop(accepted)

    # --- Accepting ------------------------------------------------------------------------------------------

    def _accept(self, caller: Caller, tab: LiveTab, kind: str, request: Request) -> Accepted:
        now = self._clock()
        gate = self._settings.current.gate
        timeout_ms = max(request.timeout_ms or gate.timeout_ms, gate.timeout_floor_ms)
        command = Command(
            id=self._ids.mint_command(),
            node_id=self._node_id,
            tab_id=tab.row.id,
            session_id=tab.row.session_id,
            agent_id=caller.agent_id,
            kind=kind,
            state=CommandState.QUEUED,
            created_at=now,
            controller_id=caller.controller_id,
        )
        ticket = Ticket(
            id=command.id,
            controller_id=caller.controller_id,
            agent_id=caller.agent_id,
            label=kind,
            entered_at=now,
            deadline_at=lease.command_deadline_at(tab.session.row, timeout_ms, now),
        )
        entry = self._turns.enter(tab, ticket, may_wait=request.wait_policy == "wait_with_timeout")
        tab.session.heard_from(caller, now)
        accepted = Accepted(command, tab, ticket)
        accepted.position = entry.position if isinstance(entry, Queued) else 0
        return accepted

    async def _claim_key(self, accepted: Accepted, key: Idempotency) -> None:
        """The key is on disk before anything is done; one that stands for another command by now is not ours."""
        stands_for = await self._keys.claim(key)
        if stands_for != accepted.command.id:
            raise Repeated(stands_for)

    async def _answer_again(self, caller: Caller, command_id: str) -> wire.CommandView:
        """The outcome of a command that was accepted under the same key before."""
        accepted = self._accepted.get(command_id)
        if accepted is not None:
            await asyncio.wait([accepted.ended])
            if accepted.ended.exception() is None:
                return accepted.ended.result()
        # How it failed is read from the ledger: that its own caller left must not look as if this one had.
        view = await self.get(caller, command_id)
        if view.error is not None:
            raise from_wire(view.error)
        if view.outcome == CommandState.OUTCOME_UNKNOWN:
            raise OutcomeUnknown("The server ended before the command's outcome was known.", commandId=command_id)
        return view

    # --- Running --------------------------------------------------------------------------------------------

    async def _run_accepted(
        self,
        caller: Caller,
        accepted: Accepted,
        request: Request,
        before_send: Callable[[], Awaitable[None]] | None,
    ) -> wire.CommandView:
        """From an accepted ticket to the recorded outcome. The ticket is returned on every path."""
        tab, ticket = accepted.tab, accepted.ticket
        try:
            if accepted.key is not None:
                await self._claim_key(accepted, accepted.key)
            await self._turns.wait(tab, ticket)
            queued_ms = self._clock() - ticket.entered_at
            self._metrics.gate_wait_seconds.observe(queued_ms / 1000)
            if before_send is not None:
                await before_send()
            self._check_again(caller, accepted, request)
        except Cancelled as error:
            self._turns.leave(tab, ticket)
            return await self._record(accepted, request, error=error)
        except Repeated as other:
            self._turns.leave(tab, ticket)
            await self._record(accepted, request, error=Cancelled())
            return await self._answer_again(caller, other.command_id)
        except BaseException as error:
            self._turns.leave(tab, ticket)
            await self._record(accepted, request, error=error)
            raise
        accepted.command = changed(
            accepted.command, state=advance(COMMAND, accepted.command.state, CommandEvent.GRANT), queued_ms=queued_ms
        )
        tab.waiting.pop(ticket.id, None)
        tab.session.worked_at = self._clock()
        assert tab.clear_mark is None, "the command before was never proven stopped"
        tab.clear_mark = partial(self._marks.clear, self._marks.set(tab.row.id, ticket.id))
        try:
            result = await self._performing.run(accepted, request)
        except Cancelled as error:
            self._give_back(accepted, request)
            return await self._record(accepted, request, error=error)
        except BaseException as error:
            self._give_back(accepted, request)
            await self._record(accepted, request, error=error)
            raise
        self._give_back(accepted, request)
        return await self._record(accepted, request, result=result)

    def _check_again(self, caller: Caller, accepted: Accepted, request: Request) -> None:
        """The wait may have been long: decide again whether this command may touch this tab."""
        tab = accepted.tab
        if accepted.is_cancelled:
            raise Cancelled
        if self._access.usable_tab(caller, tab.row.id, request.session_id, request.fence) is not tab:
            raise LeaseLost("The tab changed hands while the command waited.", tabId=tab.row.id)
        refuse_foreign_files(request, caller, tab)
        if tab.port is not None and tab.row.state not in (TabState.READY, TabState.PAUSED):
            # Granted, and then the page died while the command was written down.
            raise BrowserCrashed("The page died before the command was sent.", tabId=tab.row.id)

    def _stop(self, accepted: Accepted) -> None:
        """Have it end as cancelled, wherever it is."""
        accepted.is_cancelled = True
        waiter = accepted.tab.waiting.get(accepted.ticket.id)
        if waiter is not None and not waiter.done():
            waiter.set_exception(Cancelled())
        elif accepted.tab.gate.running == accepted.ticket and accepted.tab.running is not None:
            accepted.tab.running.cancel()

    # --- Ending ---------------------------------------------------------------------------------------------

    def _give_back(self, accepted: Accepted, request: Request) -> None:
        """The tab is the next one's, once nothing of this command can go on in it."""
        tab, ticket = accepted.tab, accepted.ticket
        now = tab.session.worked_at = self._clock()
        held_ms = now - ticket.entered_at - accepted.command.queued_ms
        self._metrics.gate_hold_seconds.observe(held_ms / 1000)
        if accepted.may_go_on:
            # Before the ticket goes back: nobody may be granted the tab in between.
            began_at = ticket.entered_at + accepted.command.queued_ms
            self._recovery.quarantine(tab, is_kept=accepted.keeps_page, since=began_at)
        else:
            tab.unmark()
        self._turns.leave(tab, ticket)
        self._checkpoints.touch(tab.session)

    async def _record(
        self, accepted: Accepted, request: Request, *, result: Any = None, error: BaseException | None = None
    ) -> wire.CommandView:
        """Write down the one terminal outcome."""
        command = accepted.command
        event = CommandEvent.COMPLETE if error is None else event_of(error, command.state)
        # However it ended: the steps that were done are told.
        body: dict[str, Any] = {"result": result if error is None else accepted.steps or None}
        told = details_of(accepted.told)
        if isinstance(error, TabherdError):
            error.details.setdefault("commandId", command.id)
            error.details |= told
            if accepted.steps:
                error.details["steps"] = wire.value_of(encode_outcome(accepted.steps))
            body = {"error": error.to_wire()}
        elif isinstance(request, wire.Steps) and error is None and not result[-1].ok:
            event, body = CommandEvent.FAIL, {"result": result, "error": result[-1].error}
        body |= told
        kept = encode_outcome(body)
        if accepted.picture:
            # The caller gets it, and nobody keeps it.
            body["error"] = {**body["error"], "details": {**body["error"]["details"], **accepted.picture}}
            if isinstance(error, TabherdError):
                error.details |= accepted.picture
        ended_at = self._clock()
        ended = accepted.command = changed(
            command,
            state=advance(COMMAND, command.state, event),
            ended_at=ended_at,
            duration_ms=ended_at - command.created_at - command.queued_ms,
            outcome=encode_outcome(body) if accepted.picture else kept,
        )
        self._metrics.commands_total.inc(command.kind, ended.state)
        self._metrics.command_seconds.observe(ended.duration_ms / 1000, command.kind)
        if accepted.is_recorded:
            if len(kept) > OUTCOME_MAX_CHARS:
                kept = encode_outcome({**shortened(body.get("error")), **told})
            self._ledger.record(changed(ended, outcome=kept))
        self._auditor.note(
            agent_id=ended.agent_id,
            controller_id=ended.controller_id,
            verb=ended.kind,
            tab=accepted.tab,
            command_id=ended.id,
            detail=ended.state,
        )
        if accepted.key is not None:
            # Whoever hears the outcome, or repeats the key after a crash, must hear the same.
            await self._ledger.flush()
        return command_view(ended)
