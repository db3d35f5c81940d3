"""A session from its lease to its end: what it sends, and what its user hears before, after, and when it is lost."""

from __future__ import annotations

import gc
import json
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.client.canned import COMMAND, SESSION
from tests.client.scripted import Script, SleptClock, answer, refusal

from tabherd import errors, wire
from tabherd.client import Session

ACTION = "/tabs/tab_1/action"
PATH = "/sessions/ses_1"
TABS = [{"tabId": f"tab_{n}", "url": "", "title": ""} for n in (1, 2)]
TAB = {
    "tabId": "tab_2",
    "sessionId": "ses_1",
    "agentId": "alice",
    "url": "",
    "title": "",
    "state": "ready",
    "generation": 1,
    "provenance": "created",
    "openerTabId": None,
    "createdAt": "2026-01-01T00:00:00.000Z",
    "holder": None,
    "waiters": [],
    "expectedWaitMs": 0,
}


@pytest.fixture
def session(script: Script) -> Session:
    script.on("POST", "/sessions", answer(SESSION, 201))
    return script.herd().session(agent="alice").open()


def verbs(session: Session) -> dict[str, Any]:
    """Everything that is sent for a session."""
    return {
        "act": lambda: session.tab.text(),
        "run": lambda: session.tab.run([{"kind": "text"}]),
        "refresh": session.refresh,
        "new_tab": session.new_tab,
        "storage_state": session.storage_state,
        "set_storage_state": lambda: session.set_storage_state({}),
        "files": session.files,
        "upload": lambda: session.upload(b"x"),
        "download": lambda: session.download("x"),
        "download_to": lambda: session.download_to("x", "/dev/null"),
        "heartbeat": session.heartbeat,
        "view": lambda: session.tab.view(),
        "handoff": lambda: session.tab.handoff(),
        "lock": lambda: session.tab.lock().__enter__(),
    }


VERBS = list(verbs(Session.__new__(Session)))


def test_it_is_leased_with_its_fields_in_wire_spelling(script: Script) -> None:
    script.on("POST", "/sessions", answer(SESSION, 201))
    fields: dict[str, Any] = {"keep_alive": True, "owner": 42, "deadline_ms": 5_000, "allow_navigate": False}
    session = script.herd().session(agent="alice", url=None, viewport={"width": 1, "height": 2}, **fields).open()
    assert (session.id, session.agent, session.fence, session.tab.id) == ("ses_1", "alice", 7, "tab_1")
    assert script.asked[0].body == {
        "agentId": "alice",
        "keepAlive": True,
        "owner": {"pid": 42, "startTime": None},
        "deadlineMs": 5_000,
        "allowNavigate": False,
        "viewport": {"width": 1, "height": 2},
    }


def test_it_is_given_back_at_the_end_of_the_block(script: Script) -> None:
    script.on("POST", "/sessions", answer(SESSION, 201))
    script.on("DELETE", PATH, answer(status=204))
    with script.herd().session(disposition="pool"):
        pass
    assert script.asked[-1].query == {"fence": "7", "disposition": "pool"}


def test_giving_it_back_twice_is_giving_it_back_once(script: Script, session: Session) -> None:
    script.on("DELETE", PATH, answer(status=204))
    session.close()
    session.close()
    assert [asked.method for asked in script.asked].count("DELETE") == 1


def test_before_it_is_leased_it_says_so(script: Script) -> None:
    session = script.herd().session()
    with pytest.raises(errors.StateConflict, match="not leased"):
        session.tab.text()
    session.close()
    assert script.asked == []


def test_it_is_leased_only_once(session: Session) -> None:
    with pytest.raises(errors.StateConflict, match="before"):
        session.open()


def test_after_a_refusal_it_can_be_asked_for_again(script: Script) -> None:
    script.on("POST", "/sessions", refusal("capacity", 429, retryable=True), answer(SESSION, 201))
    session = script.herd(patience_s=0).session()
    with pytest.raises(errors.Capacity):
        session.open()
    assert session.open().id == "ses_1"


