"""Tasks over HTTP, on a real server with a real browser: what they answer, who goes first, and who may do what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from .conftest import Server, browser_pids, kill_browser, open_session, value_of, with_settings
from .effects_site import EffectsSite
from .local_site import serving
from .tasking import ended, held, look, reporting, states, submit, submit_there, until, until_running

pytestmark = [pytest.mark.server, pytest.mark.browser]

WORKERS = 4
QUEUE_OF_ONE_AGENT = 60
SETTINGS = {
    "SCHEDULER__WORKERS": str(WORKERS),
    "SCHEDULER__MAX_INFLIGHT_PER_AGENT": "10",
    # Nothing here ends because the machine is slow.
    "SCHEDULER__DEADLINE_MS": "600000",
    "SCHEDULER__QUEUE_MAX_PER_AGENT": str(QUEUE_OF_ONE_AGENT),
}
SUBMITTED = {"taskId", "state", "position", "etaMs", "createdAt"}
TASK = {
    *("taskId", "agentId", "action", "tabId", "sessionId", "selector", "ref", "params", "steps", "priority", "state"),
    *("position", "etaMs", "deadline", "createdAt", "startedAt", "completedAt", "latencyMs", "result", "error", "code"),
    *("attempts", "callbackUrl", "webhook"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("tasks") / "state", SETTINGS) as server:
        yield server


@pytest.fixture
def site() -> Iterator[EffectsSite]:
    with serving(EffectsSite()) as site:
        yield site


# One client for all tests: each costs as much as a dozen requests.


@pytest.fixture(scope="module")
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def ada(server: Server) -> Iterator[httpx.Client]:
    with server.agent("ada") as client:
        yield client


@pytest.fixture(scope="module")
def bob(server: Server) -> Iterator[httpx.Client]:
    with server.agent("bob") as client:
        yield client


@pytest.fixture(autouse=True)
def room(admin: httpx.Client) -> Iterator[None]:
    """Ends what a test has left, so that the next one finds the queue empty."""
    yield
    for session in admin.get("/sessions", params={"state": "active", "limit": 500}).json()["sessions"]:
        admin.delete(f"/sessions/{session['sessionId']}")
    for state in ("queued", "assigned", "running"):
        for task in admin.get("/tasks", params={"state": state, "limit": 1_000}).json()["tasks"]:
            admin.post(f"/tasks/{task['taskId']}/cancel")


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
    assert (task["agentId"], task["tabId"], task["params"]) == ("ada", tab_id, body["params"])
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
    until(lambda: admin.get("/stats").json()["pools"]["default"]["active"] == 0)


def test_a_step_that_fails_fails_the_task(ada: httpx.Client, site: EffectsSite) -> None:
    steps = [{"kind": "text"}, {"kind": "evaluate", "expression": "nobody.knows"}, {"kind": "text"}]
    answer = ada.post("/tasks", json={"steps": steps, "tabId": open_tab(ada, site)})
    task = ended(ada, answer.json()["taskId"])
    assert (task["state"], task["code"]) == ("failed", "javascript_error")
    assert [step["ok"] for step in task["result"]] == [True, False]


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"action": "text", "tabID": "x"}, 400, "unknown_field", "tabID"),
        ({"action": "text", "ttl": 5}, 400, "unknown_field", "ttl"),
        ({"action": "fly"}, 400, "unknown_action", None),
        ({}, 400, "invalid_request", "action"),
        ({"action": "fill", "selector": "#a", "params": {"valeu": "x"}}, 400, "invalid_request", "params"),
        ({"action": "text", "deadline": "soon"}, 400, "invalid_request", "deadline"),
        ({"action": "text", "deadline": 1}, 400, "invalid_request", "deadline"),
        ({"action": "text", "pool": "nowhere"}, 400, "invalid_request", "pool"),
        ({"action": "text", "priority": 5_000}, 400, "invalid_request", "priority"),
        ({"action": "text", "agentId": "bob"}, 403, "forbidden", "agentId"),
        ({"action": "text", "tabId": "tab_none"}, 404, "tab_not_found", None),
        ({"action": "text", "sessionId": "ses_none"}, 404, "session_not_found", None),
    ],
    ids=str,
)
def test_what_could_never_be_run_is_refused_by_name(
    ada: httpx.Client, body: dict[str, Any], status: int, code: str, field: str | None
) -> None:
    before = ada.get("/tasks").json()
    answer = ada.post("/tasks", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["details"].get("field") == field
    assert ada.get("/tasks").json() == before


@pytest.mark.parametrize("scopes", [["browse"], ["tasks"]])
def test_a_task_needs_the_scope_for_tasks_and_that_of_its_action(
    server: Server, ada: httpx.Client, scopes: list[str]
) -> None:
    with server.agent("carol", scopes) as carol:
        answer = carol.post("/tasks", json={"action": "text"})
        if scopes == ["browse"]:
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        else:
            assert ended(carol, answer.json()["taskId"])["code"] == "forbidden"


def test_of_a_batch_each_is_admitted_or_refused_by_itself(ada: httpx.Client, site: EffectsSite) -> None:
    tab_id = open_tab(ada, site)
    good = {"action": "evaluate", "params": {"expression": "1"}, "tabId": tab_id}
    answer = ada.post("/tasks/batch", json={"tasks": [good, {"action": "fly"}, good | {"tabId": "tab_none"}, good]})
    told = answer.json()
    assert (answer.status_code, told["submitted"], told["rejected"]) == (202, 2, 2)
    codes = [item["error"] and item["error"]["code"] for item in told["tasks"]]
    assert codes == [None, "unknown_action", "tab_not_found", None]
    assert states(ada, [told["tasks"][0]["taskId"], told["tasks"][3]["taskId"]]) == ["done"] * 2


def test_a_batch_beyond_its_bound_or_with_an_unknown_field_is_refused_whole(ada: httpx.Client) -> None:
    many = ada.post("/tasks/batch", json={"tasks": [{"action": "text"}] * 51})
    odd = ada.post("/tasks/batch", json={"tasks": [{"action": "text"}, {"action": "text", "ttl": 1}]})
    assert (many.status_code, many.json()["code"]) == (400, "batch_too_large")
    assert (odd.status_code, odd.json()["details"]["field"]) == (400, "tasks[1].ttl")
    assert ada.get("/tasks", params={"state": "queued"}).json()["tasks"] == []


def test_beyond_the_bound_of_the_queue_tasks_are_refused_with_a_time_and_kept_as_rejected(
    ada: httpx.Client, site: EffectsSite
) -> None:
    tab_id = open_tab(ada, site)
    until_running(ada, submit(ada, held("first"), tabId=tab_id))
    waiting = [submit(ada, "1", tabId=tab_id) for _ in range(QUEUE_OF_ONE_AGENT)]
    refused = ada.post("/tasks", json={"action": "text", "tabId": tab_id})
    assert (refused.status_code, refused.json()["code"], "retry-after" in refused.headers) == (429, "queue_full", True)
    kept = look(ada, refused.json()["details"]["taskId"])
    assert (kept["state"], kept["code"]) == ("rejected", "queue_full")
    site.is_open.set()
    assert set(states(ada, waiting)) == {"done"}


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


def test_a_task_whose_deadline_passes_while_it_waits_says_so_and_touches_nothing(
    ada: httpx.Client, site: EffectsSite
) -> None:
    tab_id = open_tab(ada, site)
    until_running(ada, submit(ada, held("first"), tabId=tab_id))
    late = ended(ada, submit(ada, reporting("late"), tabId=tab_id, deadline=int(time.time() * 1000) + 2_000))
    assert (late["state"], late["code"], late["error"]) == (
        "failed",
        "deadline_exceeded",
        "deadline exceeded while queued",
    )
    site.is_open.set()
    value_of(ada, tab_id, "1")
    assert site.count("late") == 0


def test_a_task_whose_deadline_passes_while_it_runs_is_stopped(ada: httpx.Client, site: EffectsSite) -> None:
    tab_id = open_tab(ada, site)
    late = ended(ada, submit(ada, held("late"), tabId=tab_id, deadline=int(time.time() * 1000) + 2_000))
    assert (late["state"], late["code"]) == ("failed", "deadline_exceeded")
    assert value_of(ada, tab_id, "1") == 1


def test_what_is_over_cannot_be_cancelled(ada: httpx.Client, site: EffectsSite) -> None:
    task_id = submit(ada, "1", tabId=open_tab(ada, site))
    ended(ada, task_id)
    answer = ada.post(f"/tasks/{task_id}/cancel")
    assert (answer.status_code, answer.json()["code"], answer.json()["details"]["state"]) == (409, "conflict", "done")


def test_a_cancel_that_races_the_end_leaves_one_end_which_is_counted_once(
    admin: httpx.Client, ada: httpx.Client, site: EffectsSite
) -> None:
    tabs = [open_tab(ada, site) for _ in range(3)]
    before = counts(admin)
    answers: dict[str, int] = {}
    for number in range(30):
        task_id = submit_there(ada, site.url(), reporting(f"n{number}"), tabId=tabs[number % 3])
        # Now at once, now when it may just have begun, now when it may be over.
        time.sleep(0.004 * (number % 10))
        answers[task_id] = ada.post(f"/tasks/{task_id}/cancel").status_code
    ends = {task_id: ended(ada, task_id)["state"] for task_id in answers}
    assert {(answers[task_id], ends[task_id]) for task_id in answers} <= {(200, "cancelled"), (409, "done")}
    after = counts(admin)
    done, cancelled = list(ends.values()).count("done"), list(ends.values()).count("cancelled")
    grown = {name: after[name] - before[name] for name in after}
    assert (grown["tasksSubmitted"], grown["tasksCompleted"], grown["tasksCancelled"]) == (30, done, cancelled)
    assert (grown["tasksFailed"], stats(admin)["queue"]["totalInflight"]) == (0, 0)
    # What is done was done once; what was cancelled at most once.
    for number, task_id in enumerate(answers):
        assert site.count(f"n{number}") in ((1,) if ends[task_id] == "done" else (0, 1))


# --- Who goes first ---------------------------------------------------------------------------------------------


def test_one_task_of_an_agent_goes_before_the_flood_of_another(
    ada: httpx.Client, bob: httpx.Client, site: EffectsSite
) -> None:
    tabs = [open_tab(ada, site) for _ in range(WORKERS + 2)]
    bobs = open_tab(bob, site)
    until_running(ada, *(submit(ada, held(f"h{number}"), tabId=tabs[number]) for number in range(WORKERS)))
    flood = [submit(ada, reporting("flood"), tabId=tabs[number % len(tabs)]) for number in range(40)]
    single = bob.post(
        "/tasks", json={"action": "evaluate", "params": {"expression": reporting("single")}, "tabId": bobs}
    )
    # Every worker is taken, and forty came before; still it is the next to start, and is told so.
    assert (single.json()["state"], single.json()["position"]) == ("queued", 1)
    site.is_open.set()
    assert set(states(ada, flood)) == {"done"}
    assert states(bob, [single.json()["taskId"]]) == ["done"]
    # Which of those that run at once is quicker is the machine's business; it is among the first that start.
    began_at = look(bob, single.json()["taskId"])["startedAt"]
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


@pytest.mark.parametrize(
    ("action", "params"),
    [
        ("evaluate", {"expression": "1"}),
        ("navigate", {"url": "about:blank"}),
        ("reload", {}),
        ("text", {}),
        ("close", {}),
    ],
)
def test_a_task_on_a_tab_that_its_own_agent_has_locked_runs_when_it_is_free(
    ada: httpx.Client, site: EffectsSite, action: str, params: dict[str, Any]
) -> None:
    tab_id = open_tab(ada, site)
    lock = ada.post(f"/tabs/{tab_id}/lock", json={"controllerId": "me"}).json()
    task_id = ada.post("/tasks", json={"action": action, "params": params, "tabId": tab_id}).json()["taskId"]
    # Commands of the one who holds it pass meanwhile, and the task does not.
    mine = ada.post(f"/tabs/{tab_id}/action", json={"kind": "evaluate", "expression": "1", "controllerId": "me"})
    assert (mine.status_code, look(ada, task_id, 100)["state"]) == (200, "queued")
    assert ada.delete(f"/tabs/{tab_id}/lock", params={"ticket": lock["ticket"]}).status_code == 204
    assert ended(ada, task_id)["state"] == "done"


# --- What is known to go wrong elsewhere ------------------------------------------------------------------------


def test_tasks_of_an_agent_run_with_the_rights_of_the_token_that_submitted_them(
    ada: httpx.Client, site: EffectsSite
) -> None:
    session = open_session(ada, url=site.url("/field"))
    click = ada.post("/tasks", json={"action": "click", "selector": "#field", "sessionId": session["sessionId"]})
    assert ended(ada, click.json()["taskId"])["state"] == "done"


def test_three_agents_that_type_into_one_field_do_not_mix_their_letters(
    server: Server, ada: httpx.Client, site: EffectsSite
) -> None:
    tab_id = open_tab(ada, site, "/field", access="shared")
    words = {"ada": "aaaaaaaa", "bob": "bbbbbbbb", "carol": "cccccccc"}
    with server.agent("bob") as bob, server.agent("carol") as carol:
        clients = {"ada": ada, "bob": bob, "carol": carol}
        tasks = [
            (client, client.post("/tasks", json=_typing(tab_id, words[name])).json()["taskId"])
            for name, client in clients.items()
        ]
        assert [ended(client, task_id)["state"] for client, task_id in tasks] == ["done"] * 3
    typed = value_of(ada, tab_id, "document.querySelector('#field').value")
    assert sorted(typed[start : start + 8] for start in (0, 8, 16)) == sorted(words.values())


def _typing(tab_id: str, word: str) -> dict[str, Any]:
    return {"action": "type", "tabId": tab_id, "selector": "#field", "params": {"text": word, "delayMs": 3}}


def test_cancelling_tasks_that_wait_leaves_the_count_of_those_that_run_alone(
    admin: httpx.Client, ada: httpx.Client, site: EffectsSite
) -> None:
    tabs = [open_tab(ada, site) for _ in range(WORKERS)]
    running = [submit(ada, held(f"r{number}"), tabId=tab_id) for number, tab_id in enumerate(tabs)]
    until_running(ada, *running)
    waiting = [submit(ada, reporting("w"), tabId=tabs[0]) for _ in range(2)]
    before = counts(admin)
    for task_id in waiting:
        assert ada.post(f"/tasks/{task_id}/cancel").json()["state"] == "cancelled"
    told = stats(admin)
    assert (told["queue"]["totalInflight"], told["queue"]["totalQueued"]) == (WORKERS, 0)
    assert told["queue"]["agents"] == {"ada": {"queued": 0, "inflight": WORKERS}}
    after = counts(admin)
    assert (after["tasksCancelled"], after["tasksFailed"]) == (before["tasksCancelled"] + 2, before["tasksFailed"])
    site.is_open.set()
    assert set(states(ada, running)) == {"done"}


def test_a_tab_that_was_made_just_now_takes_a_task_at_once(ada: httpx.Client, site: EffectsSite) -> None:
    session = open_session(ada)
    tab = ada.post(f"/sessions/{session['sessionId']}/tabs", json={}).json()
    task_id = submit(ada, "document.URL", tabId=tab["tabId"])
    assert ended(ada, task_id)["result"] == "about:blank"


@pytest.mark.parametrize("name", ["kind", "ref", "tabId", "selector", "sessionId", "fence"])
def test_a_parameter_that_would_be_lost_is_refused(ada: httpx.Client, name: str) -> None:
    answer = ada.post("/tasks", json={"action": "click", "selector": "#a", "params": {name: "x"}})
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, f"params.{name}")


def test_a_browser_that_is_killed_costs_tasks_that_wait_nothing_and_says_of_the_one_that_ran_that_nobody_knows(
    admin: httpx.Client, ada: httpx.Client, site: EffectsSite
) -> None:
    tab_id = open_tab(ada, site)
    ran = submit(ada, held("ran"), tabId=tab_id)
    until_running(ada, ran)
    until(lambda: site.count("ran") == 1)
    waiting = [submit(ada, reporting(f"w{number}"), tabId=tab_id) for number in range(3)]
    for pid in browser_pids(admin):
        kill_browser(pid)
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
    assert bob.get("/tasks", params={"agentId": "ada"}).json()["tasks"] == []
    assert look(ada, task_id)["state"] == "running"
