"""A hop is believed only by the node, for the request and in the minute that it was signed for."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabherd.cluster.hop import SKEW_MAX_MS, VALUE_MAX_BYTES, Hop, sign, verify

KEY = b"k" * 32
HOP = Hop(
    from_node="nod_a", from_epoch=7, to_node="nod_b", at_ms=1_000_000, client=("10.0.0.1", 80), boot_id="b", grant="g"
)
FOR: dict[str, Any] = {"method": "POST", "target": b"/tabs/x?y=1", "node_id": "nod_b", "now_ms": HOP.at_ms}

hops = st.builds(
    Hop,
    from_node=st.text(),
    from_epoch=st.integers(0, 2**62),
    to_node=st.text(),
    at_ms=st.integers(0, 2**62),
    client=st.none() | st.tuples(st.text(), st.none() | st.integers(0, 65_535)),
    boot_id=st.text(),
    grant=st.text(),
)


def test_what_was_signed_is_read_back_whole() -> None:
    assert verify(KEY, sign(KEY, HOP, "POST", b"/tabs/x?y=1"), **FOR) == HOP


@given(hops, st.text(), st.binary())
def test_any_hop_is_read_back_and_fits_into_a_header(hop: Hop, method: str, target: bytes) -> None:
    value = sign(KEY, hop, method, target)
    assert not set(value) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=")
    read = verify(KEY, value, method=method, target=target, node_id=hop.to_node, now_ms=hop.at_ms)
    assert read == (hop if len(value) <= VALUE_MAX_BYTES else None)


@pytest.mark.parametrize(
    "other",
    [
        {"method": "GET"},
        {"target": b"/tabs/x?y=2"},
        {"target": b"/tabs/x"},
        {"node_id": "nod_c"},
        {"now_ms": HOP.at_ms + SKEW_MAX_MS + 1},
        {"now_ms": HOP.at_ms - SKEW_MAX_MS - 1},
    ],
)
def test_a_hop_for_something_else_is_none(other: dict[str, Any]) -> None:
    assert verify(KEY, sign(KEY, HOP, "POST", b"/tabs/x?y=1"), **{**FOR, **other}) is None


@pytest.mark.parametrize("skew_ms", [SKEW_MAX_MS, -SKEW_MAX_MS])
def test_clocks_may_differ_by_a_minute(skew_ms: int) -> None:
    assert verify(KEY, sign(KEY, HOP, "POST", b"/tabs/x?y=1"), **{**FOR, "now_ms": HOP.at_ms + skew_ms}) == HOP


def test_a_hop_under_another_key_is_none() -> None:
    assert verify(KEY, sign(b"x" * 32, HOP, "POST", b"/tabs/x?y=1"), **FOR) is None


def test_a_letter_cannot_move_from_the_method_to_the_target() -> None:
    assert verify(KEY, sign(KEY, HOP, "POS", b"T/tabs"), **{**FOR, "method": "POST", "target": b"/tabs"}) is None


@given(st.data())
def test_no_bit_of_a_hop_can_be_changed(data: st.DataObject) -> None:
    raw = bytearray(base64.urlsafe_b64decode(sign(KEY, HOP, "POST", b"/tabs/x?y=1")))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert verify(KEY, base64.urlsafe_b64encode(raw), **FOR) is None


@given(st.binary(max_size=2 * VALUE_MAX_BYTES) | st.text().map(str.encode))
def test_anything_else_is_none(value: bytes) -> None:
    assert verify(KEY, value, **FOR) is None


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=8)))
def test_what_another_version_signed_is_none(content: Any) -> None:
    class Signed(msgspec.Struct, array_like=True):
        content: Any

    # Signed by the same key in the same way, but it says something else.
    assert verify(KEY, sign(KEY, Signed(content), "POST", b"/tabs/x?y=1"), **FOR) is None  # type: ignore[arg-type]
