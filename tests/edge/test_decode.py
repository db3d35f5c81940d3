"""Nothing that a caller can send raises anything but a typed error."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tabherd import wire
from tabherd.edge.decode import BodyDecoder, QueryDecoder
from tabherd.edge.handlers import SessionsQuery
from tabherd.errors import BadRequest, InvalidRequest, UnknownField

ACTIONS = BodyDecoder(wire.AnyAction)
SESSIONS = BodyDecoder(wire.OpenSession)
QUERY = QueryDecoder(SessionsQuery)

# The time a busy machine takes says nothing about the code.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["kind", "url", "fence", "timeoutMs", "args", "selector", "agentId", "key", "` - at `$.kind`"])
kinds = st.sampled_from([*wire.ACTION_KINDS, "", "`", "' - at `$.kind`"])


def decode_or_refuse(decoder: BodyDecoder | QueryDecoder, data: bytes) -> None:
    refusal: BadRequest | None = None
    try:
        decoder.decode(data)
    except BadRequest as error:
        refusal = error
    if refusal is not None:
        assert isinstance(refusal.details["field"], str)
        json.dumps(refusal.to_wire())


@unhurried
@given(st.binary())
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for decoder in (ACTIONS, SESSIONS, QUERY):
        decode_or_refuse(decoder, data)


@unhurried
@given(st.dictionaries(names, anything, max_size=4), kinds, st.binary(max_size=3))
def test_any_object_decodes_or_is_refused(fields: dict[str, object], kind: str, tail: bytes) -> None:
    for body in (fields, {"kind": kind} | fields, fields | {"kind": kind}):
        decode_or_refuse(ACTIONS, json.dumps(body).encode() + tail)
        decode_or_refuse(SESSIONS, json.dumps(body).encode() + tail)


@unhurried
@given(st.lists(st.tuples(names | st.text(), st.text())))
def test_any_query_decodes_or_is_refused(pairs: list[tuple[str, str]]) -> None:
    decode_or_refuse(QUERY, "&".join(f"{name}={value}" for name, value in pairs).encode("utf-8", "replace"))


def test_an_unknown_field_before_malformed_json_is_still_a_typed_refusal() -> None:
    with pytest.raises(UnknownField, match="selektor"):
        ACTIONS.decode(b'{"kind": "text", "selektor": 1, !!!')


def test_a_field_that_imitates_our_own_message_is_still_a_typed_refusal() -> None:
    with pytest.raises(UnknownField):
        SESSIONS.decode(json.dumps({"a` - at `$.kind`": 1}).encode())


def test_a_very_long_name_is_cut_in_the_message() -> None:
    with pytest.raises(UnknownField) as caught:
        SESSIONS.decode(json.dumps({"x" * 10_000: 1}).encode())
    assert len(caught.value.message) < 200


def test_a_nested_place_is_named_by_its_path() -> None:
    with pytest.raises(InvalidRequest) as caught:
        BodyDecoder(wire.NewAgent).decode(b'{"agentId": "a", "scopes": ["browse", "fly"]}')
    assert caught.value.details["field"] == "scopes[1]"


def test_without_a_query_the_defaults_apply() -> None:
    assert QUERY.decode(b"") == SessionsQuery(limit=100)


def test_values_of_a_query_are_converted() -> None:
    assert QUERY.decode(b"limit=7&agentId=a%40b&cursor=") == SessionsQuery(limit=7, agent_id="a@b", cursor="")
