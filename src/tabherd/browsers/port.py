"""What the broker needs of browsers, as protocols.

The real thing is `chromium.py` and `cdp.py`; the simulator brings its own. Calls raise `BrowserGone` when the process
or its socket is dead (at once, never after a timeout), `TabGone` when only the page is, and `CdpFailure` when Chromium
itself answered with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from ..core.model import Browser
from .dialogs import Dialogs

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


class PageEnd(StrEnum):
    """How a page ended while its browser lives on."""

    CRASHED = "crashed"  # its renderer died
    CLOSED = "closed"  # it was closed, by itself or by somebody


class Viewport(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a page, in CSS pixels."""

    width: int
    height: int
    device_scale_factor: float = 1


class SessionPort(Protocol):
    """What takes calls: a page, or a frame that has a renderer of its own."""

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]: ...

    def post(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a call and care for no answer, not even whether anybody is there to take it."""
        ...

    def listen(self, method: str, listener: Listener) -> Callable[[], None]:
        """Hear an event of this session; the returned function stops it."""
        ...


class TabPort(SessionPort, Protocol):
    """One page, through the broker's own attached session."""

    target_id: str
    # Chromium's flat session id of the broker's attachment.
    cdp_session_id: str
    # How dialogs of the page are answered, and which have opened.
    dialogs: Dialogs
    # Where the engine has its script in the main document: the number of its world, and the token that the script
    # shows. None until it was met there; forgotten when the page goes to another document.
    script: tuple[int, str] | None

    def expect(self, what: str) -> asyncio.Future[Any]:
        """A future for the caller to settle, e.g. from a listener; it fails when the page or browser goes first."""
        ...

    async def frame(self, frame_id: str) -> SessionPort | None:
        """The own session of a frame that has a renderer of its own; None when it has none. Its end is `TabGone`."""
        ...

    async def ping(self) -> None:
        """Returns when the page has run a script of ours, which a spinning or frozen one never does."""
        ...

    async def calm(self) -> None:
        """Stop loading, and end the script that runs now; timers and promises of the page go on."""
        ...

    async def freeze(self) -> None:
        """Nothing of the page runs by itself when this returns, no timer and no event, until `thaw`."""
        ...

    def thaw(self) -> None:
        """Let the page, or the one that has come in its place, run again. Nobody waits for it."""
        ...

    async def set_viewport(self, viewport: Viewport) -> None:
        """Give the page this size. It holds while this attachment lives."""
        ...


class Seat(msgspec.Struct, frozen=True):
    """What a session gets in a browser: its context (none where the profile is shared) and a blank, attached tab."""

    context_id: str
    tab: TabPort


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page that a browser has, as the browser describes it."""

    target_id: str
    # Empty: the browser's own profile.
    context_id: str
    url: str
    title: str
    # The page that opened this one. Empty when none did, and for a link that was opened in a tab of its own (with the
    # middle button, say): Chromium does not tell of which page it was.
    opener_id: str = ""


class PageListener(Protocol):
    """Whom a browser tells about its pages. Called from the event loop, must not block or raise."""

    def page_opened(self, page: Page) -> None:
        """A page opened this one: `opener_id` says which, or it is empty and the page is in a context that was made.

        Not told of pages that the broker itself makes, nor of those without an opener in the browser's own profile.
        """
        ...

    def page_ended(self, target_id: str, how: PageEnd) -> None:
        """A page is no more; told once. Not told of pages that died with their browser, unless it quits of itself."""
        ...

    def answers_dialogs(self, target_id: str) -> bool:
        """Whether somebody else answers the dialogs of that page: then they are left open."""
        ...

    def accepts_dialogs(self) -> bool:
        """Whether dialogs of this browser's pages are accepted that no command says anything about."""
        ...

    def page_moved(self, target_id: str, url: str, title: str) -> None:
        """A page has another address or title than before.

        A title that a script changes later is told with the next move. An address may be cut (`pages.URL_MAX_BYTES`).
        """
        ...


class DownloadListener(Protocol):
    """Whom a browser tells about the downloads of one session. Called from the event loop, must not block or raise."""

    def download_began(self, guid: str, url: str, suggested_name: str) -> None:
        """A page wants to save a file, which becomes `guid` in the session's directory. Told first, and once."""
        ...

    def download_moved(self, guid: str, received_bytes: int, total_bytes: int) -> None:
        """It goes on; a total of 0 is one that nobody knows yet."""
        ...

    def download_ended(self, guid: str, size_bytes: int, *, is_complete: bool) -> None:
        """It is over: the file is there as a whole, or not at all. Not told of those that died with their browser."""
        ...


# localStorage by origin (scheme://host:port), each as name -> value.
Origins = Mapping[str, Mapping[str, str]]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a browser with all its processes costs."""

    # Proportional set size: shared memory counted once.
    pss_bytes: int = 0
    cpu_ms: int = 0
    processes: int = 0


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """The proxy on this machine through which the pages of a pool reach the network, and without which they do not."""

    # host:port.
    server: str
    # Since when the pool has it: contexts that are older do not use it.
    since_ms: int = 0

    @property
    def context_params(self) -> Mapping[str, str]:
        """What `Target.createBrowserContext` is told. By itself Chromium would go around a proxy to this machine."""
        return {"proxyServer": f"http://{self.server}", "proxyBypassList": "<-loopback>"}


class BrowserPort(Protocol):
    """One live browser."""

    # How it is written down; the supervisor owns the state in it.
    row: Browser
    # What each `Target.createBrowserContext` in it must be told about the network, so that the pool's policy binds the
    # context too; empty when the pool has none. Whoever makes contexts for others puts these over what they ask for.
    proxy: Mapping[str, str]

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

    async def dismiss_tab(self, target_id: str) -> None:
        """Close that page without ending the renderer, which it may have in common with the page that opened it.

        A script of it may still run when this returns, but only in that renderer.
        """
        ...

    async def give_up_tab(self, target_id: str) -> None:
        """Close that page, which nobody can use any more, as `dismiss_tab` does; it is told of as one that crashed."""
        ...

    async def end_workers(self, context_id: str, target_id: str) -> None:
        """End what scripts of the context run outside of pages, and return when it is gone; that page of it stays.

        Service workers start again when they are needed. Shared ones do not, and are left alone while the context has
        more than one page that may use them.
        """
        ...

    async def let_go(self, target_id: str) -> None:
        """Detach from that page and leave it as it is: it is somebody else's."""
        ...

    async def watch_pages(self, listener: PageListener) -> None:
        """Tell this listener from now on what becomes of pages. One listener per browser."""
        ...

    async def cookies(self, context_id: str) -> list[dict[str, Any]]:
        """Every cookie of the context, as Playwright spells them. Answers also while a page of it spins."""
        ...

    async def set_cookies(self, context_id: str, cookies: list[dict[str, Any]]) -> None:
        """Add these cookies, in the same spelling. Raises `CdpFailure` when one of them is not valid."""
        ...

    async def local_storage(self, target_id: str, patience_s: float = 0.0) -> tuple[str, dict[str, str]] | None:
        """Origin and localStorage of the page's document; None when it has none, is too large, or does not answer.

        It has a moment for that, or as long as `patience_s` says if that is longer.
        """
        ...

    async def put_local_storage(self, context_id: str, origins: Origins) -> None:
        """Write these into the context, without any request leaving the browser."""
        ...

    def allow_downloads(self, context_id: str, directory: str, listener: DownloadListener) -> None:
        """From now on, and before anything that is called later, pages of the context save files there.

        Each is written as `GUID.crdownload` and becomes `GUID` when it is whole. The directory is made when needed.
        """
        ...

    async def forbid_downloads(self, context_id: str) -> None:
        """Pages of the context save nothing more, and what they had begun has ended, when this returns."""
        ...

    def cancel_download(self, guid: str) -> None:
        """End a download that goes on; its end is told as ever."""
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

    def worked_ms(self) -> int:
        """Processor time that its main process has used so far; 0 when that cannot be known."""
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
