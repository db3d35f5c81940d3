"""The protocol of the control channel without sockets: what is read, what is refused and by which name, what is
remembered.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabherd import wire
from tabherd.edge import envelope
from tabherd.edge.envelope import Command, Message, Rejected, ReplayWindow
from tabherd.errors import InvalidRequest, RateLimited, StateConflict

NOW = 1_700_000_000_000
W = wire.REPLAY_WINDOW_MS
CLICK = {"tabSessionId": "tab_1", "action": "command.run", "payload": {"kind": "click", "selector": "a"}}


def message(kind: str = "ping", payload: Any = None, **fields: Any) -> dict[str, Any]:
    return {
        "protocolVersion": "1.0",
        "messageType": kind,
        "requestId": "r",
        "timestamp": NOW,
        "nonce": "n",
        "payload": {} if payload is None else payload,
        **fields,
    }


def read(kind: str = "ping", payload: Any = None, **fields: Any) -> Message | Rejected:
    return envelope.decode(json.dumps(message(kind, payload, **fields)).encode())


def refused(said: Message | Rejected) -> tuple[str, str]:
    assert isinstance(said, Rejected), said
    return said.error.code, said.error.details["field"]


# --- Reading ----------------------------------------------------------------------------------------------------


def test_a_command_is_read_with_what_stands_beside_its_action() -> None:
    said = read("command", {**CLICK, "sessionId": "ses_1", "fence": 7, "timeoutMs": 500, "idempotencyKey": "k"})
    assert isinstance(said, Message)
    assert said.payload == Command(
        tab_id="tab_1",
        target_node_id=None,
        request=wire.Click(selector="a", session_id="ses_1", fence=7, timeout_ms=500, idempotency_key="k"),
    )


def test_several_steps_are_read_as_one_command() -> None:
    said = read("command", {"tabSessionId": "t", "payload": {"steps": [{"kind": "back"}, {"kind": "reload"}]}})
    assert isinstance(said, Message)
    assert isinstance(said.payload, Command)
    assert said.payload.request == wire.Steps(steps=[wire.Back(), wire.Reload()])


def test_how_dialogs_are_answered_is_said_in_the_action() -> None:
    said = read("command", {**CLICK, "payload": {"kind": "click", "selector": "a", "dialogs": "accept"}})
    assert isinstance(said, Message)
    assert isinstance(said.payload, Command)
    assert said.payload.request == wire.Click(selector="a", dialogs="accept")


@pytest.mark.parametrize("stamp", [NOW, "2023-11-14T22:13:20Z", "2023-11-14T23:13:20.000+01:00"])
def test_a_timestamp_is_milliseconds_or_rfc_3339(stamp: Any) -> None:
    said = read(timestamp=stamp)
    assert isinstance(said, Message)
    assert said.timestamp_ms == NOW


@pytest.mark.parametrize("stamp", ["yesterday", "2023-11-14T22:13:20", "", "1700000000000", "9" * 41, None, 1.5, [1]])
def test_other_timestamps_are_refused(stamp: Any) -> None:
    assert refused(read(timestamp=stamp)) == ("invalid_request", "timestamp")


@pytest.mark.parametrize("field", ["protocolVersion", "messageType", "requestId", "timestamp", "nonce"])
def test_a_field_that_is_missing_is_named(field: str) -> None:
    body = message()
    del body[field]
    assert refused(envelope.decode(json.dumps(body).encode())) == ("invalid_request", field)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (lambda: read(surprise=1), ("unknown_field", "surprise")),
        (lambda: read(protocolVersion="2.0"), ("invalid_request", "protocolVersion")),
        (lambda: read("dance"), ("invalid_request", "messageType")),
        (lambda: read("hello_ack"), ("invalid_request", "messageType")),
        (lambda: read(requestId=""), ("invalid_request", "requestId")),
        (lambda: read(nonce=5), ("invalid_request", "nonce")),
        (lambda: read(payload=[]), ("invalid_request", "payload")),
        (lambda: read("hello", {"heartbeatMs": 999}), ("invalid_request", "payload.heartbeatMs")),
        (lambda: read("hello", {"heartBeatMs": 5_000}), ("unknown_field", "payload.heartBeatMs")),
        (lambda: read("tab_lock", {}), ("invalid_request", "payload.tabSessionId")),
        (lambda: read("command", {**CLICK, "action": "run"}), ("invalid_request", "payload.action")),
        (lambda: read("command", {**CLICK, "waitPolicy": "wait"}), ("invalid_request", "payload.waitPolicy")),
        (lambda: read("command", {**CLICK, "payload": 3}), ("invalid_request", "payload.payload")),
        (lambda: read("command", {**CLICK, "payload": {"kind": "clik"}}), ("unknown_action", "payload.payload.kind")),
        (
            lambda: read("command", {**CLICK, "payload": {"kind": "click", "selectr": "a"}}),
            ("unknown_field", "payload.payload.selectr"),
        ),
        (
            lambda: read("command", {**CLICK, "payload": {"kind": "back", "controllerId": "other"}}),
            ("invalid_request", "payload.payload.controllerId"),
        ),
        (lambda: read("command", {**CLICK, "payload": {"steps": []}}), ("invalid_request", "payload.payload.steps")),
    ],
)
def test_every_mistake_is_named_as_seen_from_the_envelope(said: Any, expected: tuple[str, str]) -> None:
    rejected = said()
    assert refused(rejected) == expected
    assert not rejected.is_malformed


def test_a_mistake_keeps_the_ids_that_could_be_read() -> None:
    said = read(surprise=1, traceId="t")
    assert isinstance(said, Rejected)
    assert (said.request_id, said.trace_id) == ("r", "t")
    assert read(requestId="", traceId=5).request_id is None


def test_a_misspelt_field_is_answered_with_the_known_one() -> None:
    said = read("tab_lock", {"tabSessionId": "t", "lockLeasMs": 5_000})
    assert isinstance(said, Rejected)
    assert said.error.details["nearest"] == "lockLeaseMs"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_object_is_malformed(data: bytes) -> None:
    said = envelope.decode(data)
    assert refused(said) == ("invalid_request", "message")
    assert isinstance(said, Rejected)
    assert said.is_malformed


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_raise(data: bytes) -> None:
    assert isinstance(envelope.decode(data), Message | Rejected)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(wire.CLIENT_PAYLOADS)),
    st.dictionaries(st.sampled_from(["tabSessionId", "payload", "fence", "ticket", "action", "x"]), JSON),
    st.dictionaries(st.sampled_from(sorted(message())), JSON, max_size=2),
)
def test_no_value_in_any_field_raises(kind: str, payload: Any, fields: dict[str, Any]) -> None:
    data = json.dumps(message(kind, payload) | fields).encode()
    assert isinstance(envelope.decode(data), Message | Rejected)


# --- Writing ----------------------------------------------------------------------------------------------------


def test_an_answer_has_the_ids_of_what_it_answers_and_nothing_in_their_place() -> None:
    written = json.loads(envelope.encode("pong", {}, nonce="a", timestamp_ms=NOW, request_id="r", trace_id="t"))
    assert (written["requestId"], written["traceId"]) == ("r", "t")
    written = json.loads(envelope.encode("event", {}, nonce="a", timestamp_ms=NOW))
    assert set(written) == {"protocolVersion", "messageType", "timestamp", "nonce", "payload"}


def test_half_of_a_surrogate_pair_is_escaped() -> None:
    written = envelope.encode("result", {"result": "\ud83d"}, nonce="a", timestamp_ms=NOW)
    assert json.loads(written)["payload"]["result"] == "\ud83d"


# --- Replays ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off_ms", [-W, 0, W])
def test_a_message_within_the_window_is_admitted(off_ms: int) -> None:
    ReplayWindow().admit("n", NOW + off_ms, NOW)


@pytest.mark.parametrize("off_ms", [-W - 1, W + 1, -(10**30)])
def test_a_message_outside_the_window_is_refused(off_ms: int) -> None:
    window = ReplayWindow()
    with pytest.raises(InvalidRequest, match="timestamp"):
        window.admit("n", NOW + off_ms, NOW)
    assert len(window) == 0


@settings(deadline=None)
@given(st.integers(-W, W), st.lists(st.integers(1, W // 2), max_size=12))
def test_the_same_message_is_never_admitted_twice(off_ms: int, pauses_ms: list[int]) -> None:
    window, stamp, now = ReplayWindow(), NOW + off_ms, NOW
    window.admit("n", stamp, now)
    for pause_ms in pauses_ms:
        now += pause_ms
        with pytest.raises((StateConflict, InvalidRequest)):
            window.admit("n", stamp, now)


def test_a_nonce_may_come_again_when_its_message_no_longer_could() -> None:
    window = ReplayWindow()
    window.admit("n", NOW, NOW)
    window.admit("n", NOW + 4 * W, NOW + 4 * W)


def test_memory_is_bounded_and_what_is_remembered_is_never_given_up_for_it() -> None:
    window = ReplayWindow(nonces_max=3)
    for nonce in "abc":
        window.admit(nonce, NOW, NOW)
    with pytest.raises(RateLimited) as caught:
        window.admit("d", NOW, NOW)
    assert 0 < (caught.value.retry_after_ms or 0) <= W
    with pytest.raises(StateConflict):
        window.admit("a", NOW, NOW)
    later = NOW + 3 * W
    window.admit("d", later, later)
    assert not window.is_empty(later)
    assert window.is_empty(later + 3 * W)


def test_a_clock_that_goes_back_forgets_nothing() -> None:
    window = ReplayWindow()
    window.admit("n", NOW, NOW)
    with pytest.raises(StateConflict):
        window.admit("n", NOW, NOW - W // 2)