# --- Its end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_after_its_end_nothing_is_sent_any_more(script: Script, session: Session, verb: str) -> None:
    script.on("DELETE", PATH, answer(status=204))
    session.close()
    asked = len(script.asked)
    with pytest.raises(errors.LeaseLost, match="given back"):
        verbs(session)[verb]()
    assert len(script.asked) == asked


@pytest.mark.parametrize("verb", VERBS)
def test_once_it_is_known_to_be_lost_nothing_is_sent_any_more(script: Script, session: Session, verb: str) -> None:
    session.was_lost(errors.LeaseLost("The session was given to somebody else."))
    asked = len(script.asked)
    with pytest.raises(errors.LeaseLost, match="somebody else"):
        verbs(session)[verb]()
    assert (session.is_lost, len(script.asked)) == (True, asked)


def test_a_command_that_hears_of_the_loss_tells_the_session(script: Script, session: Session) -> None:
    script.on("POST", ACTION, refusal("lease_lost", 409))
    with pytest.raises(errors.LeaseLost):
        session.tab.text()
    assert session.is_lost is True


def test_one_that_is_lost_is_not_given_back(script: Script, session: Session) -> None:
    session.was_lost(errors.LeaseLost("gone"))
    session.close()
    assert [asked.method for asked in script.asked] == ["POST"]


def test_the_fence_of_the_next_holder_is_never_taken_in(script: Script, session: Session) -> None:
    script.on("GET", PATH, answer(SESSION | {"agentId": "bob", "fence": 8}))
    with pytest.raises(errors.LeaseLost):
        session.refresh()
    assert (session.fence, session.is_lost) == (7, True)


@pytest.mark.parametrize("state", ["closed", "lost", "closing", "pooled"])
def test_one_that_has_ended_is_not_found(script: Script, state: str) -> None:
    script.on("GET", PATH, answer(SESSION | {"state": state, "endReason": "reaped", "tabs": []}))
    with pytest.raises(errors.LeaseLost, match="reaped"):
        script.herd().find_session("ses_1")


def test_one_that_is_open_is_found_and_used_under_its_fence(script: Script) -> None:
    script.on("GET", PATH, answer(SESSION))
    script.on("POST", ACTION, answer(COMMAND))
    assert script.herd().find_session("ses_1").tab.text() == "Hello"
    assert script.asked[-1].body["fence"] == 7


# --- Exceptions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["draining", "rate_limited", "forbidden"])
def test_what_went_wrong_in_the_block_is_heard_and_not_that_the_end_did_too(script: Script, code: str) -> None:
    script.on("POST", "/sessions", answer(SESSION, 201))
    script.on("DELETE", PATH, refusal(code, 503))
    with pytest.raises(ZeroDivisionError), script.herd(patience_s=0).session():
        raise ZeroDivisionError


def test_an_end_that_failed_by_itself_is_heard(script: Script) -> None:
    script.on("POST", "/sessions", answer(SESSION, 201))
    script.on("DELETE", PATH, refusal("draining", 503))
    with pytest.raises(errors.Draining), script.herd(patience_s=0).session():
        pass


def test_one_whose_end_failed_can_be_given_back_again(script: Script, clock: SleptClock, session: Session) -> None:
    script.on("DELETE", PATH, refusal("forbidden", 403), answer(status=204))
    with pytest.raises(errors.Forbidden):
        session.close()
    session.close()
    assert [asked.method for asked in script.asked] == ["POST", "DELETE", "DELETE"]


# --- Tabs -------------------------------------------------------------------------------------------------------


def test_a_new_tab_is_seen_among_its_tabs(script: Script, session: Session) -> None:
    script.on("POST", f"{PATH}/tabs", answer(TAB, 201))
    script.on("GET", PATH, answer(SESSION | {"tabs": TABS}))
    opened = session.new_tab("data:,2")
    assert opened == session.tabs[1]
    assert [tab.id for tab in session.tabs] == ["tab_1", "tab_2"]
    assert session.tab != opened


