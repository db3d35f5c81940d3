"""How the dialogs of one page are answered, and what is known of those that nobody has been told of yet.

An open dialog blocks its page and every command on it, and nobody is looking at it: so each is answered as soon as it
opens, by the wish of the command that runs or else by the pool's policy.

Invariants:
- A page cannot keep its visitor: `beforeunload` is always accepted.
- What is remembered is bounded, whatever the page says and however often: the first `TOLD_MAX` since the last command,
  their messages cut, and the number of the others.
- A page that opens dialogs in a loop slows itself down and nobody else: those beyond the first are answered only after
  a pause, and a page has one open at a time.

Chromium can lose one: when the next document of a page is ready it talks to that one, while the script of the present
one may still open a dialog and wait for an answer. Whoever answers is refused, and the next document waits for the
script. Such a page is stranded for good, and must be closed: see `is_stranded`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

# Dialogs that are told to whoever runs a command; the others are counted.
TOLD_MAX: Final = 10
MESSAGE_MAX_CHARS: Final = 1_000
# What the page suggests as the answer to a prompt is given back up to this length.
SUGGESTION_MAX_CHARS: Final = 10_000
# How long a dialog beyond those that are told stays open.
PAUSE_S: Final = 0.1
# Chromium cuts messages, but passes on suggestions of many megabytes, which cost time to read: the page gets as much
# longer a pause.
READ_CHARS_PER_S: Final = 1_000_000


class Dialog(msgspec.Struct, frozen=True, kw_only=True):
    """One that was answered."""

    # alert, confirm, prompt or beforeunload.
    type: str
    # As far as it is kept.
    message: str
    is_accepted: bool
    # It opened when no command ran.
    is_earlier: bool


class Told(msgspec.Struct, frozen=True):
    """What opened since somebody was told last."""

    dialogs: tuple[Dialog, ...] = ()
    # How many more there were.
    more: int = 0


class Reply(NamedTuple):
    """What to say to a dialog, and when."""

    # Of `Page.handleJavaScriptDialog`.
    params: dict[str, Any]
    # From now on; 0: at once.
    pause_s: float


class Dialogs:
    """Those of one page."""

    __slots__ = ("_accepts", "_count", "_has_command", "_here", "_opened", "_pool_accepts", "_prompt_text")

    def __init__(self, pool_accepts: Callable[[], bool] = lambda: False) -> None:
        # The pool's policy, asked each time: it may change while the page lives.
        self._pool_accepts = pool_accepts
        # The wish of the command that runs; None where it has none.
        self._accepts: bool | None = None
        self._prompt_text: str | None = None
        self._has_command = False
        # Since somebody was told last: the first ones, and how many in all.
        self._opened: list[Dialog] = []
        self._count = 0
        # Since a command last sent the page elsewhere.
        self._here = 0

    def begin(self, accepts: bool | None, prompt_text: str | None) -> None:
        """A command runs from now on; this is how it wants dialogs answered."""
        self._accepts, self._prompt_text = accepts, prompt_text
        self._has_command = True

    def take(self) -> Told:
        """The command is over: what opened until now, which is told once. From now on the pool's policy holds."""
        told = Told(tuple(self._opened), self._count - len(self._opened)) if self._count else _NOTHING
        self._accepts = self._prompt_text = None
        self._has_command = False
        self._opened.clear()
        self._count = 0
        return told

    def leave(self) -> bool:
        """The page is about to be sent elsewhere: whether it has opened so many that it will not stop before."""
        is_flood = self._here > TOLD_MAX
        self._here = 0
        return is_flood

    def reply(self, opened: Mapping[str, Any]) -> Reply:
        """The answer to a dialog that has just opened, as `Page.javascriptDialogOpening` tells of it; it is noted."""
        kind = str(opened.get("type", ""))
        is_accepted = self._is_accepted(kind)
        self._count += 1
        self._here += 1
        if len(self._opened) < TOLD_MAX:
            message = str(opened.get("message", ""))[:MESSAGE_MAX_CHARS]
            is_earlier = not self._has_command
            self._opened.append(Dialog(type=kind, message=message, is_accepted=is_accepted, is_earlier=is_earlier))
        params: dict[str, Any] = {"accept": is_accepted}
        suggestion = str(opened.get("defaultPrompt", ""))
        if kind == "prompt" and is_accepted:
            # Chromium would take a missing text for an empty one.
            text = suggestion if self._prompt_text is None else self._prompt_text
            params["promptText"] = text[:SUGGESTION_MAX_CHARS]
        is_told = self._count <= TOLD_MAX
        return Reply(params, 0 if is_told else PAUSE_S + len(suggestion) / READ_CHARS_PER_S)

    def _is_accepted(self, kind: str) -> bool:
        if kind == "beforeunload":
            return True
        if self._accepts is not None:
            return self._accepts
        # Who brings the answer to a prompt wants it given.
        return (kind == "prompt" and self._prompt_text is not None) or self._pool_accepts()


def is_stranded(refusal: str) -> bool:
    """Whether Chromium refused the answer to a dialog because nobody can give one, if there is a dialog."""
    return refusal.startswith(_STRANDED_REFUSAL)


# Chromium's code says less.
_STRANDED_REFUSAL: Final = "Not attached to an active page"
_NOTHING: Final = Told()
