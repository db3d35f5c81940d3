"""Whose turn it is, beside a plain list that is searched from the front."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tabherd.core.round import PLACES_MIN, PLACES_PER_MEMBER, Round, Seat

WISHES = st.integers(0, 2**6 - 1)


class Model(RuleBasedStateMachine):
    """Members and what they want, in the order in which they were seated."""

    def __init__(self) -> None:
        super().__init__()
        self.round: Round[Seat] = Round()
        self.plain: list[tuple[Seat, int]] = []

    @rule(wants=WISHES)
    def seat(self, wants: int) -> None:
        member = Seat()
        self.round.seat(member)
        self.round.want(member, wants)
        self.plain.append((member, wants))

    @precondition(lambda self: self.plain)
    @rule(data=st.data(), times=st.integers(1, 2 * PLACES_MIN))
    def go_to_the_end(self, data: st.DataObject, times: int) -> None:
        """Often enough that places run out."""
        for _ in range(times):
            at = data.draw(st.integers(0, len(self.plain) - 1)) if times < 4 else 0
            member, wants = self.plain.pop(at)
            self.round.leave(member)
            self.round.seat(member)
            self.round.want(member, wants)
            self.plain.append((member, wants))

    @precondition(lambda self: self.plain)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member, _ = self.plain.pop(data.draw(st.integers(0, len(self.plain) - 1)))
        self.round.leave(member)

    @precondition(lambda self: self.plain)
    @rule(data=st.data(), wants=WISHES)
    def want(self, data: st.DataObject, wants: int) -> None:
        at = data.draw(st.integers(0, len(self.plain) - 1))
        member, _ = self.plain[at]
        self.round.want(member, wants)
        self.plain[at] = (member, wants)

    @rule(there=WISHES)
    def first(self, there: int) -> None:
        expected = next((member for member, wants in self.plain if wants & there), None)
        assert self.round.first(there) is expected

    @precondition(lambda self: self.plain)
    @rule(data=st.data())
    def ahead(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.plain) - 1))
        assert self.round.ahead(self.plain[at][0]) == sum(wants != 0 for _, wants in self.plain[:at])

    @rule()
    def serials_ascend(self) -> None:
        serials = [member.serial for member, _ in self.plain]
        assert serials == sorted(serials)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


def test_there_are_as_many_places_as_the_members_need_and_no_more_after_many_have_left() -> None:
    round: Round[Seat] = Round()
    members = [Seat() for _ in range(1_000)]
    for member in members:
        round.seat(member)
    for member in members[2:]:
        round.leave(member)
    for _ in range(10 * PLACES_PER_MEMBER * 1_000):
        round.leave(members[0])
        round.seat(members[0])
    assert round._size == PLACES_MIN
    assert members[1].place < members[0].place
