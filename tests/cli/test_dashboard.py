"""`dashboard`: where it is, and a browser that shows it if there is one."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Tabherd
from tests.client.canned import CannedServer

HEALTH = {"status": "ok", "version": "9.9", "node": "nod_1"}


@pytest.fixture(autouse=True)
def answering(canned: CannedServer, tabherd: Tabherd, monkeypatch: pytest.MonkeyPatch) -> None:
    canned.answer("GET", "/health", HEALTH)
    monkeypatch.setenv("TABHERD_TOKEN", "th_mine")


def test_the_address_carries_the_token_where_no_server_hears_it(canned: CannedServer, tabherd: Tabherd) -> None:
    address = tabherd("dashboard").stdout.strip()
    assert address == f"{canned.url}/#token=th_mine"


def test_a_program_gets_one_document(tabherd: Tabherd) -> None:
    said = json.loads(tabherd("dashboard", "--json").stdout)
    assert said["opened"] is False
    assert "#token=" in said["url"]


def test_without_a_display_it_says_so(tabherd: Tabherd, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    result = tabherd("dashboard", "--open")
    assert "open the address yourself" in result.stderr


def test_a_browser_that_is_there_is_started(tabherd: Tabherd, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setenv("BROWSER", "any")
    monkeypatch.setattr("webbrowser.open", lambda where: not shown.append(where))
    result = tabherd("dashboard", "--open")
    assert shown == [result.stdout.strip()]


def test_where_nobody_answers_there_is_no_address(tabherd: Tabherd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABHERD_URL", "http://127.0.0.1:1")
    result = tabherd("dashboard")
    assert result.exit_code != 0
    assert result.stdout == ""
