"""Hints over PostgreSQL's LISTEN and NOTIFY, on a connection that does nothing else.

Invariants:
- Telling costs the teller a place in a small set: what is told in one moment goes out in one statement, once each,
  and nobody waits for that. When there is too much of it, or too long a text, the others are only told to look.
- A connection that is lost, or has gone silent without a word, is opened again after pauses that grow up to a bound;
  then everybody who listens is told to look, because nobody knows what was missed.
- Behind a pooler of transactions nobody can be told anything: then everybody who listens is told to look every second.
  Telling works there all the same.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]
import msgspec
import structlog

from ..store.postgres_database import CONNECT_LIMIT_S, split_url
from .hints import Hearer, Hearers

log = structlog.get_logger("cluster")

# PostgreSQL takes less than 8000 bytes in one notification.
PAYLOAD_MAX_BYTES: Final = 7_900
# Longest text that is told as it is.
TEXT_MAX_BYTES: Final = 1_000
# Hints that wait to be sent; beyond it only their topics do.
WAITING_MAX: Final = 1_000
# How long a statement may take. Nobody waits for it, but a connection that is dead must be noticed.
STATEMENT_LIMIT_S: Final = 4.0
# After this much silence the connection is asked whether it is still there.
PROBE_S: Final = 5.0
# How often everybody looks who cannot be told.
LOOK_S: Final = 1.0
PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0

# What the driver says when the database cannot be reached, or not any more.
_AWAY: Final = (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_NOTIFY: Final = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"


class _Notification(msgspec.Struct, frozen=True, array_like=True):
    """What one node says to the others."""

    node_id: str
    # Topic and text of each.
    hints: list[tuple[str, str]]


_decode: Final = msgspec.json.Decoder(_Notification).decode


class PostgresHints:
    """Implements `Hints` for the nodes that share a database and a schema in it."""

    def __init__(self, url: str, schema: str, node_id: str) -> None:
        self._url, _ = split_url(url)
        # Those of another schema are another cluster.
        self._channel = schema
        self._node_id = node_id
        self._hearers = Hearers()
        # What was told and is not sent yet, in order, each once.
        self._waiting: dict[tuple[str, str], None] = {}
        # Set while there is something to send, or the connection is gone.
        self._is_due = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        # Set while others can be told, and, unless there is a pooler, can tell us.
        self.is_connected = asyncio.Event()

    def tell(self, topic: str, text: str = "") -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._waiting = {(waiting, ""): None for waiting, _ in self._waiting}
            text = ""
        self._waiting[topic, text if len(text) <= TEXT_MAX_BYTES else ""] = None
        self._is_due.set()

    def listen(self, topic: str, hearer: Hearer) -> None:
        self._hearers.add(topic, hearer)

    def start(self) -> None:
        """Connect, and stay so, from now on; in the event loop that runs."""
        self._running = asyncio.get_running_loop().create_task(self._run(), name="hints")

    async def close(self) -> None:
        """Tell and hear nothing more. Idempotent."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))

    async def _run(self) -> None:
        pause_s = PAUSE_MIN_S
        while True:
            connection: Any = None
            try:
                connection = await asyncpg.connect(self._url, timeout=CONNECT_LIMIT_S, statement_cache_size=0)
                await self._serve(connection)
            except _AWAY as error:
                # By its kind only: the driver may repeat the address, which may have a password in it.
                log.debug("hints are away", error=type(error).__name__)
            finally:
                if self.is_connected.is_set():
                    self.is_connected.clear()
                    pause_s = PAUSE_MIN_S
                if connection is not None:
                    connection.terminate()
            # Not all nodes at once.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    async def _serve(self, connection: Any) -> None:
        """Until the connection is lost, which raises."""
        is_pooled = await _is_pooled(connection)
        if is_pooled:
            log.info("a pooler is before the database: this node looks every second", setting="cluster.direct_url")
        else:
            async with asyncio.timeout(STATEMENT_LIMIT_S):
                await connection.add_listener(self._channel, self._notified)
            connection.add_termination_listener(lambda _: self._is_due.set())
        self.is_connected.set()
        self._hearers.hear_all()
        while True:
            try:
                async with asyncio.timeout(LOOK_S if is_pooled else PROBE_S):
                    await self._is_due.wait()
            except TimeoutError:
                if is_pooled:
                    self._hearers.hear_all()
                else:
                    await connection.fetchval("SELECT 1", timeout=STATEMENT_LIMIT_S)
                continue
            self._is_due.clear()
            told, self._waiting = self._waiting, {}
            # Also without anything to send, since the connection may have ended: then this raises.
            await connection.fetch(
                _NOTIFY, self._channel, list(_payloads(self._node_id, told)), timeout=STATEMENT_LIMIT_S
            )

    def _notified(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        try:
            said = _decode(payload)
        except msgspec.MsgspecError:
            # Whoever can reach the database can notify; a node of another version may, too.
            log.debug("a hint cannot be read")
            return
        if said.node_id != self._node_id:
            for topic, text in said.hints:
                self._hearers.hear(topic, text)


def _payloads(node_id: str, told: Iterable[tuple[str, str]]) -> Iterable[str]:
    """The notifications that say all of it; ASCII, so that a character is a byte."""
    head = f"[{json.dumps(node_id)}, ["
    pieces: list[str] = []
    size = len(head)
    for topic, text in told:
        piece = json.dumps([topic, text])
        if len(piece) > TEXT_MAX_BYTES:
            piece = json.dumps([topic, ""])
        if pieces and size + len(piece) + 4 > PAYLOAD_MAX_BYTES:
            yield f"{head}{', '.join(pieces)}]]"
            pieces, size = [], len(head)
        pieces.append(piece)
        size += len(piece) + 2
    if pieces:
        yield f"{head}{', '.join(pieces)}]]"


async def _is_pooled(connection: Any) -> bool:
    """Whether a pooler is between: it answers for many servers, so it invents the number that it gives its clients."""
    pid: int = await connection.fetchval("SELECT pg_backend_pid()", timeout=STATEMENT_LIMIT_S)
    return bool(pid != connection.get_server_pid())
