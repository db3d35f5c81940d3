"""Reading the text and the HTML of a real page."""

from __future__ import annotations

from typing import Any

import pytest

from tabherd.actions.engine import perform
from tabherd.actions.read import TRIES
from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.port import CdpFailure
from tabherd.errors import ElementNotFound, InvalidSelector, StateConflict
from tabherd.wire import Html, Navigate, Snapshot, Text

from .driving import act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def read(tab: ChromiumTab, selector: str | None = None) -> Any:
    return await perform(tab, Text(selector=selector))


async def test_text_is_what_a_person_would_see(tab: ChromiumTab, site: Site) -> None:
    await perform(tab, Navigate(url=f"{site.origin}/"))
    assert await read(tab) == "Welcome\n\nOne two"
    assert await read(tab, "#p") == "One two"


async def test_a_blank_page_and_an_element_without_text_are_empty(own_tab: ChromiumTab) -> None:
    assert await read(own_tab) == ""
    assert await read(own_tab, "body") == ""


async def test_a_document_that_is_not_html_has_text_too(tab: ChromiumTab, site: Site) -> None:
    await perform(tab, Navigate(url=f"{site.origin}/drawing"))
    assert await read(tab) == "hi"
    assert await read(tab, "text") == "hi"


async def test_no_match_is_element_not_found(tab: ChromiumTab) -> None:
    with pytest.raises(ElementNotFound) as caught:
        await read(tab, "#nowhere")
    assert caught.value.details["target"] == "'#nowhere'"


async def test_what_is_no_css_is_an_invalid_selector(tab: ChromiumTab) -> None:
    with pytest.raises(InvalidSelector):
        await read(tab, "##")


class Fleeting:
    """A page that goes to another document under the first readings."""

    def __init__(self, tab: ChromiumTab, times: int) -> None:
        self._tab = tab
        self._times = times
        self.target_id = tab.target_id
        self.script: tuple[int, str] | None = None

    async def call(self, method: str, params: Any = None) -> dict[str, Any]:
        if self._times and method == "Runtime.callFunctionOn":
            self._times -= 1
            raise CdpFailure(method, -32000, "Execution context was destroyed.")
        return await self._tab.call(method, params)


async def test_reading_is_repeated_on_the_next_document_and_not_for_ever(own_tab: ChromiumTab) -> None:
    assert await perform(Fleeting(own_tab, TRIES - 1), Text()) == ""  # type: ignore[arg-type]
    with pytest.raises(StateConflict):
        await perform(Fleeting(own_tab, TRIES), Text())  # type: ignore[arg-type]


async def test_the_first_of_several_matches_is_read(tab: ChromiumTab) -> None:
    await show(tab, "<p>one</p><p>two</p>")
    assert await read(tab, "p") == "one"


async def test_html_is_the_markup_as_it_stands_now(tab: ChromiumTab) -> None:
    await show(tab, "<!doctype html><title>x</title><p id=p>é</p>")
    await ask(tab, "void (p.className = 'now')")
    assert await act(tab, Html(selector="p")) == '<p id="p" class="now">é</p>'
    assert (await act(tab, Html())).startswith("<!DOCTYPE html>\n<html><head><title>x</title>")


async def test_an_element_can_be_read_by_its_ref(tab: ChromiumTab) -> None:
    await show(tab, "<button>Go</button>")
    ref = (await act(tab, Snapshot())).partition("[ref=")[2].partition("]")[0]
    assert await act(tab, Text(ref=ref)) == "Go"
