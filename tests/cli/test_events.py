"""`events` prints the last ones, in order, and stops at the newest unless told to stay."""

from __future__ import annotations

import json

from tests.cli.conftest import Tabherd
from tests.client.canned import CannedServer

FORBIDDEN = {"code": "forbidden", "message": "", "retryable": False, "action": "", "details": {}}


def _message(seq: int, kind: str, **fields: str) -> bytes:
    data = {"id": f"3-{seq}", "type": kind, "at": "2026-01-01T00:00:00.000Z", **fields}
    return f"id: 3-{seq}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def _prepare(canned: CannedServer, newest: int, stream: bytes) -> None:
    canned.answer("GET", "/events", _message(newest, "reset", reason="epoch"), media="text/event-stream")
    canned.answer("GET", "/events", stream, media="text/event-stream")


def test_the_past_is_printed_up_to_the_newest(canned: CannedServer, tabherd: Tabherd) -> None:
    stream = _message(1, "node.ready") + _message(2, "session.opened", agentId="alice") + _message(3, "too.late")
    _prepare(canned, 2, stream)
    lines = tabherd("events").stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["node.ready", "session.opened"]
    assert lines[1].endswith("agentId=alice")


def test_only_the_last_fifty_are_asked_for(canned: CannedServer, tabherd: Tabherd) -> None:
    _prepare(canned, 1_000, _message(1_000, "node.ready"))
    tabherd("events")
    assert canned.asked[1].headers["last-event-id"] == "3-950"


def test_following_goes_on_past_the_newest_and_past_a_stream_that_ends(canned: CannedServer, tabherd: Tabherd) -> None:
    _prepare(canned, 1, _message(1, "node.ready") + _message(2, "node.draining"))
    canned.answer("GET", "/events", _message(3, "node.ready"), media="text/event-stream")
    # What cannot be waited out ends it.
    canned.answer("GET", "/events", FORBIDDEN, 403)
    result = tabherd("events", "--follow")
    assert [line.split()[1] for line in result.stdout.splitlines()] == ["node.ready", "node.draining", "node.ready"]
    assert canned.asked[2].headers["last-event-id"] == "3-2"
    assert result.exit_code == 1


def test_filters_are_the_servers_to_apply_and_look_further_back(canned: CannedServer, tabherd: Tabherd) -> None:
    _prepare(canned, 5_000, _message(4_500, "tab.opened") + _message(5_001, "tab.opened"))
    result = tabherd("events", "--types", "tab.*", "--agent", "alice", "--tab", "tab_1")
    assert len(result.stdout.splitlines()) == 1
    assert canned.asked[1].query == {"types": "tab.*", "agentId": "alice", "tabId": "tab_1"}
    assert canned.asked[1].headers["last-event-id"] == "3-4000"


def test_what_another_agent_wrote_cannot_command_the_terminal(canned: CannedServer, tabherd: Tabherd) -> None:
    _prepare(canned, 1, _message(1, "lock_acquired", controllerId="\x1b[2J"))
    assert "\x1b" not in tabherd("events").stdout


def test_json_prints_one_document_per_line(canned: CannedServer, tabherd: Tabherd) -> None:
    _prepare(canned, 1, _message(1, "node.ready"))
    assert json.loads(tabherd("events", "--json").stdout)["type"] == "node.ready"


def test_a_node_where_nothing_has_happened_prints_nothing(canned: CannedServer, tabherd: Tabherd) -> None:
    _prepare(canned, 0, b"")
    assert tabherd("events").stdout == ""
    assert len(canned.asked) == 1
