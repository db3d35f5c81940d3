"""More tasks than the server can run: it refuses in time, keeps what it accepted, and does not grow.

Four agents submit ten times what two workers can do, for a few seconds; `OVERLOAD_S` makes it longer.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest

from .conftest import SPARING, Server, open_session, with_settings
from .tasking import LIMIT_S, ended, until

pytestmark = [pytest.mark.server, pytest.mark.browser]

# How long they submit; the soak goes on for a minute.
OVERLOAD_S = float(os.environ.get("OVERLOAD_S", "2"))
# How much longer, until enough has been refused.
PATIENCE_S = 60.0
AGENTS = ("ada", "bob", "cyd", "dan")
WORKERS = 2
QUEUE_MAX = 20
QUEUE_MAX_PER_AGENT = QUEUE_MAX // len(AGENTS)
REJECTED_MAX = 20
# Long, so that also a slow machine submits far more than the workers can do.
TASK_MS = 200
# Ten times what the workers can do, shared by the agents.
PAUSE_S = TASK_MS / 1000 / WORKERS / 10 * len(AGENTS)
# What a server may grow by once its queue is full, however long that lasts: its caches fill, and its ring of events.
GROWTH_MAX_BYTES = 16 << 20
EXPRESSION = f"new Promise((done) => setTimeout(done, {TASK_MS}))"
SETTINGS = SPARING | {
    "SCHEDULER__WORKERS": str(WORKERS),
    "SCHEDULER__DEADLINE_MS": "600000",
    "SCHEDULER__QUEUE_MAX": str(QUEUE_MAX),
    "SCHEDULER__QUEUE_MAX_PER_AGENT": str(QUEUE_MAX_PER_AGENT),
    "RETENTION__REJECTED_MAX": str(REJECTED_MAX),
}


class Flood(msgspec.Struct, kw_only=True):
    """What came of it."""

    # The ids of those that were accepted.
    accepted: list[str] = []
    refusals: list[httpx.Response] = []
    # Of the server, once the queue was full and at the end.
    full_bytes: int = 0
    end_bytes: int = 0

    @property
    def is_one(self) -> bool:
        """Whether far more came than could be done."""
        return len(self.refusals) > max(REJECTED_MAX, len(self.accepted)) and len(self.accepted) > QUEUE_MAX


def test_more_is_refused_than_accepted_and_what_was_accepted_is_done_in_time(tmp_path: Path) -> None:
    with with_settings(tmp_path / "state", SETTINGS) as server:
        flood = flooded(server)
        are_refused_with_the_reason_and_when_to_come_back(flood)
        are_done_after_no_more_than_the_queue_before_them(server, flood)
        # Memory grows with the queue and not with what was submitted.
        assert flood.end_bytes - flood.full_bytes < GROWTH_MAX_BYTES
        do_not_pile_up(server, flood)


def flooded(overloaded: Server) -> Flood:
    flood, is_full = Flood(), threading.Event()
    memory = psutil.Process(overloaded.record["pid"]).memory_info

    def submit(agent_id: str) -> None:
        with overloaded.client() as admin:
            tab_id = open_session(admin, agentId=agent_id, keepAlive=True)["tabs"][0]["tabId"]
            task = {"agentId": agent_id, "tabId": tab_id, "action": "evaluate", "params": {"expression": EXPRESSION}}
            due_s = time.monotonic()
            over_s = due_s + OVERLOAD_S
            # On a busy machine it takes as long as it takes until there is something to tell.
            while time.monotonic() < over_s or (not flood.is_one and time.monotonic() < over_s + PATIENCE_S):
                answer = admin.post("/tasks", json=task)
                if answer.status_code == 202:
                    flood.accepted.append(answer.json()["taskId"])
                else:
                    flood.refusals.append(answer)
                    is_full.set()
                due_s += PAUSE_S
                time.sleep(max(0.0, due_s - time.monotonic()))

    with ThreadPoolExecutor(len(AGENTS)) as agents:
        submitting = [agents.submit(submit, agent_id) for agent_id in AGENTS]
        assert is_full.wait(LIMIT_S), "the queue was never full"
        flood.full_bytes = memory().rss
        for each in submitting:
            each.result()
    flood.end_bytes = memory().rss
    return flood


def are_refused_with_the_reason_and_when_to_come_back(flood: Flood) -> None:
    assert flood.is_one, (len(flood.refusals), len(flood.accepted))
    for answer in flood.refusals:
        body = answer.json()
        assert (answer.status_code, body["code"]) == (429, "queue_full")
        assert body["details"]["cap"] in (QUEUE_MAX, QUEUE_MAX_PER_AGENT)
        assert int(answer.headers["Retry-After"]) >= 1
        assert body["retryAfterMs"] > 0


def are_done_after_no_more_than_the_queue_before_them(overloaded: Server, flood: Flood) -> None:
    with overloaded.client() as admin:
        views = [ended(admin, task_id) for task_id in flood.accepted]
    assert {view["state"] for view in views} == {"done"}
    longest_s = max(_seconds(view["startedAt"], view["completedAt"]) for view in views)
    # What one takes of a worker, with everything around it, on this machine now.
    busy_s = _seconds(min(view["startedAt"] for view in views), max(view["completedAt"] for view in views))
    each_s = max(longest_s, busy_s * WORKERS / len(views))
    # One more for those that run already. Twice, because not every second of a busy machine is as slow as every other.
    bound_s = 2 * (QUEUE_MAX / WORKERS + 1) * each_s
    assert max(_seconds(view["createdAt"], view["completedAt"]) for view in views) <= bound_s


def do_not_pile_up(overloaded: Server, flood: Flood) -> None:
    assert len(flood.refusals) > REJECTED_MAX, "there was something to forget"
    last_id = flood.refusals[-1].json()["details"]["taskId"]
    with overloaded.client() as admin:
        assert admin.get(f"/tasks/{last_id}").json()["state"] == "rejected"
    store = overloaded.state / "tabherd.db"
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as disk:

        def count(table: str) -> int:
            return int(disk.execute(f"SELECT count(*) FROM {table} WHERE state = 'rejected'").fetchone()[0])

        until(lambda: count("tasks") <= REJECTED_MAX)
        # Where they would push results out.
        assert count("archived_tasks") == 0


def _seconds(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
