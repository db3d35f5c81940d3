"""The wire: camelCase, strict requests, tolerant answers, and only what the interface names."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabherd import wire

REQUESTS = (wire.OpenSession, wire.Heartbeat, wire.NewAgent, *get_args(wire.AnyAction))


def test_requests_are_camel_case_and_python_is_not() -> None:
    assert msgspec.json.decode(b'{"keepAlive": true}', type=wire.OpenSession).keep_alive
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"keep_alive": true}', type=wire.OpenSession)


@pytest.mark.parametrize("request_type", REQUESTS)
def test_requests_refuse_fields_they_do_not_know(request_type: type[msgspec.Struct]) -> None:
    with pytest.raises(msgspec.ValidationError, match="nonsense"):
        msgspec.json.decode(b'{"nonsense": 1}', type=request_type)


def test_answers_ignore_fields_they_do_not_know() -> None:
    body = {"status": "ok", "version": "1", "node": "n", "uptimeMs": 5}
    assert msgspec.convert(body, wire.Health).status == "ok"


def test_the_list_of_kinds_is_the_union() -> None:
    assert tuple(member.__struct_config__.tag for member in get_args(wire.AnyAction)) == wire.ACTION_KINDS


@pytest.mark.parametrize("name", ["alice", "a", "team/alice@host:1.2-3_x", "A" * 100])
def test_names_that_agents_can_have(name: str) -> None:
    assert msgspec.convert({"agentId": name}, wire.NewAgent).agent_id == name


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n", "\na", "a\x00", "é", "A" * 101, "a,b", '"'])
def test_names_that_agents_cannot_have(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"agentId": name}, wire.NewAgent)


@pytest.mark.parametrize("key", ["a\n", "a\rb", "\x7f", "\x1b[2J", "x" * 201])
def test_a_key_cannot_deface_a_terminal_or_a_log(key: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"key": key}, wire.OpenSession)


def test_a_new_agent_gets_every_scope_but_admin() -> None:
    agent = wire.NewAgent(agent_id="a")
    assert set(agent.scopes) == set(get_args(wire.Scope)) - {"admin"}


def test_an_error_without_a_retry_time_leaves_the_field_out() -> None:
    view = wire.ErrorView(code="c", message="m", retryable=False, action="a", details={})
    assert b"retryAfterMs" not in msgspec.json.encode(view)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8"), max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.lists(json_values, max_size=3) | st.none(), st.integers(1, wire.DEADLINE_MAX_MS) | st.none())
def test_an_action_survives_the_journey(args: list[Any] | None, timeout_ms: int | None) -> None:
    sent = wire.Evaluate(expression="f", args=args, timeout_ms=timeout_ms, fence=3)
    assert msgspec.json.decode(msgspec.json.encode(sent), type=wire.AnyAction) == sent
