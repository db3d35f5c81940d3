"""The commands that are one request each: what they send, what they print, how they end."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from tests.cli.conftest import Tabherd
from tests.client.canned import BUSY, COMMAND, CannedServer

from tabherd.cli.calls import parse_params


def test_a_text_result_is_printed_as_it_is(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/tabs/tab_1/action", COMMAND)
    assert tabherd("act", "tab_1", "text").stdout == "Hello\n"


def test_dialogs_of_the_page_are_told_apart_from_the_result(canned: CannedServer, tabherd: Tabherd) -> None:
    opened = {"type": "confirm", "message": "Sure?\x1b[2J", "isAccepted": True, "isEarlier": True}
    canned.answer("POST", "/tabs/tab_1/action", COMMAND | {"dialogs": [opened]})
    result = tabherd("act", "tab_1", "text")
    assert result.stdout == "Hello\n"
    assert result.stderr == 'Dialog (confirm, earlier, accepted): "Sure?\\u001b[2J"\n'


def test_a_refusal_tells_what_the_page_said(canned: CannedServer, tabherd: Tabherd) -> None:
    opened = {"type": "alert", "message": "wrong password", "isAccepted": False}
    canned.answer("POST", "/tabs/tab_1/action", BUSY | {"details": {"dialogs": [opened]}}, 423)
    assert 'Dialog (alert, dismissed): "wrong password"\n' in tabherd("act", "tab_1", "text").stderr


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


def test_a_refusal_because_of_load_says_where_the_caller_stood_and_when_to_come_back(
    canned: CannedServer, tabherd: Tabherd
) -> None:
    full = BUSY | {"code": "capacity", "retryAfterMs": 4_200, "details": {"position": 3}}
    canned.answer("POST", "/tabs/tab_1/action", full, 429)
    said = tabherd("act", "tab_1", "text").stderr.splitlines()
    assert said[1] == "Place in line: 3. Worth trying again in 4 s."


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


def test_the_ends_of_a_drag_and_the_files_of_an_upload_are_parameters_like_any_others() -> None:
    assert parse_params("drag", ["from=#a", "to=ref=abc1"]) == {"from": "#a", "to": "ref=abc1"}
    assert parse_params("upload", ["selector=#a", 'files:=["a.txt"]']) == {"selector": "#a", "files": ["a.txt"]}


def test_a_value_keeps_what_follows_its_first_equals_sign() -> None:
    assert parse_params("navigate", ["url=https://x.test/?a=b\nc"]) == {"url": "https://x.test/?a=b\nc"}


def test_what_does_not_fit_is_left_to_the_server_to_refuse() -> None:
    assert parse_params("screenshot", ["fullPage=perhaps"]) == {"fullPage": "perhaps"}
    assert parse_params("juggle", ["balls=3"]) == {"balls": "3"}


def test_a_value_that_does_not_fit_keeps_no_other_from_its_type() -> None:
    assert parse_params("screenshot", ["fullPage=perhaps", "timeoutMs=500"]) == {
        "fullPage": "perhaps",
        "timeoutMs": 500,
    }


@pytest.mark.parametrize("command", [("act", "tab_1"), ("task", "submit")])
def test_a_field_that_the_action_does_not_have_is_one_sentence_with_the_nearest_known_one(
    tabherd: Tabherd, command: tuple[str, ...]
) -> None:
    result = tabherd(*command, "click", "selector=x", "timeout_ms=800")
    assert result.exit_code == 1
    said = result.stderr.splitlines()
    assert said[0] == "Unknown field 'timeout_ms'; did you mean 'timeoutMs'? [unknown_field]"
    assert said[1].startswith("Next: The fields of click: ")


@pytest.mark.parametrize("words", [("clik", "timeoutMs=800"), ("click", "selector=x", "timeoutMs=soon")])
def test_a_time_that_is_no_number_is_the_servers_to_refuse(
    canned: CannedServer, tabherd: Tabherd, words: tuple[str, ...]
) -> None:
    canned.answer("POST", "/tabs/tab_1/action", BUSY | {"code": "invalid_request", "message": "No."}, 400)
    assert tabherd("act", "tab_1", *words).stderr == "No. [invalid_request]\nNext: Wait.\n"


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


def test_a_token_may_be_made_for_a_while(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("POST", "/agents", {"agentId": "alice", "scopes": ["browse"], "token": "secret"}, 201)
    assert tabherd("token", "new", "--agent", "alice", "--expires", "30d").exit_code == 0
    assert canned.asked[0].body == {"agentId": "alice", "expiresInS": 30 * 86_400}
    refused = tabherd("token", "new", "--agent", "alice", "--expires", "soon")
    assert (refused.exit_code, len(canned.asked)) == (2, 1)
    assert "30d" in refused.stderr


def test_tokens_that_are_good_are_listed_and_with_all_those_that_were(canned: CannedServer, tabherd: Tabherd) -> None:
    good = {"tokenId": "crd_1", "agentId": "alice", "scopes": ["browse", "files"], "createdAt": "2026-01-01T00:00:00Z"}
    over = good | {"tokenId": "crd_2", "revokedAt": "2026-01-02T00:00:00Z"}
    expired = good | {"tokenId": "crd_3", "expiresAt": "2026-01-03T00:00:00Z"}
    canned.answer("GET", "/tokens", {"tokens": [expired, over, good]})
    lines = tabherd("token", "ls", "--agent", "alice").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["token", "agent", "scopes", "made", "expires"],
        ["crd_1", "alice", "browse,files", "2026-01-01T00:00:00Z", "never"],
    ]
    assert canned.asked[0].query["agentId"] == "alice"
    listed = json.loads(tabherd("token", "ls", "--all", "--json").stdout)["tokens"]
    assert [each["tokenId"] for each in listed] == ["crd_1", "crd_2", "crd_3"]


def test_tokens_are_revoked_by_their_ids(canned: CannedServer, tabherd: Tabherd) -> None:
    canned.answer("DELETE", "/tokens/crd_1", status=204)
    canned.answer("DELETE", "/tokens/crd_2", status=204)
    assert tabherd("token", "revoke", "crd_1", "crd_2").stdout == "Revoked crd_1.\nRevoked crd_2.\n"
    assert [asked.path for asked in canned.asked] == ["/tokens/crd_1", "/tokens/crd_2"]
