"""Launches Chromium, drives it as a `BrowserPort`, and ends it without leaving a trace.

Invariants:
- The browser runs in its own session with no pipe to us: killing the broker does not touch it, so that a later life
  of this node can find it again by the marker on its command line.
- Its debug port is one that pages cannot reach (`debug_port.py`), and the socket we talk to is proven to be its own.
- A launch that fails, times out or is cancelled leaves neither a process nor a throw-away profile nor a reserved port;
  nor does `stop`. A profile that a pool names is kept, and its browser is asked to close before it is killed.
- Its death is noticed by push: the process exit and the socket's close each end the connection at once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import structlog

from ..config import ENV_PREFIX, Pool
from ..core.model import Browser, changed
from ..errors import NoBrowser
from . import adopt, attach, debug_port, process, profile
from .cdp import CdpConnection
from .downloads import forbid_downloads
from .driver import DrivenBrowser
from .endpoint import NotCdp, Version, ask_version
from .find import FoundBrowser, find_browser
from .port import BrowserGone, CdpFailure, LaunchFailed, Proxy
from .usage import UsageMeter

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
    *attach.WEBRTC_FLAGS,
    "--no-pings",
    # No screen, speaker, keyring or crash reports here. The full build starts its crash collector all the same: its
    # renderers do not work without one.
    "--disable-gpu",
    "--mute-audio",
    "--password-store=basic",
    "--use-mock-keychain",
    "--disable-breakpad",
    "--disable-crash-reporter",
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
# How long a browser with a profile of its own may take to write it down before it is killed.
CLOSE_LIMIT_S: Final = 5.0

# Where every window of the full build begins, as if it were the first: without them each begins as the last one was
# left, whosever that was. A page then has 1280 by 720 pixels.
WINDOW_FLAGS: Final = ("--window-size=1280,807", "--window-position=0,0")
# What the full build keeps ready below the address bar of each window, in a renderer of its own: more than half of what
# a context weighs, and most of the processor time that it takes, for something that nobody ever sees.
WINDOW_FEATURES_OFF: Final = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup")
_FEATURES_OFF_FLAG: Final = "--disable-features="
_DATA_DIR_FLAG: Final = "--user-data-dir="

Find = Callable[[str, bool], FoundBrowser]


class _PortLost(Exception):
    """Somebody else took the port first."""


class ChromiumBrowser(DrivenBrowser):
    """One live Chromium that we started, in this life or an earlier one."""

    def __init__(
        self,
        row: Browser,
        connection: CdpConnection,
        group: process.Group,
        *,
        has_kept_profile: bool = False,
        proxy: Proxy | None = None,
    ) -> None:
        super().__init__(row, connection, UsageMeter(group.pid), proxy)
        self._group = group
        # Its profile outlives it, so it gets the time to write down what it knows.
        self._has_kept_profile = has_kept_profile
        # Set by the first `stop`; all callers wait for the same one.
        self._stopping: asyncio.Task[None] | None = None
        group.on_exit(lambda reason: connection.abort(f"Chromium (pid {group.pid}) {reason}."))

    async def stop(self) -> None:
        # Shared and shielded: a caller that is cancelled must not leave a half-ended browser to nobody.
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        # What is closed from now on is closed because of this, which is nothing to react to.
        self._watch.stop()
        if self._has_kept_profile:
            with suppress(TimeoutError, BrowserGone, CdpFailure):
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await self._connection.call("Browser.close")
                    await self._group.wait_exited()
        # A profile that is thrown away has nothing to save, and SIGKILL takes a quarter of the time and never hangs.
        self._connection.abort("The browser was stopped.")
        await _discard(self._group, self._connection, Path(self.row.profile_dir), self.row.port)


class ChromiumLauncher:
    """Starts the browsers of this node's pools, and ends those that an earlier life of the node left behind."""

    def __init__(
        self,
        profiles_dir: Path,
        pools: Mapping[str, Pool],
        find: Find = find_browser,
        *,
        proxies: Mapping[str, Proxy] = MappingProxyType({}),
    ) -> None:
        # Holds one directory per browser. Should be on a disk, not in a small tmpfs.
        self._profiles_dir = profiles_dir
        self._pools = pools
        self._find = find
        # Of the pools that have a network policy.
        self._proxies = proxies
        # By what was asked for: looking anew runs every candidate, and a replacement must not wait for that.
        self._found: dict[tuple[str, bool], FoundBrowser] = {}

    async def launch(self, row: Browser) -> ChromiumBrowser | attach.AttachedBrowser:
        pool = self._pools[row.pool]
        if pool.source == "attach":
            return await attach.attach(row, pool.endpoint, pool.start_limit_ms, self._proxies.get(row.pool))
        wanted = (pool.browser, pool.headless)
        # Forgotten until it has started once more: one that was moved or broke is looked for again.
        found = self._found.pop(wanted, None)
        if found is None:
            try:
                found = await asyncio.to_thread(self._find, *wanted)
            except NoBrowser as error:
                raise LaunchFailed(f"{error.message} {error.action}") from error
        deadline = asyncio.get_running_loop().time() + pool.start_limit_ms / 1000
        tried: list[int] = []
        while True:
            # Ends: each turn tries another port, and `reserve` raises when none is left.
            port = debug_port.reserve(tried)
            tried.append(port)
            try:
                browser = await self._launch_on(port, row, pool, found, deadline)
            except _PortLost:
                log.info("another program took the debug port first", port=port)
            else:
                self._found[wanted] = found
                return browser

    async def adopt(self, row: Browser) -> ChromiumBrowser | attach.AttachedBrowser | None:
        pool = self._pools.get(row.pool)
        if pool is None:
            return None
        if pool.source == "attach":
            # One with a pid was launched when the pool still had another source.
            return None if row.pid else await attach.reattach(row, pool.endpoint, self._proxies.get(row.pool))
        proxy = self._proxies.get(row.pool)
        is_alone, is_shared = pool.isolation == "browser", pool.isolation == "shared"
        found = await adopt.find(row, is_alone=is_alone, is_shared=is_shared, proxy=proxy)
        if found is None:
            return None
        debug_port.claim(row.port)
        return ChromiumBrowser(row, found.connection, found.group, has_kept_profile=bool(pool.profile_dir), proxy=proxy)

    async def reap_strays(self, node_id: str, known: Collection[str]) -> int:
        return await adopt.reap_strays(self._profiles_dir, node_id, known)

    async def reap(self, row: Browser) -> None:
        marker = adopt.marker(row.node_id, row.id)
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
        # For what is thrown away, which with a kept profile is only the log.
        directory = profile.place(self._profiles_dir, row.id)
        proxy = self._proxies.get(row.pool)
        data_dir = profile.kept(pool.profile_dir) if pool.profile_dir else directory
        child: process.ChildGroup | None = None
        connection: CdpConnection | None = None
        try:
            # The row may have had an earlier process, whose end nobody saw to.
            await profile.remove(directory)
            directory.mkdir(parents=True, mode=0o700)
            if pool.profile_dir:
                await asyncio.to_thread(_open_kept, data_dir)
            child = process.ChildGroup(
                _command(row, pool, found, port, data_dir, proxy),
                log_path=directory / profile.LOG_NAME,
                environ=_environ(directory),
            )
            async with asyncio.timeout_at(deadline):
                version = await _wait_listening(child, port, found, directory)
                connection = await CdpConnection.connect(version.endpoint)
                if pool.isolation == "shared":
                    await forbid_downloads(connection, "")
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
                has_kept_profile=bool(pool.profile_dir),
                proxy=proxy,
            )
        except BaseException as error:
            reason = _failure(error, found, pool, directory)
            await _finish(asyncio.ensure_future(_discard(child, connection, directory, port)))
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
        case OSError() if error.filename is not None and Path(error.filename).is_relative_to(directory):
            return (
                f"The profile directory {directory} cannot be written: {error.strerror}. "
                "Make room or make it writable, or choose another state directory with TABHERD_STATE."
            )
        case OSError():
            return f"{found.path} cannot be started: {error}."
        case _:
            return None


