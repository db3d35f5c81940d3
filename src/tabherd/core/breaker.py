"""The circuit breaker of one browser slot: when a browser that keeps dying may be started again.

A breaker is a value; `started` and `crashed` return the next one, and time only ever comes in as an argument. What it
keeps:

- The first crash in a window costs nothing: the replacement starts at once. Further ones wait a little, doubling.
- 3 crashes in 60 s (hang kills and failed starts count) open it: no start for 30 s, then 60 s, ... up to 5 min.
- When that time is over it is half open and admits exactly one start. If that browser dies within the crash window,
  the breaker opens again for twice as long; if it survives the window, the breaker is closed and all is forgotten.
  Surviving, not serving, is the proof: a browser that dies under its first page has served too.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class BreakerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When it opens and for how long."""

    crashes_max: int = 3
    window_ms: int = 60_000
    open_ms: int = 30_000
    open_max_ms: int = 300_000
    # Pause before the restart after the second crash in a window; doubles with each further one.
    backoff_ms: int = 250


DEFAULT_POLICY = BreakerPolicy()


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"  # no start
    HALF_OPEN = "half_open"  # one start is admitted, or is on trial


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """What one slot's past says about its next start."""

    policy: BreakerPolicy = DEFAULT_POLICY
    # Crashes within the window before the last of them; never more than `crashes_max`.
    crashes: tuple[int, ...] = ()
    # How many times it has opened since it was last closed; 0 while closed.
    trips: int = 0
    # While open: when one start will be admitted.
    open_until: int = 0
    # While half open: when the start on trial began; None until it begins.
    trial_since: int | None = None

    def state(self, now: int) -> BreakerState:
        """Which of the three it is at that time."""
        if not self.trips or self._has_survived(now):
            return BreakerState.CLOSED
        if self.trial_since is None and now < self.open_until:
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN

    @property
    def retry_at(self) -> int:
        """The earliest time of the next start if nothing else happens; a moment in the past means at once."""
        if self.trial_since is not None:
            # The one admitted start is under way: a second one must wait until the first has proven itself.
            return self.trial_since + self.policy.window_ms
        if self.trips:
            return self.open_until
        repeated = len(self.crashes) - 1
        if repeated < 1:
            return self.crashes[-1] if self.crashes else 0
        return self.crashes[-1] + (self.policy.backoff_ms << (repeated - 1))

    def may_start(self, now: int) -> bool:
        """Whether a browser may be started in this slot now."""
        return now >= self.retry_at

    def started(self, now: int) -> Breaker:
        """A start begins, `may_start` having been asked. Told before the launch, so that only one is admitted.

        A timer that fired a moment early is no reason to fail: while the breaker is not closed, any start is on trial.
        """
        if not self.trips:
            return self
        return self._closed() if self._has_survived(now) else msgspec.structs.replace(self, trial_since=now)

    def crashed(self, now: int) -> Breaker:
        """The browser died, hung and was killed, or did not start."""
        before = self._closed() if self._has_survived(now) else self
        if before.trips:
            return before._opened(now)
        window = tuple(at for at in before.crashes if now - at < self.policy.window_ms)
        recent = msgspec.structs.replace(before, crashes=(*window, now))
        return recent._opened(now) if len(recent.crashes) >= self.policy.crashes_max else recent

    def _has_survived(self, now: int) -> bool:
        return self.trial_since is not None and now - self.trial_since >= self.policy.window_ms

    def _opened(self, now: int) -> Breaker:
        # The exponent is bounded too: a slot that has been failing for a year must not build a huge number.
        pause_ms = min(self.policy.open_max_ms, self.policy.open_ms << min(self.trips, 30))
        return msgspec.structs.replace(
            self, crashes=(), trips=self.trips + 1, open_until=now + pause_ms, trial_since=None
        )

    def _closed(self) -> Breaker:
        return Breaker(policy=self.policy)
