"""Completion proposes what there is, at once, and nothing at all when something is wrong."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import environment
from tests.client.canned import SESSION, STATS, TAB, CannedServer

from tabherd.cli import completion


@pytest.fixture
def crowd(canned: CannedServer, state: Path, monkeypatch: pytest.MonkeyPatch) -> CannedServer:
    """A server with two sessions, two tabs and a pool."""
    monkeypatch.setattr(completion, "LIMIT_S", 60.0)
    monkeypatch.setenv("TABHERD_URL", canned.url)
    canned.answer("GET", "/sessions", {"sessions": [SESSION, SESSION | {"sessionId": "ses_2", "agentId": "bob"}]})
    canned.answer("GET", "/tabs", {"tabs": [TAB, TAB | {"tabId": "tab_2"}]})
    canned.answer("GET", "/stats", STATS)
    return canned


def test_what_the_server_has_is_proposed_with_what_it_is(crowd: CannedServer) -> None:
    assert completion.sessions("") == [("ses_1", "alice"), ("ses_2", "bob")]
    assert completion.tabs("tab_2") == [("tab_2", "alice about:blank")]
    assert completion.pools("def") == [("default", "2 of 100 taken")]
    assert completion.pools("x") == []


def test_the_credential_goes_along(crowd: CannedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABHERD_TOKEN", "secret")
    completion.tabs("")
    assert crowd.asked[0].headers["authorization"] == "Bearer secret"


def test_kinds_need_no_server(state: Path) -> None:
    assert completion.kinds("scr") == [("scroll", ""), ("screenshot", "")]


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_server_that_does_not_answer_proposes_nothing(
    state: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "LIMIT_S", 0.05)
    monkeypatch.setenv("TABHERD_URL", silent)
    assert completion.tabs("") == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[", "nonsense"])
def test_an_address_without_a_server_proposes_nothing(state: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("TABHERD_URL", url)
    assert completion.sessions("") == []


@pytest.mark.parametrize(("body", "status"), [({"code": "forbidden"}, 403), (b"<html>", 200), ([], 200)])
def test_an_answer_that_is_no_list_proposes_nothing(
    canned: CannedServer, state: Path, monkeypatch: pytest.MonkeyPatch, body: Any, status: int
) -> None:
    monkeypatch.setenv("TABHERD_URL", canned.url)
    canned.answer("GET", "/tabs", body, status)
    assert completion.tabs("") == []


def press_tab(line: str, state: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """What the shell does when Tab is pressed at the end of that line."""
    asked = {"_TABHERD_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    return subprocess.run(
        [Path(sys.executable).parent / "tabherd"],
        env=environment(state) | asked | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_shell_is_told_the_tabs_of_the_server(crowd: CannedServer, state: Path) -> None:
    assert press_tab("tabherd act ", state, TABHERD_URL=crowd.url).stdout.split() == ["tab_1", "tab_2"]


def test_a_shell_without_a_server_is_told_values_and_of_tabs_nothing_at_all(state: Path) -> None:
    assert press_tab("tabherd session new --access ", state).stdout.split() == ["exclusive", "shared"]
    pressed = press_tab("tabherd act ", state)
    assert (pressed.stdout.strip(), pressed.stderr) == ("", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_each_shell_gets_a_script_of_its_own(state: Path, shell: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "tabherd"],
        env=environment(state) | {"_TABHERD_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"complete_{shell}" in done.stdout


def test_the_script_for_bash_completes_in_a_real_bash(state: Path, tmp_path: Path) -> None:
    session = """
        eval "$(_TABHERD_COMPLETE=source_bash tabherd)"
        COMP_WORDS=(tabherd inst) COMP_CWORD=1
        $(complete -p tabherd | sed 's/.*-F \\([^ ]*\\).*/\\1/') tabherd
        echo "${COMPREPLY[@]}"
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", session], env=environment(state) | {"PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "install-browser\n"
