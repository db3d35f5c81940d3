"""One method per verb: what is sent, how answers are typed, how refusals come back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.canned import BROWSER, BUSY, COMMAND, SESSION, STATS, CannedServer

from tabherd.client import Tabherd
from tabherd.errors import InvalidRequest, NodeUnreachable, TabBusy


@pytest.fixture
def herd(canned: CannedServer) -> Iterator[Tabherd]:
    with Tabherd(canned.url, "secret", environ={}) as client:
        yield client


def test_a_session_is_opened_with_the_fields_in_wire_spelling(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("POST", "/sessions", SESSION, 201)
    session = herd.open_session(agent_id="alice", keep_alive=True, url=None)
    assert (session.session_id, session.tabs[0].tab_id, session.fence) == ("ses_1", "tab_1", 7)
    assert canned.asked[0].body == {"agentId": "alice", "keepAlive": True}


def test_the_credential_goes_with_every_request(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/sessions/ses_1", SESSION)
    herd.session("ses_1")
    assert canned.asked[0].headers["authorization"] == "Bearer secret"


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
    assert [session.session_id for session in herd.sessions(agent_id="alice")] == ["ses_1", "ses_2"]
    assert [asked.query for asked in canned.asked] == [{"agentId": "alice"}, {"agentId": "alice", "cursor": "c1"}]


def test_giving_a_session_back_names_the_fence_only_when_told(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("DELETE", "/sessions/ses_1", status=204)
    herd.end_session("ses_1")
    herd.end_session("ses_1", 7)
    assert [asked.query for asked in canned.asked] == [{}, {"fence": "7"}]


@pytest.mark.parametrize("identifier", ["../agents", "a/b", "a?b=c", "a#b"])
def test_an_id_stays_one_path_segment(canned: CannedServer, herd: Tabherd, identifier: str) -> None:
    quoted = identifier.replace("/", "%2F").replace("?", "%3F").replace("#", "%23").replace("=", "%3D")
    canned.answer("GET", f"/sessions/{quoted}", SESSION)
    herd.session(identifier)
    assert canned.asked[0].path == f"/sessions/{quoted}"


@pytest.mark.parametrize("identifier", ["", ".", ".."])
def test_an_id_that_would_change_the_path_is_refused(herd: Tabherd, identifier: str) -> None:
    with pytest.raises(InvalidRequest):
        herd.session(identifier)


def test_a_server_that_is_gone_is_unreachable(canned: CannedServer) -> None:
    # Port 1 of the loopback address has no listener.
    with Tabherd("http://127.0.0.1:1", environ={}) as herd, pytest.raises(NodeUnreachable, match=r"127\.0\.0\.1:1"):
        herd.health()


def test_a_page_that_is_not_ours_is_unreachable_and_not_a_crash(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/health", b"<h1>Bad gateway</h1>", 502, "text/html")
    with pytest.raises(NodeUnreachable, match="502"):
        herd.health()


def test_a_success_that_is_not_ours_is_unreachable_and_not_a_crash(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/health", b"<h1>Welcome</h1>", 200, "text/html")
    with pytest.raises(NodeUnreachable, match="not tabherd"):
        herd.health()


def test_a_proxy_of_the_environment_never_sees_what_is_for_this_machine(
    canned: CannedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    canned.answer("GET", "/sessions/ses_1", SESSION)
    with Tabherd(canned.url, environ={}) as herd:
        assert herd.session("ses_1").session_id == "ses_1"


def test_not_ready_is_an_answer_and_not_an_error(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/ready", {"code": "draining", "message": "", "action": "", "details": {}}, 503)
    assert herd.is_ready() is False


@pytest.mark.parametrize(
    ("verb", "method", "path"),
    [
        ("restart_browser", "POST", "/browsers/brw_1/restart"),
        ("drain_browser", "POST", "/browsers/brw_1/drain"),
    ],
)
def test_a_browser_is_restarted_and_drained_by_its_id(
    canned: CannedServer, herd: Tabherd, verb: str, method: str, path: str
) -> None:
    canned.answer(method, path, BROWSER, 202)
    assert getattr(herd, verb)("brw_1").browser_id == "brw_1"


def test_a_drain_is_begun_and_taken_back(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("POST", "/drain", {"draining": True, "sessions": 1})
    canned.answer("DELETE", "/drain", {"draining": False, "sessions": 1})
    assert herd.drain().draining is True
    assert herd.resume().draining is False


def test_stats_are_read_by_pool(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/stats", STATS)
    assert herd.stats().pools["default"].free_seats == 24


def test_events_are_read_message_by_message(canned: CannedServer, herd: Tabherd) -> None:
    stream = (
        b": hello\n\n"
        b'id: 3-1\nevent: node.ready\ndata: {"type": "node.ready"}\n\n'
        b'id: 3-2\nevent: session.opened\ndata: {"agentId":\ndata: "alice"}\n\n'
        b"id: 3-3\n"
    )
    canned.answer("GET", "/events", stream, media="text/event-stream")
    seen = [(event.id, event.type, event.data) for event in herd.events(after="3-0", types="session.*")]
    assert seen == [("3-1", "node.ready", {"type": "node.ready"}), ("3-2", "session.opened", {"agentId": "alice"})]
    assert canned.asked[0].headers["last-event-id"] == "3-0"
    assert canned.asked[0].query == {"types": "session.*"}


def test_a_refused_stream_raises_its_typed_error(canned: CannedServer, herd: Tabherd) -> None:
    canned.answer("GET", "/events", BUSY, 423)
    with pytest.raises(TabBusy):
        next(herd.events())
