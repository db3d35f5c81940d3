"""The control channel `/ws`: who is connected under which name, and what must not be played back.

A controller is one connection: either under a name that it gave in hello, or under its own address. A name is used by
one connection at a time, because what a controller held is released when its connection ends; the second one is told
`conflict` and may come again, or choose another. Nonces are remembered per credential, so that a message that was
recorded on one connection cannot be played back on another.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from msgspec import Meta

from .. import wire
from ..config import Config
from ..errors import StateConflict
from .auth import Guard
from .conversation import MALFORMED_MAX, Conversation
from .decode import QueryDecoder
from .envelope import ReplayWindow
from .everywhere import credentials_of
from .relays import PATH as PATH
from .relays import Relays
from .route import Service
from .upgrade import Upgrade


class ControlQuery(wire.Request, frozen=True, kw_only=True):
    # The credential, for clients that cannot set headers.
    token: Annotated[str, Meta(max_length=200)] | None = None


_query: Final = QueryDecoder(ControlQuery)


class ControlChannel:
    """All control connections of one server."""

    def __init__(
        self,
        *,
        service: Service,
        guard: Guard,
        config: Config,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.service = service
        self.guard = guard
        # Milliseconds since 1970.
        self.clock = clock
        self.limits = _limits(config)
        # Controllers that are connected.
        self._controllers: dict[str, Conversation] = {}
        # By credential.
        self._windows: dict[str, ReplayWindow] = {}
        self._numbers = itertools.count(1)
        # Work that goes on after its connection ended; bounded by the connections there were.
        self._background: set[asyncio.Task[None]] = set()

    def reconfigure(self, config: Config) -> None:
        """Hold connections to other limits; the size of messages is that of when a connection was made."""
        self.limits = _limits(config)

    async def admit(self, upgrade: Upgrade) -> Conversation:
        """The door: whoever has a valid credential may speak; what it may do, each verb decides."""
        query: ControlQuery = _query.decode(upgrade.query)
        is_counted = upgrade.hop is None
        badge = await self.guard.welcome(upgrade.head, upgrade.client, query.token, is_counted=is_counted)
        return Conversation(
            self,
            number=next(self._numbers),
            badge=badge,
            subscription=self.service.events.subscribe(),
            window=self._window_of(badge.credential.id),
            relays=self._relays(upgrade, query.token),
            is_counted=is_counted,
        )

    def drop_the_gone(self) -> None:
        """Nodes came or went: whoever waits for one that is gone hears so."""
        for conversation in list(self._controllers.values()):
            conversation.drop_the_gone()

    def _relays(self, upgrade: Upgrade, token: str | None) -> Relays | None:
        """The ways of one client to other nodes, to which it comes as it came here."""
        if self.service.routing is None:
            return None
        credentials = credentials_of(upgrade.head.authorization, upgrade.head.agent_id)
        if upgrade.head.authorization is None and token is not None:
            credentials = (*credentials, (b"authorization", b"Bearer " + token.encode("latin-1", "replace")))
        return Relays(
            routing=self.service.routing,
            node_id=self.service.node_id,
            client=upgrade.client,
            credentials=credentials,
            hop=upgrade.hop,
        )

    def enter(self, controller_id: str, conversation: Conversation) -> None:
        """From now on the connection has that name; raises `StateConflict` while another has it."""
        holder = self._controllers.get(controller_id)
        if holder is not None:
            raise StateConflict(
                "Another connection has this controllerId.",
                action="Close that connection, wait until it is missed, or use another controllerId.",
                retryable=True,
                retry_after_ms=holder.heartbeat_ms,
                controllerId=controller_id,
            )
        self._controllers[controller_id] = conversation

    def leave(self, controller_id: str) -> None:
        """Everything under the name is released; it is free."""
        del self._controllers[controller_id]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that must end even though its connection has."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _window_of(self, credential_id: str) -> ReplayWindow:
        """What this credential has said lately. It outlives its connections; those that say nothing are dropped."""
        if credential_id not in self._windows:
            now = self.clock()
            self._windows = {known: window for known, window in self._windows.items() if not window.is_empty(now)}
            self._windows[credential_id] = ReplayWindow()
        return self._windows[credential_id]


def _limits(config: Config) -> wire.ControlLimits:
    return wire.ControlLimits(
        message_max_bytes=config.server.body_max_bytes,
        in_flight_max=config.gate.tickets_per_controller,
        rate_per_s=config.auth.rate_per_s,
        replay_window_ms=wire.REPLAY_WINDOW_MS,
        malformed_max=MALFORMED_MAX,
    )
