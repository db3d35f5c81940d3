"""A person's hands: in order, bounded, joined where nobody can tell, and empty when they let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from tabherd.broker import live_hands
from tabherd.broker.live_hands import UNDER_WAY_MAX, WAITING_MAX, Hands, is_paste
from tabherd.browsers.port import BrowserGone, CdpFailure
from tabherd.config import Pool
from tabherd.errors import NavigationFailed, PolicyDenied, TabBusy, TabherdError, TabQueueLimitExceeded
from tabherd.wire.live import LiveHistory, LiveInput, LiveKey, LiveMouse, LiveNavigate, LiveReload, LiveText

LIMIT_S = 60
# A pool whose browsers have several sessions.
SEVERAL = Pool()


class Page:
    """Takes calls, and answers when it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answers: Mapping[str, Any] = {}
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self.calls.append((method, dict(params or {})))
        if method.startswith("Input."):
            await self.may_answer.wait()
        answer = self.answers.get(method, {})
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    @property
    def told(self) -> list[str]:
        """What it was told, in a word each."""
        return [
            " ".join(str(params[name]) for name in ("type", "key", "button", "text", "url", "x") if params.get(name))
            for _, params in self.calls
        ]


class Person:
    """Hands on a page, and what they were refused."""

    def __init__(self) -> None:
        self.page = Page()
        self.hands = Hands()
        self.hands.put_on(self.page)
        self.refused: list[tuple[LiveInput, TabherdError]] = []

    def act(self, *messages: LiveInput, pool: Pool = SEVERAL) -> None:
        for message in messages:
            self.hands.act(message, lambda one, error: self.refused.append((one, error)), pool)

    async def done(self) -> None:
        """Until nothing is on its way."""
        async with asyncio.timeout(LIMIT_S):
            while (
                self.hands._under_way or self.hands._waiting or (self.hands._leaving and not self.hands._leaving.done())
            ):
                await asyncio.sleep(0)


@pytest_asyncio.fixture
async def person() -> AsyncIterator[Person]:
    someone = Person()
    yield someone
    someone.hands.put_on(None)
    await someone.done()


def move(x: float, **more: Any) -> LiveMouse:
    return LiveMouse(event="move", x=x, y=0, **more)


def button(event: Any, name: Any = "left", **more: Any) -> LiveMouse:
    return LiveMouse(event=event, x=5, y=6, button=name, click_count=1, **more)


def key(event: Any, name: str, code: str = "", modifiers: int = 0) -> LiveKey:
    return LiveKey(event=event, key=name, code=code, modifiers=modifiers)


async def test_a_click_is_told_with_its_button_its_place_and_its_count(person: Person) -> None:
    person.act(button("down", buttons=1), button("up"))
    await person.done()
    assert person.page.calls == [
        (
            "Input.dispatchMouseEvent",
            {"type": kind, "x": 5, "y": 6, "modifiers": 0, "buttons": buttons, "button": "left", "clickCount": 1},
        )
        for kind, buttons in (("mousePressed", 1), ("mouseReleased", 0))
    ]


async def test_a_key_types_its_character_and_has_its_number(person: Person) -> None:
    person.act(key("down", "a", "KeyA"))
    await person.done()
    (method, params) = person.page.calls[0]
    assert method == "Input.dispatchKeyEvent"
    assert (params["type"], params["text"], params["windowsVirtualKeyCode"], params["code"]) == (
        "keyDown",
        "a",
        65,
        "KeyA",
    )


async def test_a_key_with_control_is_a_command_and_types_nothing(person: Person) -> None:
    person.act(key("down", "a", "KeyA", modifiers=2))
    await person.done()
    assert (person.page.calls[0][1]["type"], person.page.calls[0][1]["text"]) == ("rawKeyDown", "")


async def test_enter_types_a_return(person: Person) -> None:
    person.act(key("down", "Enter", "Enter"))
    await person.done()
    assert person.page.calls[0][1]["text"] == "\r"


async def test_a_key_of_another_keyboard_is_told_as_it_is(person: Person) -> None:
    person.act(key("down", "ö", "Semicolon"), key("down", "Ω", "NoSuchPlace"))
    await person.done()
    assert [(params["key"], params["text"]) for _, params in person.page.calls] == [("ö", "ö"), ("Ω", "Ω")]


