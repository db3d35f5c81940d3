"""Who has and who waits for which named lock: one strict line per name, decided without clock, I/O or chance.

What it keeps:

- A name has one holder at the most, and who comes first is first in its line. Only the first of a line may be granted.
- A party that asks for a name which it has or waits for already is refused at once (`lock_reentered`); so is the one
  whose wait would close a circle of parties that wait for each other (`lock_deadlock`). Nobody waits for himself.
- Lines are bounded, each and all together. A name that nobody has or waits for costs nothing.

A party is whoever can be met again: an agent's controller that gave its name, or a connection. A caller that gave none
is nobody in particular (an empty party): it waits like everybody else, but cannot be told from a stranger.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..errors import LockDeadlock, LockReentered, QueueFull

# When to come again once a line was full.
RETRY_FULL_MS = 1_000


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """That somebody wants a lock."""

    id: str
    name: str
    # Empty: nobody in particular.
    party: str


class LockLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many may wait."""

    waiters_per_name: int
    waiters_max: int


class LockQueue:
    """The lines of all names."""

    def __init__(self, limits: LockLimits) -> None:
        self.limits = limits
        # The party that has each name that is held.
        self._holders: dict[str, str] = {}
        # Those who wait, by name and then by their wish's id, the first one first.
        self._lines: dict[str, dict[str, Wish]] = {}
        # The names that each party waits for; the empty party is not in it.
        self._waits: dict[str, set[str]] = {}
        self._waiting = 0

    # --- What is so -----------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many wait, for all names together."""
        return self._waiting

    def waiters(self, name: str) -> int:
        """How many wait for that name."""
        return len(self._lines.get(name, ()))

    def names_waited_for(self) -> Iterator[str]:
        return iter(self._lines)

    def is_held(self, name: str) -> bool:
        return name in self._holders

    def is_waiting(self, wish: Wish) -> bool:
        return wish.id in self._lines.get(wish.name, ())

    def has_or_wants(self, party: str, name: str) -> bool:
        """Whether that party has the name, or waits for it."""
        return bool(party) and (self._holders.get(name) == party or name in self._waits.get(party, ()))

    def position(self, wish: Wish) -> int:
        """Its place in the line, from 1."""
        return 1 + list(self._lines[wish.name]).index(wish.id)

    def first(self, name: str) -> Wish | None:
        """Whose turn it is, or will be."""
        line = self._lines.get(name)
        return next(iter(line.values())) if line else None

    def line(self, name: str) -> list[Wish]:
        """Those who wait for that name, the first one first."""
        return list(self._lines.get(name, {}).values())

    # --- What changes ---------------------------------------------------------------------------------------

    def enter(self, wish: Wish) -> int:
        """Stand in line; the place, from 1. Refused: `LockReentered`, `LockDeadlock`, `QueueFull`."""
        name, party = wish.name, wish.party
        if self.has_or_wants(party, name):
            has = self._holders.get(name) == party
            raise LockReentered(
                f"This controller {'holds' if has else 'waits for'} the lock already.", name=name, controller=party
            )
        if (circle := self._circle(party, name)) is not None:
            raise LockDeadlock("To wait for this lock would be to wait for oneself.", name=name, circle=circle)
        self._refuse_if_full(name)
        line = self._lines.setdefault(name, {})
        line[wish.id] = wish
        self._waiting += 1
        if party:
            self._waits.setdefault(party, set()).add(name)
        return len(line)

    def leave(self, wish: Wish) -> None:
        """Stand in line no more. Idempotent."""
        line = self._lines.get(wish.name)
        if line is None or line.pop(wish.id, None) is None:
            return
        self._waiting -= 1
        if not line:
            del self._lines[wish.name]
        if wish.party:
            names = self._waits[wish.party]
            names.discard(wish.name)
            if not names:
                del self._waits[wish.party]

    def grant(self, wish: Wish) -> None:
        """The first of the line has the name from now on."""
        assert wish.name not in self._holders, f"{wish.name} is held"
        assert self.first(wish.name) == wish, f"{wish.id} is not the first in line"
        self.leave(wish)
        self._holders[wish.name] = wish.party

    def keep(self, name: str, party: str) -> None:
        """That party has had the name since an earlier life of this server."""
        assert name not in self._holders, f"{name} is held"
        self._holders[name] = party

    def free(self, name: str) -> None:
        """Nobody has the name from now on."""
        del self._holders[name]

    # --- Parts ----------------------------------------------------------------------------------------------

    def _circle(self, party: str, name: str) -> list[str] | None:
        """The names over which that party would wait for itself; None when there is no such circle.

        Each step goes from a name to its holder and on to what that one waits for. Who stands before it in a line waits
        for the same holder, so that lines need not be looked at.
        """
        if not party:
            return None
        seen: set[str] = set()
        ways = [[name]]
        while ways:
            way = ways.pop()
            holder = self._holders.get(way[-1])
            if not holder or holder in seen:
                continue
            if holder == party:
                return way
            seen.add(holder)
            ways += [[*way, further] for further in sorted(self._waits.get(holder, ()))]
        return None

    def _refuse_if_full(self, name: str) -> None:
        for count, cap, where in (
            (self.waiters(name), self.limits.waiters_per_name, "for this lock"),
            (self._waiting, self.limits.waiters_max, "for locks"),
        ):
            if count >= cap:
                raise QueueFull(
                    f"As many as may are waiting {where}.", retry_after_ms=RETRY_FULL_MS, name=name, cap=cap
                )
