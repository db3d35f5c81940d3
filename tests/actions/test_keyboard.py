"""Typing and pressing keys in a real page."""

from __future__ import annotations

import pytest

from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import ElementNotActionable, InvalidRequest
from tabherd.wire import Click, Navigate, Press, Type

from .driving import Waiting, act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

HEARD = """<script>heard = []; for (const type of ['keydown', 'keyup', 'beforeinput', 'input']) {
  addEventListener(type, (event) => heard.push([type, event.key ?? event.data, event.isTrusted]), true);
}</script>"""


@pytest.mark.parametrize("text", ["~!@#$%^&*()_+{}|:\"<>?`-=[]\\;',./", "日本語 😀 é"])
@pytest.mark.parametrize("field", ["<input id=x>", "<div id=x contenteditable></div>"])
async def test_what_is_typed_is_what_the_field_has(tab: ChromiumTab, field: str, text: str) -> None:
    await show(tab, field)
    await act(tab, Type(selector="#x", text=text))
    assert (await ask(tab, "x.value ?? x.textContent")).replace("\xa0", " ") == text


async def test_typing_appends_to_what_is_there(tab: ChromiumTab) -> None:
    await show(tab, "<input id=x value=abc><div id=y contenteditable>abc</div><input id=z type=number value=1>")
    await ask(tab, "x.setSelectionRange(0, 0)")
    for selector in ("#x", "#y", "#z"):
        await act(tab, Type(selector=selector, text="23"))
    assert await ask(tab, "[x.value, y.textContent, z.value]") == ["abc23", "abc23", "123"]


async def test_each_character_has_the_events_of_its_key(tab: ChromiumTab) -> None:
    await show(tab, f"<input id=x>{HEARD}")
    await act(tab, Type(selector="#x", text="aB"))
    assert await ask(tab, "heard.map((event) => event.join())") == [
        *("keydown,a,true", "beforeinput,a,true", "input,a,true", "keyup,a,true"),
        *("keydown,B,true", "beforeinput,B,true", "input,B,true", "keyup,B,true"),
    ]


async def test_keys_can_be_typed_slowly(tab: ChromiumTab) -> None:
    await show(tab, "<input id=x><script>at = []; x.onkeydown = (event) => at.push(event.timeStamp)</script>")
    await act(tab, Type(selector="#x", text="abc", delay_ms=20))
    assert await ask(tab, "at.every((each, i) => i === 0 || each - at[i - 1] > 15)")


async def test_a_long_text_arrives_whole_and_in_order(tab: ChromiumTab) -> None:
    await show(tab, "<textarea id=x></textarea>")
    text = "".join(f"{number}," for number in range(100))
    await act(tab, Type(selector="#x", text=text))
    assert await ask(tab, "x.value") == text


async def test_a_new_line_is_the_enter_key(tab: ChromiumTab, site: Site) -> None:
    site.own |= {"/one": "<form action=/two><input id=x name=q></form>", "/two": "found"}
    await act(tab, Navigate(url=f"{site.origin}/one"))
    await act(tab, Type(selector="#x", text="word\n"))
    assert await ask(tab, "location.pathname + location.search") == "/two?q=word"


async def test_a_read_only_field_is_waited_for(tab: ChromiumTab) -> None:
    await show(tab, "<input id=x readonly>")
    async with Waiting(tab, Type(selector="#x", text="a")) as waiting:
        await waiting.until("editable")
        await ask(tab, "void (x.readOnly = false)")
        await waiting.result()
    assert await ask(tab, "x.value") == "a"


async def test_what_does_not_take_the_focus_is_refused(tab: ChromiumTab) -> None:
    await show(tab, "<p id=x>text</p>")
    with pytest.raises(ElementNotActionable, match="does not take the focus"):
        await act(tab, Type(selector="#x", text="a"))


async def test_a_chord_is_a_command_of_the_editor(tab: ChromiumTab) -> None:
    await show(tab, f"<input id=x value=abc>{HEARD}")
    await act(tab, Press(selector="#x", key="Control+A"))
    await act(tab, Press(key="Backspace"))
    assert await ask(tab, "x.value") == ""
    assert (await ask(tab, "heard.filter((event) => event[0][0] === 'k').map((event) => event[1])"))[:4] == [
        *("Control", "a", "a", "Control"),
    ]


async def test_tab_and_shift_tab_move_the_focus(tab: ChromiumTab) -> None:
    await show(tab, "<input id=a><input id=b>")
    await act(tab, Click(selector="#a"))
    await act(tab, Press(key="Tab"))
    assert await ask(tab, "document.activeElement.id") == "b"
    await act(tab, Press(key="Shift+Tab"))
    assert await ask(tab, "document.activeElement.id") == "a"


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("Escape", ["Escape", "Escape", 27]),
        ("F5", ["F5", "F5", 116]),
        ("Shift+a", ["A", "KeyA", 65]),
        ("ü", ["ü", "", 0]),
    ],
)
async def test_a_page_is_told_key_code_and_number(tab: ChromiumTab, key: str, told: list[object]) -> None:
    await show(tab, "<script>onkeydown = (event) => { got = [event.key, event.code, event.keyCode] }</script>")
    await act(tab, Press(key=key))
    assert await ask(tab, "got") == told


async def test_a_key_that_does_not_exist_touches_nothing(tab: ChromiumTab) -> None:
    await show(tab, HEARD)
    with pytest.raises(InvalidRequest):
        await act(tab, Press(key="Control+Nope"))
    assert await ask(tab, "heard") == []


async def test_what_is_on_no_key_comes_in_one_piece(tab: ChromiumTab) -> None:
    await show(tab, "<input id=x><script>values = []; x.oninput = () => values.push(x.value)</script>")
    await act(tab, Type(selector="#x", text="a👨\u200d👩\u200d👧e\u0301"))
    assert await ask(tab, "values") == ["a", "a👨\u200d👩\u200d👧e\u0301"]


async def test_a_key_of_the_keypad_is_told_as_one(tab: ChromiumTab) -> None:
    await show(
        tab, "<input id=x><script>onkeydown = ({key, code, location}) => { got = [key, code, location] }</script>"
    )
    await act(tab, Press(selector="#x", key="Numpad5"))
    assert await ask(tab, "[x.value, got]") == ["5", ["5", "Numpad5", 3]]


async def test_keys_reach_a_field_of_a_frame_again_after_the_focus_was_in_the_page(
    tab: ChromiumTab, site: Site
) -> None:
    site.own |= {"/one": "<iframe src=/in></iframe><input id=y>", "/in": "<input id=x>"}
    await act(tab, Navigate(url=f"{site.origin}/one"))
    for selector in ("iframe >> #x", "#y", "iframe >> #x"):
        await act(tab, Type(selector=selector, text="a"))
    assert await ask(tab, "[frames[0].x.value, y.value]") == ["aa", "a"]
