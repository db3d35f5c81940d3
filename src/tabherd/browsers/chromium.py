"""Launches Chromium, drives it as a `BrowserPort`, and ends it without leaving a trace.

Invariants:
- The browser runs in its own session with no pipe to us: killing the broker does not touch it, so that a later life
  of this node can find it again by the marker on its command line.
- Its debug port is one that pages cannot reach (`debug_port.py`), and the socket we talk to is proven to be its own.
- A launch that fails, times out or is cancelled leaves neither a process nor a profile; nor does `stop`.
- Its death is noticed by push: the process exit and the socket's close each end the connection at once.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from ..config import ENV_PREFIX, Pool
from ..core.model import Browser, changed
from ..errors import NoBrowser
from . import debug_port, process, profile
from .cdp import CdpConnection, CdpSession
from .find import FoundBrowser, find_browser
from .port import BrowserGone, CdpFailure, LaunchFailed

log = structlog.get_logger(__name__)

FLAGS: Final = (
    "--no-first-run",
    "--no-default-browser-check",
    # Nothing of its own on the network, and nothing around a proxy: QUIC and WebRTC would be.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--no-pings",
    # No screen, speaker, keyring or crash collector here; the full build's collector would leave our process group.
    "--disable-gpu",
    "--mute-audio",
    "--password-store=basic",
    "--use-mock-keychain",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--disable-crashpad-for-testing",
    # Every tab is somebody's foreground tab, though no window shows it.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    # Only fatal errors are printed: by default each console message of a page would end up in our log file.
    "--enable-logging=stderr",
    "--log-level=3",
)
# Below this Chromium's shared memory would not fit (containers often have 64 MB) and goes to files instead.
SHM_MIN_BYTES: Final = 512 << 20
# How often a starting browser is looked at.
START_POLL_S: Final = 0.01
# How long it may take to answer one HTTP request once its port is open.
VERSION_LIMIT_S: Final = 5.0
VERSION_MAX_BYTES: Final = 64 << 10
_CONTENT_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length:[ ]*(\d+)")

# What Chromium says of a target and a context that do not exist; its codes say less.
_GONE_MESSAGES: Final = ("No target", "Failed to find context")

Find = Callable[[str, bool], FoundBrowser]


class _Version(msgspec.Struct):
    """The part of /json/version that we read."""

    product: str = msgspec.field(name="Browser")
    endpoint: str = msgspec.field(name="webSocketDebuggerUrl")


class _PortLost(Exception):
    """Somebody else took the port first."""


class ChromiumTab(CdpSession):
    """One page, through our own attached session."""

    __slots__ = ("cdp_session_id", "target_id")

    def __init__(self, connection: CdpConnection, session_id: str, target_id: str) -> None:
        super().__init__(connection, session_id)
        self.cdp_session_id = session_id
        self.target_id = target_id

    async def prepare(self) -> None:
        """Ask for the events that actions wait for."""
        self.listen("Page.javascriptDialogOpening", self._answer_dialog)
        await asyncio.gather(
            self.call("Page.enable"),
            self.call("Page.setLifecycleEventsEnabled", {"enabled": True}),
        )

    def _answer_dialog(self, dialog: Mapping[str, Any]) -> None:
        # An open dialog blocks the page and every command on it, and nobody is looking: dismiss it, as a person who
        # wants none of it would, but let a page that asks "leave?" be left.
        self.post("Page.handleJavaScriptDialog", {"accept": dialog.get("type") == "beforeunload"})


class ChromiumBrowser:
    """One live Chromium that we started."""

    def __init__(self, row: Browser, connection: CdpConnection, child: process.ChildGroup) -> None:
        self.row = row
        self._connection = connection
        self._child = child
        # Set by the first `stop`; all callers wait for the same one.
        self._stopping: asyncio.Task[None] | None = None
        child.on_exit(lambda reason: connection.abort(f"Chromium (pid {row.pid}) {reason}."))

    async def new_context(self) -> str:
        made = await self._connection.call("Target.createBrowserContext", {"disposeOnDetach": False})
        context_id: str = made["browserContextId"]
        # A page must not write files on this machine; the full build would, into the user's download directory.
        await self._connection.call("Browser.setDownloadBehavior", {"behavior": "deny", "browserContextId": context_id})
        return context_id

    async def new_tab(self, context_id: str) -> ChromiumTab:
        made = await self._connection.call(
            "Target.createTarget", {"url": "about:blank", "browserContextId": context_id}
        )
        target_id: str = made["targetId"]
        try:
            attached = await self._connection.call("Target.attachToTarget", {"targetId": target_id, "flatten": True})
            tab = ChromiumTab(self._connection, attached["sessionId"], target_id)
            await tab.prepare()
        except BaseException:
            # Also when the caller left: nobody else knows of this page.
            self._connection.post("Target.closeTarget", {"targetId": target_id})
            raise
        return tab

    async def close_tab(self, target_id: str) -> None:
        await self._end("Target.closeTarget", {"targetId": target_id})

    async def dispose_context(self, context_id: str) -> None:
        await self._end("Target.disposeBrowserContext", {"browserContextId": context_id})

    async def wait_gone(self) -> str:
        return await self._connection.wait_closed()

    async def stop(self) -> None:
        # Shared and shielded: a caller that is cancelled must not leave a half-ended browser to nobody.
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        # Not asked politely first: the profile is thrown away, so there is nothing to save, and SIGKILL takes a
        # quarter of the time and never hangs.
        self._connection.abort("The browser was stopped.")
        await _discard(self._child, self._connection, Path(self.row.profile_dir), self.row.port)

    async def _end(self, method: str, params: Mapping[str, Any]) -> None:
        try:
            await self._connection.call(method, params)
        except CdpFailure as failure:
            if not failure.message.startswith(_GONE_MESSAGES):
                raise


class ChromiumLauncher:
    """Starts the browsers of this node's pools, and ends those that an earlier life of the node left behind."""

    def __init__(self, profiles_dir: Path, pools: Mapping[str, Pool], find: Find = find_browser) -> None:
        # Holds one directory per browser. Should be on a disk, not in a small tmpfs.
        self._profiles_dir = profiles_dir
        self._pools = pools
        self._find = find

    async def launch(self, row: Browser) -> ChromiumBrowser:
        pool = self._pools[row.pool]
        try:
            found = await asyncio.to_thread(self._find, pool.browser, pool.headless)
        except NoBrowser as error:
            raise LaunchFailed(f"{error.message} {error.action}") from error
        deadline = asyncio.get_running_loop().time() + pool.start_limit_ms / 1000
        tried: list[int] = []
        while True:
            # Ends: each turn tries another port, and `reserve` raises when none is left.
            port = debug_port.reserve(tried)
            tried.append(port)
            try:
                return await self._launch_on(port, row, pool, found, deadline)
            except _PortLost:
                log.info("another program took the debug port first", port=port)

    async def reap(self, row: Browser) -> None:
        marker = _marker(row)
        # A row without a pid was written before its launch ended: then only the marker can tell.
        pids = {row.pid: row.pid_started} if row.pid else _started(process.with_argument(marker))
        for pid, pid_started in pids.items():
            if await process.end_stranger(pid, pid_started, marker):
                log.info("ended a browser left by an earlier life of this node", browser=row.id, pid=pid)
        left = Path(row.profile_dir)
        # Never trust a stored path with a recursive delete unless it is plainly this browser's own.
        await profile.remove(left if left.name == row.id else profile.place(self._profiles_dir, row.id))

    async def _launch_on(
        self, port: int, row: Browser, pool: Pool, found: FoundBrowser, deadline: float
    ) -> ChromiumBrowser:
        directory = profile.place(self._profiles_dir, row.id)
        child: process.ChildGroup | None = None
        connection: CdpConnection | None = None
        try:
            # The row may have had an earlier process, whose end nobody saw to.
            await profile.remove(directory)
            directory.mkdir(parents=True, mode=0o700)
            child = process.ChildGroup(
                _command(row, pool, found, port, directory),
                log_path=directory / profile.LOG_NAME,
                environ={name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)},
            )
            async with asyncio.timeout_at(deadline):
                version = await _wait_listening(child, port, found, directory)
                connection = await CdpConnection.connect(version.endpoint)
            return ChromiumBrowser(
                changed(
                    row,
                    pid=child.pid,
                    pid_started=child.pid_started,
                    port=port,
                    endpoint=version.endpoint,
                    profile_dir=str(directory),
                    product=version.product,
                ),
                connection,
                child,
            )
        except BaseException as error:
            reason = _failure(error, found, pool, directory)
            await asyncio.shield(asyncio.ensure_future(_discard(child, connection, directory, port)))
            if reason is None:
                raise
            raise LaunchFailed(reason) from error


