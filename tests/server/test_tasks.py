"""Tasks over HTTP, on a real server with a real browser: what they answer, who goes first, and who may do what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from .conftest import SPARING, browser_pids, kill_browser, open_session, value_of, with_settings
from .effects_site import EffectsSite
from .local_site import serving
from .tasking import ended, held, look, reporting, states, submit, submit_there, until, until_running

pytestmark = [pytest.mark.server, pytest.mark.browser]

WORKERS = 2
SUBMITTED = {"taskId", "state", "position", "etaMs", "createdAt"}
TASK = {
    *("taskId", "agentId", "action", "tabId", "sessionId", "selector", "ref", "params", "steps", "priority", "state"),
    *("position", "etaMs", "deadline", "createdAt", "startedAt", "completedAt", "latencyMs", "result", "error", "code"),
    *("attempts", "callbackUrl", "webhook"),
}


@pytest.fixture
def site() -> Iterator[EffectsSite]:
    """What still waits for it at the end of a test ends then."""
    with serving(EffectsSite()) as site:
        yield site


def open_tab(client: httpx.Client, site: EffectsSite, path: str = "/", **body: Any) -> str:
    """A session on a page of the site; its tab."""
    return str(open_session(client, url=site.url(path), **body)["tabs"][0]["tabId"])


def stats(client: httpx.Client) -> dict[str, Any]:
    return dict(client.get("/scheduler/stats").json())


def counts(client: httpx.Client) -> dict[str, int]:
    """What became of tasks so far."""
    return {name: value for name, value in stats(client)["metrics"].items() if name.startswith("tasks")}


# --- Requests and answers ---------------------------------------------------------------------------------------


def test_a_submission_and_a_task_are_told_as_the_api_says(ada: httpx.Client, site: EffectsSite) -> None:
    tab_id = open_tab(ada, site)
    body = {"action": "evaluate", "params": {"expression": "[1, location.pathname]"}, "tabId": tab_id, "priority": 2}
    answer = ada.post("/tasks", json=body)
    assert (answer.status_code, set(answer.json())) == (202, SUBMITTED)
    task = ended(ada, answer.json()["taskId"])
    assert set(task) == TASK
    assert (task["state"], task["result"], task["error"], task["attempts"]) == ("done", [1, "/"], None, 1)
    assert (task["tabId"], task["params"]) == (tab_id, body["params"])
    assert task["createdAt"] <= task["startedAt"] <= task["completedAt"] <= task["deadline"]


def test_steps_run_on_one_turn_and_a_task_without_a_tab_leaves_no_session(
    admin: httpx.Client, ada: httpx.Client, site: EffectsSite
) -> None:
    steps = [
        {"kind": "navigate", "url": site.url("/field")},
        {"kind": "fill", "selector": "#field", "value": "x"},
        {"kind": "evaluate", "expression": "document.querySelector('#field').value"},
    ]
    submitted = [ada.post("/tasks", json={"steps": steps}).json()["taskId"] for _ in range(3)]
    assert [ended(ada, task_id)["result"][-1]["result"] for task_id in submitted] == ["x"] * 3
    until(lambda: admin.get("/sessions", params={"state": "active"}).json()["sessions"] == [])


def test_a_step_that_fails_fails_the_task(ada: httpx.Client, site: EffectsSite) -> None:
    steps = [{"kind": "text"}, {"kind": "evaluate", "expression": "nobody.knows"}, {"kind": "text"}]
    answer = ada.post("/tasks", json={"steps": steps, "tabId": open_tab(ada, site)})
    task = ended(ada, answer.json()["taskId"])
    assert (task["state"], task["code"]) == ("failed", "javascript_error")
    assert [step["ok"] for step in task["result"]] == [True, False]


def test_what_could_never_be_run_is_refused_by_name(ada: httpx.Client) -> None:
    bodies: list[tuple[dict[str, Any], int, str, str | None]] = [
        ({"action": "text", "tabID": "x"}, 400, "unknown_field", "tabID"),
        ({"action": "fly"}, 400, "unknown_action", None),
        ({"action": "fill", "selector": "#a", "params": {"valeu": "x"}}, 400, "invalid_request", "params"),
        # It would be lost.
        ({"action": "click", "selector": "#a", "params": {"fence": "x"}}, 400, "invalid_request", "params.fence"),
        ({"action": "text", "deadline": 1}, 400, "invalid_request", "deadline"),
        ({"action": "text", "agentId": "somebody"}, 403, "forbidden", "agentId"),
        ({"action": "text", "tabId": "tab_none"}, 404, "tab_not_found", None),
    ]
    for body, status, code, field in bodies:
        answer = ada.post("/tasks", json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code), body
        assert answer.json()["details"].get("field") == field, body
    many = ada.post("/tasks/batch", json={"tasks": [{"action": "text"}] * 51})
    assert (many.status_code, many.json()["code"]) == (400, "batch_too_large")
    assert ada.get("/tasks").json()["tasks"] == []


def test_of_a_batch_each_is_admitted_or_refused_by_itself(ada: httpx.Client, site: EffectsSite) -> None:
    tab_id = open_tab(ada, site)
    good = {"action": "evaluate", "params": {"expression": "1"}, "tabId": tab_id}
    answer = ada.post("/tasks/batch", json={"tasks": [good, {"action": "fly"}, good | {"tabId": "tab_none"}, good]})
    told = answer.json()
    assert (answer.status_code, told["submitted"], told["rejected"]) == (202, 2, 2)
    codes = [item["error"] and item["error"]["code"] for item in told["tasks"]]
    assert codes == [None, "unknown_action", "tab_not_found", None]
    assert states(ada, [told["tasks"][0]["taskId"], told["tasks"][3]["taskId"]]) == ["done"] * 2


def test_a_long_look_answers_with_the_end_and_a_short_one_with_how_far_it_is(
    ada: httpx.Client, site: EffectsSite
) -> None:
    task_id = submit(ada, held("me"), tabId=open_tab(ada, site))
    site.is_held.wait()
    assert look(ada, task_id, 50)["state"] == "running"
    with ThreadPoolExecutor(1) as callers:
        waiting = callers.submit(look, ada, task_id, 30_000)
        site.is_open.set()
        assert (waiting.result()["state"], waiting.result()["result"]) == ("done", "me")


def test_the_same_key_is_the_same_task_and_is_done_once(ada: httpx.Client, site: EffectsSite) -> None:
    tab_id = open_tab(ada, site)
    with ThreadPoolExecutor(8) as callers:
        ids = set(
            callers.map(lambda _: submit(ada, reporting("once"), tabId=tab_id, idempotencyKey="order-1"), range(8))
        )
    (task_id,) = ids
    assert ended(ada, task_id)["state"] == "done"
    assert site.count("once") == 1
    other = ada.post("/tasks", json={"action": "text", "tabId": tab_id, "idempotencyKey": "order-1"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


# --- Ending -----------------------------------------------------------------------------------------------------


def test_a_task_whose_deadline_passes_while_it_runs_is_stopped(ada: httpx.Client, site: EffectsSite) -> None:
    tab_id = open_tab(ada, site)
    late = ended(ada, submit(ada, held("late"), tabId=tab_id, deadline=int(time.time() * 1000) + 1_000))
    assert (late["state"], late["code"]) == ("failed", "deadline_exceeded")
    assert value_of(ada, tab_id, "1") == 1


def test_a_cancel_that_races_the_end_leaves_one_end_which_is_counted_once(
    admin: httpx.Client, ada: httpx.Client, site: EffectsSite
) -> None:
    tabs = [open_tab(ada, site) for _ in range(3)]
    before = counts(admin)
    answers: dict[str, int] = {}
    for number in range(12):
        task_id = submit_there(ada, site.url(), reporting(f"n{number}"), tabId=tabs[number % 3])
        # Now at once, now when it may just have begun, now when it may be over.
        time.sleep(0.01 * (number % 6))
        answers[task_id] = ada.post(f"/tasks/{task_id}/cancel").status_code
    ends = {task_id: ended(ada, task_id)["state"] for task_id in answers}
    assert {(answers[task_id], ends[task_id]) for task_id in answers} <= {(200, "cancelled"), (409, "done")}
    after = counts(admin)
    done, cancelled = list(ends.values()).count("done"), list(ends.values()).count("cancelled")
    grown = {name: after[name] - before[name] for name in after}
    assert (grown["tasksSubmitted"], grown["tasksCompleted"], grown["tasksCancelled"]) == (12, done, cancelled)
    assert (grown["tasksFailed"], stats(admin)["queue"]["totalInflight"]) == (0, 0)
    # What is done was done once; what was cancelled at most once.
    for number, task_id in enumerate(answers):
        assert site.count(f"n{number}") in ((1,) if ends[task_id] == "done" else (0, 1))


# --- Who goes first ---------------------------------------------------------------------------------------------


def test_one_task_of_an_agent_goes_before_the_flood_of_another(tmp_path: Path, site: EffectsSite) -> None:
    settings = SPARING | {"SCHEDULER__WORKERS": str(WORKERS), "SCHEDULER__DEADLINE_MS": "600000"}
    with (
        with_settings(tmp_path / "state", settings) as server,
        server.agent("ada") as ada,
        server.agent("bob") as bob,
    ):
        tabs = [open_tab(ada, site) for _ in range(WORKERS + 1)]
        bobs = open_tab(bob, site)
        until_running(ada, *(submit(ada, held(f"h{number}"), tabId=tabs[number]) for number in range(WORKERS)))
        flood = [submit(ada, reporting("flood"), tabId=tabs[number % len(tabs)]) for number in range(12)]
        single = {"action": "evaluate", "params": {"expression": reporting("single")}, "tabId": bobs}
        answer = bob.post("/tasks", json=single).json()
        # Every worker is taken, and twelve came before; still it is the next to start, and is told so.
        assert (answer["state"], answer["position"]) == ("queued", 1)
        site.is_open.set()
        assert set(states(ada, flood)) == {"done"}
        assert states(bob, [answer["taskId"]]) == ["done"]
        # Which of those that run at once is quicker is the machine's business; it is among the first that start.
        began_at = look(bob, answer["taskId"])["startedAt"]
        assert sum(look(ada, task_id)["startedAt"] < began_at for task_id in flood) < WORKERS


def test_within_an_agent_the_lower_priority_goes_first_and_equal_ones_in_order(
    ada: httpx.Client, site: EffectsSite
) -> None:
    tab_id = open_tab(ada, site)
    until_running(ada, submit(ada, held("first"), tabId=tab_id))
    wanted = [("late", 5), ("b", 0), ("c", 0), ("a", -5)]
    tasks = [submit(ada, reporting(who), tabId=tab_id, priority=priority) for who, priority in wanted]
    assert [look(ada, task_id)["position"] for task_id in tasks] == [4, 2, 3, 1]
    site.is_open.set()
    states(ada, tasks)
    assert [effect.who for effect in site.effects] == ["first", "a", "b", "c", "late"]


# --- Tabs that somebody else has --------------------------------------------------------------------------------


def test_a_task_on_a_tab_that_a_person_has_runs_when_it_is_given_back(ada: httpx.Client, site: EffectsSite) -> None:
    tab_id, other = open_tab(ada, site), open_tab(ada, site)
    assert ada.post(f"/tabs/{tab_id}/handoff", json={"by": "a person"}).status_code == 200
    waiting = [submit(ada, reporting("after"), tabId=tab_id) for _ in range(WORKERS + 1)]
    # They keep no worker from others meanwhile.
    assert ended(ada, submit(ada, reporting("other"), tabId=other))["state"] == "done"
    assert {look(ada, task_id)["state"] for task_id in waiting} == {"queued"}
    ada.post(f"/tabs/{tab_id}/resume")
    assert set(states(ada, waiting)) == {"done"}
    assert [effect.who for effect in site.effects] == ["other"] + ["after"] * (WORKERS + 1)


def test_a_task_on_a_tab_that_its_own_agent_has_locked_runs_when_it_is_free(
    ada: httpx.Client, site: EffectsSite
) -> None:
    tab_id = open_tab(ada, site)
    lock = ada.post(f"/tabs/{tab_id}/lock", json={"controllerId": "me"}).json()
    task_id = submit(ada, "1", tabId=tab_id)
    # Commands of the one who holds it pass meanwhile, and the task does not.
    mine = ada.post(f"/tabs/{tab_id}/action", json={"kind": "evaluate", "expression": "1", "controllerId": "me"})
    assert (mine.status_code, look(ada, task_id, 100)["state"]) == (200, "queued")
    assert ada.delete(f"/tabs/{tab_id}/lock", params={"ticket": lock["ticket"]}).status_code == 204
    assert ended(ada, task_id)["state"] == "done"


# --- What is known to go wrong elsewhere ------------------------------------------------------------------------


def test_a_browser_that_is_killed_costs_tasks_that_wait_nothing_and_says_of_the_one_that_ran_that_nobody_knows(
    admin: httpx.Client, ada: httpx.Client, site: EffectsSite
) -> None:
    tab_id = open_tab(ada, site, pool="mortal")
    ran = submit(ada, held("ran"), tabId=tab_id)
    until_running(ada, ran)
    until(lambda: site.count("ran") == 1)
    waiting = [submit(ada, reporting(f"w{number}"), tabId=tab_id) for number in range(3)]
    kill_browser(*browser_pids(admin, "mortal"))
    assert (ended(ada, ran)["state"], ended(ada, ran)["code"]) == ("failed", "outcome_unknown")
    assert states(ada, waiting) == ["done"] * 3
    assert [site.count(who) for who in ("ran", "w0", "w1", "w2")] == [1, 1, 1, 1]


def test_tabs_and_tasks_of_another_agent_do_not_exist(ada: httpx.Client, bob: httpx.Client, site: EffectsSite) -> None:
    session = open_session(ada, url=site.url())
    tab_id = session["tabs"][0]["tabId"]
    task_id = submit(ada, held("mine"), tabId=tab_id)
    site.is_held.wait()
    tried = [
        bob.post("/tasks", json={"action": "text", "tabId": tab_id}),
        bob.post("/tasks", json={"action": "text", "sessionId": session["sessionId"]}),
        bob.get(f"/tasks/{task_id}"),
        bob.get(f"/tasks/{task_id}", params={"waitMs": 5_000}),
        bob.post(f"/tasks/{task_id}/cancel"),
    ]
    codes = ["tab_not_found", "session_not_found", "task_not_found", "task_not_found", "task_not_found"]
    assert [(answer.status_code, answer.json()["code"]) for answer in tried] == [(404, code) for code in codes]
    assert bob.get("/tasks", params={"agentId": session["agentId"]}).json()["tasks"] == []
    assert look(ada, task_id)["state"] == "running"
