"""Performs one action on one tab and answers with its result, or with an error from the tree.

Invariants:
- `BrowserGone` and `TabGone` pass through: only the broker knows what becomes of the session, and whether anything of
  the action had been sent by then. No other error of the browser layer does: what Chromium refuses becomes a typed
  error here.
- There is no timeout in here. The caller holds the one deadline and cancels; every action then takes its listeners
  and half-done waits with it. What it was waiting for at that moment, and whether the page was touched at all, is in
  the `Progress` that the caller gave.

A new kind is a function and a line in the table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from .. import wire
from ..browsers.port import CdpFailure, TabPort
from ..errors import StateConflict
from .choose import check, select
from .cookies import cookies, set_cookies
from .drag import drag
from .evaluate import run_expression
from .fill import fill
from .history import back, forward, reload
from .keyboard import press, type_text
from .navigate import navigate
from .pdf import pdf
from .pointer import click, dblclick, hover
from .progress import Progress
from .read import html, text
from .screenshot import screenshot
from .scroll import scroll
from .snapshot import snapshot
from .upload import upload
from .wait import wait

PERFORMERS: Final[Mapping[type[wire.Action], Callable[[TabPort, Any, Progress], Awaitable[Any]]]] = {
    wire.Navigate: navigate,
    wire.Back: back,
    wire.Forward: forward,
    wire.Reload: reload,
    wire.Click: click,
    wire.Dblclick: dblclick,
    wire.Hover: hover,
    wire.Type: type_text,
    wire.Fill: fill,
    wire.Press: press,
    wire.Select: select,
    wire.Check: check,
    wire.Scroll: scroll,
    wire.Drag: drag,
    wire.Upload: upload,
    wire.Wait: wait,
    wire.Evaluate: run_expression,
    wire.Text: text,
    wire.Html: html,
    wire.Snapshot: snapshot,
    wire.Screenshot: screenshot,
    wire.Pdf: pdf,
    wire.Cookies: cookies,
    wire.SetCookies: set_cookies,
}


async def perform(tab: TabPort, action: wire.AnyAction, progress: Progress | None = None) -> Any:
    """Do it, and return what goes into the command's `result`. `progress` tells meanwhile what it waits for."""
    try:
        return await PERFORMERS[type(action)](tab, action, progress or Progress())
    except CdpFailure as failure:
        raise StateConflict(
            f"The page does not allow this now: {failure.message}.", method=failure.method, error=failure.message
        ) from failure