def _failure(error: BaseException, found: FoundBrowser, pool: Pool, directory: Path) -> str | None:
    """Why the launch failed, for a person; None for what is passed on as it is."""
    match error:
        case TimeoutError():
            return (
                f"{found.path} did not open its debug port within {pool.start_limit_ms} ms. "
                f"{_printed(directory)} Give it more time with start_limit_ms, or run 'tabherd doctor'."
            )
        case BrowserGone():
            return f"{found.path} opened its debug port and then went away: {error}. {_printed(directory)}"
        case OSError():
            return f"{found.path} cannot be started: {error}."
        case _:
            return None


def _printed(directory: Path) -> str:
    words = profile.last_words(directory)
    return f"It printed: {words}" if words else "It printed nothing."


def _marker(row: Browser) -> str:
    """Chromium ignores flags it does not know; this one tells whose it is to whoever reads its command line."""
    return f"--tabherd-owner={row.node_id}:{row.id}"


def _started(pids: list[int]) -> dict[int, int]:
    return {pid: process.start_time(pid) for pid in pids}


def _command(row: Browser, pool: Pool, found: FoundBrowser, port: int, directory: Path) -> list[str]:
    command = [str(found.path), *FLAGS]
    if os.geteuid() == 0:
        # Chromium refuses to run as root with its sandbox.
        command.append("--no-sandbox")
    if _is_shm_small():
        command.append("--disable-dev-shm-usage")
    if found.kind != "headless-shell":
        command.append("--no-startup-window")
        if pool.headless:
            command.append("--headless=new")
    # Ours come last: of two equal flags Chromium takes the later one.
    return [
        *command,
        *pool.flags,
        # Empty: a pool's flags must not open the debug ports to pages.
        "--explicitly-allowed-ports=",
        f"--remote-debugging-port={port}",
        f"--user-data-dir={directory}",
        _marker(row),
    ]


