"""Reading the text of a real page."""

from __future__ import annotations

from typing import Any

import pytest

from tabherd.actions.engine import perform
from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.port import CdpFailure
from tabherd.errors import ElementNotFound, InvalidSelector, StateConflict
from tabherd.wire import Navigate, Text

from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def read(tab: ChromiumTab, selector: str | None = None) -> Any:
    return await perform(tab, Text(selector=selector))


async def test_text_is_what_a_person_would_see(tab: ChromiumTab, site: Site) -> None:
    await perform(tab, Navigate(url=f"{site.origin}/"))
    assert await read(tab) == "Welcome\n\nOne two"
    assert await read(tab, "#p") == "One two"


async def test_a_blank_page_and_an_element_without_text_are_empty(tab: ChromiumTab) -> None:
    assert await read(tab) == ""
    assert await read(tab, "body") == ""


async def test_a_document_that_is_not_html_has_text_too(tab: ChromiumTab, site: Site) -> None:
    await perform(tab, Navigate(url=f"{site.origin}/drawing"))
    assert await read(tab) == "hi"
    assert await read(tab, "text") == "hi"


async def test_no_match_is_element_not_found(tab: ChromiumTab) -> None:
    with pytest.raises(ElementNotFound) as caught:
        await read(tab, "#nowhere")
    assert caught.value.details["selector"] == "#nowhere"


@pytest.mark.parametrize("selector", ["##", "a[", "p:nope", "'); alert(1) //"])
async def test_what_is_no_css_is_an_invalid_selector(tab: ChromiumTab, selector: str) -> None:
    with pytest.raises(InvalidSelector):
        await read(tab, selector)


class Fleeting:
    """A page that goes to another document under the first readings."""

    def __init__(self, tab: ChromiumTab, times: int) -> None:
        self._tab = tab
        self._times = times

    async def call(self, method: str, params: Any = None) -> dict[str, Any]:
        if self._times:
            self._times -= 1
            raise CdpFailure(method, -32000, "Execution context was destroyed.")
        return await self._tab.call(method, params)


async def test_reading_is_repeated_on_the_next_document_and_not_for_ever(tab: ChromiumTab) -> None:
    assert await perform(Fleeting(tab, 2), Text()) == ""  # type: ignore[arg-type]
    with pytest.raises(StateConflict):
        await perform(Fleeting(tab, 3), Text())  # type: ignore[arg-type]