async def test_what_a_page_has_not_taken_in_yet_is_joined_as_far_as_it_is_moves(person: Person) -> None:
    person.page.may_answer.clear()
    person.act(*(move(x) for x in range(1, 101)), button("down"), *(move(x) for x in range(201, 301)))
    person.page.may_answer.set()
    await person.done()
    assert person.page.told == [
        "mouseMoved none 1",
        "mouseMoved none 2",
        "mouseMoved none 100",
        "mousePressed left 5",
        "mouseMoved none 300",
    ]


async def test_turns_of_the_wheel_that_wait_become_one(person: Person) -> None:
    person.page.may_answer.clear()
    person.act(*(LiveMouse(event="wheel", x=1, y=1, delta_y=10) for _ in range(12)))
    person.page.may_answer.set()
    await person.done()
    assert [params["deltaY"] for _, params in person.page.calls] == [10, 10, 100]


async def test_nothing_overtakes_the_wheel(person: Person) -> None:
    person.page.may_answer.clear()
    person.act(LiveMouse(event="wheel", x=1, y=1, delta_y=10), button("down"))
    await asyncio.sleep(0)
    assert len(person.page.calls) == 1
    person.page.may_answer.set()
    await person.done()
    assert len(person.page.calls) == 2


async def test_a_page_that_takes_nothing_in_is_sent_only_so_much_and_the_rest_is_refused(person: Person) -> None:
    person.page.may_answer.clear()
    with pytest.raises(TabQueueLimitExceeded):
        person.act(*(key("down", "a", "KeyA") for _ in range(UNDER_WAY_MAX + WAITING_MAX + 1)))
    await asyncio.sleep(0)
    assert len(person.page.calls) == UNDER_WAY_MAX
    assert len(person.hands._waiting) == WAITING_MAX


async def test_whoever_lets_go_leaves_nothing_pressed_and_presses_nothing_by_it(person: Person) -> None:
    person.act(button("down"), button("down", "right"), key("down", "Control", "ControlLeft"), key("down", "a", "KeyA"))
    await person.done()
    person.page.calls.clear()
    await person.hands.let_go()
    assert person.page.told == [
        "mouseReleased left -1.0",
        "mouseReleased right -1.0",
        "keyUp a",
        "keyUp Control",
    ]
    person.page.calls.clear()
    await person.hands.let_go()
    assert person.page.calls == []


async def test_what_was_released_is_not_released_again(person: Person) -> None:
    person.act(button("down"), button("up"), key("down", "a", "KeyA"), key("up", "a", "KeyA"))
    await person.done()
    person.page.calls.clear()
    await person.hands.let_go()
    assert person.page.calls == []


async def test_what_waits_when_somebody_lets_go_is_never_sent(person: Person) -> None:
    person.page.may_answer.clear()
    person.act(*(key("down", "x", "KeyX") for _ in range(UNDER_WAY_MAX + 5)))
    await asyncio.sleep(0)
    letting_go = asyncio.ensure_future(person.hands.let_go())
    await asyncio.sleep(0)
    assert not letting_go.done(), "what is on its way must have arrived first"
    person.page.may_answer.set()
    await letting_go
    await person.done()
    assert person.page.told == ["keyDown x x"] * UNDER_WAY_MAX + ["keyUp x"]


async def test_a_page_that_never_answers_cannot_keep_a_person_from_letting_go(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_hands, "LET_GO_LIMIT_S", 0.01)
    person.page.may_answer.clear()
    person.act(button("down"))
    async with asyncio.timeout(LIMIT_S):
        await person.hands.let_go()


async def test_a_page_that_does_not_take_input_is_said_to_be_busy(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_hands, "TAKE_IN_LIMIT_S", 0.01)
    person.page.may_answer.clear()
    person.act(button("down"))
    await person.done()
    assert [error.code for _, error in person.refused] == ["tab_busy"]


async def test_addresses_do_not_wait_behind_a_page_that_is_stuck(person: Person) -> None:
    person.page.may_answer.clear()
    person.act(*(key("down", "a", "KeyA") for _ in range(UNDER_WAY_MAX + 5)), LiveNavigate(url="http://example.test/"))
    await asyncio.sleep(0)
    assert ("Page.navigate", {"url": "http://example.test/"}) in person.page.calls


