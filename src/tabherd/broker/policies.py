"""What a pool's settings mean for its caps, its browsers and their slots, also when they change."""

from __future__ import annotations

from collections.abc import Mapping

from .. import config
from ..browsers.pool import Pool, PoolPolicy
from ..browsers.slot import SlotPolicy
from ..core import caps
from ..core.breaker import BreakerPolicy
from ..metrics import Metrics
from .admission import Admission


def caps_of(settings: config.Pool, memory_bytes: int) -> caps.Caps:
    """The pool's caps on this node; never more sessions than its browsers have seats, or its memory can hold.

    What several nodes have together is bounded by `shared_caps_of`; there these are what this one can do at the most.
    """
    return caps.Caps(
        max_active=min(settings.max_active or caps.derive_max_active(memory_bytes), policy_of(settings).seats_max),
        max_active_per_key=settings.max_active_per_key,
        max_active_per_agent=settings.max_active_per_agent,
        max_pooled=settings.max_pooled,
        max_pooled_per_key=settings.max_pooled_per_key,
        max_tabs=settings.tabs_max,
    )


def shared_caps_of(settings: config.Pool) -> caps.Caps:
    """The caps of the store's counters where all nodes of a cluster count in them: those that were asked for.

    What follows from a machine, its memory, its browsers and the tabs in them, is each node's own.
    """
    return caps.Caps(
        max_active=settings.max_active,
        max_active_per_key=settings.max_active_per_key,
        max_active_per_agent=settings.max_active_per_agent,
    )


def policy_of(settings: config.Pool) -> PoolPolicy:
    return PoolPolicy(
        browsers_min=settings.browsers_min,
        browsers_max=settings.browsers_max,
        warm=settings.warm,
        shrink_after_ms=settings.shrink_after_s * 1000,
        slot=SlotPolicy(
            sessions_per_browser=settings.sessions_per_browser,
            probe_every_ms=settings.probe_every_ms,
            probe_limit_ms=settings.probe_limit_ms,
            recycle_sessions=settings.recycle_sessions,
            recycle_age_ms=settings.recycle_age_s * 1000,
            recycle_pss_bytes=settings.recycle_pss_mb << 20,
            breaker=BreakerPolicy(
                crashes_max=settings.breaker_crashes,
                window_ms=settings.breaker_window_s * 1000,
                open_ms=settings.breaker_open_s * 1000,
                open_max_ms=settings.breaker_open_max_s * 1000,
            ),
            is_private=settings.isolation == "browser",
            is_shared=settings.isolation == "shared",
            is_single=settings.is_single,
        ),
    )


class PoolFollower:
    """Lets pools follow settings that changed: subscribe it. Nobody who has a place loses it."""

    def __init__(
        self,
        *,
        pools: Mapping[str, Pool],
        admissions: Mapping[str, Admission],
        metrics: Metrics,
        memory_bytes: int,
        is_shared: bool = False,
    ) -> None:
        # Whether other nodes count in the same counters.
        self._is_shared = is_shared
        self._pools = pools
        self._admissions = admissions
        self._metrics = metrics
        self._memory_bytes = memory_bytes

    def __call__(self, old: config.Config, new: config.Config) -> None:
        for name, settings in new.pools.items():
            if settings == old.pools[name]:
                continue
            # The stock is made anew, which costs something: only when there is a reason.
            if policy_of(settings) != policy_of(old.pools[name]):
                self._pools[name].reconfigure(policy_of(settings))
            caps = caps_of(settings, self._memory_bytes)
            store_caps = shared_caps_of(settings) if self._is_shared else None
            self._admissions[name].reconfigure(caps, settings.max_waiters, store_caps)
            self._metrics.pool_capacity.labels(name).set(caps.max_active)
