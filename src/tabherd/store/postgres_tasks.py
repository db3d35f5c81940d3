"""Claims of tasks in PostgreSQL: one statement each, on a connection of its own.

What is fair is decided by a function in the database (schema/postgres/0004_tasks.sql), because it has to be decided on
what all nodes have in flight at that moment, and in one round trip. Claims of all nodes take turns there. A claim also
looks at the row of its node, so a node that others have declared dead gets nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ..core.lifecycle import TaskState
from ..core.model import Node, Task
from ..errors import StoreUnavailable
from .postgres_database import PostgresDatabase
from .postgres_errors import is_meeting, is_of_the_world, unavailable
from .postgres_link import Link
from .task_claims import POSITION_AGENTS_MAX, POSITION_OWN_MAX, TOTALS_MAX, Bounds, Look

# A question whose connection is lost is asked again on the next; a claim is not.
ATTEMPTS_MAX: Final = 3
# Connections that write.
WRITERS: Final = 2
# Those of the functions: whoever has the one claims, and those who have the other, together, write.
CLAIM_LOCK: Final = 0x7461_6268_6572_6403
WRITE_LOCK: Final = 0x7461_6268_6572_6404

_encode = msgspec.json.Encoder().encode
_tasks = msgspec.json.Decoder(list[Task]).decode

# Spelt as in the indexes, which are found by it.
_UNCLAIMED: Final = "node_id = '' AND state = 'queued'"
_OF_NODE: Final = "node_id <> '' AND state IN ('queued', 'running')"
_IS_FLYING: Final = "(state = 'running' OR (state = 'queued' AND tab_id = '' AND session_id = ''))"


class _Change(msgspec.Struct, frozen=True):
    """What the life of a task changes in its row."""

    id: str
    version: int
    node_id: str
    state: TaskState
    started_at: int
    completed_at: int
    attempts: int
    result: str
    error: str
    code: str


class _Line:
    """A connection, and those who wait to ask something on it."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._name = database.name
        self._link = Link(database)
        self._turn = asyncio.Lock()
        # How many have asked and have no answer yet.
        self.waiting = 0

    async def ask(self, sql: str, arguments: list[Any], *, attempts: int = ATTEMPTS_MAX) -> Any:
        """The one row of the answer."""
        self.waiting += 1
        try:
            async with self._turn:
                return await self._ask(sql, arguments, attempts)
        finally:
            self.waiting -= 1

    async def _ask(self, sql: str, arguments: list[Any], attempts: int) -> Any:
        for attempt in range(attempts):
            connection = await self._link.connection()
            try:
                return await connection.ask(sql, arguments)
            except asyncio.CancelledError:
                # The answer may still come, and must not be taken for that of the next question.
                connection.drop()
                raise
            except Exception as error:
                await connection.recover(error)
                if not is_of_the_world(error) and not is_meeting(error):
                    raise
                if attempt == attempts - 1 or not (connection.is_lost(error) or is_meeting(error)):
                    raise unavailable(self._name, error) from error
        raise AssertionError("the last attempt answers or raises")

    async def close(self) -> None:
        await self._link.close()


