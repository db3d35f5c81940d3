"""Caps as counters: what one more session, pooled tab or page counts against, and what to say when it is full.

A counter is a number that the store moves together with the row it counts, in one transaction that refuses to pass the
cap; so a cap holds however many callers race. What it keeps:

- Names of pools, keys and agents are escaped in a counter's name: no two buckets ever share a counter.
- The empty key is no bucket: it has no counter of its own, and is never capped per key.
- A counter without a cap is moved all the same, so that a cap can be switched on while sessions are open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ..errors import Capacity

CapReason: TypeAlias = Literal["key_cap", "agent_cap", "pool_cap", "tab_cap"]

MEMORY_PER_SESSION_BYTES: Final = 64 << 20
MEMORY_SHARE_PERCENT: Final = 60
DERIVED_ACTIVE_MAX: Final = 500
# A counter of waiters stands one above their number: the store keeps no counter at zero, and to rest on the absence of
# one is what costs it most.
WAITING_BASE: Final = 1


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each kind a pool may have at once; 0 is no such cap."""

    # Sessions: reserved, active, recovering or closing.
    max_active: int = 0
    max_active_per_key: int = 0
    max_active_per_agent: int = 0
    # Tabs that were given back and wait for the next taker.
    max_pooled: int = 0
    max_pooled_per_key: int = 0
    # Pages, whoever has them: those of sessions, popups and pooled ones.
    max_tabs: int = 0


class CapCounter(msgspec.Struct, frozen=True):
    """A counter that one more of its kind moves by one, the value it may reach, and what to say when it may not."""

    counter: str
    cap: int | None
    reason: CapReason


def cap_counters(pool: str, key: str, agent_id: str, caps: Caps) -> tuple[CapCounter, ...]:
    """What a session counts against, narrowest first, so that a refusal names the cap nearest to the caller."""
    of_pool = f"active:{_escaped(pool)}"
    return (
        *_of_key(of_pool, key, caps.max_active_per_key),
        CapCounter(f"{of_pool}:agent:{_escaped(agent_id)}", caps.max_active_per_agent or None, "agent_cap"),
        CapCounter(of_pool, caps.max_active or None, "pool_cap"),
    )


def pooled_counters(pool: str, key: str, caps: Caps) -> tuple[CapCounter, ...]:
    """What a pooled tab counts against, narrowest first; one that does not fit is closed instead."""
    of_pool = f"pooled:{_escaped(pool)}"
    return (
        *_of_key(of_pool, key, caps.max_pooled_per_key),
        CapCounter(of_pool, caps.max_pooled or None, "pool_cap"),
    )


def tab_counter(pool: str, caps: Caps) -> CapCounter:
    """What every page counts against, whoever has it."""
    return CapCounter(f"tabs:{_escaped(pool)}", caps.max_tabs or None, "tab_cap")


def waiting_counter(pool: str) -> str:
    """What callers count in that wait for a session on some node of a cluster; see `WAITING_BASE`."""
    return f"waiting:{_escaped(pool)}"


def _of_key(of_pool: str, key: str, cap: int) -> tuple[CapCounter, ...]:
    return (CapCounter(f"{of_pool}:key:{_escaped(key)}", cap or None, "key_cap"),) if key else ()


def _escaped(name: str) -> str:
    # Pool "a" with key "b:agent:c" and pool "a:key:b" must not share a counter.
    return name.replace("%", "%25").replace(":", "%3A")


def derive_max_active(total_memory_bytes: int) -> int:
    """One session per 64 MB of 60 % of the machine's memory, at most 500, at least 1."""
    fitting = total_memory_bytes * MEMORY_SHARE_PERCENT // 100 // MEMORY_PER_SESSION_BYTES
    return max(1, min(DERIVED_ACTIVE_MAX, fitting))


def capacity_refusal(
    reason: CapReason, count: int, cap: int, position: int | None, retry_after_ms: int | None
) -> Capacity:
    """The typed backpressure answer: which cap, how full, where the caller stood in the queue, when to come back."""
    details: dict[str, Any] = {} if position is None else {"position": position}
    return Capacity(
        f"{_FULL[reason]} ({count} of {cap}).",
        retry_after_ms=retry_after_ms,
        reason=reason,
        count=count,
        cap=cap,
        **details,
    )


_FULL: Final[Mapping[CapReason, str]] = {
    "key_cap": "This key has all the sessions it may have",
    "agent_cap": "This agent has all the sessions it may have",
    "pool_cap": "The pool has all the sessions it may have",
    "tab_cap": "The pool has all the tabs it may have",
}
