"""How a server becomes a node of a cluster, and leaves it again.

The order keeps the promises: the life begins with its row, so that everything it writes can be shut out; then it beats,
so that the others know it; and it ends with its last write, after which others take up at once what it has left.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import msgspec

from .. import logs
from ..browsers.process import age_ms
from ..cluster.clock import ClusterClock
from ..cluster.cluster import Cluster
from ..cluster.fenced_store import FencedStore
from ..cluster.membership import Membership, boot_id, join
from ..cluster.secrets import shared_key
from ..config import Config
from ..core.model import Node
from ..errors import StoreUnavailable
from ..store.base import Store
from .forward.links import Links
from .state import StateDir

log = logs.get_logger("cluster")

# How long the last word of a node may take.
LEAVE_LIMIT_S: Final = 5.0
RETRY_S: Final = 1.0
# What all nodes share, by name: for addresses of sockets, for what receivers of webhooks check, for each other.
TICKETS: Final = "tickets"
WEBHOOKS: Final = "webhooks"
NODES: Final = "nodes"


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """One life as a node of a cluster."""

    cluster: Cluster
    # Takes nothing from this life once it is over.
    store: Store
    # The database's time.
    clock: ClusterClock
    links: Links
    # What tells that a request comes from another node.
    hop_key: bytes
    ticket_key: bytes
    webhook_key: bytes

    @property
    def membership(self) -> Membership:
        return self.cluster.membership


@asynccontextmanager
async def joined(
    store: Store, config: Config, directory: StateDir, listens_at: str, *, is_patient: bool
) -> AsyncIterator[Joined]:
    """Be a node for as long as this lasts. One that was in the cluster before waits for a store that is away."""
    # The driver is an extra, so nothing of it is imported before there is a database; opening the store has checked.
    from ..cluster.postgres_hints import PostgresHints
    from ..store.postgres import PostgresStore
    from ..store.postgres_tasks import PostgresTaskClaims

    assert isinstance(store, PostgresStore), "only nodes that share a database are a cluster"
    # What waits for the other store's connection must not hold up a beat.
    beats = PostgresStore(store.database)
    try:
        node = await _begin(beats, config, directory, listens_at, is_patient=is_patient)
        clock = ClusterClock()
        membership = Membership(config=config.cluster, store=beats, node=node, clock=clock)
        await membership.start()
        keys = {name: await shared_key(store, name) for name in (TICKETS, WEBHOOKS, NODES)}
        links = Links(node.id, node.epoch, keys[NODES], node.boot_id, clock)
        claims = PostgresTaskClaims(store.database, node, membership.fenced)
        hints = PostgresHints(config.cluster.direct_url or config.store, store.database.schema, node.id)
        _drop_the_dead(membership, links)
        hints.start()
        try:
            yield Joined(
                cluster=Cluster(membership, hints, claims),
                store=FencedStore(store, node, membership.fenced, membership.refuse_untrusted),
                clock=clock,
                links=links,
                hop_key=keys[NODES],
                ticket_key=keys[TICKETS],
                webhook_key=keys[WEBHOOKS],
            )
        finally:
            await hints.close()
            await claims.close()
            await links.close()
            await membership.stop()
            await _leave(membership)
    finally:
        await beats.close()


async def _begin(store: Store, config: Config, directory: StateDir, listens_at: str, *, is_patient: bool) -> Node:
    identity = directory.next_identity()
    while True:
        try:
            node = Node(
                id=identity.node_id,
                epoch=identity.epoch,
                url=config.cluster.url or reachable(listens_at, config.store),
                pid=os.getpid(),
                started_at=await store.now(),
                boot_id=boot_id(),
            )
            return await join(store, node, config.cluster.dead_after_s, age_ms)
        except StoreUnavailable as error:
            if not is_patient or not error.retryable:
                raise
            log.warning("joining the cluster waits for the store", error=error.message)
            await asyncio.sleep(RETRY_S)


async def _leave(membership: Membership) -> None:
    if membership.is_fenced.is_set():
        return
    try:
        async with asyncio.timeout(LEAVE_LIMIT_S):
            await membership.leave()
    except (StoreUnavailable, TimeoutError) as error:
        log.warning("the other nodes could not be told; they will miss this one", error=str(error))


def _drop_the_dead(membership: Membership, links: Links) -> None:
    """Whoever waits for the answer of a node that is over hears so."""
    before = dict(membership.peers)

    def changed() -> None:
        for node_id, peer in before.items():
            if membership.peers.get(node_id) != peer:
                links.drop(node_id)
        before.clear()
        before.update(membership.peers)

    membership.on_change.append(changed)


def reachable(listens_at: str, store: str) -> str:
    """Where other nodes reach a server that listens there: on every address means on the one that leads to the
    database.
    """
    url = urlsplit(listens_at)
    if url.hostname not in ("0.0.0.0", "::"):
        return listens_at
    database = urlsplit(store)
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            database.hostname or "localhost", database.port or 5432, type=socket.SOCK_DGRAM
        )[0]
        # Nothing is sent: it only finds out which way it would go.
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            host = str(probe.getsockname()[0])
    except OSError as error:
        raise StoreUnavailable(f"The host of the store cannot be found: {error.strerror}.", cause="away") from None
    return f"http://[{host}]:{url.port}" if ":" in host else f"http://{host}:{url.port}"
