"""The client finds the server of this machine, and never sends its admin token anywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tabherd.client.address import Address
from tabherd.client.discovery import Endpoint, discover, read_admin_token, read_server_record
from tabherd.errors import InvalidRequest, NodeUnreachable


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "server.json").write_text('{"url": "http://127.0.0.1:7722", "pid": 1, "nodeId": "nod_1"}')
    (tmp_path / "admin.token").write_text("admin-secret\n")
    return tmp_path


def test_the_running_server_and_its_admin_token_are_found_in_the_state_directory(state: Path) -> None:
    found = discover(environ={"TABHERD_STATE": str(state)})
    assert found == Endpoint(url="http://127.0.0.1:7722", token="admin-secret", is_found=True)


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


def test_a_proxy_never_stands_before_the_server_that_was_found_here(state: Path) -> None:
    record = '{"url": "http://192.0.2.1:7722", "pid": 1, "nodeId": "nod_1"}'
    (state / "server.json").write_text(record)
    assert discover(environ={"TABHERD_STATE": str(state)}).is_here is True
    assert discover("http://192.0.2.1:7722", environ={}).is_here is False
    assert discover("http://localhost:7722", environ={}).is_here is True


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:7722",
        "ftp://a.test",
        "http://",
        "http://[",
        "http://a.test:x",
        "http://a.test/?token=t",
        "http://u:p@a",
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        discover(url, environ={})
    assert caught.value.details["field"] == "url"


@pytest.mark.parametrize("token", ["a b", "a\r\nX-Agent-Id: admin", "ä"])
def test_a_token_that_would_be_more_than_a_token_is_refused_and_never_shown(token: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        discover("http://a.test", token, {})
    assert token not in caught.value.message


# --- Looking again ----------------------------------------------------------------------------------------------


def address_in(state: Path, **named: str) -> Address:
    return Address(named.get("url"), None, None, {"TABHERD_STATE": str(state)})


def test_a_server_that_started_anew_is_found_at_its_new_address_with_its_new_token(state: Path) -> None:
    address = address_in(state)
    assert address.look_again() is False
    (state / "server.json").write_text('{"url": "http://127.0.0.1:7799", "pid": 2, "nodeId": "nod_1"}')
    (state / "admin.token").write_text("another\n")
    assert address.look_again() is True
    assert (address.now.url, address.now.token) == ("http://127.0.0.1:7799", "another")


def test_while_no_server_runs_the_last_address_is_kept(state: Path) -> None:
    address = address_in(state)
    (state / "server.json").unlink()
    assert address.look_again() is False
    assert address.now.url == "http://127.0.0.1:7722"


def test_an_address_that_was_named_is_never_left_for_one_that_was_found(state: Path) -> None:
    address = address_in(state, url="http://a.test")
    assert address.look_again() is False
    assert address.now.url == "http://a.test"


def test_a_server_is_not_followed_to_where_certificates_would_have_to_be_checked(state: Path) -> None:
    address = address_in(state)
    (state / "server.json").write_text('{"url": "https://127.0.0.1:7799", "pid": 2, "nodeId": "nod_1"}')
    assert address.look_again() is False
    assert address.now.url == "http://127.0.0.1:7722"


@pytest.mark.parametrize("agent", ["a\r\nAuthorization: x", "ä", "", "a b", "x" * 101])
def test_what_is_no_agents_name_never_becomes_a_header(agent: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Address("http://a.test", None, agent, {})
    assert caught.value.details["field"] == "agent"
