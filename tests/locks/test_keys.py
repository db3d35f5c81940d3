"""Keys: what is one lock, and what cannot be."""

from __future__ import annotations

import math
import re

import pytest

from tabherd.errors import CATALOGUE, AdvisoryLockError, InvalidRequest, StoreUnavailable
from tabherd.locks import LockNamespace, lock_key_from_string
from tabherd.locks.base import LockStoreUnavailable, checked_timeout_s, key_of, named_key


def test_a_string_has_the_same_64_bit_number_in_every_process_and_on_every_machine() -> None:
    assert lock_key_from_string("account:x") == -7212599545389924073
    assert -(2**63) <= lock_key_from_string("another") < 2**63


def test_different_strings_have_different_numbers() -> None:
    assert len({lock_key_from_string(f"name {number}") for number in range(10_000)}) == 10_000


def test_a_pair_of_integers_is_the_two_argument_form() -> None:
    assert key_of(LockNamespace.AGENT, 42).pair == (1, 42)
    assert key_of(LockNamespace.AGENT, 42) == key_of(1, 42)
    assert key_of(1, 42).label == "1:42"


def test_anything_with_a_string_is_a_name() -> None:
    assert key_of("account", "x") == key_of("account:x") == named_key("account:x")
    assert key_of("agent", 42) == named_key("agent:42")
    assert key_of(1, "x") == named_key("1:x")


def test_a_name_and_a_pair_that_look_alike_are_two_locks() -> None:
    assert key_of(1, 42) != named_key("1:42")
    assert key_of(1, 42).file_name != named_key("1:42").file_name


def test_a_name_cannot_lead_out_of_the_directory_of_the_locks() -> None:
    assert re.fullmatch(r"[a-z0-9_-]+", named_key("../../etc/passwd").file_name)
    assert re.fullmatch(r"[a-z0-9_-]+", key_of(-5, -7).file_name)


@pytest.mark.parametrize("pair", [(2**31, 1), (1, 2**31), (-(2**31) - 1, 1), (1, -(2**31) - 1)])
def test_an_integer_of_more_than_32_bits_is_refused_and_the_way_out_named(pair: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequest, match="32 bits") as refused:
        key_of(*pair)
    assert "string" in refused.value.action


@pytest.mark.parametrize("pair", [(2**31 - 1, -(2**31)), (0, 0)])
def test_the_ends_of_the_range_are_in_it(pair: tuple[int, int]) -> None:
    assert key_of(*pair).pair == pair


@pytest.mark.parametrize("odd", [(1.5, 2), (1, None), (True, 1), (1, False), ("",), ("x" * 201,), ("a\nb",)])
def test_what_is_no_key_is_refused(odd: tuple[object, ...]) -> None:
    with pytest.raises(InvalidRequest):
        key_of(*odd)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout_s", [-1, math.inf, math.nan, 1e9])
def test_a_timeout_that_never_comes_is_refused(timeout_s: float) -> None:
    with pytest.raises(InvalidRequest, match="timeout"):
        checked_timeout_s(timeout_s)


@pytest.mark.parametrize("code", ["lock_timed_out", "lock_reentered", "lock_deadlock", "lock_lost"])
def test_every_error_of_a_lock_is_caught_by_one_name(code: str) -> None:
    assert issubclass(CATALOGUE[code], AdvisoryLockError)


def test_a_broken_database_is_caught_by_that_name_too_and_keeps_its_code() -> None:
    assert issubclass(LockStoreUnavailable, AdvisoryLockError)
    assert issubclass(LockStoreUnavailable, StoreUnavailable)
    assert LockStoreUnavailable("x").to_wire()["code"] == "store_unavailable"
    assert CATALOGUE["store_unavailable"] is StoreUnavailable
