"""Tasks: what is submitted, that it is submitted once, and what its handle makes of the server's answers."""

from __future__ import annotations

import base64
import inspect
import time
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
import pytest
from tests.client.canned import QUEUED_TASK, SESSION, SUBMITTED_TASK, TASK
from tests.client.scripted import Script, SleptClock, answer, refusal

from tabherd import Tabherd, Task, errors, wire
from tabherd.client.submission import POLL_MAX_S

LOOK = "/tasks/tsk_1"
CANCEL = "/tasks/tsk_1/cancel"


def ended(**fields: Any) -> httpx.Response:
    return answer(TASK | fields)


@pytest.fixture
def task(script: Script) -> Task:
    return script.herd().task("tsk_1")


def submitted(script: Script, **fields: Any) -> dict[str, Any]:
    """What is sent for that."""
    script.on("POST", "/tasks", answer(SUBMITTED_TASK, 202))
    assert script.herd().submit(**fields).id == "tsk_1"
    body: dict[str, Any] = script.bodies("POST", "/tasks")[-1]
    # What is sent is what the server takes.
    msgspec.convert(body, wire.SubmitTask)
    return body


# --- Submitting -------------------------------------------------------------------------------------------------


def test_all_that_a_task_can_be_is_sent(script: Script) -> None:
    body = submitted(
        script,
        action="screenshot",
        tab="tab_1",
        session="ses_1",
        selector="#a",
        params={"full_page": True},
        format="jpeg",
        priority=-3,
        deadline=datetime(2026, 1, 1, tzinfo=UTC),
        pool="other",
        agent="bob",
        idempotent=True,
        idempotency_key="k",
        callback_url="https://a.test/",
    )
    assert body == {
        "action": "screenshot",
        "tabId": "tab_1",
        "sessionId": "ses_1",
        "selector": "#a",
        "params": {"fullPage": True, "format": "jpeg"},
        "priority": -3,
        "deadline": "2026-01-01T00:00:00+00:00",
        "pool": "other",
        "agentId": "bob",
        "idempotent": True,
        "idempotencyKey": "k",
        "callbackUrl": "https://a.test/",
    }


def test_every_field_of_a_task_can_be_said() -> None:
    spelt = {"tab_id": "tab", "session_id": "session", "agent_id": "agent"}
    fields = {spelt.get(field.name, field.name) for field in msgspec.structs.fields(wire.SubmitTask)}
    assert fields <= set(inspect.signature(Tabherd.submit).parameters)


def test_steps_are_spelt_as_everywhere(script: Script) -> None:
    body = submitted(script, steps=[{"kind": "text", "timeout_ms": 500}])
    assert body["steps"] == [{"kind": "text", "timeoutMs": 500}]


def test_a_time_from_now_is_a_moment(script: Script) -> None:
    before_ms = time.time() * 1000
    deadline = submitted(script, action="text", deadline_ms=5_000)["deadline"]
    assert before_ms + 4_999 <= deadline <= time.time() * 1000 + 5_000


def test_two_deadlines_are_refused_before_anything_is_sent(script: Script) -> None:
    with pytest.raises(errors.InvalidRequest, match="one deadline"):
        script.herd().submit(action="text", deadline_ms=1, deadline=1)
    assert script.asked == []


def test_a_task_on_a_session_is_the_agents_for_whom_it_was_leased(script: Script) -> None:
    script.on("POST", "/sessions", answer(SESSION, 201))
    herd = script.herd()
    script.on("POST", "/tasks", answer(SUBMITTED_TASK, 202))
    with_name, without = herd.session(agent="alice").open(), herd.session().open()
    herd.submit(action="text", session=with_name)
    herd.submit(action="text", tab=with_name.tab)
    herd.submit(action="text", session=without)
    herd.submit(action="text", session=with_name, agent="bob")
    sent = [(body.get("agentId"), body.get("tabId"), body["sessionId"]) for body in script.bodies("POST", "/tasks")]
    assert sent == [
        ("alice", None, "ses_1"),
        ("alice", "tab_1", "ses_1"),
        (None, None, "ses_1"),
        ("bob", None, "ses_1"),
    ]


def test_a_session_that_is_lost_takes_no_task(script: Script) -> None:
    script.on("POST", "/sessions", answer(SESSION, 201))
    script.on("POST", "/tasks", refusal("lease_lost", 409))
    session = script.herd().session().open()
    for _ in range(2):
        with pytest.raises(errors.LeaseLost):
            script.herd().submit(action="text", session=session)
    assert (session.is_lost, len(script.bodies("POST", "/tasks"))) == (True, 1)


def test_a_submission_whose_answer_got_lost_is_sent_again_under_the_same_key(script: Script, clock: SleptClock) -> None:
    script.on("POST", "/tasks", httpx.ReadError("cut off"), answer(SUBMITTED_TASK, 202))
    assert script.herd().submit(action="text").id == "tsk_1"
    first, second = script.bodies("POST", "/tasks")
    assert first == second
    assert first["idempotencyKey"]


