"""Scrolling a real page."""

from __future__ import annotations

import pytest

from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import InvalidRequest
from tabherd.wire import Scroll

from .driving import act, ask, show

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

TALL = "<style>html {scroll-behavior: smooth} body {margin: 0}</style><div style='height:5000px;width:4000px'></div>"


async def test_the_page_is_scrolled_by_so_many_pixels(tab: ChromiumTab) -> None:
    await show(tab, TALL)
    assert await act(tab, Scroll(y=300)) == {"x": 0, "y": 300}
    assert await act(tab, Scroll(x=50, y=-100)) == {"x": 50, "y": 200}


async def test_an_element_is_brought_into_view(tab: ChromiumTab) -> None:
    await show(tab, f"{TALL}<button id=x>Go</button>")
    await act(tab, Scroll(selector="#x"))
    assert await ask(tab, "x.getBoundingClientRect().bottom <= innerHeight")


async def test_without_a_page_that_scrolls_it_is_what_the_wheel_would_move(tab: ChromiumTab) -> None:
    box = "<div id=x style='position:fixed;inset:0;overflow:auto'><p style='height:4000px'>long</p></div>"
    await show(tab, box)
    assert await act(tab, Scroll(y=120)) == {"x": 0, "y": 120}
    assert await ask(tab, "x.scrollTop") == 120


async def test_a_scroller_that_is_named_is_the_one_that_moves(tab: ChromiumTab) -> None:
    inner = "<div id=x style='height:90px;overflow:auto'><p id=p style='height:900px'>long</p></div>"
    await show(tab, inner + TALL)
    assert await act(tab, Scroll(selector="#p", y=40)) == {"x": 0, "y": 40}
    assert await ask(tab, "[x.scrollTop, scrollY]") == [40, 0]


async def test_scrolling_nowhere_is_a_mistake(tab: ChromiumTab) -> None:
    with pytest.raises(InvalidRequest):
        await act(tab, Scroll())
