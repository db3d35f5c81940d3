"""A place in a pool, as whoever has one or waits for one knows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ..browsers.slot import Slot
from ..core.fairness import Waiter
from ..core.lifecycle import LeaseState
from ..core.model import Session
from ..errors import TabherdError
from .stock import PooledTab


class Place(NamedTuple):
    """Where a caller stands that waits for a session."""

    waiter: Waiter
    # In the order of grants, from 1.
    position: int
    # When it may expect its turn.
    expected_wait_ms: int


class Claim:
    """A place in the pool: counted until it is given back."""

    def __init__(self, session_id: str, agent_id: str, key: str, slot: Slot | None) -> None:
        self.session_id = session_id
        self.agent_id = agent_id
        self.key = key
        # Where its seat is; None while it has none, because its browser died.
        self.slot = slot
        # The tab that comes with the place, until it is checked out or found dead.
        self.pooled: PooledTab | None = None
        # Its row, from when that is on disk until the session is made.
        self.reserved: Session | None = None
        # What the place is taken for: a session that is being opened, is open, or is being ended.
        self.state = LeaseState.RESERVED
        self.claimed_at = 0
        # Real tabs that it has.
        self.tabs = 1


class Shared(Protocol):
    """Where callers wait for the places of all nodes."""

    @property
    def waiting(self) -> int:
        """Callers of this node that do."""
        ...

    @property
    def waiting_since(self) -> int | None:
        """When the one of them came that has waited longest; None: there is none."""
        ...

    def places_of(self, agent_id: str | None) -> list[Place]:
        """Where that agent's callers of this node, or all agents', stand among those of all nodes."""
        ...

    def has_room(self) -> None:
        """There may be a place here."""
        ...

    def turn_away(self, refusal: Callable[[], TabherdError]) -> None:
        """This node gives no places any more: refuse those who cannot get one elsewhere."""
        ...
