"""What is told to a caller whose time is over."""

from __future__ import annotations

from tabherd.actions.progress import Progress
from tabherd.errors import CommandTimedOut, ElementNotActionable, ElementNotFound


def test_an_element_that_never_came_was_not_found() -> None:
    progress = Progress()
    progress.waits("attached", target="'#a'")
    failure = progress.failure()
    assert isinstance(failure, ElementNotFound)
    assert failure.details == {"waitingFor": "attached", "target": "'#a'"}


def test_a_condition_that_was_never_met_is_named_with_what_was_in_the_way() -> None:
    progress = Progress()
    progress.waits("receives_events", target="'#a'", element="<a>", coveredBy="<div id=over>")
    failure = progress.failure()
    assert isinstance(failure, ElementNotActionable)
    assert "<div id=over>" in failure.message


def test_anything_else_that_did_not_come_is_a_timeout() -> None:
    progress = Progress()
    progress.waits("url", url="http://a.test/")
    assert isinstance(progress.failure(), CommandTimedOut)


def test_an_action_that_may_have_changed_the_page_has_no_such_answer() -> None:
    progress = Progress()
    progress.waits("visible")
    progress.acts()
    assert progress.has_acted
    assert progress.failure() is None


def test_waiting_again_after_a_press_that_was_swallowed_counts_as_untouched() -> None:
    progress = Progress()
    progress.acts()
    progress.waits("receives_events")
    assert progress.failure() is not None
