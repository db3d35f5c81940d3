"""One method per verb of the server: what is sent, how answers are typed, how refusals come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.client.canned import BROWSER, BUSY, COMMAND, NODE, SESSION, STATS, TAB, CannedServer

from tabherd.client import Tabherd
from tabherd.errors import NodeUnreachable, StateConflict, TabBusy


@pytest.fixture
def herd(canned: CannedServer) -> Iterator[Tabherd]:
    with Tabherd(canned.url, "secret", environ={}, patience_s=0) as client:
        yield client


def test_the_credential_and_the_agent_go_with_every_request(canned: CannedServer) -> None:
    canned.answer("GET", "/sessions/ses_1", SESSION)
    with Tabherd(canned.url, "secret", agent="alice", environ={}) as herd:
        herd.session_view("ses_1")
    headers = canned.asked[0].headers
    assert (headers["authorization"], headers["x-agent-id"]) == ("Bearer secret", "alice")


def test_a_refusal_is_raised_as_the_exception_that_the_server_raised(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("POST", "/tabs/tab_1/action", BUSY, 423)
    with pytest.raises(TabBusy) as caught:
        herd.act("tab_1", "text")
    error = caught.value
    assert (error.message, error.retry_after_ms, error.details) == ("bob is on it.", 40, {"holder": "bob"})


def test_a_command_carries_its_kind_and_parameters(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("POST", "/tabs/tab_1/action", COMMAND)
    assert herd.act("tab_1", "screenshot", full_page=True, timeoutMs=500).result == "Hello"
    assert canned.asked[0].body == {"kind": "screenshot", "fullPage": True, "timeoutMs": 500}


def test_a_list_longer_than_a_page_is_read_to_its_end(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/sessions", {"sessions": [SESSION], "nextCursor": "c1"})
    canned.answer("GET", "/sessions", {"sessions": [SESSION | {"sessionId": "ses_2"}]})
    assert [session.session_id for session in herd.sessions(agent="alice")] == ["ses_1", "ses_2"]
    assert [asked.query for asked in canned.asked] == [{"agentId": "alice"}, {"agentId": "alice", "cursor": "c1"}]


def test_giving_a_session_back_names_the_fence_only_when_told(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("DELETE", "/sessions/ses_1", status=204)
    herd.end_session("ses_1")
    herd.end_session("ses_1", 7, "pool")
    assert [asked.query for asked in canned.asked] == [{}, {"fence": "7", "disposition": "pool"}]


def test_a_session_is_given_to_another_agent(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("POST", "/sessions/ses_1/takeover", SESSION | {"agentId": "bob", "fence": 8})
    assert herd.take_over("ses_1", "bob").fence == 8
    assert canned.asked[0].body == {"agentId": "bob"}


def test_an_id_with_a_slash_reaches_no_other_route(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/sessions/..%2Fagents", SESSION)
    herd.session_view("../agents")
    assert canned.asked[0].path == "/sessions/..%2Fagents"


def test_a_server_that_is_gone_is_unreachable() -> None:
    # Port 1 of the loopback address has no listener.
    herd = Tabherd("http://127.0.0.1:1", environ={}, patience_s=0)
    with herd, pytest.raises(NodeUnreachable, match=r"127\.0\.0\.1:1"):
        herd.health()


@pytest.mark.parametrize(("status", "said"), [(502, "502"), (200, "not tabherd")])
def test_a_page_that_is_not_ours_is_unreachable_and_not_a_crash(
    canned: CannedServer, herd: Tabherd, status: int, said: str
) -> None:
    canned.answer("GET", "/health", b"<h1>Welcome</h1>", status, "text/html")
    with pytest.raises(NodeUnreachable, match=said) as caught:
        herd.health()
    assert caught.value.retryable is False


def test_a_proxy_of_the_environment_never_sees_what_is_for_this_machine(
    canned: CannedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    canned.answer("GET", "/sessions/ses_1", SESSION)
    with Tabherd(canned.url, environ={}, patience_s=0) as herd:
        assert herd.session_view("ses_1").session_id == "ses_1"


def test_a_redirect_is_not_followed_with_the_credential(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/health", b"", 307)
    with pytest.raises(NodeUnreachable, match="307"):
        herd.health()


def test_not_ready_is_an_answer_and_not_an_error(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/ready", {"code": "draining", "message": "", "action": "", "details": {}}, 503)
    assert herd.is_ready() is False


@pytest.mark.parametrize("verb", ["restart", "drain"])
def test_a_browser_is_restarted_and_drained_by_its_id(canned: CannedServer, herd: Tabherd, verb: str) -> None:
    canned.answer("POST", f"/browsers/brw_1/{verb}", BROWSER, 202)
    assert getattr(herd, f"{verb}_browser")("brw_1").browser_id == "brw_1"


def test_a_drain_is_begun_and_taken_back(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("POST", "/drain", {"draining": True, "sessions": 1})
    canned.answer("DELETE", "/drain", {"draining": False, "sessions": 1})
    assert (herd.drain().draining, herd.undrain().draining) == (True, False)


def test_stats_are_read_by_pool(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/stats", STATS)
    assert herd.stats().pools["default"].free_seats == 24


def test_the_servers_that_share_the_store_are_listed(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/nodes", {"nodes": [NODE]})
    assert [(node.node_id, node.state, node.is_self) for node in herd.nodes()] == [("nod_1", "up", True)]


def test_a_command_is_looked_up_and_cancelled_by_its_id(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/commands/cmd_1", COMMAND)
    canned.answer("POST", "/commands/cmd_1/cancel", COMMAND | {"outcome": "cancelled"})
    assert (herd.command("cmd_1").outcome, herd.cancel_command("cmd_1").outcome) == ("completed", "cancelled")


def test_fields_of_a_later_server_are_ignored(canned: CannedServer, herd: Tabherd) -> None:
    later: dict[str, Any] = SESSION | {"colour": "green"}
    canned.answer("GET", "/sessions/ses_1", later)
    assert herd.session_view("ses_1").fence == 7


def test_a_client_that_was_closed_says_so(canned: CannedServer) -> None:
    herd = Tabherd(canned.url, environ={})
    herd.close()
    herd.close()
    with pytest.raises(StateConflict, match="closed"):
        herd.health()


@pytest.mark.parametrize("verb", ["handoff", "resume"])
def test_a_tab_is_handed_off_and_given_back_by_its_id(canned: CannedServer, herd: Tabherd, verb: str) -> None:
    canned.answer("POST", f"/tabs/tab_1/{verb}", TAB)
    told = herd.handoff_tab("tab_1", by="ann") if verb == "handoff" else herd.resume_tab("tab_1")
    assert told.tab_id == "tab_1"
    assert canned.asked[0].body == ({"by": "ann"} if verb == "handoff" else None)


def test_who_waits_of_all_agents_is_told_to_who_asks_for_it(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/stats", STATS)
    herd.stats(all_waiters=True)
    assert canned.asked[0].query == {"waiters": "all"}


def test_an_operator_takes_a_lock_from_the_holder_that_is_meant(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("DELETE", "/locks/a%2Fb", status=204)
    canned.answer("DELETE", "/tabs/tab_1/lock", status=204)
    herd.free_lock("a/b", fence=3)
    herd.free_tab("tab_1", holder="c")
    herd.free_tab("tab_1")
    assert [asked.query for asked in canned.asked] == [
        {"force": "true", "fence": "3"},
        {"force": "true", "holder": "c"},
        {"force": "true"},
    ]
