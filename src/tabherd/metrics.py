"""What Prometheus sees: every metric of this server, with the name, labels and meaning that are published.

Each `Metrics` has its own registry, so that two servers in one process (and tests) do not mix. Only metrics that
something sets are declared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

PREFIX: Final = "tabherd"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# In-memory work and disk commits: 50 us to a second.
FAST_S: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
# What waits for a browser or for another caller: a millisecond to two minutes.
SLOW_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
# HTTP spans both.
HTTP_S: Final = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0)
BATCH: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)


class Counter(Collector):
    """How often something happened, by labels: counted in plain numbers on the event loop, shaped only when scraped.

    The library's own take a lock, and a histogram walks its buckets, for each observation: several microseconds, on
    paths that every request and every command take more than once.
    """

    def __init__(self, name: str, about: str, labels: tuple[str, ...]) -> None:
        self._name = f"{PREFIX}_{name}"
        self._about = about
        self._labels = labels
        # By the values of the labels, which are few.
        self._counts: dict[tuple[str, ...], int] = {} if labels else {(): 0}

    def inc(self, *labels: str) -> None:
        """Once more, with these values of the labels."""
        self._counts[labels] = self._counts.get(labels, 0) + 1

    def by_last_label(self) -> dict[str, int]:
        """How often, by the value of the last label."""
        counts: dict[str, int] = {}
        for (*_, last), count in self._counts.items():
            counts[last] = counts.get(last, 0) + count
        return counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._about, labels=self._labels)
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        yield family


class Histogram(Collector):
    """How long something took, or how many it was, by labels; counted as a `Counter` counts."""

    def __init__(self, name: str, about: str, bounds: tuple[float, ...], labels: tuple[str, ...]) -> None:
        self._name = f"{PREFIX}_{name}"
        self._about = about
        self.bounds = bounds
        self._labels = labels
        # By the values of the labels: how many per bucket, the last one without bound; their sum.
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}
        if not labels:
            self._begin(())

    def observe(self, value: float, *labels: str) -> None:
        """One more, with these values of the labels."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._begin(labels)
        counts[bisect_left(self.bounds, value)] += 1
        self._sums[labels] += value

    def per_bucket(self) -> list[int]:
        """How many there are in each bucket, whatever their labels; the last one is without bound."""
        return [sum(bucket) for bucket in zip(*self._counts.values(), strict=True)] or [0] * (len(self.bounds) + 1)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        bounds = [*map(floatToGoString, self.bounds), "+Inf"]
        for labels, counts in self._counts.items():
            family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), self._sums[labels])
        yield family

    def _begin(self, labels: tuple[str, ...]) -> list[int]:
        counts = self._counts[labels] = [0] * (len(self.bounds) + 1)
        self._sums[labels] = 0.0
        return counts


class CdpMessages(Collector):
    """`cdp_messages_total{direction}`: counted as plain numbers on the hottest path there is."""

    def __init__(self, count: Callable[[], tuple[int, int]]) -> None:
        self._count = count

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            f"{PREFIX}_cdp_messages", "CDP messages of clients and of their browsers.", labels=("direction",)
        )
        for direction, count in zip(("from_client", "from_browser"), self._count(), strict=True):
            family.add_metric((direction,), count)
        yield family


