"""Integers in order, beside a plain sorted list."""

from __future__ import annotations

from bisect import bisect_left, insort
from random import Random

import pytest

from tabherd.core.ordered import CHUNK_MAX, Ordered


def all_of(ordered: Ordered) -> list[int]:
    return [item for chunk in ordered._chunks for item in chunk]


@pytest.mark.parametrize("order", ["ascending", "descending", "at random"])
def test_it_is_a_sorted_list_however_items_come_and_go(order: str) -> None:
    chance, ordered, plain = Random(order), Ordered(), list[int]()
    items = list(range(0, 10 * CHUNK_MAX, 2))
    match order:
        case "descending":
            items.reverse()
        case "at random":
            chance.shuffle(items)
    for number, item in enumerate(items):
        ordered.add(item)
        insort(plain, item)
        if number % 3 == 2:
            gone = plain.pop(0 if number % 2 else chance.randrange(len(plain)))
            ordered.remove(gone)
        if number % 97 == 0:
            asked = chance.randrange(items[-1] + items[0] + 1)
            assert ordered.index(asked) == bisect_left(plain, asked)
            assert ordered.first == plain[0]
    assert all_of(ordered) == plain
    assert ordered.count == len(plain)
    for item in plain:
        ordered.remove(item)
    assert (ordered.count, all_of(ordered)) == (0, [])


def test_chunks_stay_small_and_are_full_where_items_come_in_order() -> None:
    ordered = Ordered()
    for item in range(10 * CHUNK_MAX):
        ordered.add(item)
    assert [len(chunk) for chunk in ordered._chunks] == [CHUNK_MAX] * 10
    for item in range(1, 4 * CHUNK_MAX, 2):
        ordered.remove(item)
    for item in range(1, 4 * CHUNK_MAX, 2):
        ordered.add(item)
    assert max(len(chunk) for chunk in ordered._chunks) <= CHUNK_MAX


def test_what_is_not_there_cannot_be_removed() -> None:
    ordered = Ordered()
    ordered.add(1)
    ordered.add(3)
    with pytest.raises(AssertionError):
        ordered.remove(2)
