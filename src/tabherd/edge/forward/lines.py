"""Every connection to other nodes: dialled when one is needed, kept for the next request, ended when its node is dead.

Invariants:
- A connection serves one user at a time; what comes back is kept only if it is in order, and no more than `KEPT_MAX`
  per peer. How many are in use is not bounded, since a caller may wait minutes for its answer; they are counted.
- One that has been idle for longer than `IDLE_MAX_S` is not used: the other side closes it some time later, and a
  request that meets the close is lost.
- After `drop` nothing that had been opened or was being opened to that node is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from ...cluster.peer import Peer
from .failures import unreachable
from .http_line import HttpLine
from .line import Line

CONNECT_LIMIT_S: Final = 2.0
KEPT_MAX: Final = 32
# Less than the 75 s for which a server keeps a connection that nothing comes in on.
IDLE_MAX_S: Final = 30.0
DEAD: Final = "it was declared dead"

AnyLine = TypeVar("AnyLine", bound=Line)


class Count(msgspec.Struct, frozen=True):
    """How many connections there are to one node."""

    in_use: int
    kept: int


class Lines:
    """The connections of one node to the others."""

    def __init__(self) -> None:
        # By node: all that is open, in use or not.
        self._open: dict[str, set[Line]] = {}
        # By peer: those that wait for the next request, the one used last at the end.
        self._kept: dict[Peer, list[HttpLine]] = {}
        # The time limits of connections that are being opened.
        self._dialling: dict[Line, asyncio.Timeout] = {}
        self._is_closed = False

    async def take(self, peer: Peer, *, is_fresh: bool) -> HttpLine:
        """A connection for one request, to be given back; `NodeUnreachable` when there is none to be had."""
        kept = self._kept.get(peer)
        oldest = asyncio.get_running_loop().time() - IDLE_MAX_S
        while kept and not is_fresh:
            line = kept.pop()
            if line.idle_since >= oldest and line.is_quiet():
                line.was_kept = True
                return line
            line.abort("it was not used for long")
        return await self.dial(HttpLine(peer))

    def give_back(self, line: HttpLine) -> None:
        """After the request, however it went."""
        kept = self._kept.setdefault(line.peer, [])
        if self._is_closed or len(kept) >= KEPT_MAX or not line.rest():
            line.abort("it is of no more use")
            if not kept:
                self._kept.pop(line.peer, None)
        else:
            line.idle_since = asyncio.get_running_loop().time()
            kept.append(line)

    async def dial(self, line: AnyLine) -> AnyLine:
        """Connect the line to its peer; `NodeUnreachable` when that cannot be done in time."""
        peer = line.peer
        host, port = address_of(peer)
        if self._is_closed:
            raise unreachable(peer, "this server ends")
        self._dialling[line] = limit = asyncio.timeout(CONNECT_LIMIT_S)
        try:
            async with limit:
                await asyncio.get_running_loop().create_connection(lambda: line, host, port)
            is_there = line.failure is None
        except TimeoutError:
            is_there = False
        except OSError as error:
            raise unreachable(peer, error.strerror or "no connection") from None
        except asyncio.CancelledError:
            # It may be there by now, and nobody wants it any more.
            line.abort("it was given up")
            raise
        finally:
            del self._dialling[line]
        if not is_there:
            line.abort("no connection within the time for it")
            raise unreachable(peer, str(line.failure))
        self._open.setdefault(peer.node_id, set()).add(line)
        line.on_ended = lambda: self._forget(line)
        return line

    def drop(self, node_id: str, reason: str = DEAD) -> None:
        """End all connections to that node, whoever uses them."""
        now = asyncio.get_running_loop().time()
        for line, limit in self._dialling.items():
            if line.peer.node_id == node_id:
                line.abort(reason)
                if not limit.expired():
                    limit.reschedule(now)
        for line in list(self._open.get(node_id, ())):
            line.abort(reason)

    def close(self) -> None:
        """End all of them; there will be no others."""
        self._is_closed = True
        for node_id in {*self._open, *(line.peer.node_id for line in self._dialling)}:
            self.drop(node_id, "this server ends")

    def counts(self) -> Iterator[tuple[str, Count]]:
        """By node."""
        for node_id, lines in self._open.items():
            kept = sum(len(some) for peer, some in self._kept.items() if peer.node_id == node_id)
            yield node_id, Count(len(lines) - kept, kept)

    def _forget(self, line: Line) -> None:
        lines = self._open[line.peer.node_id]
        lines.discard(line)
        if not lines:
            del self._open[line.peer.node_id]
        kept = self._kept.get(line.peer)
        if kept is not None and line in kept:
            kept.remove(line)
            if not kept:
                del self._kept[line.peer]


def address_of(peer: Peer) -> tuple[str, int]:
    """Host and port of its address; `NodeUnreachable` when it is none."""
    try:
        parts = urlsplit(peer.url)
        if parts.scheme == "http" and parts.hostname and parts.hostname.isascii() and parts.port:
            return parts.hostname, parts.port
    except ValueError:
        # A port that is no number, or half of a bracket.
        pass
    raise unreachable(peer, f"its address {peer.url[:200]!r} is not of the form http://HOST:PORT")
