"""Typed errors as a model reads them."""

from __future__ import annotations

from tabherd.core.caps import capacity_refusal
from tabherd.errors import AmbiguousTarget, StaleRef
from tabherd.mcp.refusals import told


def test_a_refusal_has_position_time_and_next_step() -> None:
    assert told(capacity_refusal("pool_cap", 4, 4, 3, 12_400)) == (
        "capacity: The pool has all the sessions it may have (4 of 4).\n"
        "Position in the queue: 3. Retry after 12 s.\n"
        "Next: Retry after retryAfterMs, release a session, or ask with a larger waitMs."
    )


def test_candidates_are_listed() -> None:
    candidates = [{"tabId": "tab_1", "title": "A", "url": "http://a.test/"}, {"tabId": "tab_2", "title": ""}]
    assert told(AmbiguousTarget("Several.", candidates=candidates)) == (
        "ambiguous_target: Several.\n"
        "- tabId tab_1, title A, url http://a.test/\n"
        "- tabId tab_2\n"
        "Next: Name one of the candidates."
    )


def test_what_does_not_apply_is_not_said() -> None:
    assert told(StaleRef("Gone.")) == "stale_ref: Gone.\nNext: Take a new snapshot."


def test_what_the_page_said_in_dialogs_is_passed_on() -> None:
    opened = {"type": "alert", "message": "wrong password", "isAccepted": False, "isEarlier": False}
    assert told(StaleRef("Gone.", dialogs=[opened], moreDialogs=3)) == (
        "stale_ref: Gone.\nDialog (alert, dismissed): wrong password\nAnd 3 more dialogs.\nNext: Take a new snapshot."
    )


def test_what_is_inside_a_candidate_is_left_to_the_next_step() -> None:
    candidate = {"ref": "k1", "name": "Pay", "opener": {"ref": "k2", "name": "Menu"}}
    assert told(StaleRef("Gone.", candidates=[candidate])).splitlines()[1] == "- ref k1, name Pay"
