"""Changing the settings of a running server, seen from outside."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from .conftest import Server, events_of, open_session, with_settings

pytestmark = [pytest.mark.server, pytest.mark.browser]


def test_settings_change_by_request_by_file_and_by_signal_and_outlive_the_server(own_server: Server) -> None:
    file = own_server.state / "tabherd.toml"
    with own_server.client() as admin, events_of(own_server, "config_reloaded,config_refused") as events:
        session = open_session(admin, agentId="ada")
        answer = admin.patch("/config", json={"tiers": {"night": 60}, "pools": {"default": {"max_active": 1}}})
        assert answer.json() == {"changed": ["pools.default.max_active", "tiers.night"], "needsRestart": []}
        assert next(events)["cause"] == "patch"
        # A lower cap ends nothing, and admits nothing.
        assert admin.get(f"/sessions/{session['sessionId']}").json()["state"] == "active"
        assert admin.post("/sessions", json={"agentId": "bob", "waitMs": 0}).json()["code"] == "capacity"

        file.write_text(file.read_text().replace("max_active = 1", "max_active = 2"))
        assert next(events)["changed"] == ["pools.default.max_active"]
        open_session(admin, agentId="bob", tier="night")

        file.write_text("[nonsense]\n")
        os.kill(own_server.record["pid"], signal.SIGHUP)
        refused = next(events)
        assert (refused["type"], refused["cause"]) == ("config_refused", "signal")
        assert admin.get("/config").json()["settings"]["tiers"]["night"] == 60

        file.write_text("[tiers]\nnight = 70\n[server]\nlog_level = 'debug'\n")
        os.kill(own_server.record["pid"], signal.SIGHUP)
        reloaded = next(events)
        assert reloaded["changed"] == ["pools.default.max_active", "tiers.night"]
        assert reloaded["needsRestart"] == ["server.log_level"]
    own_server.stop()
    own_server.start()
    with own_server.client() as admin:
        shown = admin.get("/config").json()
        assert (shown["settings"]["tiers"]["night"], shown["settings"]["server"]["log_level"]) == (70, "debug")
        assert (shown["sources"]["tiers.night"], shown["sources"]["server.port"]) == ("file", "environment")
        assert shown["needsRestart"] == []


def test_a_server_with_a_named_file_changes_that_one(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("# mine\n")
    with with_settings(tmp_path / "state", {"CONFIG": str(file)}) as server, server.client() as admin:
        assert admin.patch("/config", json={"gate": {"timeout_ms": 2_000}}).json()["changed"] == ["gate.timeout_ms"]
        assert admin.get("/config").json()["file"] == str(file)
    assert file.read_text() == "# mine\n\n[gate]\ntimeout_ms = 2000\n"
    assert not (tmp_path / "state" / "tabherd.toml").exists()
