"""CDP messages: what is read of them, and that what is written is what was judged."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabherd.edge.cdp import message
from tabherd.edge.cdp.rules import Kind, check
from tabherd.errors import BodyTooLarge, Capacity

from .owner import CONTEXT, CONTEXTS, FILE, Client

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


# --- Size -------------------------------------------------------------------------------------------------------

# A million objects, if anybody made objects of it.
JUNK = b"[" + b"[]," * 1_000_000 + b"0]"


def peak_bytes(work: Callable[[], object]) -> int:
    """How much memory the work takes at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", ["Target.getTargets", "Network.enable", "Page.navigate"])
def test_parameters_that_are_too_large_to_be_judged_are_not_read(method: str) -> None:
    request = message.decode_request(b'{"id":1,"method":"%b","params":{"x":%b}}' % (method.encode(), JUNK))

    def refuse() -> None:
        with pytest.raises(BodyTooLarge, match=f"The parameters of {method} have") as caught:
            message.decode_params(method, request.params)
        assert caught.value.details["cap"] < len(JUNK)

    assert peak_bytes(refuse) < 100_000


def test_of_a_message_nobody_has_judged_yet_nothing_but_the_envelope_is_read() -> None:
    data = b'{"id":1,"method":"Target.getTargets","params":{"x":%b}}' % JUNK
    assert peak_bytes(lambda: message.decode_request(data)) < 100_000


@pytest.mark.parametrize("method", message.SHAPES)
def test_of_large_parameters_of_a_known_shape_nothing_else_is_read(method: str) -> None:
    junk = b"[" + b"[]," * 100_000 + b"0]"
    params = msgspec.Raw(b'{"junk":%b,"more":{"url":%b}}' % (junk, junk))
    assert message.decode_params(method, params) == {}
    assert peak_bytes(lambda: message.decode_params(method, params)) < 100_000


@pytest.mark.parametrize(
    ("method", "least"),
    [
        ("Page.navigate", {"url": "data:,"}),
        ("Target.createTarget", {"url": "data:,"}),
        ("Fetch.continueRequest", {"requestId": "1"}),
        ("Storage.setCookies", {"browserContextId": CONTEXT}),
        ("DOM.setFileInputFiles", {"files": [FILE]}),
        ("Input.dispatchDragEvent", {"data": {"items": [{"mimeType": "text/plain", "data": "x"}]}}),
        ("Input.imeSetComposition", {}),
    ],
)
def test_a_shape_has_every_parameter_that_its_check_reads(method: str, least: dict[str, Any]) -> None:
    asked: set[str] = set()

    class Asked(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            asked.add(key)
            return super().get(key, default)

    check(
        Kind.ROOT if method.startswith(("Target", "Storage")) else Kind.PAGE, method, Asked(least), Client(), CONTEXTS
    )
    assert asked == get_type_hints(message.SHAPES[method]).keys()


def test_what_is_large_and_nobodys_to_judge_keeps_its_bytes() -> None:
    body = b'"' + b"\\u0041\\/" * 100_000 + b'"'
    read = message.decode_params("Fetch.continueRequest", msgspec.Raw(b'{"requestId":"7","postData":%b}' % body))
    assert read["requestId"] == "7"
    assert bytes(read["postData"]) == body
    assert body in message.encode(read)


def test_an_address_of_two_megabytes_is_read() -> None:
    url = "data:text/html," + "x" * (2 << 20)
    assert message.decode_params("Page.navigate", msgspec.Raw(json.dumps({"url": url}).encode())) == {"url": url}


@pytest.mark.parametrize(
    ("start", "end", "told"),
    [
        (b'{"id":7,"method":"A.b","params":{"x":"', b'"}}', (7, "")),
        (b'{"id":7,"method":"A.b","sessionId":"%b","params":{"x":"' % SESSION.encode(), b'"}}', (7, SESSION)),
        (b'{"method":"A.b","params":{"x":"', b'"},"id":7,"sessionId":"%b"}' % SESSION.encode(), (7, SESSION)),
        (b'{"method":"A.b","params":{"x":"', b'"},"id":-7}', (-7, "")),
        (b'{"method":"A.b","params":{"x":"', b'","id":7}}', (None, "")),
        (b'{"method":"A.b","id":7,"params":{"x":"', b'"}}', (None, "")),
    ],
)
def test_of_a_message_that_is_not_read_the_ends_tell_who_asked(
    start: bytes, end: bytes, told: tuple[int | None, str]
) -> None:
    assert message.ends_of(start + b"x" * 1_000 + end) == told
