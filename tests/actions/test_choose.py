"""Selecting options and checking boxes in a real page."""

from __future__ import annotations

import pytest

from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import ElementNotActionable
from tabherd.wire import Check, Navigate, Select

from .driving import Waiting, act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

OPTIONS = "<option value=a>Apple<option value=b>Big  pear<option value=c>Cherry<option value=d disabled>Date"
HEARD = """<script>heard = [];
for (const type of ['input', 'change']) x.addEventListener(type, () => heard.push(type));</script>"""


@pytest.mark.parametrize(("values", "selected"), [(["b"], ["b"]), (["Big pear"], ["b"]), ([2], ["c"]), ([], [])])
async def test_an_option_is_chosen_by_value_label_or_number(
    tab: ChromiumTab, values: list[str | int], selected: list[str]
) -> None:
    await show(tab, f"<select id=x>{OPTIONS}</select>{HEARD}")
    assert await act(tab, Select(selector="#x", values=values)) == selected
    assert await ask(tab, "Array.from(x.selectedOptions, (each) => each.value)") == selected
    assert await ask(tab, "heard") == ["input", "change"]


async def test_several_options_replace_those_that_were_chosen(tab: ChromiumTab) -> None:
    await show(tab, f"<select id=x multiple>{OPTIONS}</select>")
    assert await act(tab, Select(selector="#x", values=["a", 1])) == ["a", "b"]
    assert await act(tab, Select(selector="#x", values=["Cherry"])) == ["c"]


async def test_choosing_what_is_chosen_already_fires_nothing(tab: ChromiumTab) -> None:
    await show(tab, f"<select id=x>{OPTIONS}</select>{HEARD}")
    await act(tab, Select(selector="#x", values=["a"]))
    assert await ask(tab, "heard") == []


async def test_an_option_that_comes_late_is_waited_for_and_the_others_are_listed(tab: ChromiumTab) -> None:
    await show(tab, "<select id=x><option value=a>Apple</select>")
    async with Waiting(tab, Select(selector="#x", values=["late"])) as waiting:
        details = await waiting.until("option")
        assert details["options"] == [{"value": "a", "label": "Apple"}]
        await ask(tab, "void x.add(new Option('late'))")
        assert await waiting.result() == ["late"]


@pytest.mark.parametrize(
    ("field", "values"), [("<input id=x>", ["a"]), (f"<select id=x>{OPTIONS}</select>", ["a", "b"])]
)
async def test_what_cannot_be_chosen_is_refused(tab: ChromiumTab, field: str, values: list[str | int]) -> None:
    await show(tab, field)
    with pytest.raises(ElementNotActionable):
        await act(tab, Select(selector="#x", values=values))


OWN = """<div id=x role=switch aria-checked=false tabindex=0
onclick='this.ariaChecked = this.ariaChecked !== "true"'>S</div>"""


@pytest.mark.parametrize(
    "box",
    ["<input id=x type=checkbox>", "<label><input id=x type=checkbox> Text</label>", OWN, "<input id=x type=radio>"],
)
async def test_a_box_is_checked_once_however_often_it_is_asked_for(tab: ChromiumTab, box: str) -> None:
    await show(tab, f"{box}<script>clicks = 0; x.addEventListener('click', () => clicks++)</script>")
    for _ in range(2):
        assert await act(tab, Check(selector="#x")) is True
    assert await ask(tab, "[x.checked ?? x.ariaChecked === 'true', clicks]") == [True, 1]


async def test_a_box_is_unchecked(tab: ChromiumTab) -> None:
    await show(tab, "<label>Yes <input id=x type=checkbox checked></label>")
    assert await act(tab, Check(selector="text=Yes", checked=False)) is False
    assert await ask(tab, "x.checked") is False


@pytest.mark.parametrize(
    ("box", "checked", "reason"),
    [
        ("<input id=x type=radio checked>", False, "cannot be unchecked"),
        ("<button id=x>B</button>", True, "neither a checkbox"),
        ("<input id=x type=checkbox onclick='return false'>", True, "is not checked"),
    ],
)
async def test_what_cannot_be_checked_says_why(tab: ChromiumTab, box: str, checked: bool, reason: str) -> None:
    await show(tab, box)
    with pytest.raises(ElementNotActionable, match=reason):
        await act(tab, Check(selector="#x", checked=checked))


async def test_after_a_choice_that_submits_the_new_page_is_there(tab: ChromiumTab, site: Site) -> None:
    site.own |= {
        "/one": "<form action=/two><select id=x name=q onchange='form.submit()'><option>a<option>b</select></form>",
        "/two": "found",
    }
    await act(tab, Navigate(url=f"{site.origin}/one"))
    assert await act(tab, Select(selector="#x", values=["b"])) == ["b"]
    assert await ask(tab, "location.pathname + location.search") == "/two?q=b"


@pytest.mark.parametrize("selector", ["#x", "#l"])
async def test_a_box_that_its_label_draws_is_checked_there(tab: ChromiumTab, selector: str) -> None:
    await show(tab, "<input id=x type=checkbox style='display:none'><label id=l for=x>☐ <b>Yes</b></label>")
    assert await act(tab, Check(selector=selector)) is True
    assert await ask(tab, "x.checked") is True


async def test_a_box_that_its_label_draws_is_waited_for_while_it_is_disabled(tab: ChromiumTab) -> None:
    await show(tab, "<input id=x type=checkbox disabled style='display:none'><label for=x>Yes</label>")
    async with Waiting(tab, Check(selector="text=Yes")) as waiting:
        await waiting.until("enabled")
        await ask(tab, "void (x.disabled = false)")
        assert await waiting.result() is True


async def test_a_box_that_is_shown_as_neither_but_is_checked_is_left_alone(tab: ChromiumTab) -> None:
    await show(tab, "<input id=x type=checkbox checked><script>x.indeterminate = true</script>")
    assert await act(tab, Check(selector="#x")) is True
    assert await ask(tab, "[x.checked, x.indeterminate]") == [True, True]
