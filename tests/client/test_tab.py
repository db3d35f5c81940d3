"""The verbs of a tab: every action that exists has one, with all its parameters, and sends what the server takes."""

from __future__ import annotations

import base64
import inspect
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from tests.client.canned import COMMAND, SESSION
from tests.client.scripted import Script, answer, refusal

from tabherd import errors, wire
from tabherd.client import Tab
from tabherd.client.call import READING
from tabherd.client.sync.tab import Options

ACTION = "/tabs/tab_1/action"
LOCK = "/tabs/tab_1/lock"
KINDS: dict[str, Any] = {str(each.__struct_config__.tag): each for each in get_args(wire.AnyAction)}
# Verbs that are called otherwise in Python.
SPELT = {"navigate": "goto", "setCookies": "set_cookies"}
# What the handle knows by itself.
OWN = {"session_id", "fence", "controller_id"}
# What a verb cannot do without.
NEEDED: dict[str, tuple[Any, ...]] = {
    "goto": ("http://a.test",),
    "type": ("#a", "text"),
    "fill": ("#a", "value"),
    "press": ("Enter",),
    "select": ("#a", ["x"]),
    "drag": ("#a", "#b"),
    "upload": ("#a", ["x"]),
    "evaluate": ("1",),
    "set_cookies": ([{"name": "a", "value": "b"}],),
    "wait": ("#a",),
}
GRANTED = {
    "tabId": "tab_1",
    "lockOwnerControllerId": "me",
    "lockLeaseMs": 30_000,
    "lockExpiresAt": "2026-01-01T00:00:30.000Z",
    "ticket": "cmd_9",
}


@pytest.fixture
def tab(script: Script) -> Tab:
    script.on("POST", "/sessions", answer(SESSION, 201))
    return script.herd(patience_s=0).session().open().tab


@pytest.mark.parametrize("kind", wire.ACTION_KINDS)
def test_every_action_has_a_verb_with_all_its_parameters(kind: str) -> None:
    verb = inspect.signature(getattr(Tab, SPELT.get(kind, kind)))
    taken = set(verb.parameters) | set(Options.__annotations__)
    wanted = {field.name for field in msgspec.structs.fields(KINDS[kind])} - OWN
    assert wanted <= taken


@pytest.mark.parametrize("kind", wire.ACTION_KINDS)
def test_every_verb_sends_an_action_that_the_server_takes(script: Script, tab: Tab, kind: str) -> None:
    verb = SPELT.get(kind, kind)
    script.on("POST", ACTION, answer(COMMAND | {"result": ""}))
    script.on("GET", "/sessions/ses_1", answer(SESSION))
    getattr(tab, verb)(*NEEDED.get(verb, ()), timeout_ms=900, idempotency_key="k", on_timeout="keep")
    sent = msgspec.convert(script.bodies("POST", ACTION)[0], KINDS[kind])
    assert (sent.session_id, sent.fence, sent.controller_id) == ("ses_1", 7, tab.session.controller_id)
    assert (sent.timeout_ms, sent.idempotency_key, sent.on_timeout) == (900, "k", "keep")


def test_who_wants_to_know_more_than_the_result_gets_the_whole_answer(script: Script, tab: Tab) -> None:
    opened = {"type": "confirm", "message": "Sure?", "isAccepted": True, "isEarlier": False}
    script.on("POST", ACTION, answer(COMMAND | {"dialogs": [opened], "moreDialogs": 2}))
    done = tab.perform("click", selector="#a", dialogs="accept", prompt_text="x", screenshot_on_error=True)
    assert done.dialogs == (wire.DialogView(type="confirm", message="Sure?", is_accepted=True),)
    assert done.more_dialogs == 2
    sent = script.bodies("POST", ACTION)[0]
    assert (sent["dialogs"], sent["promptText"], sent["screenshotOnError"]) == ("accept", "x", True)


def test_a_verb_waits_for_its_turn_unless_told_otherwise(script: Script, tab: Tab) -> None:
    script.on("POST", ACTION, answer(COMMAND))
    tab.click("#a")
    tab.click("#a", wait_policy="fail_fast")
    assert [body["waitPolicy"] for body in script.bodies("POST", ACTION)] == ["wait_with_timeout", "fail_fast"]


def test_only_what_changes_nothing_is_called_reading() -> None:
    assert set(wire.ACTION_KINDS) >= READING
    changing = {"navigate", "click", "type", "fill", "press", "evaluate", "setCookies", "close", "scroll", "check"}
    assert not READING & changing


def test_a_screenshot_is_bytes_and_a_file(script: Script, tab: Tab, tmp_path: Path) -> None:
    script.on("POST", ACTION, answer(COMMAND | {"result": base64.b64encode(b"\x89PNG").decode()}))
    assert tab.screenshot(tmp_path / "a.png", full_page=True) == b"\x89PNG"
    assert (tmp_path / "a.png").read_bytes() == b"\x89PNG"


