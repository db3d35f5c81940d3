"""Commands that must not run twice: the same key again is answered with the first one's outcome.

The key is on disk before the command acts, and its outcome before it is answered. Whoever repeats a key while the
first is still at it waits for that one's outcome; another body under the same key is refused. A key whose command an
earlier life of the broker never saw end answers `outcome_unknown`: that is what it is, and it is not run again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from ..core.model import Idempotency
from ..errors import IdempotencyConflict, StateConflict
from ..store.base import Applied, Insert, Store, Update

# How long a key is remembered.
KEPT_MS = 300_000
DECIDE_AGAIN_MAX = 3


class Keys:
    """The keys that commands were accepted under."""

    def __init__(self, *, store: Store, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        # Keys of commands that wait or run: the disk does not know of all of them yet, and they do not grow old.
        self._busy: dict[str, Idempotency] = {}

    async def find(self, agent_id: str, key: str, tab_id: str, body: msgspec.Struct) -> str | None:
        """The command that the key stands for, if it stands for one."""
        id = _id(agent_id, key)
        stored = await self._store.get(Idempotency, id)
        # Looked at last: the same key may have come a second time while the disk was read.
        row = self._busy.get(id) or (None if stored is None or self._is_over(stored) else stored)
        return None if row is None else self._same(row, _hash(tab_id, body))

    def begin(self, agent_id: str, key: str, tab_id: str, body: msgspec.Struct, command_id: str) -> Idempotency:
        """The key stands for this command from now on, until `end` in memory."""
        row = Idempotency(
            id=_id(agent_id, key), command_id=command_id, body_hash=_hash(tab_id, body), created_at=self._clock()
        )
        self._busy[row.id] = row
        return row

    async def claim(self, row: Idempotency) -> str:
        """Let the key stand for its command on disk; answers the command that it does stand for."""
        for _ in range(DECIDE_AGAIN_MAX):
            stored = await self._store.get(Idempotency, row.id)
            if stored is not None and not self._is_over(stored):
                return self._same(stored, row.body_hash)
            op = Insert(row) if stored is None else Update(msgspec.structs.replace(row, version=stored.version))
            if isinstance(await self._store.apply(op), Applied):
                return row.command_id
        raise StateConflict("The idempotency key kept changing hands.")

    def end(self, row: Idempotency) -> None:
        """Its command has ended: from here on the disk answers."""
        if self._busy.get(row.id) is row:
            del self._busy[row.id]

    def _is_over(self, row: Idempotency) -> bool:
        return row.created_at + KEPT_MS <= self._clock()

    def _same(self, row: Idempotency, body_hash: str) -> str:
        if row.body_hash != body_hash:
            raise IdempotencyConflict("This idempotency key was used for another command.", commandId=row.command_id)
        return row.command_id


def _id(agent_id: str, key: str) -> str:
    # Hashed: a key may have any characters, and must not be able to look like another agent's.
    return hashlib.sha256(msgspec.json.encode((agent_id, key))).hexdigest()


def _hash(tab_id: str, body: msgspec.Struct) -> str:
    return hashlib.sha256(tab_id.encode() + b"\0" + msgspec.json.encode(body)).hexdigest()
