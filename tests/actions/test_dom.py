"""Names in a page's markup hide nothing from us: forms and documents whose parts are called like what is built in."""

from __future__ import annotations

import base64
import re
from importlib import resources
from typing import Any

import pytest
import pytest_asyncio

from tabherd import wire
from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import ElementNotActionable

from .driving import act, ask, show

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


def names_we_read() -> list[str]:
    """Every name that our scripts read of anything, so that what they will read one day is in it as well."""
    files = [file for file in resources.files("tabherd.actions").iterdir() if file.name.endswith(".js")]
    text = "\n".join(file.read_text("utf-8") for file in files)
    taken = re.findall(r"(?:taken\(\w+, |ofDocument\()\"(\w+)\"", text)
    return sorted({*re.findall(r"\.([a-zA-Z]\w*)", text), *taken})


NAMES = names_we_read()
FIELDS = "".join(f"<input type=hidden name={name} value=x>" for name in NAMES)
PAGE = f"""<title>Clobbered</title>
<form id=form style='height:60px;width:300px;overflow:auto'>{FIELDS}
  <button id=press type=button onclick='pressed = 1'>Press</button><p style='height:500px'>Text</p>
</form>
<output id=field contenteditable=false></output>
{"".join(f"<img name={name} alt='' style='display:none'>" for name in NAMES)}"""
FORM = {"selector": "#form"}


@pytest_asyncio.fixture(loop_scope="session")
async def clobbered(tab: ChromiumTab) -> ChromiumTab:
    await show(tab, PAGE)
    # What the tests rely on: a page's names do hide what is built in.
    assert await ask(tab, "document.getElementById('form').children instanceof HTMLInputElement")
    assert await ask(tab, "document.body instanceof HTMLImageElement")
    return tab


async def test_the_names_that_matter_are_among_them() -> None:
    assert {"assignedSlot", "isConnected", "children", "getBoundingClientRect", "body", "title"} <= set(NAMES)


async def test_a_button_in_such_a_form_can_be_pressed(clobbered: ChromiumTab) -> None:
    await act(clobbered, wire.Click(selector="role=button[name='Press']"))
    assert await ask(clobbered, "pressed") == 1


@pytest.mark.parametrize(
    "action",
    [
        wire.Click(**FORM),
        wire.Hover(**FORM),
        wire.Scroll(**FORM),
        wire.Scroll(**FORM, y=30),
        wire.Html(**FORM),
        wire.Snapshot(**FORM),
    ],
    ids=lambda action: type(action).__name__,
)
async def test_such_a_form_is_an_element_like_any_other(clobbered: ChromiumTab, action: Any) -> None:
    await act(clobbered, action)


async def test_such_a_page_can_be_read(clobbered: ChromiumTab) -> None:
    assert "Press" in await act(clobbered, wire.Text())
    assert "Press" in await act(clobbered, wire.Text(**FORM))
    assert 'button "Press"' in await act(clobbered, wire.Snapshot())


async def test_such_a_form_has_its_picture_taken(clobbered: ChromiumTab) -> None:
    assert base64.b64decode(await act(clobbered, wire.Screenshot(**FORM))).startswith(b"\x89PNG")


async def test_the_title_of_such_a_page_is_known(clobbered: ChromiumTab) -> None:
    assert (await act(clobbered, wire.Reload()))["title"] == "Clobbered"


async def test_such_a_form_is_no_field(clobbered: ChromiumTab) -> None:
    with pytest.raises(ElementNotActionable):
        await act(clobbered, wire.Fill(**FORM, value="x"))