async def test_a_page_is_not_sent_where_agents_may_not_send_it(person: Person) -> None:
    with pytest.raises(PolicyDenied):
        person.act(LiveNavigate(url="file:///etc/passwd"))
    await person.done()
    assert person.page.calls == []


async def test_an_address_that_cannot_be_reached_is_told(person: Person) -> None:
    person.page.answers = {"Page.navigate": {"errorText": "net::ERR_CONNECTION_REFUSED"}}
    person.act(LiveNavigate(url="http://example.test/"))
    await person.done()
    assert [type(error) for _, error in person.refused] == [NavigationFailed]


async def test_history_is_gone_through_by_its_entries_and_ends_where_it_ends(person: Person) -> None:
    person.page.answers = {"Page.getNavigationHistory": {"currentIndex": 1, "entries": [{"id": 7}, {"id": 8}]}}
    person.act(LiveHistory(by=-1))
    await person.done()
    assert person.page.calls[-1] == ("Page.navigateToHistoryEntry", {"entryId": 7})
    person.act(LiveHistory(by=1))
    await person.done()
    assert [error.details["reason"] for _, error in person.refused] == ["no_history"]


async def test_a_refusal_of_the_browser_is_told_and_the_rest_goes_on(person: Person) -> None:
    person.page.answers = {"Input.insertText": CdpFailure("Input.insertText", -1, "no")}
    person.act(LiveText(text="x"), LiveReload(), button("down"))
    await person.done()
    assert [error.code for _, error in person.refused] == ["invalid_request"]
    assert {"Page.reload", "Input.dispatchMouseEvent"} <= {method for method, _ in person.page.calls}


async def test_the_death_of_the_page_is_told(person: Person) -> None:
    person.page.answers = {"Input.insertText": BrowserGone("gone", was_sent=True)}
    person.act(LiveText(text="x"))
    await person.done()
    assert [error.code for _, error in person.refused] == ["browser_crashed"]


async def test_without_a_page_there_is_nothing_to_put_hands_on(person: Person) -> None:
    person.act(button("down"))
    await person.done()
    person.hands.put_on(None)
    with pytest.raises(TabBusy):
        person.act(button("up"))
    # The page that had it pressed is gone.
    other = Page()
    person.hands.put_on(other)
    await person.hands.let_go()
    assert other.calls == []


async def test_the_clipboard_that_sessions_share_is_not_read(person: Person) -> None:
    with pytest.raises(PolicyDenied):
        person.act(key("down", "v", "KeyV", modifiers=2))
    await person.done()
    assert person.page.calls == []
    person.act(key("down", "v", "KeyV", modifiers=2), pool=Pool(isolation="browser"))
    await person.done()
    assert len(person.page.calls) == 1


async def test_the_middle_button_is_not_pressed_where_it_pastes_what_others_selected(person: Person) -> None:
    attached = Pool(source="attach", endpoint="http://127.0.0.1:9222")
    for message in (button("down", "middle"), button("up", "middle"), move(1, buttons=4)):
        with pytest.raises(PolicyDenied):
            person.act(message, pool=attached)
    person.act(button("down"), button("up"), pool=attached)
    person.act(button("down", "middle"), button("up", "middle"))
    await person.done()
    assert [params["button"] for _, params in person.page.calls] == ["left", "left", "middle", "middle"]


@pytest.mark.parametrize(
    ("name", "code", "modifiers", "is_one"),
    [
        ("v", "KeyV", 2, True),
        ("V", "KeyV", 10, True),
        ("v", "KeyV", 4, True),
        ("v", "", 2, True),
        # On another keyboard layout the letter is elsewhere, and what counts there is the letter.
        ("v", "KeyK", 2, True),
        ("Insert", "Insert", 8, True),
        ("Paste", "Paste", 0, True),
        ("v", "KeyV", 0, False),
        ("V", "KeyV", 8, False),
        ("Insert", "Insert", 0, False),
        ("c", "KeyC", 2, False),
    ],
)
def test_what_pastes_is_known(name: str, code: str, modifiers: int, is_one: bool) -> None:
    assert is_paste(key("down", name, code, modifiers)) is is_one