class TaskStates(Collector):
    """How many tasks are in each state; counted when somebody scrapes.

    A gauge of the library could not have this name, because it takes that of the counter `tasks_total` for the same.
    """

    def __init__(self, count: Callable[[], Mapping[str, int]]) -> None:
        self._count = count

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(f"{PREFIX}_tasks", "Tasks that are not over.", labels=("state",))
        for state, count in self._count().items():
            family.add_metric((state,), count)
        yield family


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.http_request_seconds = self._histogram(
            "http_request_seconds", "Time from request to answer.", HTTP_S, ("route", "status")
        )
        self.rejected_total = self._counter("rejected_total", "Typed errors answered, by code.", ("code",))
        self.store_commit_seconds = self._histogram(
            "store_commit_seconds", "Time of one commit of the store, which may carry many transactions.", FAST_S
        )
        self.store_batch_size = self._histogram("store_batch_size", "Transactions that shared one commit.", BATCH)
        self.sessions = self._gauge("sessions", "Sessions now, by pool and state.", ("pool", "state"))
        self.acquire_seconds = self._histogram(
            "acquire_seconds", "Time from asking for a session to having it bound.", SLOW_S
        )
        self.acquire_waiters = self._gauge("acquire_waiters", "Callers that wait for a session now.", ("pool",))
        self.pool_capacity = self._gauge("pool_capacity", "Sessions that the pool admits at the most.", ("pool",))
        self.browsers = self._gauge("browsers", "Browsers now, by state.", ("state",))
        self.browser_circuit = self._gauge(
            "browser_circuit", "Places for a browser, by the state of their circuit breaker.", ("state",)
        )
        self.browser_crashes_total = self._counter(
            "browser_crashes_total", "Browsers that died unasked, hang kills and failed starts included."
        )
        self.commands_total = self._counter(
            "commands_total", "Commands that reached their one outcome.", ("kind", "outcome")
        )
        self.command_seconds = self._histogram("command_seconds", "Execution time of commands.", SLOW_S, ("kind",))
        self.gate_wait_seconds = self._histogram("gate_wait_seconds", "Time commands waited for their tab.", SLOW_S)
        self.gate_hold_seconds = self._histogram("gate_hold_seconds", "Time commands had their tab.", SLOW_S)
        self.tasks_total = self._counter("tasks_total", "Tasks that reached their one outcome.", ("outcome",))
        self.task_wait_seconds = self._histogram("task_wait_seconds", "Time tasks waited for their turn.", SLOW_S)
        self.task_run_seconds = self._histogram("task_run_seconds", "Time tasks ran.", SLOW_S)
        self.dispatch_seconds = self._histogram(
            "dispatch_seconds", "Time from a task's turn until it was sent to its page.", SLOW_S
        )
        self.lock_wait_seconds = self._histogram(
            "lock_wait_seconds", "Time callers waited for a named lock that they got.", SLOW_S
        )
        self.locks_held = self._gauge("locks_held", "Named locks that callers of this server hold now.")
        self.lock_timeouts_total = self._counter(
            "lock_timeouts_total", "Callers that did not get a named lock within their time."
        )
        self.lock_skips_total = self._counter(
            "lock_skips_total", "Callers that found a named lock busy and went on without it, as they had said."
        )
        self.gate_depth = self._gauge("gate_depth", "Tickets waiting now, over all tabs.")
        self.cdp_denied_total = self._counter(
            "cdp_denied_total", "CDP commands that clients sent and may not use, by method.", ("method",)
        )
        self.live_viewers = self._gauge("live_viewers", "People who watch a tab now.")
        self.live_frames_total = self._counter("live_frames_total", "Frames of tabs that were sent to their viewers.")
        self.lease_reaped_total = self._counter("lease_reaped_total", "Sessions reclaimed, by reason.", ("reason",))
        self.webhook_deliveries_total = self._counter(
            "webhook_deliveries_total",
            "Attempts to deliver a webhook: delivered, retried, failed (given up).",
            ("outcome",),
        )

    def count_tasks(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Where the numbers of tasks come from, by state."""
        self.registry.register(TaskStates(count))

    def count_cdp(self, count: Callable[[], tuple[int, int]]) -> None:
        """Read `cdp_messages_total` off two plain counts: of messages from clients, and of those from browsers."""
        self.registry.register(CdpMessages(count))

    def render(self) -> bytes:
        """The exposition text, of type `CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def _histogram(self, name: str, about: str, bounds: tuple[float, ...], labels: tuple[str, ...] = ()) -> Histogram:
        histogram = Histogram(name, about, bounds, labels)
        self.registry.register(histogram)
        return histogram

    def _counter(self, name: str, about: str, labels: tuple[str, ...] = ()) -> Counter:
        counter = Counter(name, about, labels)
        self.registry.register(counter)
        return counter

    def _gauge(self, name: str, about: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(name, about, labels, namespace=PREFIX, registry=self.registry)