def test_a_pdf_is_bytes_and_a_file(script: Script, tab: Tab, tmp_path: Path) -> None:
    script.on("POST", ACTION, answer(COMMAND | {"result": base64.b64encode(b"%PDF-").decode()}))
    assert tab.pdf(tmp_path / "a.pdf", landscape=True, pages="1-2") == b"%PDF-"
    assert (tmp_path / "a.pdf").read_bytes() == b"%PDF-"


def test_names_are_sent_and_files_of_this_machine_are_uploaded_first(script: Script, tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_bytes(b"12345")
    stored = {"name": "new (1).txt", "sizeBytes": 5, "path": "/there/new (1).txt"}
    script.on("POST", "/sessions/ses_1/files", answer(stored, 201))
    script.on("POST", ACTION, answer(COMMAND | {"result": ["old.txt", "new (1).txt"]}))
    assert tab.upload("#a", ["old.txt", tmp_path / "new.txt"]) == ["old.txt", "new (1).txt"]
    assert script.bodies("POST", ACTION)[0]["files"] == ["old.txt", "new (1).txt"]


@pytest.mark.parametrize(("files", "sent"), [("one.txt", ["one.txt"]), ([], [])])
def test_one_name_is_a_list_of_one_and_none_is_none(
    script: Script, tab: Tab, files: str | list[str | Path], sent: list[str]
) -> None:
    script.on("POST", ACTION, answer(COMMAND | {"result": sent}))
    assert tab.upload("#a", files) == sent
    assert script.bodies("POST", ACTION)[0]["files"] == sent


def test_the_ends_of_a_drag_are_sent_as_they_were_named(script: Script, tab: Tab) -> None:
    script.on("POST", ACTION, answer(COMMAND | {"result": None}))
    tab.drag("#a", {"x": 10, "y": 20.5})
    body = script.bodies("POST", ACTION)[0]
    assert (body["from"], body["to"]) == ("#a", {"x": 10, "y": 20.5})


# --- Steps ------------------------------------------------------------------------------------------------------


def test_steps_are_one_command_and_answer_with_all_results(script: Script, tab: Tab) -> None:
    done = [{"kind": "text", "ok": True, "result": "a"}, {"kind": "html", "ok": True, "result": "b"}]
    script.on("POST", "/tabs/tab_1/actions", answer(COMMAND | {"result": done}))
    assert tab.run([{"kind": "text"}, {"kind": "html", "timeout_ms": 500}], timeout_ms=9_000) == ["a", "b"]
    (body,) = script.bodies("POST", "/tabs/tab_1/actions")
    assert (body["steps"], body["timeoutMs"]) == ([{"kind": "text"}, {"kind": "html", "timeoutMs": 500}], 9_000)


def test_a_step_that_failed_raises_its_error_and_tells_what_became_of_each(script: Script, tab: Tab) -> None:
    error = {"code": "javascript_error", "message": "no", "retryable": False, "action": "", "details": {"line": 1}}
    steps = [{"kind": "text", "ok": True, "result": "a"}, {"kind": "evaluate", "ok": False, "error": error}]
    failed = COMMAND | {"ok": False, "outcome": "failed", "result": steps, "error": error}
    script.on("POST", "/tabs/tab_1/actions", answer(failed))
    with pytest.raises(errors.JavascriptError) as caught:
        tab.run([{"kind": "text"}, {"kind": "evaluate", "expression": "x"}])
    assert caught.value.details == {"line": 1, "commandId": "cmd_1", "steps": steps}


# --- Locks ------------------------------------------------------------------------------------------------------


def test_a_lock_is_held_by_the_handle_that_sends_the_commands(script: Script, tab: Tab) -> None:
    script.on("POST", LOCK, answer(GRANTED))
    script.on("DELETE", LOCK, answer(status=204))
    with tab.lock(lease_ms=5_000, wait_ms=900) as lock:
        lock.renew()
    taken, renewed = script.bodies("POST", LOCK)
    assert (taken["controllerId"], taken["lockLeaseMs"], taken["timeoutMs"]) == (
        tab.session.controller_id,
        5_000,
        900,
    )
    assert renewed["ticket"] == "cmd_9"
    assert script.asked[-1].query == {"ticket": "cmd_9"}


def test_who_held_a_lock_that_had_ended_hears_of_it(script: Script, tab: Tab) -> None:
    script.on("POST", LOCK, answer(GRANTED))
    script.on("DELETE", LOCK, refusal("lock_not_found", 404))
    with pytest.raises(errors.LockNotFound), tab.lock():
        pass


def test_what_went_wrong_under_a_lock_is_heard_and_not_that_its_end_did(script: Script, tab: Tab) -> None:
    script.on("POST", LOCK, answer(GRANTED))
    script.on("DELETE", LOCK, refusal("lock_not_found", 404))
    with pytest.raises(ZeroDivisionError), tab.lock():
        raise ZeroDivisionError


def test_a_lock_ends_with_its_tab(script: Script, tab: Tab) -> None:
    script.on("POST", LOCK, answer(GRANTED))
    script.on("DELETE", LOCK, refusal("tab_not_found", 404))
    with tab.lock():
        pass