class PostgresTaskClaims:
    """Implements `TaskClaims` for one life of one node. `on_fenced` is called when that is found to be over."""

    def __init__(self, database: PostgresDatabase, node: Node, on_fenced: Callable[[], None]) -> None:
        self._database = database
        self._node = node
        self._on_fenced = on_fenced
        # Claims wait for each other; who only looks does not wait for that. One question at a time on each.
        self._claiming = _Line(self._database)
        self._writing = [_Line(self._database) for _ in range(WRITERS)]
        self._looking = _Line(self._database)

    async def claim(self, pool: str, most: int, bounds: Bounds) -> list[Task]:
        sql = f"SELECT {self._database.schema}.claim_tasks($1, $2, $3, $4, $5, $6)"
        arguments = [self._node.id, self._node.version, pool, most, bounds.workers, bounds.max_per_agent]
        (claimed,) = await self._claiming.ask(sql, arguments, attempts=1)
        if claimed is None:
            raise self._fenced()
        return _tasks(claimed)

    async def write(self, rows: Sequence[Task]) -> set[str]:
        sql = f"SELECT {self._database.schema}.write_tasks($1, $2, $3::json)"
        changes = _encode([_Change(*(getattr(row, name) for name in _Change.__struct_fields__)) for row in rows])
        arguments = [self._node.id, self._node.version, changes.decode()]
        line = min(self._writing, key=lambda line: line.waiting)
        (written,) = await line.ask(sql, arguments, attempts=1)
        if written is None:
            raise self._fenced()
        return set(written)

    async def look(self, pools: Sequence[str], agents: Sequence[str], most: int, most_per_agent: int) -> Look:
        sql = f"SELECT * FROM {self._database.schema}.count_tasks($1::text[], $2::text[], $3, $4)"
        arguments = [list(pools), list(agents), most, most_per_agent]
        unclaimed, claimed, in_flight, deadline_at, counts = await self._looking.ask(sql, arguments)
        return Look(
            unclaimed=unclaimed,
            waiting=unclaimed + max(0, claimed - in_flight),
            in_flight=in_flight,
            deadline_at=deadline_at,
            by_agent=dict(zip(agents, (max(0, int(count)) for count in counts or ()), strict=True)),
        )

    async def expired(self, now: int, most: int) -> list[Task]:
        return await self._page(f"{_UNCLAIMED} AND deadline_at <= $1 ORDER BY deadline_at LIMIT $2", [now, most])

    async def of_node(self, node_id: str, most: int, *, after: tuple[str, str] = ("", "")) -> list[Task]:
        where = f"{_OF_NODE} AND node_id = $1 AND (agent_id, id) > ($2, $3) ORDER BY agent_id, id LIMIT $4"
        return await self._page(where, [node_id, *after, most])

    async def position(self, task: Task) -> int | None:
        sql = f"SELECT {self._database.schema}.tasks_before($1, $2, $3, $4, $5, $6)"
        arguments = [task.pool, task.agent_id, task.rank, task.id, POSITION_OWN_MAX, POSITION_AGENTS_MAX]
        (before,) = await self._looking.ask(sql, arguments)
        return None if before is None else before + 1

    async def by_agent(self) -> dict[str, tuple[int, int]]:
        tasks = f"{self._database.schema}.tasks"
        sql = (
            f"SELECT json_object_agg(agent_id, json_build_array(waiting, flying)) FROM (SELECT agent_id,"
            f" count(*) FILTER (WHERE NOT is_flying) AS waiting, count(*) FILTER (WHERE is_flying) AS flying FROM"
            f" (SELECT * FROM (SELECT agent_id, false AS is_flying FROM {tasks} WHERE {_UNCLAIMED} LIMIT $1) u"
            f" UNION ALL (SELECT agent_id, {_IS_FLYING} FROM {tasks} WHERE {_OF_NODE} LIMIT $1)) t GROUP BY agent_id) c"
        )
        (counts,) = await self._looking.ask(sql, [TOTALS_MAX])
        return {} if counts is None else msgspec.json.decode(counts, type=dict[str, tuple[int, int]])

    async def await_others(self) -> None:
        for lock in (CLAIM_LOCK, WRITE_LOCK):
            await self._looking.ask(f"SELECT pg_advisory_xact_lock({lock})", [])

    async def close(self) -> None:
        """Let go of the connections."""
        await self._claiming.close()
        for line in self._writing:
            await line.close()
        await self._looking.close()

    # --- Parts ------------------------------------------------------------------------------------------------------

    def _fenced(self) -> StoreUnavailable:
        self._on_fenced()
        return StoreUnavailable("The other nodes have declared this one dead.", cause="fenced", retry_after_ms=1_000)

    async def _page(self, where: str, arguments: list[Any]) -> list[Task]:
        sql = f"SELECT json_agg(t) FROM (SELECT * FROM {self._database.schema}.tasks WHERE {where}) t"
        (rows,) = await self._looking.ask(sql, arguments)
        return [] if rows is None else _tasks(rows)
