"""Finds the browser that an earlier life of this node started, and what such a life left that nobody wrote down.

Invariants:
- A process is only believed to be ours by pid, start time and the marker on its command line together, and only if the
  kernel says that the debug port is its own.
- Whatever is not believed, or does not answer, is left exactly as it was; ending it is another decision.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec
import structlog

from ..core.model import Browser
from . import debug_port, process, profile
from .cdp import CdpConnection
from .downloads import forbid_downloads
from .port import BrowserGone, CdpFailure, Proxy

log = structlog.get_logger(__name__)

# How long a browser may take to answer before it is given up.
ADOPT_LIMIT_S: Final = 2.0
_OWNER_FLAG: Final = "--tabherd-owner="
_PROXY_FLAG: Final = "--tabherd-proxy="
BLINK_FLAG: Final = "--blink-settings="
# A middle click pastes nothing, and no page reads the selection: what one session selects, passwords too, is kept for
# the browser as a whole. The last of all such settings, as they are the ones that count.
NO_SELECTION: Final = "middleClickPasteAllowed=false,selectionClipboardBufferAvailable=false"


class Found(msgspec.Struct, frozen=True):
    """A live browser of an earlier life."""

    group: process.StrangerGroup
    connection: CdpConnection


def marker(node_id: str, browser_id: str) -> str:
    """Chromium ignores flags it does not know; this one tells whose it is to whoever reads its command line."""
    return f"{_OWNER_FLAG}{node_id}:{browser_id}"


def network_marker(proxy: Proxy) -> str:
    """The same about the proxy that it was started with."""
    return f"{_PROXY_FLAG}{proxy.server}"


async def find(row: Browser, *, is_alone: bool, is_shared: bool, proxy: Proxy | None = None) -> Found | None:
    """The browser that this row describes, if it runs, is ours, keeps to its pool's network policy and answers.

    One that was started for a session alone, or by a version that did not know how, lets sessions paste each other's
    selections: only a session alone may have it.
    """
    words = process.command_line(row.pid) if row.pid > 0 else ()
    if marker(row.node_id, row.id) not in words:
        return None
    wanted = [] if proxy is None else [network_marker(proxy)]
    if [word for word in words if word.startswith(_PROXY_FLAG)] != wanted:
        # What a browser was told about the network when it was started cannot be changed.
        log.info("a browser of an earlier life has another network policy than its pool", browser=row.id)
        return None
    if not is_alone and not any(word.startswith(BLINK_FLAG) and word.endswith(NO_SELECTION) for word in words):
        log.info("a browser of an earlier life would let its sessions paste each other's selections", browser=row.id)
        return None
    try:
        group = process.StrangerGroup(row.pid, row.pid_started)
    except ProcessLookupError:
        return None
    connection: CdpConnection | None = None
    try:
        if debug_port.holder(row.port, row.pid) is debug_port.Holder.OURS:
            async with asyncio.timeout(ADOPT_LIMIT_S):
                connection = await CdpConnection.connect(row.endpoint)
                await _say_again(connection, is_shared=is_shared)
            return Found(group, connection)
        log.info("a browser of an earlier life has lost its debug port", browser=row.id, port=row.port)
    except (TimeoutError, BrowserGone, CdpFailure) as error:
        log.info("a browser of an earlier life does not answer", browser=row.id, error=str(error))
    except BaseException:
        await _leave(group, connection)
        raise
    await _leave(group, connection)
    return None


async def reap_strays(profiles_dir: Path, node_id: str, known: Collection[str]) -> int:
    """End every browser of that node, and remove every profile, whose browser id is not known; how many there were.

    To be called before anything is launched: a browser that is being started looks like a stray.
    """
    strays: set[str] = set()
    for pid, browser_id in (await asyncio.to_thread(_browsers_of, node_id)).items():
        if browser_id not in known:
            strays.add(browser_id)
            if await process.end_stranger(pid, process.start_time(pid), marker(node_id, browser_id)):
                log.info("ended a browser that nobody had written down", browser=browser_id, pid=pid)
    for directory in _profiles_in(profiles_dir):
        if directory.name not in known:
            strays.add(directory.name)
            await profile.remove(directory)
    return len(strays)


async def _say_again(connection: CdpConnection, *, is_shared: bool) -> None:
    """What held only while the old connection lived."""
    context_ids: list[str] = (await connection.call("Target.getBrowserContexts"))["browserContextIds"]
    places = [*context_ids, *([""] if is_shared else [])]
    await asyncio.gather(*(forbid_downloads(connection, context_id) for context_id in places))


async def _leave(group: process.StrangerGroup, connection: CdpConnection | None) -> None:
    group.let_go()
    if connection is not None:
        await connection.close()


def _browsers_of(node_id: str) -> dict[int, str]:
    """The leaders of that node's browsers, with the browser id that each was started for."""
    prefix = marker(node_id, "")
    found = {}
    for pid, argument in process.with_prefix(prefix):
        # Its children could have inherited the flag; they go with their leader.
        if process.is_leader(pid):
            found[pid] = argument.removeprefix(prefix)
    return found


def _profiles_in(profiles_dir: Path) -> list[Path]:
    try:
        with os.scandir(profiles_dir) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
