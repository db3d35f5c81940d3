"""The door of the live view, `/live/{tabId}`: who may watch a tab.

Whoever may see the tab, by a token or a person's login (see `auth`). A page of another origin never gets as far as
this. A tab of another node is watched there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta

from .. import logs, wire
from ..broker.broker import Broker
from ..broker.live import LiveViews
from ..browsers.screencast import Look
from ..metrics import Metrics
from ..wire.live import LiveQuality, LiveSide
from .auth import Guard
from .decode import QueryDecoder
from .live_socket import LiveSocket
from .routing import Routing
from .upgrade import Door, Upgrade

log = logs.get_logger("live")

PATH: Final = "/live/"


class LiveQuery(wire.Request, frozen=True, kw_only=True):
    # The credential, for clients that cannot set headers, or the word that belongs to a login.
    token: Annotated[str, Meta(max_length=200)] | None = None
    csrf: Annotated[str, Meta(max_length=200)] | None = None
    # The largest frame that is wanted, in pixels, and how good it is to be.
    width: LiveSide = 1_280
    height: LiveSide = 1_280
    quality: LiveQuality = 60


_query: Final = QueryDecoder(LiveQuery)


class LiveDoor:
    """Lets viewers in."""

    def __init__(self, *, broker: Broker, guard: Guard, metrics: Metrics, routing: Routing | None = None) -> None:
        self.guard = guard
        self.metrics = metrics
        self._broker = broker
        # The ways to other nodes; None: there are none.
        self._routing = routing
        # What viewers have asked for and is under way; each has one at a time.
        self._background: set[asyncio.Task[None]] = set()

    @property
    def views(self) -> LiveViews:
        return self._broker.live

    @property
    def doors(self) -> Mapping[str, Door]:
        """The paths under which sockets are opened."""
        return {PATH: self.admit}

    async def admit(self, upgrade: Upgrade) -> LiveSocket:
        """The socket of a viewer, or a typed error."""
        query: LiveQuery = _query.decode(upgrade.query)
        badge = await self.guard.welcome(
            upgrade.head, upgrade.client, query.token, is_counted=upgrade.hop is None, csrf=query.csrf
        )
        badge.caller.require("browse")
        tab_id = upgrade.path.removeprefix(PATH)
        if self._routing is not None:
            await self._routing.settle("tab", tab_id, upgrade.hop)
        self._broker.tabs.find(badge.caller, tab_id)
        return LiveSocket(
            self,
            badge=badge,
            tab_id=tab_id,
            look=Look(width=query.width, height=query.height, quality=query.quality),
            is_counted=upgrade.hop is None,
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what must end even if its viewer leaves."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work failed", exc_info=error)
