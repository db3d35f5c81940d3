"""Each check sees what is wrong, names the fix, and is content when nothing is."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tabherd import config
from tabherd.cli import doctor
from tabherd.cli.doctor import Verdict
from tabherd.cli.main import app


def test_an_old_python_fails() -> None:
    assert doctor.check_python((3, 10)).verdict is Verdict.FAIL
    assert doctor.check_python((3, 11)).verdict is Verdict.OK


def test_a_browser_that_is_not_there_fails_with_a_fix(tmp_path: Path) -> None:
    finding = doctor.check_browser("default", config.Pool(browser=str(tmp_path / "none")))
    assert finding.verdict is Verdict.FAIL
    assert finding.fix


def test_a_state_directory_that_others_may_write_to_fails(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    finding = doctor.check_state_dir(tmp_path)
    assert (finding.verdict, finding.fix) == (Verdict.FAIL, f"chmod 700 {tmp_path}")


def test_a_state_directory_of_ones_own_is_fine(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert doctor.check_state_dir(tmp_path).verdict is Verdict.OK


def test_a_state_directory_yet_to_be_created_is_fine(tmp_path: Path) -> None:
    assert doctor.check_state_dir(tmp_path / "a" / "b").verdict is Verdict.OK


def test_a_file_in_place_of_the_state_directory_fails(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    assert doctor.check_state_dir(tmp_path / "state").verdict is Verdict.FAIL


@pytest.mark.parametrize(("mode", "verdict"), [(0o600, Verdict.OK), (0o640, Verdict.FAIL), (0o604, Verdict.FAIL)])
def test_a_token_that_others_may_read_fails(tmp_path: Path, mode: int, verdict: Verdict) -> None:
    token = tmp_path / "admin.token"
    token.write_text("secret")
    token.chmod(mode)
    assert doctor.check_token(tmp_path).verdict is verdict


def test_a_token_yet_to_be_made_is_fine(tmp_path: Path) -> None:
    assert doctor.check_token(tmp_path).verdict is Verdict.OK


def test_a_store_that_is_not_a_database_fails(tmp_path: Path) -> None:
    (tmp_path / "tabherd.db").write_bytes(b"not a database, though long enough to look like one" * 40)
    finding = doctor.check_store(config.Config(), tmp_path)
    assert finding.verdict is Verdict.FAIL
    assert str(tmp_path / "tabherd.db") in finding.fix


def test_a_store_that_can_be_read_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a)")
    connection.close()
    assert doctor.check_store(config.Config(store=f"sqlite:///{path}"), tmp_path).verdict is Verdict.OK


def test_a_store_in_memory_is_a_warning(tmp_path: Path) -> None:
    assert doctor.check_store(config.Config(store="memory://"), tmp_path).verdict is Verdict.WARN


def test_a_port_that_another_program_has_fails(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = config.Config(server=config.Server(port=taken.getsockname()[1]))
        finding = doctor.check_port(settings, tmp_path)
    assert finding.verdict is Verdict.FAIL
    assert "--port" in finding.fix


def test_a_free_port_is_fine(tmp_path: Path) -> None:
    assert doctor.check_port(config.Config(server=config.Server(port=0)), tmp_path).verdict is Verdict.OK


def test_little_shared_memory_is_a_warning(tmp_path: Path) -> None:
    assert doctor.check_shared_memory(tmp_path, wanted_bytes=1 << 60).verdict is Verdict.WARN
    assert doctor.check_shared_memory(tmp_path, wanted_bytes=1).verdict is Verdict.OK


def test_root_is_warned_that_there_is_no_sandbox(tmp_path: Path) -> None:
    assert doctor.check_sandbox(0, tmp_path).verdict is Verdict.WARN


@pytest.mark.parametrize(
    ("switch", "value"),
    [
        ("kernel/unprivileged_userns_clone", "0"),
        ("user/max_user_namespaces", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ],
)
def test_a_kernel_that_forbids_user_namespaces_is_a_warning_with_the_switch(
    tmp_path: Path, switch: str, value: str
) -> None:
    path = tmp_path / switch
    path.parent.mkdir()
    path.write_text(value + "\n")
    finding = doctor.check_sandbox(1000, tmp_path)
    assert finding.verdict is Verdict.WARN
    assert switch.replace("/", ".") in finding.fix


def test_a_kernel_without_such_switches_is_fine(tmp_path: Path) -> None:
    assert doctor.check_sandbox(1000, tmp_path).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("soft", "verdict"), [(100, Verdict.FAIL), (1_024, Verdict.WARN), (4_096, Verdict.OK), (-1, Verdict.OK)]
)
def test_the_open_files_limit_is_judged(soft: int, verdict: Verdict) -> None:
    assert doctor.check_open_files((soft, -1)).verdict is verdict


def test_a_broken_configuration_fails_and_the_rest_is_checked_all_the_same(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABHERD_SERVER__PROT", "1")
    result = CliRunner().invoke(app, ["doctor", "--json"])
    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert told["healthy"] is False
    assert told["findings"][0]["verdict"] == "fail"
    assert "server.port" in told["findings"][0]["finding"]
    assert len(told["findings"]) > 5


def test_people_read_a_line_per_check_and_the_fix_below_it(state: Path) -> None:
    state.mkdir()
    (state / "admin.token").write_text("secret")
    (state / "admin.token").chmod(0o644)
    lines = CliRunner().invoke(app, ["doctor"]).stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("fail  admin token"))
    assert lines[at + 1].strip() == f"fix: chmod 600 {state / 'admin.token'}"
    assert os.access(state / "admin.token", os.R_OK)
