"""What must hold of named locks in a simulated cluster.

Invariants (checked at every write of a lock's row, and when a caller is told that it has one):
- fences of a name only grow;
- nobody is given a name that somebody else was told to have until later, unless the node through which that one had it
  is over, or has lost it with its connection to the database, and said so;
- a row is removed or replaced by its own node, or when that is over, or when its lease has ended.
At the end nobody has a lock: neither a row is left, nor anything in the database of locks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from tabherd import wire
from tabherd.core.lifecycle import NodeState
from tabherd.core.model import NamedLock, Node

if TYPE_CHECKING:
    from .node import NodeLife
    from .world import World


# By how much the clock of a node may be ahead of the database's, between two looks at it.
CLOCKS_MS = 60


class LockRules:
    """The judge of named locks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._fences: defaultdict[str, int] = defaultdict(int)
        # By name: the fence of whoever was told that it has it, and until when.
        self._held: dict[str, tuple[int, int]] = {}
        # Through which node each fence was granted.
        self._node_of: dict[int, str] = {}

    # --- What callers hear ----------------------------------------------------------------------------------

    def granted(self, view: wire.LockView) -> None:
        """A caller was told that it has the lock, or has it still."""
        assert view.fence is not None
        assert view.expires_at is not None
        if view.fence < self._fences[view.name]:
            # Told of what was true when the answer was sent.
            return
        until = int(datetime.fromisoformat(view.expires_at).timestamp() * 1000) - CLOCKS_MS
        self._held[view.name] = view.fence, until

    def gives_back(self, view: wire.LockView) -> None:
        """Its holder is done with it."""
        if self._held.get(view.name, (0, 0))[0] == view.fence:
            del self._held[view.name]

    def lost(self, life: NodeLife) -> None:
        """The node has lost its locks, and says so to whoever listens."""
        for name, (fence, _) in list(self._held.items()):
            if self._node_of.get(fence) == life.node.id:
                del self._held[name]

    # --- Rows -----------------------------------------------------------------------------------------------

    def wrote(self, old: NamedLock | None, new: NamedLock, writer: NodeLife | None) -> None:
        world = self._world
        if new.fence == self._fences[new.id]:
            return
        if new.fence < self._fences[new.id]:
            world.violate(f"lock {new.id} is given with fence {new.fence} after {self._fences[new.id]}")
        if old is not None:
            self._check_end(old, writer)
        fence, until = self._held.pop(new.id, (0, 0))
        if until > world.loop.clock_ms() and not self._is_over(self._node_of[fence]):
            world.violate(f"lock {new.id} is given with fence {new.fence}, and {fence} has it for another while")
        self._fences[new.id] = new.fence
        self._node_of[new.fence] = new.node_id

    def removed(self, old: NamedLock, writer: NodeLife | None) -> None:
        self._check_end(old, writer)

    def _check_end(self, old: NamedLock, writer: NodeLife | None) -> None:
        if writer is None or writer.node.id == old.node_id or self._is_over(old.node_id):
            return
        if old.expires_at and old.expires_at <= self._world.loop.clock_ms():
            return
        self._world.violate(f"{writer.node.id} ends lock {old.id} (fence {old.fence}), which {old.node_id} has")

    def _is_over(self, node_id: str) -> bool:
        """Whether that node has ended since, however soon it was back."""
        node = self._world.database.row(Node, node_id)
        lives = [life for life in self._world.lives if life.node.id == node_id]
        return node is None or node.state is not NodeState.UP or len(lives) > 1

    # --- At the end -----------------------------------------------------------------------------------------

    def left(self) -> Iterator[str]:
        world = self._world
        if left := world.database.rows(NamedLock):
            yield f"locks are left: {left}"
        if world.lock_server.holds:
            yield f"the database of locks keeps {[key.label for key in world.lock_server.holds]}"
