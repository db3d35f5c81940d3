"""Filling fields in a real page."""

from __future__ import annotations

import pytest

from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import ElementNotActionable
from tabherd.wire import Fill, Press, Type

from .driving import act, ask, show

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

HEARD = """<script>heard = [];
for (const type of ['input', 'change']) x.addEventListener(type, () => heard.push(type));</script>"""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("<input id=x value=old>", "new é 日本 😀"),
        ("<input id=x type=number value=1>", "-2.5"),
        ("<input id=x type=search value=old>", ""),
        ("<input id=x type=date>", "2024-02-29"),
        ("<input id=x type=week>", "2024-W05"),
        ("<input id=x type=color>", "#00ff00"),
        ("<input id=x type=range min=0 max=10>", "7"),
        ("<textarea id=x>old</textarea>", "two\nlines"),
    ],
)
async def test_a_field_has_the_new_value_and_has_fired_both_events_when_it_is_left(
    tab: ChromiumTab, field: str, value: str
) -> None:
    await show(tab, field + HEARD)
    assert await act(tab, Fill(selector="#x", value=value)) is None
    assert await ask(tab, "x.value") == value
    await act(tab, Press(key="Tab"))
    # A browser inserts lines one by one.
    assert list(dict.fromkeys(await ask(tab, "heard"))) == ["input", "change"]


@pytest.mark.parametrize("value", ["new <b>text</b> 日本", ""])
async def test_an_editable_region_is_replaced_as_by_typing(tab: ChromiumTab, value: str) -> None:
    await show(tab, f"<div id=x contenteditable>old <b>text</b></div>{HEARD}")
    await act(tab, Fill(selector="#x", value=value))
    assert await ask(tab, "x.innerText.trim()") == value
    assert "input" in await ask(tab, "heard")


async def test_a_label_stands_for_its_field(tab: ChromiumTab) -> None:
    await show(tab, "<label>Your <b>name</b> <input id=x></label><label for=y>Mail</label><input id=y>")
    await act(tab, Fill(selector="text=name", value="a"))
    await act(tab, Fill(selector="text=Mail", value="b"))
    assert await ask(tab, "[x.value, y.value]") == ["a", "b"]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("<select id=x><option>a</select>", "a", "`select`"),
        ("<input id=x type=checkbox>", "a", "`check`"),
        ("<input id=x type=file>", "a", "`upload`"),
        ("<p id=x>text</p>", "a", "not a field"),
        ("<input id=x type=date value=2024-01-01>", "tomorrow", "does not take 'tomorrow'"),
        ("<input id=x type=range max=10>", "99", "it would make it '10'"),
        ("<input id=x type=number>", "many", "'many' is not a number"),
    ],
)
async def test_what_cannot_be_filled_says_why_and_keeps_its_value(
    tab: ChromiumTab, field: str, value: str, reason: str
) -> None:
    await show(tab, field)
    before = await ask(tab, "x.value")
    with pytest.raises(ElementNotActionable) as caught:
        await act(tab, Fill(selector="#x", value=value))
    assert reason in caught.value.message
    assert await ask(tab, "x.value") == before


async def test_a_field_that_gives_the_focus_away_is_refused_rather_than_another_filled(tab: ChromiumTab) -> None:
    await show(tab, "<input id=x onfocus='y.focus()'><input id=y>")
    with pytest.raises(ElementNotActionable, match="does not take the focus"):
        await act(tab, Fill(selector="#x", value="a"))
    assert await ask(tab, "y.value") == ""


async def test_a_field_in_a_shadow_root_is_filled(tab: ChromiumTab) -> None:
    await show(tab, "<div id=h></div><script>h.attachShadow({mode: 'open'}).innerHTML = '<input id=x>'</script>")
    await act(tab, Fill(selector="#x", value="deep"))
    assert await ask(tab, "h.shadowRoot.getElementById('x').value") == "deep"


# The focus moves when the script that gave it has ended: after the look, and before the text.
TAKEN_AWAY = "<input id=x onfocus='queueMicrotask(() => y.focus())'><input id=y value=safe>"


