"""Sums over the lengths of many queues, beside a plain list of lengths."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tabherd.core.lengths import Lengths

# Which queue grows, or shrinks if it can; and how often.
moves = st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(1, 90)), max_size=40)


@given(moves, st.integers(0, 400))
@settings(max_examples=200, deadline=None)
def test_sums_are_those_of_a_recount(moved: list[tuple[int, bool, int]], most: int) -> None:
    lengths, plain = Lengths(), [0] * 5
    for queue, is_growing, times in moved:
        for _ in range(times):
            if is_growing:
                plain[queue] += 1
                lengths.grown(plain[queue])
            elif plain[queue]:
                plain[queue] -= 1
                lengths.shrunk(plain[queue])
    assert lengths.sum_up_to(most) == sum(min(length, most) for length in plain)
    assert lengths.at(most + 1) == sum(length > most for length in plain)
