"""How dialogs are answered and remembered; no browser is needed for it."""

from __future__ import annotations

from typing import Any

import pytest

from tabherd.browsers.dialogs import MESSAGE_MAX_CHARS, PAUSE_S, SUGGESTION_MAX_CHARS, TOLD_MAX, Dialog, Dialogs


def opening(kind: str = "confirm", message: str = "Sure?", suggestion: str = "") -> dict[str, Any]:
    """What Chromium tells of a dialog that opens."""
    return {"type": kind, "message": message, "defaultPrompt": suggestion, "url": "https://shop.test/"}


@pytest.mark.parametrize("pool_accepts", [True, False])
@pytest.mark.parametrize("kind", ["alert", "confirm", "prompt"])
def test_the_pool_decides_where_no_command_says_anything(kind: str, pool_accepts: bool) -> None:
    dialogs = Dialogs(lambda: pool_accepts)
    assert dialogs.reply(opening(kind)).params["accept"] is pool_accepts
    dialogs.begin(None, None)
    assert dialogs.reply(opening(kind)).params["accept"] is pool_accepts


@pytest.mark.parametrize("accepts", [True, False])
def test_a_command_decides_while_it_runs_and_no_longer(accepts: bool) -> None:
    dialogs = Dialogs(lambda: not accepts)
    dialogs.begin(accepts, None)
    assert dialogs.reply(opening()).params["accept"] is accepts
    dialogs.take()
    assert dialogs.reply(opening()).params["accept"] is not accepts


def test_the_next_command_inherits_no_wish() -> None:
    dialogs = Dialogs()
    dialogs.begin(True, "text")
    dialogs.begin(None, None)
    assert dialogs.reply(opening("prompt")).params == {"accept": False}


@pytest.mark.parametrize("accepts", [True, False, None])
def test_a_page_that_asks_whether_it_may_be_left_is_left(accepts: bool | None) -> None:
    dialogs = Dialogs()
    dialogs.begin(accepts, None)
    assert dialogs.reply(opening("beforeunload", "")).params == {"accept": True}
    assert [dialog.type for dialog in dialogs.take().dialogs] == ["beforeunload"]


def test_a_prompt_gets_the_text_of_the_command_or_else_what_the_page_suggests() -> None:
    dialogs = Dialogs()
    dialogs.begin(True, "mine")
    assert dialogs.reply(opening("prompt", suggestion="theirs")).params == {"accept": True, "promptText": "mine"}
    dialogs.begin(True, None)
    assert dialogs.reply(opening("prompt", suggestion="theirs")).params == {"accept": True, "promptText": "theirs"}
    dialogs.begin(True, "")
    assert dialogs.reply(opening("prompt", suggestion="theirs")).params == {"accept": True, "promptText": ""}


def test_a_text_by_itself_has_prompts_accepted_and_nothing_else() -> None:
    dialogs = Dialogs()
    dialogs.begin(None, "mine")
    assert dialogs.reply(opening("prompt")).params == {"accept": True, "promptText": "mine"}
    assert dialogs.reply(opening("confirm")).params == {"accept": False}


def test_who_wants_dialogs_dismissed_has_prompts_dismissed_whatever_the_text() -> None:
    dialogs = Dialogs(lambda: True)
    dialogs.begin(False, "mine")
    assert dialogs.reply(opening("prompt")).params == {"accept": False}


def test_what_opened_is_told_once() -> None:
    dialogs = Dialogs()
    dialogs.begin(True, None)
    dialogs.reply(opening("confirm", "Delete?"))
    told = dialogs.take()
    assert told.dialogs == (Dialog(type="confirm", message="Delete?", is_accepted=True, is_earlier=False),)
    assert told.more == 0
    assert dialogs.take().dialogs == ()


def test_what_opened_when_no_command_ran_is_told_to_the_next_one_as_such() -> None:
    dialogs = Dialogs()
    dialogs.reply(opening("alert", "Your session has expired."))
    dialogs.begin(None, None)
    dialogs.reply(opening("alert", "Again."))
    assert [(dialog.message, dialog.is_earlier) for dialog in dialogs.take().dialogs] == [
        ("Your session has expired.", True),
        ("Again.", False),
    ]


def test_of_many_the_first_are_kept_and_the_others_counted() -> None:
    dialogs = Dialogs()
    dialogs.begin(None, None)
    for number in range(TOLD_MAX + 1_000):
        dialogs.reply(opening("alert", str(number)))
    told = dialogs.take()
    assert [dialog.message for dialog in told.dialogs] == [str(number) for number in range(TOLD_MAX)]
    assert told.more == 1_000


def test_what_is_kept_of_a_message_and_given_back_of_a_suggestion_is_bounded() -> None:
    dialogs = Dialogs()
    dialogs.begin(True, None)
    reply = dialogs.reply(opening("prompt", "m" * 1_000_000, "s" * 1_000_000))
    assert len(reply.params["promptText"]) == SUGGESTION_MAX_CHARS
    assert [len(dialog.message) for dialog in dialogs.take().dialogs] == [MESSAGE_MAX_CHARS]


def test_those_that_are_told_are_answered_at_once_and_the_others_after_a_pause() -> None:
    dialogs = Dialogs()
    dialogs.begin(None, None)
    pauses = [dialogs.reply(opening("alert")).pause_s for _ in range(TOLD_MAX + 3)]
    assert pauses == [0] * TOLD_MAX + [PAUSE_S] * 3
    dialogs.take()
    assert dialogs.reply(opening("alert")).pause_s == 0


def test_only_a_page_that_floods_its_visitor_has_to_be_stopped_before_it_is_left() -> None:
    dialogs = Dialogs()
    for _ in range(TOLD_MAX):
        dialogs.reply(opening("alert"))
        dialogs.take()
    assert not dialogs.leave()
    for _ in range(TOLD_MAX + 1):
        dialogs.reply(opening("alert"))
        dialogs.take()
    assert dialogs.leave()
    assert not dialogs.leave()


def test_a_page_pays_for_large_suggestions_with_longer_pauses() -> None:
    dialogs = Dialogs()
    for _ in range(TOLD_MAX):
        dialogs.reply(opening("alert"))
    assert dialogs.reply(opening("prompt", suggestion="s" * 10_000_000)).pause_s > 10