@pytest.mark.parametrize("value", ["secret", ""])
async def test_text_does_not_go_where_the_page_has_moved_the_focus_to(tab: ChromiumTab, value: str) -> None:
    await show(tab, f"{TAKEN_AWAY}<script>keys = 0; y.onkeydown = () => keys++</script>")
    with pytest.raises(ElementNotActionable, match="does not keep the focus") as caught:
        await act(tab, Fill(selector="#x", value=value))
    assert caught.value.details["wentTo"] == '<input id="y">'
    assert await ask(tab, "[x.value, y.value, keys]") == ["", "safe", 0]


async def test_a_field_that_was_refused_leaves_the_others_as_they_were(tab: ChromiumTab) -> None:
    await show(tab, TAKEN_AWAY)
    with pytest.raises(ElementNotActionable):
        await act(tab, Fill(selector="#x", value="a"))
    await act(tab, Type(selector="#y", text=" and sound"))
    assert await ask(tab, "y.value") == "safe and sound"


@pytest.mark.parametrize("when", ["replace()", "queueMicrotask(replace)"])
async def test_a_field_that_is_replaced_before_the_text_comes_is_filled_in_its_new_form(
    tab: ChromiumTab, when: str
) -> None:
    await show(
        tab,
        f"""<div id=d><input id=x></div><script>
        replace = () => {{ d.innerHTML = '<input id=x>' }}; x.onfocus = () => {when}</script>""",
    )
    await act(tab, Fill(selector="#x", value="abc"))
    assert await ask(tab, "x.value") == "abc"


async def test_an_editor_that_keeps_a_selection_of_its_own_has_heard_of_it_before_the_text(tab: ChromiumTab) -> None:
    # Several times, because it is a matter of luck where nobody waits for it.
    for _ in range(3):
        await show(
            tab,
            """<div id=x contenteditable>old</div><script>selected = '';
            document.onselectionchange = () => { selected = getSelection().toString() };
            x.onbeforeinput = (event) => { event.preventDefault(); replaced = [selected, event.data] }</script>""",
        )
        await act(tab, Fill(selector="#x", value="new"))
        assert await ask(tab, "replaced") == ["old", "new"]


async def test_a_part_of_an_editable_region_is_filled_though_the_focus_is_elsewhere(tab: ChromiumTab) -> None:
    await show(tab, "<input id=y autofocus><div id=h contenteditable><p>first</p><p id=x>old</p></div>")
    await act(tab, Fill(selector="#x", value="new"))
    assert await ask(tab, "[h.innerText, y.value]") == ["first\n\nnew", ""]


MANY_LINES = "".join(f"line {number}\n" for number in range(1_000))


async def test_a_text_of_many_lines_is_told_to_the_page_once_and_as_real_input(tab: ChromiumTab) -> None:
    await show(
        tab,
        """<textarea id=x>old</textarea><script>told = []; for (const type of ['input', 'change'])
        x.addEventListener(type, (event) => told.push([type, x.value.length, event.isTrusted]))</script>""",
    )
    await act(tab, Fill(selector="#x", value=MANY_LINES))
    assert await ask(tab, "x.value") == MANY_LINES
    await act(tab, Press(key="Tab"))
    assert await ask(tab, "told") == [["input", len(MANY_LINES), True], ["change", len(MANY_LINES), True]]


async def test_a_limit_on_the_length_holds_for_many_lines(tab: ChromiumTab) -> None:
    await show(tab, "<textarea id=x maxlength=100></textarea>")
    await act(tab, Fill(selector="#x", value=MANY_LINES))
    assert await ask(tab, "x.value") == MANY_LINES[:100]


async def test_spaces_around_a_number_are_not_part_of_it(tab: ChromiumTab) -> None:
    await show(tab, "<input id=x type=number><script>x.onbeforeinput = (event) => { data = event.data }</script>")
    await act(tab, Fill(selector="#x", value=" 12 "))
    assert await ask(tab, "[x.value, data]") == ["12", "12"]


async def test_a_page_that_hides_its_events_is_filled_once(tab: ChromiumTab) -> None:
    await show(
        tab,
        """<input id=x><script>count = 0; for (const type of ['beforeinput', 'input'])
        addEventListener(type, (event) => { event.stopImmediatePropagation(); count++ }, true)</script>""",
    )
    await act(tab, Fill(selector="#x", value="abc"))
    assert await ask(tab, "[x.value, count]") == ["abc", 2]
