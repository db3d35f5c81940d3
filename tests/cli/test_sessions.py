"""`session`: what is sent, what is printed, and what a person sees who waits."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.cli.conftest import Tabherd
from tests.cli.terminal import on_terminal
from tests.client.canned import SESSION, STATS, CannedServer

from tabherd import wire
from tabherd.cli.sessions import _waiting, parse_viewport

STATE = {"cookies": [{"name": "a", "value": "b"}], "origins": []}


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


FULL = {"code": "capacity", "message": "All are taken.", "retryable": True, "retryAfterMs": 10, "action": "Wait."}


def test_who_is_told_to_come_back_does_and_says_so_once(canned: CannedServer, tabherd: Tabherd) -> None:
    for _ in range(2):
        canned.answer("POST", "/sessions", FULL, 429)
    canned.answer("POST", "/sessions", SESSION, 201)
    result = tabherd("session", "new", "-q")
    assert (result.stdout, result.exit_code) == ("tab_1\n", 0)
    assert result.stderr == "All are taken. Trying again for up to 30 s (--wait).\n"
    assert len(canned.asked) == 3


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["--wait", "0"], FULL),
        (["--wait-ms", "0"], FULL),
        (["--wait", "5"], FULL | {"retryAfterMs": 60_000}),
        # Whoever names no time is not asked again.
        ([], FULL | {"retryAfterMs": None}),
    ],
)
def test_nobody_comes_back_later_than_was_allowed(
    canned: CannedServer, tabherd: Tabherd, words: list[str], refusal: dict[str, object]
) -> None:
    canned.answer("POST", "/sessions", refusal, 429)
    result = tabherd("session", "new", *words)
    assert result.exit_code == 1
    assert "Trying again" not in result.stderr
    assert len(canned.asked) == 1


def test_sessions_are_listed_one_per_line_in_a_pipe(canned: CannedServer, tabherd: Tabherd) -> None:
    tabs = [{"tabId": "tab_1", "url": "https://x.test/" + "y" * 300, "title": ""}]
    long = SESSION | {"tabs": tabs, "phase": "thinking"}
    canned.answer("GET", "/sessions", {"sessions": [long, long]})
    lines = tabherd("session", "ls").stdout.splitlines()
    assert len(lines) == 3
    assert all("thinking" in line for line in lines[1:])
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
    asked = {"owner": {"pid": 42, "startTime": None}, "access": "shared", "reuse": "same-agent", "waitMs": 5}
    assert canned.asked[0].body == asked


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["--pool", "p"], {"pool": "p"}),
        (["--key", "k"], {"key": "k"}),
        (["--tier", "pro"], {"tier": "pro"}),
        (["--deadline-ms", "5000"], {"deadlineMs": 5000}),
        (["--keep-alive"], {"keepAlive": True}),
        (["--allow-navigate"], {"allowNavigate": True}),
        (["--no-allow-navigate"], {"allowNavigate": False}),
        (["--viewport", "400x300"], {"viewport": {"width": 400, "height": 300, "deviceScaleFactor": 1.0}}),
        ([], {}),
    ],
)
def test_each_option_of_a_new_session_is_sent(
    canned: CannedServer, tabherd: Tabherd, words: list[str], sent: dict[str, object]
) -> None:
    canned.answer("POST", "/sessions", SESSION, 201)
    assert tabherd("session", "new", *words).exit_code == 0
    assert canned.asked[0].body == sent


def test_a_storage_state_is_read_from_its_file(canned: CannedServer, tabherd: Tabherd, tmp_path: Path) -> None:
    canned.answer("POST", "/sessions", SESSION, 201)
    (tmp_path / "state.json").write_text(json.dumps(STATE))
    assert tabherd("session", "new", "--storage-state", str(tmp_path / "state.json")).exit_code == 0
    assert canned.asked[0].body == {"storageState": STATE}


@pytest.mark.parametrize("content", [None, "no JSON", '{"cookies": 1}'])
def test_a_file_that_is_no_storage_state_is_refused_before_anything_is_leased(
    canned: CannedServer, tabherd: Tabherd, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "state.json").write_text(content)
    result = tabherd("session", "new", "--storage-state", str(tmp_path / "state.json"), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["details"] == {"field": "storageState"}
    assert canned.asked == []


@pytest.mark.parametrize("text", ["big", "400x", "-4x3", "4x3@x"])
def test_what_is_no_size_is_a_usage_error(tabherd: Tabherd, text: str) -> None:
    assert tabherd("session", "new", "--viewport", text).exit_code == 2


def test_a_size_may_name_its_scale() -> None:
    assert parse_viewport("390x844@2.5") == wire.Viewport(width=390, height=844, device_scale_factor=2.5)


def test_on_a_terminal_sessions_and_their_tabs_stay_within_the_width(canned: CannedServer, state: Path) -> None:
    long = [{"tabId": f"tab_{n:023}", "url": "https://x.test/" + "y" * 300, "title": ""} for n in range(2)]
    crowd = [SESSION | {"sessionId": f"ses_{n:023}", "agentId": "alice" * n, "tabs": long} for n in (1, 20)]
    canned.answer("GET", "/sessions", {"sessions": crowd})
    with on_terminal(state, "session", "ls", env={"TABHERD_URL": canned.url}) as terminal:
        assert terminal.wait() == 0
    lines = terminal.text.splitlines()
    assert len(lines) == 7
    assert max(map(len, lines)) == 80
    assert [line.split()[0] for line in lines[:3]] == ["session", f"ses_{1:023}", f"tab_{0:023}"]


def test_who_waits_is_told_its_place_in_line() -> None:
    waiters = [
        {"agentId": "alice", "key": key, "position": n, "expectedWaitMs": n * 1000} for n, key in ((2, ""), (5, "k"))
    ]
    stats = msgspec.convert(STATS["pools"]["default"] | {"waiting": 7, "waiters": waiters}, wire.PoolStats)
    assert _waiting("p", "", stats) == ("Waiting for pool p (2 of 100 taken): number 2 of 7 in line, about 2 s")
    assert _waiting("p", "other", stats).endswith("7 in line")
