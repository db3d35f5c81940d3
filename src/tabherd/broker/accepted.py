"""One accepted command on its way from the ticket to the outcome: what is known of it, and what its end means."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from .. import wire
from ..actions.keys import is_paste
from ..actions.progress import Progress
from ..browsers.dialogs import Told
from ..core.gate import Ticket
from ..core.lifecycle import CommandEvent, CommandState
from ..core.model import Command, Idempotency
from ..errors import CommandTimedOut, LeaseLost, NotOwner, OutcomeUnknown, PolicyDenied, QueueWaitTimedOut
from .caller import Caller
from .registry import LiveTab

Request = wire.AnyAction | wire.Steps
KINDS: dict[type, str] = {wire.Steps: "steps", **{shape: kind for kind, shape in wire.ACTIONS.items()}}


class Cancelled(Exception):
    """Somebody who may has cancelled the command."""


class Repeated(Exception):
    """The same idempotency key came twice at once, and stands for the other command."""

    def __init__(self, command_id: str) -> None:
        super().__init__(command_id)
        self.command_id = command_id


class Accepted:
    """A command from its ticket to its outcome."""

    def __init__(self, command: Command, tab: LiveTab, ticket: Ticket) -> None:
        self.command = command
        self.tab = tab
        self.ticket = ticket
        # The idempotency key that stands for it.
        self.key: Idempotency | None = None
        # Its outcome is kept in the ledger.
        self.is_recorded = True
        # How far the action is.
        self.progress = Progress()
        # Its place in the queue when it came; 0: it was granted at once.
        self.position = 0
        # Somebody wants it ended.
        self.is_cancelled = False
        # It ended without proof that nothing of it goes on in the page.
        self.may_go_on = False
        # Its sender wants the page kept all the same.
        self.keeps_page = False
        # The steps that are done, if it has several.
        self.steps: list[wire.StepView] = []
        # Dialogs that opened and that no step of it tells of.
        self.told = Told()
        # How the page looks that did not allow it, for the details of its error; empty when nobody asked.
        self.picture: dict[str, str] = {}
        # Settled with its end, for those who repeat its idempotency key or cancel it.
        self.ended: asyncio.Future[wire.CommandView] = asyncio.get_running_loop().create_future()


def action_of(accepted: Accepted, request: Request) -> wire.AnyAction:
    """What it failed at: itself, the step that failed, or else the one that was under way."""
    if not isinstance(request, wire.Steps):
        return request
    done = accepted.steps
    return request.steps[len(done) - 1 if done and not done[-1].ok else len(done)]


def shortened(error: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is kept of an outcome that is too large: that there was a result, or which error."""
    if error is None:
        return {"result": None}
    return {"error": {**error, "details": {"commandId": error["details"].get("commandId")}}}


def encode_outcome(body: Any) -> str:
    """JSON text, which a page's halves of surrogate pairs, that UTF-8 does not have, must not keep from being one."""
    try:
        return msgspec.json.encode(body).decode()
    except UnicodeEncodeError:
        return _whole(json.dumps(msgspec.to_builtins(body, enc_hook=wire.plain), ensure_ascii=False))


def storable(text: str) -> str:
    """The text without what no store can hold; a page may put anything into an error."""
    return (text if text.isascii() else _whole(text)).replace("\0", "\ufffd")


def _whole(text: str) -> str:
    """Halves of surrogate pairs put together, or replaced where the other half is missing."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def kind_of(request: Request) -> str:
    """What the command is called in records and metrics."""
    return KINDS[type(request)]


def scopes_of(request: Request) -> set[str]:
    """What a credential needs for it."""
    actions = request.steps if isinstance(request, wire.Steps) else [request]
    scopes = {"evaluate" if runs_script(action) else "browse" for action in actions}
    # Whoever gives a page a file can read it there.
    return scopes | {"files"} if any(isinstance(action, wire.Upload) for action in actions) else scopes


def refuse_foreign_files(request: Request, caller: Caller, tab: LiveTab) -> None:
    """Raise `NotOwner` for files of a session that is only shared with the caller, who could not fetch them either."""
    if "files" in scopes_of(request) and not caller.may_see(tab.session.row.agent_id):
        raise NotOwner(
            "The session is shared, but its files are its owner's alone.",
            action="Ask its owner to upload the file, or use a session of your own.",
            sessionId=tab.row.session_id,
        )


def refuse_paste(request: Request, *, shares_selection: bool) -> None:
    """Raise `PolicyDenied` for keys that paste: all sessions of one browser have one clipboard.

    And one selection, which the middle button pastes in a browser that was not told otherwise.
    """
    actions = request.steps if isinstance(request, wire.Steps) else [request]
    if any(isinstance(action, wire.Press) and is_paste(action.key) for action in actions):
        raise PolicyDenied(
            "Pasting would read what other sessions of this browser have copied.",
            action="Use fill or type, or a pool with isolation browser.",
            field="key",
        )
    clicks = (wire.Click, wire.Dblclick)
    if shares_selection and any(isinstance(action, clicks) and action.button == "middle" for action in actions):
        raise PolicyDenied(
            "The middle button would paste what other sessions of this browser have selected.",
            action="Use the left button, with modifiers Control for a new tab, or a pool that launches its browsers.",
            field="button",
        )


def runs_script(action: wire.AnyAction) -> bool:
    """Whether it brings a script of the caller's own."""
    return isinstance(action, wire.Evaluate) or (isinstance(action, wire.Wait) and action.function is not None)


def event_of(error: BaseException, state: CommandState) -> CommandEvent:
    """What an error that ended a command means for its lifecycle."""
    match error:
        case CommandTimedOut() | QueueWaitTimedOut():
            return CommandEvent.TIME_OUT
        case asyncio.CancelledError() | LeaseLost() | Cancelled():
            return CommandEvent.CANCEL
        case OutcomeUnknown() if state is CommandState.RUNNING:
            return CommandEvent.LOSE
        case _:
            return CommandEvent.FAIL
