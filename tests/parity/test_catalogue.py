"""What is said about the situations is true: their page is up to date, and a verdict tells outcomes apart."""

from __future__ import annotations

import re

import pytest

from tabherd.wire import Click

from .catalogue import SITUATIONS
from .page import PAGE, with_situations
from .situation import Outcome, Situation

OK = Outcome(end="ok", seen=[1])
COVERED = Outcome(end="covered", seen=[])


def situation(**more: object) -> Situation:
    fields = {"name": "x", "about": "X.", "pages": {"/": ""}, "ours": [Click(selector="x")], "seen": "1", **more}
    return Situation(theirs=lambda page: page.click("x"), **fields)  # type: ignore[arg-type]


def test_the_page_of_situations_is_up_to_date() -> None:
    page = PAGE.read_text("utf-8")
    assert page == with_situations(page), "run 'python -m tests.parity --docs'"


def test_names_and_sentences_are_fit_to_be_read() -> None:
    odd = [each.name for each in SITUATIONS if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", each.name)]
    odd += [each.name for each in SITUATIONS if not each.about.endswith(".")]
    assert odd == []


def test_equal_outcomes_that_were_expected_are_agreement() -> None:
    assert situation().verdict(OK, OK) == ""


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (OK, COVERED),
        (OK, Outcome(end="ok", seen=[2])),
        (COVERED, COVERED),
        (Outcome(end="ok", seen=[]), Outcome(end="ok", seen=[])),
    ],
    ids=["another end", "another effect", "both fail", "nothing noticed"],
)
def test_whatever_is_not_agreement_is_told(ours: Outcome, theirs: Outcome) -> None:
    assert situation().verdict(ours, theirs).startswith("x:")


def test_a_difference_holds_only_as_it_is_pinned() -> None:
    differing = situation(difference="Because.", ours_pinned=OK, theirs_pinned=COVERED)
    assert differing.verdict(OK, COVERED) == ""
    assert differing.verdict(OK, OK) != ""


def test_a_difference_without_its_outcomes_is_none() -> None:
    with pytest.raises(AssertionError):
        situation(difference="Because.")
