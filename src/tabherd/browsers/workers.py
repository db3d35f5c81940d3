"""Ends what scripts run outside of pages: the shared and service workers of one context.

Invariants:
- When it returns, none of them runs. Service workers start again when they are needed.
- A service worker is never stopped while it starts. Chromium would start it again at once, for whoever waits for it,
  and under load the whole browser has died of it. One that does not end starting is reported.
- One that was registered, but whose script the site has not sent, is waited for only so long: it has run nothing, and
  nothing but the end of its context would stop it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from .cdp import CdpConnection, CdpSession
from .port import CdpFailure

# How long all of it may take, also on a machine that is busy.
END_LIMIT_S: Final = 15.0
# How long a site may take to send the script of a service worker.
SCRIPT_LIMIT_S: Final = 5.0
# How often shared workers are looked at until they are gone. Nothing tells of their end.
PAUSE_S: Final = 0.02
# Our code for a worker that does not end.
NOT_ENDED: Final = -32097

_SHARED: Final = "shared_worker"


async def end_workers(connection: CdpConnection, context_id: str, page: CdpSession) -> None:
    """Those of the context, seen through a page of it that stays. Shared ones only if it is the only page there."""
    try:
        async with asyncio.timeout(END_LIMIT_S):
            await _end_shared(connection, context_id)
            await _ServiceWorkers(page).end()
    except TimeoutError:
        message = f"a worker is still there after {END_LIMIT_S} s"
        raise CdpFailure("ServiceWorker.stopWorker", NOT_ENDED, message) from None


async def _end_shared(connection: CdpConnection, context_id: str) -> None:
    # The kinds are said, because without a word Chromium answers with what page watching asked for: pages alone.
    kinds = {"filter": [{"type": "page"}, {"type": _SHARED}]}
    while True:
        targets = (await connection.call("Target.getTargets", kinds))["targetInfos"]
        mine = [target for target in targets if target.get("browserContextId") == context_id]
        workers = [target["targetId"] for target in mine if target["type"] == _SHARED]
        if not workers or len(mine) - len(workers) > 1:
            return
        for worker in workers:
            connection.post("Target.closeTarget", {"targetId": worker})
        await asyncio.sleep(PAUSE_S)


class _ServiceWorkers:
    """Those of a page's context, stopped one by one as they can be."""

    def __init__(self, page: CdpSession) -> None:
        self._page = page
        # By version: those that do not rest, and those whose script is yet to come.
        self._live: set[str] = set()
        self._coming: set[str] = set()
        # The first event lists all that there are, also when there are none.
        self._are_known = False
        # Fails when the page or the browser goes.
        self._over = page.expect("ServiceWorker.stopWorker")

    async def end(self) -> None:
        stop = self._page.listen("ServiceWorker.workerVersionUpdated", self._note)
        late = asyncio.get_running_loop().call_later(SCRIPT_LIMIT_S, self._wait_for_no_script)
        try:
            await self._page.call("ServiceWorker.enable")
            await self._over
        finally:
            late.cancel()
            stop()
            self._over.cancel()
            self._page.post("ServiceWorker.disable")

    def _note(self, event: Mapping[str, Any]) -> None:
        self._are_known = True
        for version in event["versions"]:
            id, status = version["versionId"], version["runningStatus"]
            is_coming = status == "stopped" and version["status"] == "new"
            (self._coming.add if is_coming else self._coming.discard)(id)
            (self._live.discard if status == "stopped" else self._live.add)(id)
            if status == "running":
                self._page.post("ServiceWorker.stopWorker", {"versionId": id})
        self._settle()

    def _wait_for_no_script(self) -> None:
        self._coming.clear()
        self._settle()

    def _settle(self) -> None:
        if self._are_known and not self._live and not self._coming and not self._over.done():
            self._over.set_result(None)
