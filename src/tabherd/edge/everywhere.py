"""One answer from all nodes: what each of them has, put together by the one that was asked.

A node that does not answer in time is named in the answer, so that nobody takes what is missing for what is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from .. import wire
from ..cluster.peer import Peer
from ..errors import NodeUnreachable, OutcomeUnknown
from .forward.failures import Misdirected
from .forward.links import Links
from .forward.request import Fields

# How long another node may take.
ANSWER_LIMIT_S: Final = 2.0

# From this node's answer, those of others, and the nodes that gave none, to the one answer.
Merge: TypeAlias = Callable[[Any, list[Any], list[str]], Any]


async def ask_all(
    links: Links, peers: list[Peer], target: bytes, fields: Fields, answer: Any
) -> tuple[list[Any], list[str]]:
    """What the other nodes answer to the same question of the same caller, and those that do not."""
    answers = await asyncio.gather(*(_ask(links, peer, target, fields, answer) for peer in peers))
    missing = [peer.node_id for peer, said in zip(peers, answers, strict=True) if said is None]
    return [said for said in answers if said is not None], missing


def credentials_of(
    authorization: bytes | None, agent_id: bytes | None, cookie: bytes | None = None, csrf: bytes | None = None
) -> Fields:
    """As whom the caller comes."""
    fields = [
        (b"authorization", authorization),
        (b"x-agent-id", agent_id),
        (b"cookie", cookie),
        (b"x-csrf-token", csrf),
    ]
    return tuple((name, value) for name, value in fields if value is not None)


async def _ask(links: Links, peer: Peer, target: bytes, fields: Fields, answer: Any) -> Any:
    try:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            said = await links.ask(peer, "GET", target, headers=fields)
    except (NodeUnreachable, OutcomeUnknown, Misdirected, TimeoutError):
        return None
    if said.status != 200:
        return None
    try:
        return msgspec.json.decode(said.body, type=answer)
    except msgspec.MsgspecError:
        # Another version, in the middle of an upgrade.
        return None


# --- Merges -----------------------------------------------------------------------------------------------------


def merge_browsers(mine: wire.BrowserPage, others: list[wire.BrowserPage], missing: list[str]) -> wire.BrowserPage:
    browsers = [browser for page in (mine, *others) for browser in page.browsers]
    return wire.BrowserPage(browsers=browsers, unreachable=missing or msgspec.UNSET)


def merge_tabs(mine: wire.TabList, others: list[wire.TabList], missing: list[str]) -> wire.TabList:
    return wire.TabList(
        tabs=[tab for page in (mine, *others) for tab in page.tabs], unreachable=missing or msgspec.UNSET
    )


def merge_stats(mine: wire.Stats, others: list[wire.Stats], missing: list[str]) -> wire.Stats:
    """Sums; whether it drains is the asked node's own."""
    pools = dict(mine.pools)
    for other in others:
        for name, pool in other.pools.items():
            pools[name] = _sum(pools[name], pool) if name in pools else pool
    sessions = mine.sessions + sum(other.sessions for other in others)
    return msgspec.structs.replace(mine, sessions=sessions, pools=pools, unreachable=missing or msgspec.UNSET)


def _capacity(one: wire.PoolStats, other: wire.PoolStats) -> int:
    """What both can have together, unless less was asked for."""
    together = one.capacity + other.capacity
    return min(together, one.shared_cap) if one.shared_cap else together


def _sum(one: wire.PoolStats, other: wire.PoolStats) -> wire.PoolStats:
    added = ("active", "pooled", "tabs", "waiting", "free_seats", "stock", "browsers")
    return wire.PoolStats(
        **{name: getattr(one, name) + getattr(other, name) for name in added},
        capacity=_capacity(one, other),
        shared_cap=one.shared_cap,
        waiting_since=min(filter(None, (one.waiting_since, other.waiting_since)), default=None),
        waiters=sorted((*one.waiters, *other.waiters), key=lambda waiter: waiter.position),
    )
