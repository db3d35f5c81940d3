"""The catalogue: every code once, with the promised status and retryability, rebuilt whole by a client."""

from __future__ import annotations

import re

import pytest

from tabherd import errors as e
from tabherd.errors import CATALOGUE, TabherdError, from_wire

# The interface's own table: status by code.
PROMISED = {
    400: "invalid_request unknown_field unknown_action invalid_selector batch_too_large",
    413: "body_too_large",
    401: "unauthenticated",
    403: "forbidden not_owner policy_denied",
    404: "session_not_found tab_not_found task_not_found command_not_found lock_not_found file_not_found"
    " browser_not_found not_found",
    405: "method_not_allowed",
    409: "lease_lost conflict tab_paused_handoff idempotency_conflict ambiguous_target state_dir_in_use"
    " lock_reentered lock_deadlock lock_lost",
    423: "tab_busy tab_locked",
    429: "capacity queue_full tab_queue_limit_exceeded controller_queue_limit_exceeded rate_limited",
    504: "queue_wait_timed_out command_timed_out lock_timed_out deadline_exceeded",
    422: "element_not_found stale_ref element_not_actionable navigation_failed javascript_error",
    502: "tab_dead browser_crashed outcome_unknown",
    503: "draining scheduler_disabled no_browser store_unavailable node_unreachable",
}
EVERY = sorted(CATALOGUE)


def test_the_catalogue_is_exactly_what_the_interface_promises() -> None:
    promised = {code: status for status, codes in PROMISED.items() for code in codes.split()}
    assert {code: kind.status for code, kind in CATALOGUE.items()} == promised


@pytest.mark.parametrize("code", EVERY)
def test_a_code_is_documented_and_says_what_to_do(code: str) -> None:
    kind = CATALOGUE[code]
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
    assert kind.__dict__.get("__doc__"), "a leaf has a docstring of its own: it is the docs page"
    assert kind.next_step.endswith(".")


@pytest.mark.parametrize("code", EVERY)
def test_only_backpressure_and_what_never_reached_the_page_is_retryable(code: str) -> None:
    kind = CATALOGUE[code]
    expected = kind.status in (423, 429, 503, 504) or code == "browser_crashed"
    # A command that ran into its limit had been sent: the caller must decide. What is switched off stays so.
    assert kind.retryable_by_default == (expected and code not in ("command_timed_out", "scheduler_disabled"))


def test_a_traceback_ends_with_the_next_step() -> None:
    assert str(e.TabBusy("bob is on it.", action="Wait.")) == "bob is on it. Next: Wait."
    assert str(from_wire(e.InvalidRequest("No.", action="").to_wire(), 400)) == "No."


@pytest.mark.parametrize("code", EVERY)
def test_a_client_rebuilds_the_same_error(code: str) -> None:
    sent = CATALOGUE[code]("What happened.", retry_after_ms=5, action="Do this.", holder="alice", cap=3)
    rebuilt = from_wire(sent.to_wire(), CATALOGUE[code].status)
    assert type(rebuilt) is type(sent)
    assert rebuilt.to_wire() == sent.to_wire()


def test_an_unknown_code_keeps_its_branch_by_status() -> None:
    body = {"code": "from_the_future", "message": "m", "retryable": True}
    assert isinstance(from_wire(body, 418), e.Refused)
    assert isinstance(from_wire(body, 503), e.Failed)
    assert from_wire(body, 418).code == "from_the_future"


def test_a_body_that_is_hardly_an_error_still_becomes_one() -> None:
    error = from_wire({}, 502)
    assert isinstance(error, e.Failed)
    assert error.details == {}


def test_an_error_without_a_retry_time_does_not_mention_one() -> None:
    assert "retryAfterMs" not in e.InvalidRequest("m").to_wire()


def test_branches_are_there_to_be_caught_and_have_no_code() -> None:
    for branch in (TabherdError, e.Refused, e.Failed, e.BadRequest, e.NotFound, e.Conflict, e.Backpressure, e.TimedOut):
        assert branch.code == ""
        assert branch not in CATALOGUE.values()
