"""What the absence of an answer means: whether the request may be sent again, and what its sender may know."""

from __future__ import annotations

import ssl

import httpx
import pytest

from tabherd import errors
from tabherd.client.call import Call, command, failure, get, segment, wire_names

URL = "http://herd.test"
CLICK = command("/tabs/tab_1/action", {"kind": "click"})
CLICK_ONCE = command("/tabs/tab_1/action", {"kind": "click", "idempotencyKey": "k"})
LOOK = command("/tabs/tab_1/action", {"kind": "snapshot"})
OPEN_DOOR: Call[bytes] = Call(method="POST", path="/agents", answer=bytes)
READ = get("/health", bytes)

NEVER_LEFT = [httpx.ConnectError("refused"), httpx.ConnectTimeout("slow"), httpx.PoolTimeout("full")]
CUT_OFF = [httpx.ReadError("reset"), httpx.RemoteProtocolError("closed"), httpx.WriteError("pipe")]


def said(error: BaseException) -> str:
    return type(error).__name__


@pytest.mark.parametrize("error", NEVER_LEFT, ids=said)
@pytest.mark.parametrize("call", [CLICK, CLICK_ONCE, OPEN_DOOR, READ], ids=["click", "keyed", "post", "get"])
def test_what_never_left_may_be_sent_again(call: Call[object], error: Exception) -> None:
    found = failure(URL, call, error)
    assert (found.code, found.retryable) == ("node_unreachable", True)


@pytest.mark.parametrize("error", [*CUT_OFF, httpx.ReadTimeout("silence")], ids=said)
def test_a_command_that_was_cut_off_is_outcome_unknown(error: Exception) -> None:
    found = failure(URL, CLICK, error)
    assert (found.code, found.retryable) == ("outcome_unknown", False)


@pytest.mark.parametrize("error", CUT_OFF, ids=said)
@pytest.mark.parametrize("call", [CLICK_ONCE, LOOK, READ], ids=["keyed", "reading", "get"])
def test_what_is_the_same_twice_as_once_is_sent_again(call: Call[object], error: Exception) -> None:
    assert failure(URL, call, error).retryable is True


@pytest.mark.parametrize("error", CUT_OFF, ids=said)
def test_what_would_be_done_twice_is_not_sent_again(error: Exception) -> None:
    assert failure(URL, OPEN_DOOR, error).retryable is False


def test_a_silence_as_long_as_the_request_may_take_is_not_waited_for_twice() -> None:
    assert failure(URL, READ, httpx.ReadTimeout("silence")).retryable is False


@pytest.mark.parametrize(
    "error", [httpx.LocalProtocolError("header"), httpx.UnsupportedProtocol("ftp"), httpx.InvalidURL("?")], ids=said
)
def test_what_can_never_be_sent_is_the_callers_mistake_and_not_an_unknown_outcome(error: Exception) -> None:
    assert isinstance(failure(URL, CLICK, error), errors.InvalidRequest)


def test_a_certificate_that_is_not_trusted_is_not_tried_again() -> None:
    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed")
    assert failure(URL, READ, error).retryable is False


def test_a_command_is_given_its_own_time_and_the_way_there_and_back() -> None:
    assert 1.5 < command("/tabs/tab_1/action", {"kind": "click", "timeoutMs": 1_500}).limit_s < 30


def test_names_are_spelt_as_on_the_wire_and_what_is_absent_is_left_out() -> None:
    assert wire_names({"full_page": True, "timeoutMs": 5, "ref": None, "x": 0}) == {
        "fullPage": True,
        "timeoutMs": 5,
        "x": 0,
    }


@pytest.mark.parametrize("identifier", ["", ".", ".."])
def test_an_id_that_would_change_the_path_is_refused(identifier: str) -> None:
    with pytest.raises(errors.InvalidRequest):
        segment(identifier)


@pytest.mark.parametrize("identifier", ["../agents", "a/b", "a?b=c", "a#b", "a%2fb", "ä\n"])
def test_an_id_stays_one_path_segment(identifier: str) -> None:
    assert not set("/?#\n") & set(segment(identifier))