def _is_shm_small() -> bool:
    try:
        facts = os.statvfs("/dev/shm")
    except OSError:
        return True
    return facts.f_frsize * facts.f_blocks < SHM_MIN_BYTES


async def _wait_listening(child: process.ChildGroup, port: int, found: FoundBrowser, directory: Path) -> _Version:
    """Returns once the browser itself, and nobody else, answers on the port."""
    while True:
        if child.has_exited:
            raise LaunchFailed(f"{found.path} {child.exit_reason} before it could be used. {_printed(directory)}")
        match debug_port.holder(port, child.pid):
            case debug_port.Holder.OURS:
                async with asyncio.timeout(VERSION_LIMIT_S):
                    return await _ask_version(port)
            case debug_port.Holder.STRANGER:
                raise _PortLost
            case debug_port.Holder.NOBODY:
                with suppress(TimeoutError):
                    await asyncio.wait_for(child.wait_exited(), START_POLL_S)


async def _ask_version(port: int) -> _Version:
    reader, writer = await asyncio.open_connection(debug_port.LOOPBACK, port, limit=VERSION_MAX_BYTES)
    try:
        writer.write(f"GET /json/version HTTP/1.1\r\nHost: {debug_port.LOOPBACK}:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = _CONTENT_LENGTH.search(head)
        body = await reader.readexactly(min(int(length[1]), VERSION_MAX_BYTES)) if length else b""
        return msgspec.json.decode(body, type=_Version)
    except (EOFError, asyncio.LimitOverrunError, msgspec.MsgspecError) as error:
        raise LaunchFailed(f"The browser answered /json/version with something else: {error}") from error
    finally:
        writer.close()


async def _discard(
    child: process.ChildGroup | None, connection: CdpConnection | None, directory: Path, port: int
) -> None:
    """End what there is of a browser and remove its traces."""
    try:
        if child is not None:
            await child.end()
        if connection is not None:
            await connection.close()
        await profile.remove(directory)
    finally:
        debug_port.release(port)
