"""What all clients of one server have in common, as one client sees it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from ...broker.registry import Registry
from ...core.gate import Hold
from ...errors import TabherdError

if TYPE_CHECKING:
    from .tenant import Tenant


class Traffic:
    """Messages since the start."""

    def __init__(self) -> None:
        self.from_clients = 0
        self.from_browsers = 0


class House(Protocol):
    """What all clients of one server have in common."""

    registry: Registry
    traffic: Traffic
    # Whether this node may act on what it has; None: it always may.
    is_trusted: Callable[[], bool] | None

    def left(self, tenant: Tenant) -> None:
        """The client's socket is closed, or was never opened."""
        ...

    def asked_to_close(self, tenant: Tenant) -> None:
        """The client closes its browser."""
        ...

    def denied(self, tenant: Tenant, method: str) -> None:
        """The client tried what it may not do."""
        ...

    def held(self, page_id: str, hold: Hold) -> TabherdError:
        """What to tell a client that does not want to wait for a held tab."""
        ...

    async def place(self, tenant: Tenant, guid: str, directory: str) -> None:
        """Put a download of the client's where it looks for it, if that is a place of its own on this machine."""
        ...

    def browser_ended(self, tenant: Tenant) -> None:
        """The client's connection to Chromium has ended, and not by us."""
        ...

    async def check_badge(self, tenant: Tenant) -> None:
        """Whether its credential still stands."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it, also after the client has left."""
        ...
