"""The lines of named locks: one holder, strict order, no circle, and nothing left when all have gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabherd import errors
from tabherd.core.lock_queue import LockLimits, LockQueue, Wish

MANY = LockLimits(waiters_per_name=100, waiters_max=1_000)


def wish(number: int, name: str = "a", party: str = "") -> Wish:
    return Wish(id=f"wsh_{number}", name=name, party=party)


def held(queue: LockQueue, name: str, party: str, number: int = 0) -> None:
    got = wish(1_000 + number, name, party)
    queue.enter(got)
    queue.grant(got)


def test_places_are_given_in_the_order_of_arrival() -> None:
    queue = LockQueue(MANY)
    wishes = [wish(number) for number in range(3)]
    assert [queue.enter(each) for each in wishes] == [1, 2, 3]
    queue.leave(wishes[0])
    assert queue.first("a") == wishes[1]
    assert queue.position(wishes[2]) == 2


def test_only_the_first_is_granted() -> None:
    queue = LockQueue(MANY)
    for number in range(2):
        queue.enter(wish(number))
    with pytest.raises(AssertionError):
        queue.grant(wish(1))


def test_a_name_that_is_held_is_granted_to_nobody() -> None:
    queue = LockQueue(MANY)
    held(queue, "a", "ada")
    queue.enter(wish(1))
    with pytest.raises(AssertionError):
        queue.grant(wish(1))


def test_a_name_that_nobody_has_or_wants_leaves_no_trace() -> None:
    queue = LockQueue(MANY)
    held(queue, "a", "ada")
    queue.enter(wish(1, party="bob"))
    queue.leave(wish(1, party="bob"))
    queue.free("a")
    assert (queue._holders, queue._lines, queue._waits, queue.waiting) == ({}, {}, {}, 0)


def test_the_circle_names_the_locks_in_its_order() -> None:
    queue = LockQueue(MANY)
    for number, (name, party) in enumerate((("a", "ada"), ("b", "bob"), ("c", "cyd"))):
        held(queue, name, party, number)
    queue.enter(wish(1, "b", "ada"))
    queue.enter(wish(2, "c", "bob"))
    with pytest.raises(errors.LockDeadlock) as caught:
        queue.enter(wish(3, "a", "cyd"))
    assert caught.value.details["circle"] == ["a", "b", "c"]
    assert queue.waiting == 2


def test_who_is_nobody_in_particular_is_never_met_again() -> None:
    queue = LockQueue(MANY)
    held(queue, "a", "")
    assert [queue.enter(wish(number)) for number in range(3)] == [1, 2, 3]


def test_a_refusal_changes_nothing() -> None:
    queue = LockQueue(LockLimits(waiters_per_name=1, waiters_max=1))
    held(queue, "a", "ada")
    queue.enter(wish(1, party="bob"))
    with pytest.raises(errors.QueueFull):
        queue.enter(wish(2, party="cyd"))
    assert (queue.waiting, queue.has_or_wants("cyd", "a")) == (1, False)


STEPS = st.lists(
    st.tuples(
        st.sampled_from("egfl"), st.integers(0, 30), st.sampled_from("abc"), st.sampled_from(["", "1", "2", "3"])
    ),
    max_size=60,
)


@given(STEPS)
def test_no_history_lets_anybody_wait_for_himself(steps: list[tuple[str, int, str, str]]) -> None:
    queue, waits, holders = LockQueue(MANY), {}, {}
    for step, number, name, party in steps:
        match step:
            case "e" if number not in waits:
                try:
                    queue.enter(wish(number, name, party))
                    waits[number] = wish(number, name, party)
                except (errors.LockReentered, errors.LockDeadlock):
                    assert party
            case "l" if number in waits:
                queue.leave(waits.pop(number))
            case "g" if not queue.is_held(name) and (first := queue.first(name)) is not None:
                queue.grant(first)
                holders[name] = first.party
                waits = {number: each for number, each in waits.items() if each.id != first.id}
            case "f" if queue.is_held(name):
                queue.free(name)
                del holders[name]
        assert queue.waiting == len(waits)
        assert not _one_wait_each(waits) or not _has_circle(waits, holders)


def _one_wait_each(waits: dict[int, Wish]) -> bool:
    """Parties that wait for one lock at a time, as a thread does."""
    parties = [each.party for each in waits.values() if each.party]
    return len(parties) == len(set(parties))


def _has_circle(waits: dict[int, Wish], holders: dict[str, str]) -> bool:
    wants = {each.party: each.name for each in waits.values() if each.party}
    for start in wants:
        party, seen = start, set()
        while party in wants and party not in seen:
            seen.add(party)
            party = holders.get(wants[party], "")
            if party == start:
                return True
    return False
