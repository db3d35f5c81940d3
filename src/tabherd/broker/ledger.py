"""The outcome of every accepted command and the audit trail, written behind: bounded, in batches, without delay.

A command's reply never waits for the disk. Its outcome is kept in memory until it is written, so it can be read at
any moment; if the broker dies in between, the command's id still carries the epoch of that life, and asking for it
later answers `outcome_unknown`: the honest word for a command nobody saw end.
"""

from __future__ import annotations

import asyncio

import structlog

from ..core.lifecycle import COMMAND, CommandState, is_terminal
from ..core.model import Audit, Command
from ..errors import InvalidRequest, StoreUnavailable
from ..store.base import Put, Store
from ..store.evaluate import SEQUENCE_PREFIX

# Outcomes that may wait for the disk; beyond it the oldest are dropped and counted (they read as outcome_unknown).
PENDING_MAX = 5_000
BATCH_MAX = 200
# A larger result (a screenshot, say) went to the caller; the ledger keeps the outcome without it.
OUTCOME_MAX_CHARS = 64_000
RETRY_S = 1.0
LINGER_S = 0.02

log = structlog.get_logger("ledger")


class Ledger:
    """Remembers outcomes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Not yet on disk, oldest first.
        self._pending: dict[str, Command | Audit] = {}
        self._has_work = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self.dropped = 0

    def start(self) -> None:
        self._writer = asyncio.create_task(self._write_forever(), name="ledger")

    async def stop(self) -> None:
        """Write what is left, then stop. What a store that is away does not take reads as `outcome_unknown` later."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])
        try:
            while self._pending:
                await self._write_batch()
        except StoreUnavailable as error:
            log.warning("outcomes could not be written", error=error.message, pending=len(self._pending))

    def record(self, command: Command) -> None:
        """Keep the outcome of a command that ended."""
        assert is_terminal(COMMAND, command.state), "only ended commands are recorded"
        self._add(command)

    def note(self, entry: Audit) -> None:
        """Keep an entry of the audit trail."""
        self._add(entry)

    async def find(self, command_id: str) -> Command | None:
        pending = self._pending.get(command_id)
        return pending if isinstance(pending, Command) else await self._store.get(Command, command_id)

    async def latest_epoch(self, epoch: int) -> int:
        """The epoch of the life that began last, of any node that shares the store with this life."""
        return max(epoch, await self._store.counter(f"{SEQUENCE_PREFIX}epoch"))

    async def flush(self) -> None:
        """Returns when everything so far is on disk."""
        last = next(reversed(self._pending), None)
        while last is not None and last in self._pending:
            await self._write_batch()

    def _add(self, row: Command | Audit) -> None:
        if len(self._pending) >= PENDING_MAX:
            self._pending.pop(next(iter(self._pending)))
            self.dropped += 1
        self._pending[row.id] = row
        self._has_work.set()

    async def _write_forever(self) -> None:
        while True:
            await self._has_work.wait()
            # One commit for what comes in together, instead of one that competes with each command.
            await asyncio.sleep(LINGER_S)
            try:
                await self._write_batch()
            except StoreUnavailable as error:
                log.warning("outcomes wait for the store", error=error.message, pending=len(self._pending))
                await asyncio.sleep(RETRY_S)

    async def _write_batch(self) -> None:
        batch = list(self._pending.values())[:BATCH_MAX]
        try:
            await self._store.apply(*(Put(row) for row in batch))
        except InvalidRequest:
            await self._write_each(batch)
        for row in batch:
            self._pending.pop(row.id, None)
        if not self._pending:
            self._has_work.clear()

    async def _write_each(self, batch: list[Command | Audit]) -> None:
        """Write row by row, so that a row which the store refuses costs nobody else's outcome."""
        for row in batch:
            try:
                await self._store.apply(Put(row))
            except InvalidRequest as error:
                self.dropped += 1
                log.error("an outcome cannot be stored", id=row.id, error=error.message)


def unseen(command_id: str, node_id: str) -> Command:
    """The record of a command of an earlier epoch that nobody saw end."""
    return Command(
        id=command_id,
        node_id=node_id,
        tab_id="",
        session_id="",
        agent_id="",
        kind="",
        state=CommandState.OUTCOME_UNKNOWN,
        created_at=0,
    )