def test_each_submission_has_a_key_of_its_own(script: Script) -> None:
    keys = {submitted(script, action="text")["idempotencyKey"] for _ in range(3)}
    assert len(keys) == 3


def test_a_full_queue_is_waited_out(script: Script, clock: SleptClock) -> None:
    full = refusal("queue_full", 429, retryable=True, retryAfterMs=300)
    script.on("POST", "/tasks", full, answer(SUBMITTED_TASK, 202))
    assert script.herd().submit(action="text").id == "tsk_1"
    assert clock.slept_s == [0.3]


def test_of_a_batch_each_is_a_task_or_why_it_is_none(script: Script) -> None:
    error = {"code": "unknown_action", "message": "no", "retryable": False, "action": "", "details": {}}
    items = [{"taskId": "tsk_1", "state": "queued"}, {"taskId": "", "state": "rejected", "error": error}]
    script.on("POST", "/tasks/batch", answer({"tasks": items, "submitted": 1, "rejected": 1}, 202))
    asked = [{"action": "text", "tab": "tab_1"}, {"action": "fly", "params": {"at_height": 3}}]
    first, second = script.herd().submit_batch(asked, agent="bob")
    assert isinstance(first, Task)
    assert isinstance(second, errors.UnknownAction)
    (body,) = script.bodies("POST", "/tasks/batch")
    assert (body["agentId"], body["tasks"][0]["tabId"], body["tasks"][1]["params"]) == ("bob", "tab_1", {"atHeight": 3})
    assert len({each["idempotencyKey"] for each in body["tasks"]}) == 2


# --- Its end ----------------------------------------------------------------------------------------------------


def test_the_result_is_the_actions_own(script: Script, task: Task) -> None:
    script.on("GET", LOOK, ended())
    assert task.result() == "Hello"


def test_a_result_is_asked_for_once(script: Script, task: Task) -> None:
    script.on("GET", LOOK, ended())
    assert (task.result(), task.result(), task.done()) == ("Hello", "Hello", True)
    assert len(script.asked) == 1


def test_a_screenshot_is_bytes(script: Script, task: Task) -> None:
    script.on("GET", LOOK, ended(action="screenshot", result=base64.b64encode(b"\x89PNG").decode()))
    assert task.result(timeout=30) == b"\x89PNG"


def test_steps_answer_with_all_results(script: Script, task: Task) -> None:
    done = [{"kind": "text", "ok": True, "result": "a"}, {"kind": "html", "ok": True, "result": "b"}]
    script.on("GET", LOOK, ended(action="steps", steps=[{"kind": "text"}, {"kind": "html"}], result=done))
    assert task.result() == ["a", "b"]


def test_the_end_is_waited_for_in_long_requests(script: Script, task: Task) -> None:
    script.on("GET", LOOK, answer(QUEUED_TASK), answer(QUEUED_TASK), ended())
    assert task.result() == "Hello"
    assert [asked.query for asked in script.asked] == [{"waitMs": str(int(POLL_MAX_S * 1000))}] * 3


def test_a_failure_is_the_error_that_a_command_would_have_raised(script: Script, task: Task) -> None:
    script.on("GET", LOOK, ended(state="failed", result=None, code="element_not_found", error="No such button."))
    with pytest.raises(errors.ElementNotFound, match="No such button") as caught:
        task.result()
    assert caught.value.details == {"taskId": "tsk_1", "state": "failed", "attempts": 1}
    assert caught.value.action == errors.ElementNotFound.next_step


def test_a_step_that_failed_tells_what_became_of_each(script: Script, task: Task) -> None:
    told = [{"kind": "text", "ok": True, "result": "a"}, {"kind": "click", "ok": False}]
    script.on(
        "GET", LOOK, ended(state="failed", action="steps", steps=[{}, {}], result=told, code="stale_ref", error="old")
    )
    with pytest.raises(errors.StaleRef) as caught:
        task.result()
    assert caught.value.details["steps"] == told


def test_a_result_that_was_too_large_to_be_kept_is_no_empty_one(script: Script, task: Task) -> None:
    script.on("GET", LOOK, ended(action="screenshot", result=None, code="body_too_large", error="Too large."))
    with pytest.raises(errors.BodyTooLarge) as caught:
        task.result()
    assert "The task is done" in caught.value.action


def test_a_deadline_that_passed_is_not_the_callers_timeout(script: Script, task: Task) -> None:
    script.on("GET", LOOK, ended(state="failed", result=None, code="deadline_exceeded", error="late"))
    with pytest.raises(errors.DeadlineExceeded):
        task.result(timeout=30)


def test_a_cancelled_task_says_so(script: Script, task: Task) -> None:
    script.on("GET", LOOK, ended(state="cancelled", result=None))
    with pytest.raises(errors.StateConflict, match="is cancelled"):
        task.result()


