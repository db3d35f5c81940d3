"""The operator's routes: what they ask of the broker and what they answer."""

from __future__ import annotations

import httpx
import pytest

from .fake_broker import FakeBroker


async def test_browsers_are_shown_with_everything_an_operator_looks_for(alice: httpx.AsyncClient) -> None:
    (browser,) = (await alice.get("/browsers")).json()["browsers"]
    assert browser == {
        "browserId": "brw_1",
        "node": "nod_1",
        "pool": "default",
        "state": "ready",
        "pid": 42,
        "product": "Chromium/1",
        "sessions": 1,
        "sessionsServed": 3,
        "stock": 4,
        "memoryBytes": 209_715_200,
        "cpuMs": 1_500,
        "cpuPercent": 2.5,
        "processes": 7,
        "circuit": "closed",
        "suspect": False,
        "lastFailure": "",
        "startedAt": "2025-01-01T00:00:00.000Z",
    }


async def test_restarting_and_draining_a_browser_are_accepted_and_show_it(
    admin: httpx.AsyncClient, broker: FakeBroker
) -> None:
    for verb in ("restart", "drain"):
        answer = await admin.post(f"/browsers/brw_1/{verb}")
        assert (answer.status_code, answer.json()["browserId"]) == (202, "brw_1")
    assert broker.operations.asked == [("restart", "brw_1"), ("drain", "brw_1")]


async def test_a_browser_that_does_not_exist_is_not_found(admin: httpx.AsyncClient) -> None:
    for verb in ("restart", "drain"):
        answer = await admin.post(f"/browsers/brw_9/{verb}")
        assert (answer.status_code, answer.json()["code"]) == (404, "browser_not_found")


async def test_an_agent_may_neither_restart_nor_drain(alice: httpx.AsyncClient, broker: FakeBroker) -> None:
    for method, path in (
        ("POST", "/browsers/brw_1/restart"),
        ("POST", "/browsers/brw_1/drain"),
        ("POST", "/drain"),
        ("DELETE", "/drain"),
    ):
        assert (await alice.request(method, path)).json()["code"] == "forbidden"
    assert broker.operations.asked == []
    assert not broker.is_draining


async def test_a_drain_makes_the_server_unready_until_it_is_taken_back(admin: httpx.AsyncClient) -> None:
    drained = await admin.post("/drain")
    assert (drained.status_code, drained.json()) == (200, {"draining": True, "sessions": 0})
    unready = await admin.get("/ready")
    assert (unready.status_code, unready.json()["code"]) == (503, "draining")
    assert unready.headers["retry-after"]
    resumed = await admin.delete("/drain")
    assert (resumed.status_code, resumed.json()) == (200, {"draining": False, "sessions": 0})
    assert (await admin.get("/ready")).status_code == 200


async def test_stats_are_told_by_pool(alice: httpx.AsyncClient) -> None:
    assert (await alice.get("/stats")).json() == {
        "node": "nod_test",
        "draining": False,
        "sessions": 1,
        "pools": {
            "default": {
                "active": 1,
                "pooled": 3,
                "tabs": 4,
                "waiting": 2,
                "waitingSince": None,
                "capacity": 100,
                "sharedCap": 0,
                "freeSeats": 24,
                "stock": 4,
                "browsers": 1,
                "waiters": [],
            },
        },
    }


async def test_the_waiters_of_all_agents_are_told_to_who_asks_for_them(admin: httpx.AsyncClient) -> None:
    pool = (await admin.get("/stats", params={"waiters": "all"})).json()["pools"]["default"]
    assert pool["waiters"] == [
        {"agentId": "bob", "key": "", "position": 1, "expectedWaitMs": 500, "since": "2025-01-01T00:00:00.000Z"}
    ]


@pytest.mark.parametrize(("order", "newest_first"), [("asc", False), ("desc", True), (None, False)])
async def test_the_audit_trail_is_read_in_the_order_that_is_asked_for(
    admin: httpx.AsyncClient, broker: FakeBroker, order: str | None, newest_first: bool
) -> None:
    assert (await admin.get("/audit", params={} if order is None else {"order": order})).status_code == 200
    assert broker.auditor.asked["newest_first"] is newest_first


async def test_the_history_is_told_as_series_that_begin_together(alice: httpx.AsyncClient) -> None:
    told = (await alice.get("/history")).json()
    assert (told["intervalMs"], told["from"]) == (2_000, "2025-01-01T00:00:00.000Z")
    assert told["series"]["commandP95Ms"] == told["series"]["sessionsWaiting"] == [None, 1.5, 2]


@pytest.mark.parametrize(("limit", "status"), [("2", 200), ("0", 400), ("301", 400), ("many", 400)])
async def test_no_more_of_the_history_is_told_than_was_asked_for(
    alice: httpx.AsyncClient, limit: str, status: int
) -> None:
    answer = await alice.get("/history", params={"limit": limit})
    assert answer.status_code == status
    if status == 200:
        assert answer.json()["series"]["commands"] == [1.5, 2]
