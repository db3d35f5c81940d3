"""What kind of world a history is played in: the settings of the broker, and how often things go wrong by themselves.

Most histories have calm weather in most respects, so that what must not happen there is judged strictly; each kind of
trouble has its share of them.
"""

from __future__ import annotations

from random import Random

from tabherd.config import Config, Locks, Pool, Retention, Scheduler, Webhooks

from .webhook_rules import RECEIVER

# How often the disk refuses. The store of a single node answers whether it wrote, or dies with the node (`faults`).
STORE_FAIL_RATE = 0.01
STORE_LOSE_RATE = 0.0
LAUNCH_FAIL_RATE = 0.1
# How often a browser answers late, and its news come twice, where that happens at all.
LATE_RATE = 0.03


class Weather:
    def __init__(self, chance: Random) -> None:
        self.store_fail_rate = STORE_FAIL_RATE
        self.store_lose_rate = STORE_LOSE_RATE
        self.launch_fail_rate = LAUNCH_FAIL_RATE
        self.late_rate = LATE_RATE if chance.random() < 0.3 else 0.0
        # Whether somebody sets the clock of the machine.
        self.has_clock_set = chance.random() < 0.15
        self.config = _config(chance)


def _config(chance: Random) -> Config:
    most = chance.choice((2, 3, 4))
    return Config(
        pools={
            "default": Pool(
                browsers_max=2,
                warm=chance.choice((0, 1, 2)),
                max_active=most,
                max_active_per_key=chance.choice((1, 2)),
                max_active_per_agent=min(most, chance.choice((2, 3))),
                max_pooled=chance.choice((1, 3)),
                max_pooled_per_key=chance.choice((1, 2)),
                pooled_ttl_s=6,
                max_tabs=most + 2,
                heartbeat_s=2,
                stale_after_s=5,
                idle_ttl_s=5,
                owner_dead_grace_ms=500,
                deadline_grace_s=3,
            )
        },
        scheduler=Scheduler(
            workers=chance.choice((1, 2, 3)),
            max_inflight_per_agent=2,
            queue_max=chance.choice((4, 20)),
            queue_max_per_agent=10,
            deadline_ms=6_000,
            priority_aging_ms=500,
            result_ttl_s=5,
            attempts_max=chance.choice((1, 2)),
        ),
        retention=Retention(tasks_s=20, rejected_max=3),
        locks=Locks(lease_ms=1_000, waiters_per_name=4),
        webhooks=Webhooks(allow_hosts=(RECEIVER,), attempts_max=3, retry_ms=100, limit_ms=500, max_inflight_per_host=2),
    )
