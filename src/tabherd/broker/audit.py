"""The audit trail: who did what to which tab or session, written behind, read by admins."""

from __future__ import annotations

from collections.abc import Callable

from .. import wire
from ..core.model import Audit
from ..store.base import Store
from .caller import Caller
from .ids import Ids
from .ledger import Ledger
from .registry import LiveTab
from .views import rfc3339


class Auditor:
    """Keeps the trail."""

    def __init__(self, *, store: Store, ledger: Ledger, ids: Ids, clock: Callable[[], int]) -> None:
        self._store = store
        self._ledger = ledger
        self._ids = ids
        self._clock = clock

    def note(
        self,
        *,
        agent_id: str,
        controller_id: str,
        verb: str,
        tab: LiveTab | None = None,
        session_id: str = "",
        command_id: str = "",
        detail: str = "",
    ) -> None:
        """Remember this; it is on disk soon."""
        self._ledger.note(
            Audit(
                id=self._ids.mint_ordered("aud"),
                at=self._clock(),
                agent_id=agent_id,
                controller_id=controller_id,
                verb=verb,
                session_id=tab.row.session_id if tab is not None else session_id,
                tab_id=tab.row.id if tab is not None else "",
                command_id=command_id,
                detail=detail,
            )
        )

    async def list(
        self,
        caller: Caller,
        *,
        agent_id: str | None,
        session_id: str | None,
        tab_id: str | None,
        limit: int,
        cursor: str,
        newest_first: bool = False,
    ) -> wire.AuditPage:
        """The trail, in the order in which it was made, or the other way round."""
        caller.require("admin")
        await self._ledger.flush()
        named = {"agent_id": agent_id, "session_id": session_id, "tab_id": tab_id}
        where = {name: value for name, value in named.items() if value is not None}
        rows = await self._store.select(Audit, where, after=cursor, limit=limit + 1, newest_first=newest_first)
        return wire.AuditPage(
            entries=[
                wire.AuditEntry(
                    id=row.id,
                    at=rfc3339(row.at),
                    agent_id=row.agent_id,
                    controller_id=row.controller_id,
                    verb=row.verb,
                    session_id=row.session_id or None,
                    tab_id=row.tab_id or None,
                    command_id=row.command_id or None,
                    detail=row.detail,
                )
                for row in rows[:limit]
            ],
            next_cursor=rows[limit - 1].id if len(rows) > limit else None,
        )
