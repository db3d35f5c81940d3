"""Which node a task belongs to, and which one has it, where several share the store."""

from __future__ import annotations

from .. import wire
from ..cluster.elsewhere import Elsewhere
from ..cluster.membership import Membership
from ..core.lifecycle import LEASE, is_terminal
from ..core.model import Session, Tab, Task
from ..store.base import Store
from .registry import Registry


class TaskPlaces:
    """The places of tasks, as one node knows them."""

    def __init__(self, *, node_id: str, store: Store, registry: Registry, membership: Membership) -> None:
        self._node_id = node_id
        self._store = store
        self._registry = registry
        self._membership = membership

    async def home_of(self, fields: wire.TaskFields) -> str:
        """The node that has the tab or the session that the task names. This one, if it names none, or nobody has it:
        then it is this node that says so.
        """
        session_id = fields.session_id
        if fields.tab_id is not None:
            if self._registry.tab(fields.tab_id) is not None:
                return self._node_id
            tab = await self._store.get(Tab, fields.tab_id)
            return self._node_id if tab is None else self._alive(tab.node_id)
        if session_id is None or self._registry.session(session_id) is not None:
            return self._node_id
        session = await self._store.get(Session, session_id)
        is_open = session is not None and not is_terminal(LEASE, session.state)
        return self._alive(session.node_id) if session is not None and is_open else self._node_id

    def hand_over(self, row: Task) -> None:
        """Raise `Elsewhere` if another node has the task, and lives."""
        if row.node_id in self._membership.peers:
            raise Elsewhere(row.node_id)

    def _alive(self, node_id: str) -> str:
        return node_id if node_id in self._membership.peers else self._node_id