def test_a_new_tab_whose_answer_got_lost_is_not_opened_twice(script: Script, session: Session) -> None:
    script.on("POST", f"{PATH}/tabs", httpx.ReadError("reset"))
    with pytest.raises(errors.OutcomeUnknown):
        session.new_tab()


def test_one_without_tabs_says_how_to_get_one(script: Script, session: Session) -> None:
    script.on("GET", PATH, answer(SESSION | {"tabs": []}))
    session.refresh()
    with pytest.raises(errors.StateConflict) as caught:
        _ = session.tab
    assert "new_tab" in caught.value.action


def test_its_state_is_taken_as_playwright_writes_it(script: Script, session: Session) -> None:
    script.on("PUT", f"{PATH}/state", answer(status=204))
    state = {"cookies": [{"name": "a", "value": "b", "domain": "x.test", "path": "/"}], "origins": []}
    session.set_storage_state(state)
    session.set_storage_state(
        wire.StorageState(
            origins=[wire.OriginStorage(origin="http://x", local_storage=[wire.StorageItem(name="k", value="v")])]
        )
    )
    first, second = script.bodies("PUT", f"{PATH}/state")
    assert first == state
    assert second["origins"] == [{"origin": "http://x", "localStorage": [{"name": "k", "value": "v"}]}]


def test_its_state_is_plain_json_and_may_be_kept_in_a_file(script: Script, session: Session, tmp_path: Path) -> None:
    state = {
        "cookies": [{"name": "a", "value": "b", "domain": "x.test", "path": "/"}],
        "origins": [{"origin": "http://x", "localStorage": [{"name": "k", "value": "v"}]}],
    }
    script.on("GET", f"{PATH}/state", answer(state))
    script.on("PUT", f"{PATH}/state", answer(status=204))
    file = tmp_path / "login.json"
    assert json.loads(json.dumps(session.storage_state(path=file))) == state
    assert json.loads(file.read_text()) == state
    session.set_storage_state(str(file))
    script.herd().session(storage_state=file).open()
    assert script.bodies("PUT", f"{PATH}/state") == [state]
    assert script.bodies("POST", "/sessions")[-1] == {"storageState": state}


@pytest.mark.parametrize("content", [None, "no JSON", '{"cookies": 1}'])
def test_a_file_that_is_no_state_is_refused_before_anything_is_asked(
    script: Script, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "login.json").write_text(content)
    with pytest.raises(errors.InvalidRequest, match=r"login\.json"):
        script.herd().session(storage_state=tmp_path / "login.json")
    assert script.asked == []


# --- Forgotten --------------------------------------------------------------------------------------------------


def test_one_that_is_forgotten_is_gone_at_once_although_its_tabs_were_used(script: Script, session: Session) -> None:
    gc.collect()
    gc.disable()
    try:
        script.on("POST", ACTION, answer(COMMAND))
        held = script.herd().session().open()
        held.tab.text()
        seen = weakref.ref(held)
        del held
        assert seen() is None
    finally:
        gc.enable()


def test_one_lives_as_long_as_a_tab_of_it_is_held(script: Script) -> None:
    script.on("POST", "/sessions", answer(SESSION, 201))
    script.on("POST", ACTION, answer(COMMAND))
    tab = script.herd().session().open().tab
    gc.collect()
    assert tab.text() == "Hello"


def test_many_threads_may_use_one_session(script: Script, session: Session) -> None:
    script.on("POST", ACTION, answer(COMMAND))
    script.on("GET", PATH, answer(SESSION | {"tabs": TABS}), answer(SESSION | {"tabs": []}), answer(SESSION))

    def use(_: int) -> None:
        session.refresh()
        [tab.id for tab in session.tabs]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(400)))
