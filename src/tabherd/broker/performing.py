"""Performing a granted command on its page, within what is left of its time.

A command whose time ran out, or whose caller left, either has not touched the page, which its progress proves, or is
marked as one that may go on in it. What opened in the page meanwhile, and how it looked when it refused, is noted for
the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from .. import wire
from ..browsers.dialogs import Told
from ..browsers.port import BrowserGone, TabGone
from ..core.lifecycle import TabState
from ..errors import BrowserCrashed, CommandTimedOut, LeaseLost, OutcomeUnknown, TabherdError
from .accepted import Accepted, Cancelled, Request, action_of, kind_of
from .access import page_of
from .checkpoints import Checkpoints
from .evidence import begin_dialogs, details_of, is_page_answer, photograph, views_of
from .files import Files
from .leases import SERVER_STOPPED, Perform
from .leaving import LEAVING, leave
from .patience import settled
from .recovery import Recovery
from .registry import LiveSession, Registry
from .settings import Settings
from .tabs import Tabs

NAVIGATE_AGAIN: Final = (
    "Navigate to where it was: what the page held is gone, what it had sent to its site is not. Allow more time with "
    "timeoutMs."
)


class Performing:
    """From the grant of a tab to the result, or to what its caller should hear."""

    def __init__(
        self,
        *,
        settings: Settings,
        registry: Registry,
        tabs: Tabs,
        recovery: Recovery,
        checkpoints: Checkpoints,
        files: Files,
        clock: Callable[[], int],
        perform: Perform,
        refuse_untrusted: Callable[[], None] = lambda: None,
    ) -> None:
        # Raises while this node may have lost what it has.
        self._refuse_untrusted = refuse_untrusted
        self._settings = settings
        self._registry = registry
        self._tabs = tabs
        self._recovery = recovery
        self._checkpoints = checkpoints
        self._files = files
        self._clock = clock
        self._perform = perform

    async def run(self, accepted: Accepted, request: Request) -> Any:
        """Perform it, and see what its answer tells besides."""
        port = accepted.tab.port
        try:
            result = await self._run_granted(accepted, request)
            if accepted.steps and (failed := accepted.steps[-1].error) is not None:
                await self._look(accepted, request, failed)
            return result
        except TabherdError as error:
            await self._look(accepted, request, error.to_wire())
            raise
        finally:
            if port is not None:
                accepted.told = port.dialogs.take()

    async def _look(self, accepted: Accepted, request: Request, error: dict[str, Any]) -> None:
        """Take a picture of the page that did not allow it, if that was asked for and somebody will get it."""
        tab = accepted.tab
        if not accepted.is_recorded or tab.port is None or not is_page_answer(error):
            return
        assert not accepted.may_go_on, "nothing goes on in a page that has answered"
        if not action_of(accepted, request).screenshot_on_error:
            return
        looking = asyncio.ensure_future(photograph(self._perform, tab.port))
        # Whoever ends the session or the command ends this as well.
        tab.running = looking
        try:
            await asyncio.wait([looking])
        finally:
            tab.running = None
            looking.cancel()
        accepted.picture = {"screenshotError": "Cancelled."} if looking.cancelled() else looking.result()

    async def _run_granted(self, accepted: Accepted, request: Request) -> Any:
        """Perform it within what is left of its time; raises what the caller should hear."""
        tab, ticket, progress, port = accepted.tab, accepted.ticket, accepted.progress, accepted.tab.port
        running = asyncio.ensure_future(self._perform_on(accepted, request))
        tab.running = running
        try:
            await settled(running, max(0.0, (ticket.deadline_at - self._clock()) / 1000))
            if not running.done():
                raise self._timed_out(accepted, request)
            if running.cancelled():
                accepted.may_go_on = progress.has_acted
                raise self._cancelled(accepted, request)
            return running.result()
        except asyncio.CancelledError:
            accepted.may_go_on = progress.has_acted
            raise
        except (BrowserGone, TabGone) as error:
            what = "browser" if isinstance(error, BrowserGone) else "page"
            if isinstance(error, BrowserGone) and tab.port is port:
                self._recovery.browser_lost(tab)
            if error.was_sent or progress.has_acted:
                raise OutcomeUnknown(f"The {what} died while the command ran.", tabId=tab.row.id) from error
            raise BrowserCrashed(f"The {what} died before the command was sent.", tabId=tab.row.id) from error
        finally:
            tab.running = None
            if not running.done():
                running.cancel()

    def _timed_out(self, accepted: Accepted, request: Request) -> TabherdError:
        """Its time is over. Either nothing was done to the page yet, or nobody knows what still goes on in it."""
        untouched = accepted.progress.failure()
        if untouched is not None:
            return untouched
        accepted.may_go_on = True
        accepted.keeps_page = request.on_timeout == "keep"
        waiting_for = accepted.progress.waiting_for
        consequence, action = (
            ("the page was kept, and its effects may continue", None)
            if accepted.keeps_page
            else ("its page is gone and the tab is blank (about:blank), so that nothing of it goes on", NAVIGATE_AGAIN)
        )
        return CommandTimedOut(
            f"The command's time ran out while it ran; {consequence}.",
            action=action,
            tabId=accepted.tab.row.id,
            effectsMayContinue=accepted.keeps_page,
            # What an action that has begun was still waiting for: a page to load, say, and how far that is.
            **({"waitingFor": waiting_for, **accepted.progress.details} if waiting_for else {}),
        )

    def _cancelled(self, accepted: Accepted, request: Request) -> Exception:
        """Why a command that ran was ended by somebody else."""
        tab = accepted.tab
        if accepted.is_cancelled:
            accepted.keeps_page = request.on_timeout == "keep"
            return Cancelled()
        ended = self._registry.ended(tab.row.id)
        if ended is not None and ended.reason == SERVER_STOPPED:
            # The session lives on without us; what became of the command nobody will know.
            return OutcomeUnknown("The server stopped while the command ran.", tabId=tab.row.id)
        if tab.row.state is TabState.DEAD and not tab.session.is_ending:
            accepted.may_go_on = False
            return OutcomeUnknown("The page died while the command ran.", tabId=tab.row.id)
        return LeaseLost("The session ended while the command ran.", sessionId=tab.row.session_id)

    async def _perform_on(self, accepted: Accepted, request: Request) -> Any:
        tab, progress = accepted.tab, accepted.progress
        if isinstance(request, wire.Steps):
            return await self._perform_steps(accepted, request)
        if tab.port is not None:
            begin_dialogs(tab.port, request)
        if isinstance(request, wire.Close):
            return await self._tabs.close(tab)
        if isinstance(request, LEAVING):
            # What the page keeps is read once more.
            await self._checkpoints.before_leaving(tab)
            return await leave(self._perform, page_of(tab), request, progress)
        if isinstance(request, wire.Upload):
            request = await self._files.to_paths(tab.session.row, request)
        return await self._perform(page_of(tab), request, progress)

    async def _perform_steps(self, accepted: Accepted, request: wire.Steps) -> list[wire.StepView]:
        """One after the other; the first that fails is the last."""
        done, port = accepted.steps, accepted.tab.port
        for step in request.steps:
            result: Any = None
            failure: TabherdError | None = None
            try:
                result = await self._perform_step(accepted, request, step)
            except TabherdError as error:
                failure = error
            told = port.dialogs.take() if port is not None else Told()
            if failure is not None:
                failure.details |= details_of(told)
            done.append(
                wire.StepView(
                    kind=kind_of(step),
                    ok=failure is None,
                    result=result,
                    error=None if failure is None else failure.to_wire(),
                    dialogs=views_of(told),
                    more_dialogs=told.more,
                )
            )
            if failure is not None and accepted.may_go_on:
                # The page has to be replaced: the whole command is one whose time ran out.
                raise failure
            if failure is not None:
                break
        return done

    async def _perform_step(self, accepted: Accepted, request: wire.Steps, step: wire.AnyAction) -> Any:
        """A step that names a time ends at it, if that is before the end of the time of all."""
        await _decided(accepted.tab.session)
        # The process may have been stopped since the last one, and another node have the session by now.
        self._refuse_untrusted()
        if step.timeout_ms is None:
            return await self._perform_on(accepted, step)
        limit_ms = max(step.timeout_ms, self._settings.current.gate.timeout_floor_ms)
        running = asyncio.ensure_future(self._perform_on(accepted, step))
        try:
            await settled(running, limit_ms / 1000)
            if not running.done():
                raise self._timed_out(accepted, step if step.on_timeout == "keep" else request)
            return running.result()
        finally:
            running.cancel()


async def _decided(live: LiveSession) -> None:
    """Returns when nobody is about to end the session or to give it to somebody else.

    That may be on disk long before this node hears so, and then nothing more may begin in its pages. If it is so, the
    command is ended while it waits here; if it was refused, the command goes on.
    """
    if live.is_ending or live.is_changing_hands:
        # Whoever has set these has it until the answer of the store is known, and has acted on it.
        async with live.mutex:
            pass
