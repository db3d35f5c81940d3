"""The client finds the server of this machine, and never sends its admin token anywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tabherd.client.discovery import Endpoint, discover, read_admin_token, read_server_record
from tabherd.errors import NodeUnreachable


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "server.json").write_text('{"url": "http://127.0.0.1:7722", "pid": 1, "nodeId": "nod_1"}')
    (tmp_path / "admin.token").write_text("admin-secret\n")
    return tmp_path


def test_the_running_server_and_its_admin_token_are_found_in_the_state_directory(state: Path) -> None:
    found = discover(environ={"TABHERD_STATE": str(state)})
    assert found == Endpoint(url="http://127.0.0.1:7722", token="admin-secret")


def test_an_address_from_the_environment_never_gets_this_machines_admin_token(state: Path) -> None:
    found = discover(environ={"TABHERD_STATE": str(state), "TABHERD_URL": "http://elsewhere.test/"})
    assert found == Endpoint(url="http://elsewhere.test", token=None)


def test_an_address_given_as_argument_never_gets_this_machines_admin_token(state: Path) -> None:
    assert discover("http://elsewhere.test", environ={"TABHERD_STATE": str(state)}).token is None


def test_a_token_from_the_environment_wins_over_the_admin_token(state: Path) -> None:
    assert discover(environ={"TABHERD_STATE": str(state), "TABHERD_TOKEN": "agent"}).token == "agent"


def test_an_argument_wins_over_the_environment(state: Path) -> None:
    environ = {"TABHERD_STATE": str(state), "TABHERD_URL": "http://b.test", "TABHERD_TOKEN": "b"}
    assert discover("http://a.test", "a", environ) == Endpoint(url="http://a.test", token="a")


def test_no_server_is_a_typed_error_that_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(NodeUnreachable) as caught:
        discover(environ={"TABHERD_STATE": str(tmp_path)})
    assert "tabherd up" in caught.value.action


def test_a_server_file_that_makes_no_sense_is_an_error_and_not_no_server(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text("{")
    with pytest.raises(NodeUnreachable, match=r"server\.json"):
        read_server_record(tmp_path)


def test_a_server_without_auth_has_no_token(tmp_path: Path) -> None:
    assert read_admin_token(tmp_path) is None
