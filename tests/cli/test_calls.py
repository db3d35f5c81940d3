"""The commands that are one request each: what they send, what they print, how they end."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from tests.cli.conftest import Tabherd
from tests.client.canned import BUSY, COMMAND, SESSION, CannedServer

from tabherd.cli.calls import parse_params


def test_a_new_session_prints_its_id_and_its_tab(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/sessions", SESSION, 201)
    result = tabherd("session", "new", "--agent", "alice", "--url", "about:blank")
    assert "ses_1" in result.stdout
    assert "tab_1" in result.stdout
    assert canned.asked[0].body == {"agentId": "alice", "url": "about:blank"}


def test_a_quiet_new_session_prints_nothing_but_the_tab(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/sessions", SESSION, 201)
    assert tabherd("session", "new", "-q").stdout == "tab_1\n"


def test_json_prints_the_servers_answer_as_one_document(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/sessions", SESSION, 201)
    assert json.loads(tabherd("session", "new", "--json").stdout) == SESSION


def test_sessions_are_listed_one_per_line_in_a_pipe(canned: CannedServer, tabherd: Tabherd) -> None:
    long = SESSION | {"tabs": [{"tabId": "tab_1", "url": "https://x.test/" + "y" * 300, "title": ""}]}
    canned.answer("GET", "/sessions", {"sessions": [long, long]})
    lines = tabherd("session", "ls").stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("ses_1") for line in lines[1:])


def test_only_active_sessions_are_listed_unless_all_are_wanted(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("GET", "/sessions", {"sessions": []})
    tabherd("session", "ls", "--agent", "alice")
    tabherd("session", "ls", "--all")
    assert [asked.query for asked in canned.asked] == [{"agentId": "alice", "state": "active"}, {}]


def test_an_empty_list_says_so(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("GET", "/sessions", {"sessions": []})
    assert tabherd("session", "ls").stdout == "No sessions.\n"


def test_ending_a_session_sends_its_fence(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("DELETE", "/sessions/ses_1", status=204)
    assert tabherd("session", "end", "ses_1", "--fence", "7").exit_code == 0
    assert canned.asked[0].query == {"fence": "7"}


def test_a_session_can_be_ended_into_its_pool(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("DELETE", "/sessions/ses_1", status=204)
    assert tabherd("session", "end", "ses_1", "--disposition", "pool").exit_code == 0
    assert canned.asked[0].query == {"disposition": "pool"}


def test_what_a_new_session_should_be_like_is_sent(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/sessions", SESSION, 201)
    words = ("--owner-pid", "42", "--access", "shared", "--reuse", "same-agent", "--wait-ms", "5")
    assert tabherd("session", "new", *words).exit_code == 0
    asked = {"owner": {"pid": 42}, "access": "shared", "reuse": "same-agent", "waitMs": 5}
    assert canned.asked[0].body == asked


def test_a_text_result_is_printed_as_it_is(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/tabs/tab_1/action", COMMAND)
    assert tabherd("act", "tab_1", "text").stdout == "Hello\n"


def test_a_structured_result_is_printed_as_json(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/tabs/tab_1/action", COMMAND | {"result": {"a": [1]}})
    assert json.loads(tabherd("act", "tab_1", "evaluate", "expression=x").stdout) == {"a": [1]}


def test_a_screenshot_is_written_to_the_file_that_is_named(
    canned: CannedServer, tabherd: Tabherd, tmp_path: Path
) -> None:
    canned.answer("POST", "/tabs/tab_1/action", COMMAND | {"result": base64.b64encode(b"\x89PNG").decode()})
    result = tabherd("act", "tab_1", "screenshot", "--out", str(tmp_path / "a.png"))
    assert result.exit_code == 0
    assert (tmp_path / "a.png").read_bytes() == b"\x89PNG"


def test_a_file_that_cannot_be_written_is_said_in_one_sentence(
    canned: CannedServer, tabherd: Tabherd, tmp_path: Path
) -> None:
    canned.answer("POST", "/tabs/tab_1/action", COMMAND | {"result": "AAAA"})
    result = tabherd("act", "tab_1", "screenshot", "--out", str(tmp_path / "none" / "a.png"))
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr


def test_a_refusal_ends_with_exit_code_1_and_names_the_next_step(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/tabs/tab_1/action", BUSY, 423)
    result = tabherd("act", "tab_1", "text")
    assert result.exit_code == 1
    assert result.stderr == "bob is on it. [tab_busy]\nNext: Wait.\n"
    assert result.stdout == ""


def test_with_json_the_refusal_is_the_answer(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/tabs/tab_1/action", BUSY, 423)
    result = tabherd("act", "tab_1", "text", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == BUSY


@pytest.mark.parametrize("word", ["novalue", "=x", "args:=[1,", "1a=2"])
def test_a_parameter_that_is_none_is_a_usage_error(tabherd: Tabherd, word: str) -> None:
    assert tabherd("act", "tab_1", "text", word).exit_code == 2


def test_parameters_take_the_type_that_the_action_gives_them() -> None:
    assert parse_params("screenshot", ["fullPage=true", "timeoutMs=500"]) == {"fullPage": True, "timeoutMs": 500}
    assert parse_params("evaluate", ["expression=1", "args:=[1]"]) == {"expression": "1", "args": [1]}


def test_a_value_keeps_what_follows_its_first_equals_sign() -> None:
    assert parse_params("navigate", ["url=https://x.test/?a=b\nc"]) == {"url": "https://x.test/?a=b\nc"}


def test_what_does_not_fit_is_left_to_the_server_to_refuse() -> None:
    assert parse_params("screenshot", ["fullPage=perhaps"]) == {"fullPage": "perhaps"}
    assert parse_params("juggle", ["balls=3"]) == {"balls": "3"}


def test_draining_says_how_many_sessions_are_still_open(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/drain", {"draining": True, "sessions": 2})
    assert tabherd("drain").stdout == "Draining: no new session is admitted; open sessions: 2.\n"
    assert json.loads(tabherd("drain", "--json").stdout) == {"draining": True, "sessions": 2}


def test_a_drain_is_taken_back_by_name(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("DELETE", "/drain", {"draining": False, "sessions": 2})
    assert tabherd("drain", "--resume").stdout == "New sessions are admitted again; open sessions: 2.\n"


def test_a_new_token_is_printed_alone(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/agents", {"agentId": "alice", "scopes": ["browse"], "token": "secret"}, 201)
    assert tabherd("token", "new", "--agent", "alice", "--scopes", "browse,files").stdout == "secret\n"
    assert canned.asked[0].body == {"agentId": "alice", "scopes": ["browse", "files"]}
