"""Metrics have their published names and labels, and two servers in one process do not mix."""

from __future__ import annotations

from tabherd.metrics import HTTP_S, Metrics

PUBLISHED = {
    "tabherd_http_request_seconds",
    "tabherd_rejected",
    "tabherd_store_commit_seconds",
    "tabherd_store_batch_size",
    "tabherd_sessions",
    "tabherd_acquire_seconds",
    "tabherd_acquire_waiters",
    "tabherd_pool_capacity",
    "tabherd_browsers",
    "tabherd_browser_circuit",
    "tabherd_browser_crashes",
    "tabherd_commands",
    "tabherd_command_seconds",
    "tabherd_gate_hold_seconds",
    "tabherd_gate_wait_seconds",
    "tabherd_gate_depth",
    "tabherd_lease_reaped",
    "tabherd_live_viewers",
    "tabherd_live_frames",
    "tabherd_cdp_denied",
    "tabherd_webhook_deliveries",
    "tabherd_tasks",
    "tabherd_dispatch_seconds",
    "tabherd_lock_wait_seconds",
    "tabherd_locks_held",
    "tabherd_lock_timeouts",
    "tabherd_lock_skips",
    "tabherd_task_run_seconds",
    "tabherd_task_wait_seconds",
}


def test_exactly_the_published_metrics_exist() -> None:
    assert {family.name for family in Metrics().registry.collect()} == PUBLISHED


def test_counters_end_in_total_on_the_wire() -> None:
    metrics = Metrics()
    metrics.commands_total.inc("navigate", "completed")
    metrics.browser_crashes_total.inc()
    text = metrics.render().decode()
    assert 'tabherd_commands_total{kind="navigate",outcome="completed"} 1.0' in text
    assert "tabherd_browser_crashes_total 1.0" in text


def test_gauges_take_their_labels_in_the_published_order() -> None:
    metrics = Metrics()
    metrics.sessions.labels("default", "active").set(3)
    assert 'tabherd_sessions{pool="default",state="active"} 3.0' in metrics.render().decode()


def test_requests_are_counted_in_cumulative_buckets_by_route_and_status() -> None:
    metrics = Metrics()
    for seconds in (0.0001, HTTP_S[0], 0.002, 1_000.0):
        metrics.http_request_seconds.observe(seconds, "GET /health", "200")
    metrics.http_request_seconds.observe(0.002, "GET /health", "503")

    def sample(name: str, **labels: str) -> float | None:
        where = {"route": "GET /health", "status": "200", **labels}
        return metrics.registry.get_sample_value(f"tabherd_http_request_seconds_{name}", where)

    assert sample("bucket", le=str(HTTP_S[0])) == 2
    assert sample("bucket", le="0.0025") == 3
    assert sample("bucket", le=str(HTTP_S[-1])) == 3
    assert sample("bucket", le="+Inf") == 4
    assert sample("count") == 4
    assert sample("sum") == 0.0001 + HTTP_S[0] + 0.002 + 1_000.0


def test_two_servers_do_not_share_numbers() -> None:
    one, other = Metrics(), Metrics()
    one.rejected_total.inc("capacity")
    assert one.registry.get_sample_value("tabherd_rejected_total", {"code": "capacity"}) == 1
    assert other.registry.get_sample_value("tabherd_rejected_total", {"code": "capacity"}) is None
