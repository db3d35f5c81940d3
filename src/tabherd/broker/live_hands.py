"""A person's hands on one page: what the mouse and the keys do there, in order, and what is let go of at the end.

Invariants:
- Input reaches the page in the order in which it came. What waits is bounded; moves and turns of the wheel that wait
  become one, so that a page that is slow is not driven through every place where the mouse has been.
- After `let_go` nothing that waited is sent any more, and no key or button that was pressed here is down: whoever has
  the page next does not inherit them. Buttons go up outside of the page, where nothing is clicked or dropped by it.
- A page that does not take input does not hold up what leads away from it: addresses, history and reload do not wait
  behind the mouse.
- Pages are sent only where agents may send them, and of a browser that several sessions share neither the clipboard nor
  the selection is read.

Whether these hands may be on the page at all is not decided here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec
import structlog

from ..actions.keys import KEYPAD, MODIFIERS, Key, chord_of
from ..actions.net_errors import navigation_failed, reason_of
from ..actions.url_policy import allowed_url
from ..browsers.port import BrowserGone, CdpFailure, TabGone
from ..config import Pool
from ..errors import (
    BrowserCrashed,
    InvalidRequest,
    NavigationFailed,
    PolicyDenied,
    TabBusy,
    TabherdError,
    TabQueueLimitExceeded,
)
from ..wire.live import LiveHistory, LiveInput, LiveKey, LiveMouse, LiveNavigate, LiveReload, LiveText, MouseButton

log = structlog.get_logger("live")

# What may wait for the page.
WAITING_MAX: Final = 200
# What may be sent before the page has taken in the first of it; of moves, less.
UNDER_WAY_MAX: Final = 16
MOVES_UNDER_WAY_MAX: Final = 2
# How long a page may take to take in one event before it is said to be busy.
TAKE_IN_LIMIT_S: Final = 5.0
# How long what was asked for before the tab is given back may take, and then all that is let go of.
FINISH_LIMIT_S: Final = 2.0
LET_GO_LIMIT_S: Final = 2.0
# A point outside of every page.
OUTSIDE: Final = -1.0

_KINDS: Final = {"move": "mouseMoved", "down": "mousePressed", "up": "mouseReleased", "wheel": "mouseWheel"}
_BUTTON_BITS: Final[Mapping[str, int]] = {"left": 1, "right": 2, "middle": 4, "back": 8, "forward": 16}
# With one of these a key is a command and types nothing.
_COMMANDING: Final = MODIFIERS["Control"] | MODIFIERS["Alt"] | MODIFIERS["Meta"]
# What Chromium says of a navigation that another one, or a download, took the place of.
_ABORTED: Final = "net::ERR_ABORTED"


class Page(Protocol):
    """What takes the input."""

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]: ...


# Told of input that was sent and refused.
Refuse = Callable[[LiveInput, TabherdError], None]


class Hands:
    """What is pressed on one page, and what is still to be done there."""

    def __init__(self) -> None:
        self._page: Page | None = None
        self._waiting: deque[tuple[LiveInput, Refuse]] = deque()
        # What was sent and is not answered yet.
        self._under_way: dict[asyncio.Task[None], LiveInput] = {}
        # A navigation that is not answered yet.
        self._leaving: asyncio.Task[None] | None = None
        # Pressed now: buttons, and keys by their place, in the order in which they went down.
        self._buttons: list[MouseButton] = []
        self._keys: dict[str, LiveKey] = {}
        # Who comes while something is let go of waits until it is.
        self._letting_go = asyncio.Lock()

    def put_on(self, page: Page | None) -> None:
        """From now on it is this page, where nothing is pressed yet; or none."""
        self._stop()
        self._page = page
        self._buttons.clear()
        self._keys.clear()

    def act(self, message: LiveInput, refuse: Refuse, pool: Pool) -> None:
        """Do it when its turn comes; raises when it cannot be done at all, or not by a session of that pool."""
        if self._page is None:
            raise TabBusy("The page is not there at the moment.", retry_after_ms=500)
        match message:
            case LiveNavigate() | LiveHistory() | LiveReload():
                self._leave(message, refuse)
                return
            case LiveKey(event="down") if is_paste(message) and pool.isolation != "browser":
                raise PolicyDenied(
                    "Pasting would read what other sessions of this browser have copied.",
                    action="Paste into the live view itself: the text is sent instead of the keys.",
                    field="key",
                )
            case LiveMouse() if pool.shares_selection and is_middle(message):
                raise PolicyDenied(
                    "The middle button would paste what other sessions of this browser have selected.",
                    action="Use the left button, with Control for a new tab.",
                    field="button",
                )
            case _:
                self._put(message, refuse)

    async def finish(self) -> None:
        """Returns when all that was asked for has been done, or when the page takes too long over it."""
        try:
            async with asyncio.timeout(FINISH_LIMIT_S):
                while self._under_way:
                    await asyncio.wait(self._under_way)
        except TimeoutError:
            log.info("a page did not take in all that a person did")

    async def let_go(self) -> None:
        """Forget what waits and release what is pressed; returns when the page has taken that in, or does not."""
        self._waiting.clear()
        async with self._letting_go:
            under_way = list(self._under_way)
            messages, self._buttons, self._keys = list(_releasing(self._buttons, self._keys)), [], {}
            page = self._page
            if page is None:
                return
            try:
                async with asyncio.timeout(LET_GO_LIMIT_S):
                    # What is on its way counts as well: it must not take effect among an agent's.
                    await asyncio.gather(*under_way, *(page.call(*_command(message)) for message in messages))
            except (TimeoutError, BrowserGone, CdpFailure, TabGone) as error:
                log.info("a page did not take in what was let go of", error=str(error))

    # --- The mouse and the keys -------------------------------------------------------------------------------------

    def _put(self, message: LiveInput, refuse: Refuse) -> None:
        if self._waiting and (both := _joined(self._waiting[-1][0], message)) is not None:
            self._waiting[-1] = (both, refuse)
        elif len(self._waiting) >= WAITING_MAX:
            raise TabQueueLimitExceeded("The page does not keep up: too much input waits for it.", retry_after_ms=500)
        else:
            self._waiting.append((message, refuse))
        self._send_on()

    def _send_on(self) -> None:
        """Send what can be sent, as much at once as stays in order."""
        while self._waiting and self._page is not None:
            message, refuse = self._waiting[0]
            if len(self._under_way) >= self._room_for(message):
                return
            self._waiting.popleft()
            self._note(message)
            task = asyncio.get_running_loop().create_task(self._send(self._page, message, refuse))
            self._under_way[task] = message
            task.add_done_callback(self._answered)

    async def _send(self, page: Page, message: LiveInput, refuse: Refuse) -> None:
        try:
            async with asyncio.timeout(TAKE_IN_LIMIT_S):
                await page.call(*_command(message))
        except TimeoutError:
            refuse(message, TabBusy("The page does not take input at the moment.", retry_after_ms=1_000))
        except CdpFailure as failure:
            refuse(message, InvalidRequest(f"The browser refused this input: {failure.message}", field="type"))
        except (BrowserGone, TabGone) as error:
            refuse(message, BrowserCrashed(f"The page is gone: {error}", retry_after_ms=1_000))

    def _answered(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self._send_on()

    def _room_for(self, message: LiveInput) -> int:
        """Before how many that are under way this one may be sent."""
        if not _is_wheel(message) and any(map(_is_wheel, self._under_way.values())):
            # The wheel goes another way through Chromium, on which it may be overtaken.
            return 0
        # What can be joined is better joined here than sent to a page that is behind.
        return MOVES_UNDER_WAY_MAX if _is_wheel(message) or _is_move(message) else UNDER_WAY_MAX

    def _note(self, message: LiveInput) -> None:
        """Remember what is pressed, from the moment in which the page may know of it."""
        match message:
            case LiveMouse(event="down", button=button) if button != "none" and button not in self._buttons:
                self._buttons.append(button)
            case LiveMouse(event="up", button=button) if button in self._buttons:
                self._buttons.remove(button)
            case LiveKey(event="down"):
                self._keys.setdefault(message.code or message.key, message)
            case LiveKey(event="up"):
                self._keys.pop(message.code or message.key, None)
            case _:
                pass

    def _stop(self) -> None:
        """Nothing that waits is sent, and nobody waits for an answer."""
        self._waiting.clear()
        for task in (*self._under_way, self._leaving):
            if task is not None:
                task.cancel()
        self._leaving = None

    # --- Leaving the page -------------------------------------------------------------------------------------------

    def _leave(self, message: LiveNavigate | LiveHistory | LiveReload, refuse: Refuse) -> None:
        if isinstance(message, LiveNavigate):
            message = LiveNavigate(url=allowed_url(message.url))
        if self._leaving is not None:
            # Chromium lets the later one take the place of the one before.
            self._leaving.cancel()
        self._leaving = asyncio.get_running_loop().create_task(self._go(message, refuse))

    async def _go(self, message: LiveNavigate | LiveHistory | LiveReload, refuse: Refuse) -> None:
        assert self._page is not None
        try:
            match message:
                case LiveNavigate(url=url):
                    answer = await self._page.call("Page.navigate", {"url": url})
                    error = answer.get("errorText", _ABORTED)
                    if error != _ABORTED:
                        raise navigation_failed(url, reason_of(error), error)
                case LiveHistory(by=by):
                    await _go_by(self._page, by)
                case LiveReload():
                    await self._page.call("Page.reload")
        except TabherdError as error:
            refuse(message, error)
        except CdpFailure as failure:
            refuse(message, InvalidRequest(f"The browser refused this: {failure.message}", field="url"))
        except (BrowserGone, TabGone) as error:
            refuse(message, BrowserCrashed(f"The page is gone: {error}", retry_after_ms=1_000))


# --- What Chromium is told ----------------------------------------------------------------------------------------


def is_paste(message: LiveKey) -> bool:
    """Whether this key makes a page read the clipboard."""
    is_v = message.code == "KeyV" or message.key in ("v", "V")
    if is_v and message.modifiers & (MODIFIERS["Control"] | MODIFIERS["Meta"]):
        return True
    return message.key == "Paste" or (message.key == "Insert" and bool(message.modifiers & MODIFIERS["Shift"]))


def is_middle(message: LiveMouse) -> bool:
    """Whether the middle button has a part in it."""
    return message.button == "middle" or bool(message.buttons & _BUTTON_BITS["middle"])


def _releasing(buttons: list[MouseButton], keys: dict[str, LiveKey]) -> Iterator[LiveInput]:
    """What lets go of these."""
    bits = [_BUTTON_BITS[button] for button in buttons]
    for at, button in enumerate(buttons, 1):
        yield LiveMouse(event="up", x=OUTSIDE, y=OUTSIDE, button=button, buttons=sum(bits[at:]))
    for key in reversed(keys.values()):
        yield msgspec.structs.replace(key, event="up", modifiers=0, text=None, repeat=False)


def _is_wheel(message: LiveInput) -> bool:
    return isinstance(message, LiveMouse) and message.event == "wheel"


def _is_move(message: LiveInput) -> bool:
    return isinstance(message, LiveMouse) and message.event == "move"


def _joined(earlier: LiveInput, later: LiveInput) -> LiveMouse | None:
    """One event that stands for both, where nobody could tell the difference."""
    if not isinstance(earlier, LiveMouse) or not isinstance(later, LiveMouse) or earlier.event != later.event:
        return None
    if (earlier.modifiers, earlier.buttons) != (later.modifiers, later.buttons):
        return None
    if later.event == "move":
        return later
    if later.event == "wheel":
        return msgspec.structs.replace(
            later, delta_x=earlier.delta_x + later.delta_x, delta_y=earlier.delta_y + later.delta_y
        )
    return None


def _command(message: LiveInput) -> tuple[str, dict[str, Any]]:
    """The method and the parameters that do it."""
    match message:
        case LiveMouse():
            return "Input.dispatchMouseEvent", _mouse(message)
        case LiveKey():
            return "Input.dispatchKeyEvent", _key(message)
        case LiveText(text=text):
            return "Input.insertText", {"text": text}
        case _:
            raise AssertionError(f"{message} does not wait in line")


def _mouse(message: LiveMouse) -> dict[str, Any]:
    params: dict[str, Any] = {
        "type": _KINDS[message.event],
        "x": message.x,
        "y": message.y,
        "modifiers": message.modifiers,
        "buttons": message.buttons,
        "button": message.button,
    }
    match message.event:
        case "down" | "up":
            params["clickCount"] = message.click_count
        case "move":
            # A drag is a move with the button that is down.
            held = (button for button, bit in _BUTTON_BITS.items() if message.buttons & bit)
            params["button"] = next(held, "none")
        case "wheel":
            params |= {"deltaX": message.delta_x, "deltaY": message.delta_y}
    return params


def _key(message: LiveKey) -> dict[str, Any]:
    known = _known_key(message)
    params: dict[str, Any] = {
        "type": "keyUp",
        "modifiers": message.modifiers,
        "windowsVirtualKeyCode": known.number,
        "code": message.code,
        "key": message.key,
        "location": known.location,
        "isKeypad": known.location == KEYPAD,
    }
    if message.event == "down":
        text = message.text if message.text is not None else _typed(message)
        params |= {"type": "keyDown" if text else "rawKeyDown", "text": text, "unmodifiedText": text}
        params["autoRepeat"] = message.repeat
    return params


def _known_key(message: LiveKey) -> Key:
    """The key of a US keyboard in the same place; the page is told what it means on the person's own."""
    for name in (message.code, message.key):
        try:
            if name:
                return chord_of(name)[-1]
        except InvalidRequest:
            # A place, or a meaning, that this keyboard does not have.
            continue
    return Key(message.key, message.code, 0)


def _typed(message: LiveKey) -> str:
    if message.modifiers & _COMMANDING:
        return ""
    if message.key == "Enter":
        return "\r"
    return message.key if len(message.key) == 1 else ""


async def _go_by(page: Page, by: int) -> None:
    history = await page.call("Page.getNavigationHistory")
    at = history["currentIndex"] + by
    if not 0 <= at < len(history["entries"]):
        where = "back" if by < 0 else "forward"
        raise NavigationFailed(
            f"The tab has no page to go {where} to.", action="Navigate to an address instead.", reason="no_history"
        )
    await page.call("Page.navigateToHistoryEntry", {"entryId": history["entries"][at]["id"]})
