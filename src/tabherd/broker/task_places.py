"""Which node a task belongs to, and which one has it, where several share the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

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

    async def homes_of(self, tasks: Sequence[wire.TaskFields]) -> list[str]:
        """For each the node that has the tab or the session that it names. This one, if it names none, or nobody has
        it: then it is this node that says so.
        """
        homes = [self._node_id] * len(tasks)
        # What is here is known at once, and is most of what comes here.
        away = [index for index, fields in enumerate(tasks) if not self._is_here(fields)]
        if away:
            for index, home in zip(
                away, await asyncio.gather(*(self._home_of(tasks[index]) for index in away)), strict=True
            ):
                homes[index] = home
        return homes

    def _is_here(self, fields: wire.TaskFields) -> bool:
        if fields.tab_id is not None:
            return self._registry.tab(fields.tab_id) is not None
        return fields.session_id is None or self._registry.session(fields.session_id) is not None

    async def _home_of(self, fields: wire.TaskFields) -> str:
        """The same of one that names what is not here."""
        if fields.tab_id is not None:
            tab = await self._store.get(Tab, fields.tab_id)
            return self._node_id if tab is None else self._alive(tab.node_id)
        assert fields.session_id is not None, "who names nothing is at home anywhere"
        session = await self._store.get(Session, fields.session_id)
        is_open = session is not None and not is_terminal(LEASE, session.state)
        return self._alive(session.node_id) if session is not None and is_open else self._node_id

    def hand_over(self, row: Task) -> None:
        """Raise `Elsewhere` if another node has the task, and lives."""
        if row.node_id in self._membership.peers:
            raise Elsewhere(row.node_id)

    def _alive(self, node_id: str) -> str:
        return node_id if node_id in self._membership.peers else self._node_id
