"""Typed errors as a model reads them."""

from __future__ import annotations

import pytest
from tests.server.conftest import Server

from tabherd.core.caps import capacity_refusal
from tabherd.errors import AmbiguousTarget, QueueWaitTimedOut, StaleRef, TabherdError, UnknownAction
from tabherd.mcp.refusals import told as lines_of

from .clients import error, over_http, text


def told(error: TabherdError) -> str:
    return "\n".join(lines_of(error))


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
        '- tabId tab_1, title "A", url "http://a.test/"\n'
        "- tabId tab_2\n"
        "Next: Name one of the candidates."
    )


def test_what_does_not_apply_is_not_said() -> None:
    assert told(StaleRef("Gone.")) == "stale_ref: Gone.\nNext: Take a new snapshot."


def test_what_the_page_said_in_dialogs_is_passed_on() -> None:
    opened = {"type": "alert", "message": "wrong password", "isAccepted": False, "isEarlier": False}
    assert told(StaleRef("Gone.", dialogs=[opened], moreDialogs=3)) == (
        'stale_ref: Gone.\nDialog (alert, dismissed): "wrong password"\nAnd 3 more dialogs.\nNext: Take a new snapshot.'
    )


def test_what_is_inside_a_candidate_is_left_to_the_next_step() -> None:
    candidate = {"ref": "k1", "name": "Pay", "opener": {"ref": "k2", "name": "Menu"}}
    assert told(StaleRef("Gone.", candidates=[candidate])).splitlines()[1] == '- ref k1, name "Pay"'


def test_details_that_the_next_step_refers_to_are_written_out() -> None:
    assert told(UnknownAction("There is no action 'fly'.", nearest=None, kinds=["fill", "click"])) == (
        "unknown_action: There is no action 'fly'.\n"
        'Details: {"kinds":["fill","click"]}\n'
        "Next: Use one of the kinds listed in details."
    )


def test_a_person_who_has_the_tab_is_named_with_the_tool_that_takes_it_back() -> None:
    late = QueueWaitTimedOut("The time ran out in the queue of the tab.", reason="handoff", holder="ann", position=1)
    assert told(late) == (
        "queue_wait_timed_out: The time ran out in the queue of the tab.\n"
        "Position in the queue: 1.\n"
        'A person has the tab: "ann".\n'
        "Next: Wait until they are done, or take the tab back with browser_handoff, resume true."
    )


@pytest.mark.server
@pytest.mark.browser
async def test_after_a_timeout_a_model_knows_that_its_page_is_gone(shared_server: Server) -> None:
    async with over_http(shared_server) as client:
        await text(client, "browser_navigate", url="data:text/html,<h1>A</h1>")
        _, said = await error(client, "browser_evaluate", expression="new Promise(() => {})", timeoutMs=300)
        assert "the tab is blank (about:blank)" in said
        assert said.splitlines()[-1].startswith("Next: Navigate ")
        assert await text(client, "browser_evaluate", expression="location.href") == '"about:blank"'


@pytest.mark.server
@pytest.mark.browser
async def test_while_a_person_has_the_tab_a_model_is_told_how_to_take_it_back(shared_server: Server) -> None:
    async with over_http(shared_server) as client:
        await text(client, "browser_navigate", url="data:text/html,<h1>A</h1>")
        await text(client, "browser_handoff", by="ann")
        _, said = await error(client, "browser_press", key="a", timeoutMs=300)
        assert 'A person has the tab: "ann".' in said
        assert "browser_handoff" in said.splitlines()[-1]
