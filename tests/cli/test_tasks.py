"""`task`: what is sent, what is printed, what a person sees who waits, and how it ends."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from tests.cli.conftest import Tabherd
from tests.cli.terminal import on_terminal
from tests.client.canned import QUEUED_TASK, SUBMITTED_TASK, TASK, CannedServer

from tabherd.cli import completion

FAILED = TASK | {"state": "failed", "result": None, "code": "element_not_found", "error": "No\x1b[2J button."}


def prepare(canned: CannedServer) -> None:
    canned.answer("POST", "/tasks", SUBMITTED_TASK, 202)
    canned.answer("GET", "/tasks/tsk_1", QUEUED_TASK)


# --- Submitting -------------------------------------------------------------------------------------------------


def test_a_task_is_submitted_with_what_its_action_takes(canned: CannedServer, tabherd: Tabherd) -> None:
    prepare(canned)
    words = ["--tab", "tab_1", "--priority", "-2", "--idempotent", "--key", "k", "--agent", "bob", "--pool", "p"]
    more = ["--session", "ses_1", "--callback-url", "https://a.test/"]
    result = tabherd("task", "submit", "screenshot", "selector=#a", "fullPage=true", *words, *more)
    assert result.stdout == "tsk_1 for alice: queued, place 3, starts in about 4 s\n"
    assert canned.asked[0].body == {
        "action": "screenshot",
        "selector": "#a",
        "params": {"fullPage": True},
        "tabId": "tab_1",
        "sessionId": "ses_1",
        "pool": "p",
        "agentId": "bob",
        "priority": -2,
        "idempotent": True,
        "idempotencyKey": "k",
        "callbackUrl": "https://a.test/",
    }


def test_a_parameter_that_is_called_like_an_option_is_still_the_actions(canned: CannedServer, tabherd: Tabherd) -> None:
    prepare(canned)
    tabherd("task", "submit", "juggle", "priority=3", "tab=x")
    assert canned.asked[0].body["params"] == {"priority": "3", "tab": "x"}


def test_a_quiet_submission_prints_nothing_but_the_id(canned: CannedServer, tabherd: Tabherd) -> None:
    prepare(canned)
    assert tabherd("task", "submit", "text", "-q").stdout == "tsk_1\n"


def test_json_prints_the_task_as_one_document(canned: CannedServer, tabherd: Tabherd) -> None:
    prepare(canned)
    assert json.loads(tabherd("task", "submit", "text", "--json").stdout) == QUEUED_TASK


def test_steps_come_from_a_file(canned: CannedServer, tabherd: Tabherd, tmp_path: Path) -> None:
    prepare(canned)
    (tmp_path / "steps.json").write_text('[{"kind": "text"}]')
    assert tabherd("task", "submit", "--steps", str(tmp_path / "steps.json")).exit_code == 0
    assert canned.asked[0].body["steps"] == [{"kind": "text"}]


@pytest.mark.parametrize("content", [None, "{}", "[1]"])
def test_a_file_without_steps_is_said_in_one_sentence(tabherd: Tabherd, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "steps.json").write_text(content)
    result = tabherd("task", "submit", "--steps", str(tmp_path / "steps.json"))
    assert (result.exit_code, "steps.json" in result.stderr) == (1, True)


@pytest.mark.parametrize("words", [[], ["text", "--steps", "x.json"], ["text", "novalue"]])
def test_what_is_no_task_is_a_usage_error(tabherd: Tabherd, words: list[str]) -> None:
    assert tabherd("task", "submit", *words).exit_code == 2


def test_submitting_and_waiting_is_one_command(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/tasks", SUBMITTED_TASK, 202)
    canned.answer("GET", "/tasks/tsk_1", TASK)
    assert tabherd("task", "submit", "text", "--wait").stdout == "Hello\n"


# --- Looking ----------------------------------------------------------------------------------------------------


def test_tasks_are_listed_one_per_line(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("GET", "/tasks", {"tasks": [QUEUED_TASK, FAILED]})
    result = tabherd("task", "ls", "--agent", "alice", "--state", "queued")
    _, first, second = result.stdout.splitlines()
    assert first.split()[:5] == ["tsk_1", "alice", "text", "queued", "3"]
    assert second.endswith("element_not_found: No\N{REPLACEMENT CHARACTER}[2J button.")
    assert {"agentId": "alice", "state": "queued"}.items() <= canned.asked[0].query.items()


def test_an_empty_list_says_so(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("GET", "/tasks", {"tasks": []})
    assert tabherd("task", "ls").stdout == "No tasks.\n"


def test_a_list_for_programs_is_one_document(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("GET", "/tasks", {"tasks": [TASK]})
    assert json.loads(tabherd("task", "ls", "--json").stdout)["tasks"] == [TASK]


def test_one_task_is_shown_with_all_that_is_known_of_it(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("GET", "/tasks/tsk_1", FAILED)
    shown = dict(line.split(maxsplit=1) for line in tabherd("task", "show", "tsk_1").stdout.splitlines())
    assert (shown["state"], shown["code"], shown["attempts"]) == ("failed", "element_not_found", "1")
    assert "\x1b" not in shown["error"]
    assert "position" not in shown
    assert json.loads(tabherd("task", "show", "tsk_1", "--json").stdout) == FAILED


def test_cancelling_says_so(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/tasks/tsk_1/cancel", TASK | {"state": "cancelled", "result": None})
    assert tabherd("task", "cancel", "tsk_1").stdout == "Cancelled tsk_1.\n"


# --- Waiting ----------------------------------------------------------------------------------------------------


def test_who_waits_gets_the_result_and_nothing_else(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("GET", "/tasks/tsk_1", QUEUED_TASK)
    canned.answer("GET", "/tasks/tsk_1", TASK)
    result = tabherd("task", "wait", "tsk_1")
    assert (result.stdout, result.stderr) == ("Hello\n", "")
    assert canned.asked[0].query == {"waitMs": "30000"}


def test_a_screenshot_is_written_to_the_file_that_is_named(
    canned: CannedServer, tabherd: Tabherd, tmp_path: Path
) -> None:
    picture = base64.b64encode(b"\x89PNG").decode()
    canned.answer("GET", "/tasks/tsk_1", TASK | {"action": "screenshot", "result": picture})
    result = tabherd("task", "wait", "tsk_1", "--out", str(tmp_path / "a.png"))
    assert (result.exit_code, (tmp_path / "a.png").read_bytes()) == (0, b"\x89PNG")


def test_how_the_task_failed_is_how_the_wait_ends(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("GET", "/tasks/tsk_1", TASK | {"state": "failed", "code": "stale_ref", "error": "Old."})
    result = tabherd("task", "wait", "tsk_1")
    assert result.exit_code == 1
    assert result.stderr == "Old. [stale_ref]\nNext: Take a new snapshot.\n"
    assert json.loads(tabherd("task", "wait", "tsk_1", "--json").stdout)["code"] == "stale_ref"


def test_a_task_that_was_cancelled_has_no_result(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("GET", "/tasks/tsk_1", TASK | {"state": "cancelled", "result": None})
    result = tabherd("task", "wait", "tsk_1")
    assert (result.exit_code, "is cancelled" in result.stderr) == (1, True)


def test_a_wait_that_is_given_up_names_how_to_go_on(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("GET", "/tasks/tsk_1", QUEUED_TASK)
    result = tabherd("task", "wait", "tsk_1", "--timeout", "0")
    assert result.exit_code == 1
    assert result.stderr.startswith("After 0 s the task is queued; it goes on. [conflict]\nNext: Wait for it again")


def test_a_person_who_waits_sees_how_far_it_is(canned: CannedServer, state: Path) -> None:
    for _ in range(30):
        canned.answer("GET", "/tasks/tsk_1", QUEUED_TASK)
    canned.answer("GET", "/tasks/tsk_1", TASK)
    with on_terminal(state, "task", "wait", "tsk_1", env={"TABHERD_URL": canned.url}) as terminal:
        terminal.read_until("tsk_1 is queued, place 3, starts in about 4 s")
        assert terminal.wait() == 0
    assert terminal.text.rstrip().endswith("Hello")


def test_tasks_are_proposed_with_what_they_are(
    canned: CannedServer, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABHERD_URL", canned.url)
    canned.answer("GET", "/tasks", {"tasks": [TASK, QUEUED_TASK | {"taskId": "tsk_2"}]})
    assert completion.tasks("tsk_2") == [("tsk_2", "alice text queued")]
    assert completion.task_states("re") == [("rejected", "")]
