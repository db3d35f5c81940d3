"""CDP messages: what is read of them, and that what is written is what was judged."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabherd.edge.cdp import message
from tabherd.errors import Capacity

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc\"'{}\\,:"), inner, max_size=4),
    max_leaves=10,
)
SESSION = "0123456789ABCDEF0123456789ABCDEF"


@given(params=VALUES, session_id=st.sampled_from(["", SESSION]))
def test_what_is_written_says_what_was_read(params: object, session_id: str) -> None:
    told = {"params": params, "method": "Page.navigate", "id": 5} | ({"sessionId": session_id} if session_id else {})
    read = message.decode_request(json.dumps(told).encode())
    again = message.request(read.id, read.method, (read.sessionId or "").encode(), bytes(read.params))
    assert json.loads(again) == told


@given(text=st.text('{}[]",:\\ /*\n0123456789.eE-+truefalsn', max_size=60))
def test_parameters_that_are_no_json_never_reach_anybody(text: str) -> None:
    """Whatever is let through stays inside its place in the message that is written."""
    raw = f'{{"id":1,"method":"A.b","params":{text}}}'
    try:
        read = message.decode_request(raw.encode())
    except msgspec.MsgspecError:
        return
    again = json.loads(message.request(1, "A.b", b"", bytes(read.params)))
    assert again.keys() <= {"id", "method", "params"}
    assert (again["id"], again["method"]) == (1, "A.b")


def test_parameters_keep_their_bytes() -> None:
    params = b'{ "b" : "\\u0061\\/" ,\n"a":1.0e2 }'
    read = message.decode_request(b'{"id":1,"params":%b,"method":"A.b"}' % params)
    assert bytes(read.params) == params


def test_of_two_keys_of_one_name_the_last_counts_and_the_first_is_not_sent() -> None:
    read = message.decode_request(b'{"id":1,"method":"A.a","method":"A.b","params":{"x":1},"params":{"x":2}}')
    assert json.loads(message.request(read.id, read.method, b"", bytes(read.params))) == {
        "id": 1,
        "method": "A.b",
        "params": {"x": 2},
    }


def test_no_parameters_are_written_as_none() -> None:
    assert message.request(1, "A.b", b"", b"") == b'{"id":1,"method":"A.b"}'
    assert message.request(1, "A.b", b"S", b"") == b'{"id":1,"method":"A.b","sessionId":"S"}'


@pytest.mark.parametrize(
    ("payload", "session_id", "id"),
    [
        (b'{"id":7,"result":{}}', b"", 7),
        (b'{"id":-1000000001,"result":{"a":"b"}}', b"", -1000000001),
        (b'{"id":7,"result":{"value":"x\\"}"},"sessionId":"%b"}' % SESSION.encode(), SESSION.encode(), 7),
        (b'{"id":7,"error":{"code":-1,"message":"no"},"sessionId":"%b"}' % SESSION.encode(), SESSION.encode(), 7),
        (b'{"id":7,"error":{"code":-1,"message":"no"}}', b"", 7),
    ],
)
def test_an_answer_is_told_from_its_first_and_last_bytes(payload: bytes, session_id: bytes, id: int) -> None:
    assert message.session_of_reply(payload) == session_id
    assert message.id_of_reply(payload) == id


def test_an_answer_under_another_id_is_the_same_otherwise() -> None:
    payload = b'{"id":-1000000001,"result":{"id":5,"text":",{\\"id\\":6"},"sessionId":"S"}'
    assert message.with_id(payload, 42) == payload.replace(b"-1000000001", b"42")


def test_a_refusal_has_the_typed_error_in_its_data() -> None:
    error = Capacity("All places are taken.", retry_after_ms=500, position=3)
    told = json.loads(message.failure(7, "S", message.SERVER_ERROR, message.told(error), error))
    assert told["sessionId"] == "S"
    assert told["error"]["message"] == "capacity: All places are taken. Position 3. Retry after 500 ms."
    data = json.loads(told["error"]["data"])
    assert (data["code"], data["retryAfterMs"], data["details"]["position"]) == ("capacity", 500, 3)


def test_a_refusal_of_nothing_in_particular_has_no_id() -> None:
    assert "id" not in json.loads(message.failure(None, "", message.PARSE_ERROR, "no"))
