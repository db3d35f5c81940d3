"""Requests that are refused or break off: which are sent again, when, and what their sender hears in the end."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.client.canned import COMMAND, SESSION
from tests.client.scripted import Script, SleptClock, answer, refusal

from tabherd import errors

ACTION = "/tabs/tab_1/action"
HEALTH = {"status": "ok", "version": "1", "node": "nod_1"}


def full(after_ms: int) -> httpx.Response:
    return refusal("capacity", 429, retryable=True, retryAfterMs=after_ms)


def opened(script: Script, **options: Any) -> Any:
    script.on("POST", "/sessions", answer(SESSION, 201))
    return script.herd(**options).session().open()


def test_a_refusal_because_of_load_is_waited_out(script: Script, clock: SleptClock) -> None:
    script.on("POST", "/sessions", full(500), full(700), answer(SESSION, 201))
    assert script.herd().session().open().id == "ses_1"
    assert clock.slept_s == [0.5, 0.7]


def test_who_wants_no_wait_is_refused_at_once(script: Script, clock: SleptClock) -> None:
    script.on("POST", "/sessions", full(1))
    with pytest.raises(errors.Capacity):
        script.herd().session(wait_ms=0).open()
    assert (clock.slept_s, len(script.asked)) == ([], 1)


def test_a_wait_that_was_limited_is_not_begun_again_after_its_end(script: Script, clock: SleptClock) -> None:
    script.on("POST", "/sessions", full(300))
    with pytest.raises(errors.Capacity):
        script.herd().session(wait_ms=1_000).open()
    assert sum(clock.slept_s) <= 1.0


def test_patience_ends(script: Script, clock: SleptClock) -> None:
    script.on("POST", "/sessions", full(7_000))
    with pytest.raises(errors.Capacity):
        script.herd(patience_s=20).session().open()
    assert clock.slept_s == [7.0, 7.0]


def test_a_client_without_patience_tries_once(script: Script, clock: SleptClock) -> None:
    script.on("GET", "/health", httpx.ConnectError("refused"))
    with pytest.raises(errors.NodeUnreachable):
        script.herd(patience_s=0).health()
    assert (clock.slept_s, len(script.asked)) == ([], 1)


def test_a_server_that_is_being_restarted_is_waited_for(script: Script, clock: SleptClock) -> None:
    down = httpx.ConnectError("refused")
    script.on("GET", "/health", down, down, down, answer(HEALTH))
    assert script.herd().health().status == "ok"
    assert clock.slept_s == [0.1, 0.2, 0.4]


def test_it_is_waited_for_also_by_who_wants_no_wait_for_a_place(script: Script, clock: SleptClock) -> None:
    script.on("POST", "/sessions", httpx.ConnectError("refused"), answer(SESSION, 201))
    assert script.herd().session(wait_ms=0).open().id == "ses_1"


def test_a_command_that_was_cut_off_is_not_sent_again(script: Script, clock: SleptClock) -> None:
    session = opened(script)
    script.on("POST", ACTION, httpx.ReadError("reset"), answer(COMMAND))
    with pytest.raises(errors.OutcomeUnknown):
        session.tab.click("#pay")
    assert len(script.bodies("POST", ACTION)) == 1


def test_a_command_with_a_key_that_was_cut_off_is_sent_again_the_same(script: Script, clock: SleptClock) -> None:
    session = opened(script)
    script.on("POST", ACTION, httpx.ReadError("reset"), answer(COMMAND))
    assert session.tab.click("#pay", idempotency_key="order-7") == "Hello"
    first, second = script.bodies("POST", ACTION)
    assert first == second
    assert first["idempotencyKey"] == "order-7"


def test_a_look_at_the_page_that_was_cut_off_is_taken_again(script: Script, clock: SleptClock) -> None:
    session = opened(script)
    script.on("POST", ACTION, httpx.RemoteProtocolError("closed"), answer(COMMAND))
    assert session.tab.text() == "Hello"


def test_a_command_that_never_reached_the_page_is_sent_again(script: Script, clock: SleptClock) -> None:
    session = opened(script)
    script.on("POST", ACTION, refusal("browser_crashed", 502, retryable=True), answer(COMMAND))
    assert session.tab.click("#pay") == "Hello"


def test_with_a_key_that_is_its_outcome_and_is_not_asked_for_again(script: Script, clock: SleptClock) -> None:
    session = opened(script)
    script.on("POST", ACTION, refusal("browser_crashed", 502, retryable=True))
    with pytest.raises(errors.BrowserCrashed):
        session.tab.click("#pay", idempotency_key="order-7")
    assert len(script.bodies("POST", ACTION)) == 1


def test_a_command_waits_refusals_out_no_longer_than_its_own_time(script: Script, clock: SleptClock) -> None:
    session = opened(script)
    script.on("POST", ACTION, refusal("tab_queue_limit_exceeded", 429, retryable=True, retryAfterMs=400))
    with pytest.raises(errors.TabQueueLimitExceeded):
        session.tab.click("#pay", timeout_ms=1_000)
    assert clock.slept_s == [0.4, 0.4]


def test_a_release_whose_answer_got_lost_is_sent_again_and_done(script: Script, clock: SleptClock) -> None:
    session = opened(script)
    gone = refusal("lease_lost", 409, message="The session has ended: released.")
    script.on("DELETE", "/sessions/ses_1", httpx.ReadError("reset"), gone)
    session.close()
    assert session.is_lost is True


def test_a_token_that_was_made_may_not_be_made_twice(script: Script, clock: SleptClock) -> None:
    script.on("POST", "/agents", httpx.ReadError("reset"))
    with pytest.raises(errors.NodeUnreachable):
        script.herd().new_token("alice")
    assert len(script.asked) == 1