def _printed(directory: Path) -> str:
    words = profile.last_words(directory)
    return f"It printed: {words}" if words else "It printed nothing."


def _started(pids: list[int]) -> dict[int, int]:
    return {pid: process.start_time(pid) for pid in pids}


def _command(
    row: Browser, pool: Pool, found: FoundBrowser, port: int, data_dir: Path, proxy: Proxy | None
) -> list[str]:
    command = [str(found.path), *FLAGS]
    flags, features_off = _without(_FEATURES_OFF_FLAG, pool.flags)
    flags, blink_settings = _without(adopt.BLINK_FLAG, flags)
    if os.geteuid() == 0:
        # Chromium refuses to run as root with its sandbox.
        command.append("--no-sandbox")
    if _is_shm_small():
        command.append("--disable-dev-shm-usage")
    if found.kind != "headless-shell":
        command += ["--no-startup-window", *WINDOW_FLAGS]
        if pool.headless:
            command.append("--headless=new")
        features_off = (*WINDOW_FEATURES_OFF, *features_off)
    if features_off:
        flags = (*flags, _FEATURES_OFF_FLAG + ",".join(features_off))
    if blink_settings := (*blink_settings, *_selection_settings(pool)):
        flags = (*flags, adopt.BLINK_FLAG + ",".join(blink_settings))
    # Ours come last: of two equal flags Chromium takes the later one.
    return [
        *command,
        *flags,
        *([] if proxy is None else _network_flags(proxy)),
        # Empty: a pool's flags must not open the debug ports to pages.
        "--explicitly-allowed-ports=",
        f"--remote-debugging-port={port}",
        f"{_DATA_DIR_FLAG}{data_dir}",
        adopt.marker(row.node_id, row.id),
    ]