# --- The caller's time ------------------------------------------------------------------------------------------


class _Slow:
    """A server on which a look takes as long as it was asked to wait."""

    def __init__(self, script: Script, clock: SleptClock) -> None:
        self.waited_ms: list[int] = []

        def reply(request: httpx.Request) -> httpx.Response:
            waits_ms = int(request.url.params.get("waitMs", 0))
            self.waited_ms.append(waits_ms)
            clock.now_s += waits_ms / 1000
            return answer(QUEUED_TASK)

        script.transport = httpx.MockTransport(reply)


def test_when_the_callers_time_passes_the_task_goes_on(script: Script, clock: SleptClock) -> None:
    slow = _Slow(script, clock)
    with pytest.raises(TimeoutError, match=r"After 70 s tsk_1 is queued; it goes on"):
        script.herd().task("tsk_1").result(timeout=70)
    assert slow.waited_ms == [30_000, 30_000, 10_000]


def test_no_time_at_all_is_one_look(script: Script, clock: SleptClock) -> None:
    slow = _Slow(script, clock)
    with pytest.raises(TimeoutError):
        script.herd().task("tsk_1").result(timeout=0)
    assert slow.waited_ms == [0]


def test_a_server_that_is_away_does_not_stretch_the_callers_time(script: Script, clock: SleptClock, task: Task) -> None:
    began_s = clock.now_s
    script.on("GET", LOOK, httpx.ConnectError("refused"))
    with pytest.raises(errors.NodeUnreachable):
        task.result(timeout=2)
    assert clock.now_s - began_s <= 2


def test_a_server_that_is_being_restarted_is_waited_for(script: Script, clock: SleptClock, task: Task) -> None:
    script.on("GET", LOOK, httpx.ReadError("cut off"), httpx.ConnectError("refused"), ended())
    assert task.result(timeout=20) == "Hello"


# --- Looking and cancelling -------------------------------------------------------------------------------------


def test_a_look_waits_only_when_told(script: Script, task: Task) -> None:
    script.on("GET", LOOK, answer(QUEUED_TASK))
    assert (task.status().position, task.done()) == (3, False)
    task.status(wait_s=1.5)
    assert [asked.query for asked in script.asked] == [{}, {}, {"waitMs": "1500"}]


def test_cancelling_answers_with_the_end(script: Script, task: Task) -> None:
    script.on("POST", CANCEL, ended(state="cancelled", result=None))
    assert (task.cancel().state, task.done()) == ("cancelled", True)


def test_cancelling_twice_is_as_good_as_once(script: Script, clock: SleptClock, task: Task) -> None:
    over = answer(
        {"code": "conflict", "message": "over", "action": "", "details": {"taskId": "tsk_1", "state": "cancelled"}}, 409
    )
    script.on("POST", CANCEL, httpx.ReadError("cut off"), over)
    script.on("GET", LOOK, ended(state="cancelled", result=None))
    assert task.cancel().state == "cancelled"


def test_what_ended_otherwise_cannot_be_cancelled(script: Script, task: Task) -> None:
    over = {"code": "conflict", "message": "over", "action": "", "details": {"taskId": "tsk_1", "state": "done"}}
    script.on("POST", CANCEL, answer(over, 409))
    with pytest.raises(errors.StateConflict):
        task.cancel()


def test_a_task_that_nobody_knows_is_not_found(script: Script, task: Task) -> None:
    script.on("GET", LOOK, refusal("task_not_found", 404))
    with pytest.raises(errors.TaskNotFound):
        task.result()


def test_lists_are_read_to_their_end(script: Script) -> None:
    script.on("GET", "/tasks", answer({"tasks": [TASK], "nextCursor": "c1"}), answer({"tasks": [QUEUED_TASK]}))
    assert [view.state for view in script.herd().tasks(agent="alice", state="done")] == ["done", "queued"]
    assert [asked.query.get("cursor") for asked in script.asked] == [None, "c1"]


def test_lists_are_read_no_further_than_is_asked_for(script: Script) -> None:
    script.on("GET", "/tasks", answer({"tasks": [TASK], "nextCursor": "c1"}), answer({"tasks": [TASK, TASK]}))
    assert len(script.herd().tasks(limit=2)) == 2
    assert [asked.query["limit"] for asked in script.asked] == ["2", "2"]
    script.on("GET", "/tasks", answer({"tasks": [TASK], "nextCursor": "c1"}))
    assert len(script.herd().tasks(limit=1)) == 1
    assert len(script.asked) == 3


def test_lists_may_begin_with_the_newest(script: Script) -> None:
    script.on("GET", "/tasks", answer({"tasks": [TASK]}))
    script.herd().tasks(newest_first=True)
    assert script.asked[-1].query.get("order") == "desc"
