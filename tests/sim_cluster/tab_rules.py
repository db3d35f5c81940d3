"""What must hold of tab locks and of tabs that a person has, in a simulated cluster.

Invariants (checked at every command that reaches a page):
- while a controller has the lock of a tab, as the node says that gave it, no other controller's command reaches it on
  that node, unless the session changed hands;
- while a person has a tab, no command reaches it but the one that was there before, whichever node has it by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tabherd.broker.broker import Broker
from tabherd.core.gate import TabLock
from tabherd.core.model import Session, Tab

if TYPE_CHECKING:
    from .node import NodeLife
    from .world import World


class Held(msgspec.Struct, frozen=True):
    """A lock that its controller was told it has."""

    fence: int
    broker: Broker
    lock: TabLock


class TabRules:
    """The judge of tab locks and handoffs."""

    def __init__(self, world: World) -> None:
        self._world = world
        # By tab.
        self._locks: dict[str, Held] = {}
        # Tabs that a person has, and the command that was there before, once it is known.
        self._handed_off: dict[str, str | None] = {}
        self._ever_handed_off: set[str] = set()

    # --- What it is told ------------------------------------------------------------------------------------

    def lock(self, tab_id: str, fence: int, broker: Broker, lock: TabLock) -> None:
        """A controller was told that it has the lock."""
        self._locks[tab_id] = Held(fence, broker, lock)

    def unlock(self, tab_id: str, lock: TabLock) -> None:
        """It is about to give it back."""
        held = self._locks.get(tab_id)
        if held is not None and held.lock.ticket.id == lock.ticket.id:
            del self._locks[tab_id]

    def may_be_handed_off(self, tab_id: str) -> bool:
        """Whether nobody has asked for that before; from now on somebody has."""
        if tab_id in self._ever_handed_off:
            return False
        self._ever_handed_off.add(tab_id)
        return True

    def hand_off(self, tab_id: str) -> None:
        """A person was told that the tab is theirs."""
        self._handed_off[tab_id] = None

    def resume(self, tab_id: str) -> None:
        """The person is about to give it back."""
        self._handed_off.pop(tab_id, None)

    # --- Commands -------------------------------------------------------------------------------------------

    def check_act(self, life: NodeLife, tab: Tab, session: Session, label: str, controller_id: str) -> None:
        """What must be true of a command in the moment in which it is sent to a page."""
        held = self._locks.get(tab.id)
        if (
            held is not None
            and held.broker is life.broker
            and held.fence == session.fence
            and held.lock.expires_at > life.clock()
            and held.lock.controller_id != controller_id
        ):
            self._world.violate(f"{label} of {controller_id} runs on {tab.id} while {held.lock.controller_id} has it")
        if tab.id in self._handed_off:
            # One that had its turn already may still begin, with all of its steps.
            command = label.partition(".")[0]
            before = self._handed_off[tab.id] or command
            self._handed_off[tab.id] = before
            if command != before:
                self._world.violate(f"{label} runs on {tab.id} while a person has it")
