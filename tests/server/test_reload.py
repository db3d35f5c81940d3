"""Changing the settings of a running server, seen from outside."""

from __future__ import annotations

import os
import signal
import time

import pytest

from .conftest import Server, events_of, open_session
from .tasking import states

pytestmark = [pytest.mark.server, pytest.mark.browser]


def test_settings_change_by_request_by_file_and_by_signal_and_outlive_the_server(own_server: Server) -> None:
    file = own_server.state / "tabherd.toml"
    with own_server.client() as admin, events_of(own_server, "config_reloaded,config_refused") as events:
        session = open_session(admin, agentId="ada")
        answer = admin.patch("/config", json={"tiers": {"night": 60}, "pools": {"default": {"max_active": 1}}})
        assert answer.json() == {"changed": ["pools.default.max_active", "tiers.night"], "needsRestart": []}
        assert next(events)["cause"] == "patch"
        # A lower cap ends nothing, and admits nothing.
        assert admin.get(f"/sessions/{session['sessionId']}").json()["state"] == "active"
        assert admin.post("/sessions", json={"agentId": "bob", "waitMs": 0}).json()["code"] == "capacity"

        file.write_text(file.read_text().replace("max_active = 1", "max_active = 2"))
        assert next(events)["changed"] == ["pools.default.max_active"]
        open_session(admin, agentId="bob", tier="night")

        file.write_text("[nonsense]\n")
        os.kill(own_server.record["pid"], signal.SIGHUP)
        refused = next(events)
        assert (refused["type"], refused["cause"]) == ("config_refused", "signal")
        assert admin.get("/config").json()["settings"]["tiers"]["night"] == 60

        file.write_text("[tiers]\nnight = 70\n[server]\nlog_level = 'debug'\n")
        os.kill(own_server.record["pid"], signal.SIGHUP)
        reloaded = next(events)
        assert reloaded["changed"] == ["pools.default.max_active", "tiers.night"]
        assert reloaded["needsRestart"] == ["server.log_level"]
    own_server.stop()
    own_server.start()
    with own_server.client() as admin:
        shown = admin.get("/config").json()
        assert (shown["settings"]["tiers"]["night"], shown["settings"]["server"]["log_level"]) == (70, "debug")
        assert (shown["sources"]["tiers.night"], shown["sources"]["server.port"]) == ("file", "environment")
        assert shown["needsRestart"] == []


# Every knob of the scheduler, turned down and up again while work is under way.
TURNS: list[dict[str, object]] = [
    {"workers": 1, "max_inflight_per_agent": 1},
    {"enabled": False},
    {"queue_max": 1, "queue_max_per_agent": 1},
    {"deadline_ms": 1_000, "priority_aging_ms": 0, "attempts_max": 1, "result_ttl_s": 60},
    {"enabled": True, "workers": 8, "max_inflight_per_agent": 4},
    {"workers": 20, "queue_max": 10_000, "queue_max_per_agent": 1_000, "deadline_ms": 60_000, "result_ttl_s": 300},
]
TASKS = 200


def test_nothing_is_lost_when_the_scheduler_is_set_otherwise_while_tasks_flow(own_server: Server) -> None:
    with own_server.client() as admin:
        tabs = [open_session(admin, agentId=f"agent-{n}")["tabs"][0]["tabId"] for n in range(4)]
        for tab_id in tabs:
            admin.post(f"/tabs/{tab_id}/action", json={"kind": "evaluate", "expression": "window.runs = []"})
        task_ids: list[str] = []
        for begin in range(0, TASKS, 50):
            tasks = [
                {
                    "action": "evaluate",
                    "params": {"expression": f"window.runs.push({n})"},
                    "tabId": tabs[begin // 50 % 4],
                    "deadline": int(time.time() * 1000) + 600_000,
                }
                for n in range(begin, begin + 50)
            ]
            # An admin submits for whom the tab is.
            body = {"agentId": f"agent-{begin // 50 % 4}", "tasks": tasks}
            answer = admin.post("/tasks/batch", json=body).json()
            assert answer["rejected"] == 0, answer
            task_ids += [item["taskId"] for item in answer["tasks"]]
        for turn in TURNS:
            changed = admin.patch("/config", json={"scheduler": turn})
            assert changed.status_code == 200, changed.text
            os.kill(own_server.record["pid"], signal.SIGHUP)
        assert set(states(admin, task_ids)) == {"done"}
        runs = [
            number
            for tab_id in tabs
            for number in admin.post(
                f"/tabs/{tab_id}/action", json={"kind": "evaluate", "expression": "window.runs"}
            ).json()["result"]
        ]
        assert sorted(runs) == list(range(TASKS))
        metrics = admin.get("/scheduler/stats").json()["metrics"]
        assert (metrics["tasksSubmitted"], metrics["tasksCompleted"]) == (TASKS, TASKS)
