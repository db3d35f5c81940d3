"""Identifiers sort by time, say what they are, and commands carry the epoch."""

from __future__ import annotations

from random import Random

import pytest

from tabherd.broker.ids import Ids, decode, encode, epoch_of_command


def test_ids_sort_by_the_time_they_were_minted() -> None:
    now = [1_700_000_000_000]
    ids = Ids(lambda: now[0], Random(1), epoch=1)
    minted = []
    for _ in range(100):
        minted.append(ids.mint("ses"))
        now[0] += 1
    assert minted == sorted(minted)
    assert all(id.startswith("ses_") for id in minted)


def test_ids_of_one_moment_differ() -> None:
    ids = Ids(lambda: 1, Random(1), epoch=1)
    assert len({ids.mint("tab") for _ in range(1_000)}) == 1_000


def test_ordered_ids_keep_the_order_in_which_they_were_minted_whatever_the_clock_does() -> None:
    times = iter([5, 5, 5, 4, 6, 6])
    ids = Ids(lambda: next(times), Random(1), epoch=1)
    minted = [ids.mint_ordered("aud") for _ in range(6)]
    assert minted == sorted(minted)
    assert {len(id) for id in minted} == {len(Ids(lambda: 1, Random(1), epoch=1).mint("aud"))}


@pytest.mark.parametrize("epoch", [1, 31, 32, 33_000_000])
def test_a_command_id_carries_its_epoch(epoch: int) -> None:
    assert epoch_of_command(Ids(lambda: 5, Random(1), epoch).mint_command()) == epoch


@pytest.mark.parametrize("text", ["", "cmd_", "cmd_nonsense", "ses_000010000000005abcdefghjkmnp", "cmd_" + "!" * 28])
def test_what_is_no_command_id_has_no_epoch(text: str) -> None:
    assert epoch_of_command(text) is None


def test_encoding_keeps_the_order_of_numbers() -> None:
    numbers = [0, 1, 31, 32, 1023, 10**9]
    assert [decode(encode(number, 10)) for number in numbers] == numbers
    assert sorted(encode(number, 10) for number in numbers) == [encode(number, 10) for number in numbers]
