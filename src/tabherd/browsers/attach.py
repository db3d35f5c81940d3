"""Uses a browser that somebody else started, found by its CDP address, as a guest.

Invariants:
- It is never ended, and nothing in it is closed but what was made or taken over here.
- What it does to its own debug port is its owner's business: unlike a launched browser, pages may reach it.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlsplit

import structlog

from ..core.model import Browser, changed
from .cdp import CdpConnection
from .driver import ChromiumTab, DrivenBrowser
from .endpoint import NotCdp, Version, ask_version
from .port import BrowserGone, CdpFailure, LaunchFailed, Proxy

log = structlog.get_logger(__name__)

# How long an answer may take when a browser of an earlier life is looked for.
RETURN_LIMIT_S: Final = 2.0
# How long tidying up may take at the end.
LEAVE_LIMIT_S: Final = 2.0
# Calls between browsers go straight to the other one, around any proxy, unless this is said when the browser starts:
# the first to the full build, the second to the light one. Each of them ignores the other's.
WEBRTC_FLAGS: Final = (
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)


class AttachedBrowser(DrivenBrowser):
    """One live browser that is not ours."""

    def __init__(self, row: Browser, connection: CdpConnection, proxy: Proxy | None = None) -> None:
        super().__init__(row, connection, proxy=proxy)
        # The contexts that were made or taken over here.
        self._contexts: set[str] = set()
        # Of those the ones that were taken over, by the page they came with.
        self._taken: dict[str, str] = {}
        # Set by the first `stop`; all callers wait for the same one.
        self._stopping: asyncio.Task[None] | None = None

    async def new_context(self) -> str:
        context_id = await super().new_context()
        self._contexts.add(context_id)
        return context_id

    async def attach_tab(self, target_id: str) -> ChromiumTab:
        tab = await super().attach_tab(target_id)
        # A page of an earlier life of ours: its context, if it has one of its own, is ours as well.
        info = (await self._connection.call("Target.getTargetInfo", {"targetId": target_id}))["targetInfo"]
        context_id = info["browserContextId"]
        if context_id not in self._contexts and context_id in await super().context_ids():
            self._contexts.add(context_id)
            self._taken[target_id] = context_id
        return tab

    async def let_go(self, target_id: str) -> None:
        # It was not ours after all, nor is what came with it.
        self._contexts.discard(self._taken.pop(target_id, ""))
        await super().let_go(target_id)

    async def dispose_context(self, context_id: str) -> None:
        await super().dispose_context(context_id)
        self._contexts.discard(context_id)

    async def context_ids(self) -> list[str]:
        # Not those of other programs, which nobody here may take for forgotten ones of ours.
        return sorted(self._contexts & set(await super().context_ids()))

    async def stop(self) -> None:
        """Close what was made here and leave; the browser runs on. Idempotent."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        # What is closed from now on is closed because of this, which is nothing to react to.
        self._watch.stop()
        try:
            async with asyncio.timeout(LEAVE_LIMIT_S):
                await asyncio.gather(*(self.dispose_context(context_id) for context_id in list(self._contexts)))
                await asyncio.gather(*(self.close_tab(target_id) for target_id in list(self._tabs)))
        except (TimeoutError, BrowserGone, CdpFailure) as error:
            log.info("an attached browser was left untidy", browser=self.row.id, error=str(error))
        self._connection.abort("The browser was let go.")
        await self._connection.close()


async def attach(row: Browser, endpoint: str, limit_ms: int, proxy: Proxy | None = None) -> AttachedBrowser:
    """Connect to the browser at that address, or raise `LaunchFailed`."""
    try:
        async with asyncio.timeout(limit_ms / 1000):
            return await _connect(row, await _resolve(endpoint), proxy)
    except (TimeoutError, OSError, NotCdp, BrowserGone, CdpFailure) as error:
        raise LaunchFailed(
            f"No browser can be reached at {endpoint}: {str(error) or 'it does not answer'}. Start it with "
            "--remote-debugging-port, or correct the pool's endpoint."
        ) from error


async def reattach(row: Browser, endpoint: str, proxy: Proxy | None = None) -> AttachedBrowser | None:
    """The browser that an earlier life of this node was attached to, if it still is the one at that address."""
    if proxy is not None and row.started_at < proxy.since_ms:
        log.info(
            "what was made in an attached browser before its pool had this network policy is given up", browser=row.id
        )
        return None
    connection: AttachedBrowser | None = None
    try:
        async with asyncio.timeout(RETURN_LIMIT_S):
            version = await _resolve(endpoint)
            if row.endpoint == version.endpoint:
                connection = await _connect(row, version, proxy)
    except (TimeoutError, OSError, NotCdp, BrowserGone, CdpFailure, LaunchFailed) as error:
        log.info("an attached browser does not answer any more", browser=row.id, error=str(error))
    return connection


async def _resolve(endpoint: str) -> Version:
    """The address of the control socket; the product is learned later where only the socket is named."""
    address = urlsplit(endpoint)
    if address.scheme == "ws":
        return Version(product="", endpoint=endpoint)
    assert address.hostname is not None, "checked with the configuration"
    return await ask_version(address.hostname, address.port or 80)


async def _connect(row: Browser, version: Version, proxy: Proxy | None) -> AttachedBrowser:
    connection = await CdpConnection.connect(version.endpoint)
    try:
        product = (await connection.call("Browser.getVersion"))["product"]
        if proxy is not None:
            _check_calls(version, (await connection.call("SystemInfo.getInfo"))["commandLine"])
    except BaseException:
        await connection.close()
        raise
    return AttachedBrowser(changed(row, endpoint=version.endpoint, product=product), connection, proxy)


def _check_calls(version: Version, command_line: str) -> None:
    """A browser whose pages can call others around the proxy does not keep to a network policy."""
    if missing := [flag for flag in WEBRTC_FLAGS if flag not in command_line.split()]:
        raise LaunchFailed(
            f"The browser at {version.endpoint} can reach the network around its pool's policy. "
            f"Start it with {' '.join(missing)}, or remove the policy."
        )