def _without(name: str, flags: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The other flags, and the values of those of that name: said twice, Chromium would heed only the later one."""
    values = tuple(flag.removeprefix(name) for flag in flags if flag.startswith(name))
    return tuple(flag for flag in flags if not flag.startswith(name)), values


def _selection_settings(pool: Pool) -> list[str]:
    """With which no session of a browser pastes what another has selected."""
    return [] if pool.isolation == "browser" else [adopt.NO_SELECTION]


def _network_flags(proxy: Proxy) -> list[str]:
    """For the browser as a whole, so that what belongs to no context of ours keeps to the policy as well."""
    return [
        f"--proxy-server=http://{proxy.server}",
        "--proxy-bypass-list=<-loopback>",
        # The proxy asks where names lead. A browser that asks too, to be faster, would tell strangers what a page wants
        # to tell them, and could connect by itself.
        f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {debug_port.LOOPBACK}",
        *attach.WEBRTC_FLAGS,
        adopt.network_marker(proxy),
    ]


def _environ(directory: Path) -> dict[str, str]:
    """Ours without our own settings, which hold secrets; and crash files go where they are removed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    return {**kept, profile.CRASHES_VARIABLE: str(directory / profile.CRASHES_NAME)}


def _open_kept(data_dir: Path) -> None:
    """Make sure that the profile exists and that no other browser writes to it: it would not survive two."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise LaunchFailed(f"The pool's profile directory {data_dir} cannot be made: {error.strerror}.") from error
    if users := process.with_argument(f"{_DATA_DIR_FLAG}{data_dir}"):
        raise LaunchFailed(f"The pool's profile directory {data_dir} is in use by another browser (pid {users[0]}).")


def _is_shm_small() -> bool:
    try:
        facts = os.statvfs("/dev/shm")
    except OSError:
        return True
    return facts.f_frsize * facts.f_blocks < SHM_MIN_BYTES


async def _wait_listening(child: process.ChildGroup, port: int, found: FoundBrowser, directory: Path) -> Version:
    """Returns once the browser itself, and nobody else, answers on the port."""
    while True:
        if child.has_exited:
            raise LaunchFailed(f"{found.path} {child.exit_reason} before it could be used. {_printed(directory)}")
        match debug_port.holder(port, child.pid):
            case debug_port.Holder.OURS:
                try:
                    return await ask_version(debug_port.LOOPBACK, port)
                except NotCdp as error:
                    raise LaunchFailed(f"{found.path} opened its debug port, but {error}") from error
            case debug_port.Holder.STRANGER:
                raise _PortLost
            case debug_port.Holder.NOBODY:
                with suppress(TimeoutError):
                    await asyncio.wait_for(child.wait_exited(), START_POLL_S)


async def _finish(task: asyncio.Future[None]) -> None:
    """Wait for it however often we are cancelled meanwhile: it is bounded, and half of it would leave traces."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    task.result()


async def _discard(child: process.Group | None, connection: CdpConnection | None, directory: Path, port: int) -> None:
    """End what there is of a browser and remove its traces."""
    try:
        if child is not None:
            await child.end()
        if connection is not None:
            await connection.close()
        await profile.remove(directory)
    finally:
        debug_port.release(port)
