"""What the broker needs of browsers, as protocols.

The real thing is `chromium.py` and `cdp.py`; the simulator brings its own. Calls raise `BrowserGone` when the process
or its socket is dead (at once, never after a timeout), `TabGone` when only the page is, and `CdpFailure` when Chromium
itself answered with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import msgspec

from ..core.model import Browser

# Called with the method's parameters.
Listener = Callable[[Mapping[str, Any]], None]


class BrowserGone(Exception):
    """The browser died or its socket closed. `was_sent`: whether the call had been written to the socket by then."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class TabGone(Exception):
    """The page was closed or crashed while its browser lives on. `was_sent` as above."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class CdpFailure(Exception):
    """Chromium answered a call with an error."""

    def __init__(self, method: str, code: int, message: str) -> None:
        super().__init__(f"{method}: {message} ({code})")
        self.method = method
        self.code = code
        self.message = message


class LaunchFailed(Exception):
    """The browser could not be started; the message says why and what to do."""


class TabPort(Protocol):
    """One page, through the broker's own attached session."""

    target_id: str
    # Chromium's flat session id of the broker's attachment.
    cdp_session_id: str

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]: ...

    def listen(self, method: str, listener: Listener) -> Callable[[], None]:
        """Hear an event of this page; the returned function stops it."""
        ...

    def expect(self, what: str) -> asyncio.Future[Any]:
        """A future for the caller to settle, e.g. from a listener; it fails when the page or browser goes first."""
        ...


class Seat(msgspec.Struct, frozen=True):
    """What a session gets in a browser: its context (none where the profile is shared) and a blank, attached tab."""

    context_id: str
    tab: TabPort


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page that a browser has, as the browser describes it."""

    target_id: str
    context_id: str
    url: str
    title: str


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a browser with all its processes costs."""

    # Proportional set size: shared memory counted once.
    pss_bytes: int = 0
    cpu_ms: int = 0
    processes: int = 0


class BrowserPort(Protocol):
    """One live browser."""

    # How it is written down; the supervisor owns the state in it.
    row: Browser

    async def new_context(self) -> str:
        """A fresh isolated context that outlives this connection."""
        ...

    async def new_tab(self, context_id: str) -> TabPort:
        """A blank page in that context (empty: the browser's own profile), attached and ready to be driven."""
        ...

    async def attach_tab(self, target_id: str) -> TabPort:
        """A page that exists already, attached and ready to be driven."""
        ...

    async def close_tab(self, target_id: str) -> None:
        """Close that page; returns when it is really gone, and at once when it was gone already."""
        ...

    async def dispose_context(self, context_id: str) -> None:
        """End the context with everything in it; one that is gone already is fine."""
        ...

    async def context_ids(self) -> list[str]:
        """Every context besides the browser's own profile."""
        ...

    async def pages(self) -> list[Page]:
        """Every page of every context."""
        ...

    async def probe(self) -> Usage:
        """Whether it answers, and what it costs now. Cheap enough to be asked every second."""
        ...

    async def wait_gone(self) -> str:
        """Returns when the process exits or the socket closes, with the reason."""
        ...

    async def stop(self) -> None:
        """End the process group and remove the profile directory. Idempotent; also after a crash."""
        ...


class Launcher(Protocol):
    """Starts browsers, and ends those that an earlier life of this node left behind."""

    async def launch(self, row: Browser) -> BrowserPort:
        """Start one for this row (id, pool, node are set) or raise `LaunchFailed`, leaving nothing behind."""
        ...

    async def adopt(self, row: Browser) -> BrowserPort | None:
        """The browser of an earlier life that this row describes, if it still answers and is really ours."""
        ...

    async def reap_strays(self, node_id: str, known: Collection[str]) -> int:
        """End every browser of that node, and remove every profile, whose browser id is not known; how many."""
        ...

    async def reap(self, row: Browser) -> None:
        """End the process that this row describes, if it still runs and is really ours, and remove its profile."""
        ...
