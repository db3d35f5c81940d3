"""Filling fields in a real page."""

from __future__ import annotations

import pytest

from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import ElementNotActionable
from tabherd.wire import Fill

from .driving import act, ask, show

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HEARD = """<script>heard = [];
for (const type of ['input', 'change']) x.addEventListener(type, () => heard.push(type));</script>"""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("<input id=x value=old>", "new é 日本 😀"),
        ("<input id=x type=email value=old>", "a@b.test"),
        ("<input id=x type=password value=old>", "secret"),
        ("<input id=x type=number value=1>", "-2.5"),
        ("<input id=x type=search value=old>", ""),
        ("<input id=x type=date>", "2024-02-29"),
        ("<input id=x type=time>", "23:59"),
        ("<input id=x type=datetime-local>", "2024-02-29T10:00"),
        ("<input id=x type=month>", "2024-02"),
        ("<input id=x type=week>", "2024-W05"),
        ("<input id=x type=color>", "#00ff00"),
        ("<input id=x type=range min=0 max=10>", "7"),
        ("<textarea id=x>old</textarea>", "two\nlines"),
        ("<textarea id=x>old</textarea>", ""),
    ],
)
async def test_a_field_has_the_new_value_and_has_fired_both_events(tab: ChromiumTab, field: str, value: str) -> None:
    await show(tab, field + HEARD)
    assert await act(tab, Fill(selector="#x", value=value)) is None
    assert await ask(tab, "x.value") == value
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
        ("<input id=x type=submit>", "a", "`click`"),
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


async def test_a_limit_on_the_length_holds(tab: ChromiumTab) -> None:
    await show(tab, "<input id=x maxlength=3>")
    await act(tab, Fill(selector="#x", value="abcdef"))
    assert await ask(tab, "x.value") == "abc"


async def test_a_field_that_gives_the_focus_away_is_refused_rather_than_another_filled(tab: ChromiumTab) -> None:
    await show(tab, "<input id=x onfocus='y.focus()'><input id=y>")
    with pytest.raises(ElementNotActionable, match="does not take the focus"):
        await act(tab, Fill(selector="#x", value="a"))
    assert await ask(tab, "y.value") == ""


async def test_a_field_in_a_shadow_root_is_filled(tab: ChromiumTab) -> None:
    await show(tab, "<div id=h></div><script>h.attachShadow({mode: 'open'}).innerHTML = '<input id=x>'</script>")
    await act(tab, Fill(selector="#x", value="deep"))
    assert await ask(tab, "h.shadowRoot.getElementById('x').value") == "deep"
