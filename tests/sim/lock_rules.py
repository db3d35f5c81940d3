"""What must hold of named locks in a simulated history.

Invariants (checked at every step of the world unless said otherwise):
- nobody is told to have a lock while another one, who was told so before, may still rely on it: its lease lasts, and it
  has neither given it back nor been overruled nor ended;
- whoever may rely on a lock can renew it, also after the broker was killed;
- each grant has a larger fence than every one before, on disk and in what is told, through any kill;
- those who wait are granted in the order in which they came, but for those who left;
- nothing is left of a lock whose holder is gone: no row, no place in line (at the end).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from tabherd.core.lock_queue import Wish
from tabherd.core.model import NamedLock

if TYPE_CHECKING:
    from .world import World

# How long an answer may be on its way: the broker counts from before it.
ANSWER_MS = 50


class Held(msgspec.Struct):
    """A lock as somebody was told to have it."""

    who: str
    ticket: str
    fence: int
    lease_ms: int
    # What it ends with besides its lease.
    pid: int | None = None
    connection_id: str = ""
    # Until when it can be relied upon.
    until_ms: int = 0


class LockRules:
    """The judge of named locks."""

    def __init__(self, world: World) -> None:
        self._world = world
        # Who was told last to have each name, as long as that can be relied upon.
        self._held: dict[str, Held] = {}
        # The largest fence that was told of each name, and that was on disk, with whose row that was.
        self._told: dict[str, int] = {}
        self._stored: dict[str, tuple[int, str]] = {}
        # Who stands in each line, in the order of arrival.
        self._lines: dict[str, list[str]] = {}

    def begin_life(self) -> None:
        """Another broker: nobody stands in line."""
        self._lines.clear()
        queue = self._world.broker.named_locks._queue
        enter, leave, grant = queue.enter, queue.leave, queue.grant

        def entered(wish: Wish) -> int:
            position = enter(wish)
            self._lines.setdefault(wish.name, []).append(wish.id)
            return position

        def left(wish: Wish) -> None:
            leave(wish)
            if wish.id in self._lines.get(wish.name, ()):
                self._lines[wish.name].remove(wish.id)

        def granted(wish: Wish) -> None:
            if not self._world.is_violated and self._lines[wish.name][0] != wish.id:
                self._world.violate(f"{wish.party} has lock {wish.name} before one who came earlier")
            grant(wish)

        queue.enter, queue.leave, queue.grant = entered, left, granted  # type: ignore[method-assign]

    # --- What callers hear ----------------------------------------------------------------------------------

    def granted(self, name: str, held: Held) -> None:
        """Somebody was told to have it."""
        world, other = self._world, self._held.get(name)
        world.tell(f"{held.who} has lock {name}, fence {held.fence}")
        if other is not None and other.ticket != held.ticket and self.is_certain(name, other):
            world.violate(f"{held.who} has lock {name} while {other.who} has it")
        if held.fence <= self._told.get(name, 0) and (other is None or other.fence != held.fence):
            world.violate(f"{held.who} has lock {name} with fence {held.fence} after {self._told[name]}")
        self._told[name] = held.fence
        self._held[name] = held
        self._count(held)

    def renewed(self, name: str, held: Held) -> None:
        if self._held.get(name) is held:
            self._count(held)
        elif (other := self._held.get(name)) is not None and self.is_certain(name, other):
            self._world.violate(f"{held.who} renewed lock {name} while {other.who} has it")

    def lost(self, name: str, held: Held, was_certain: bool) -> None:
        """Somebody was told not to have it any more."""
        self._world.tell(f"{held.who} has lost lock {name}")
        if was_certain and self.is_certain(name, held):
            self._world.violate(f"{held.who} has lost lock {name} before its time")
        self.given_back(name, held)

    def given_back(self, name: str, held: Held) -> None:
        """From now on its holder does not rely on it."""
        if self._held.get(name) is held:
            del self._held[name]

    def forced(self, name: str) -> None:
        """An operator overrules whoever has it."""
        self._held.pop(name, None)

    def owner_ends(self, pid: int) -> None:
        """A process is about to end: its locks end with it."""
        self._held = {name: held for name, held in self._held.items() if held.pid != pid}

    def forget_life(self) -> None:
        """The broker was killed: connections have ended with it."""
        self._held = {name: held for name, held in self._held.items() if not held.connection_id}

    def is_certain(self, name: str, held: Held) -> bool:
        """Whether its holder may still rely on it."""
        is_lasting = held.until_ms - self._world.set_ms > self._world.clock_ms()
        return self._held.get(name) is held and is_lasting

    def _count(self, held: Held) -> None:
        held.until_ms = self._world.clock_ms() + held.lease_ms - ANSWER_MS

    # --- At every step --------------------------------------------------------------------------------------

    def check(self) -> None:
        """What must hold after something was written."""
        for row in self._world.disk.rows(NamedLock).values():
            fence, whose = self._stored.get(row.id, (0, ""))
            if row.ticket_hash != whose and row.fence <= fence:
                self._world.violate(f"lock {row.id} was granted with fence {row.fence} after {fence}")
            self._stored[row.id] = row.fence, row.ticket_hash

    # --- At the end -----------------------------------------------------------------------------------------

    def left(self) -> Iterator[str]:
        """What outlives everybody who left."""
        rows, queue = self._world.disk.rows(NamedLock), self._world.broker.named_locks._queue
        if rows:
            yield f"locks outlive their holders: {sorted(rows)}"
        if queue._lines or queue._holders:
            yield f"places in line are left: {queue._lines} {queue._holders}"
