"""Pictures of a real page."""

from __future__ import annotations

import asyncio
import base64
import struct
from typing import Any, Literal

import pytest

from tabherd.actions import screenshot as module
from tabherd.actions.engine import perform
from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import InvalidRequest
from tabherd.wire import Navigate, Screenshot

from .driving import Waiting, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


def png_size(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", data[16:24])
    return width, height


async def picture(tab: Any, **options: Any) -> bytes:
    return base64.b64decode(await perform(tab, Screenshot(**options)), validate=True)


@pytest.mark.parametrize(("format_", "magic"), [("png", b"\x89PNG"), ("jpeg", b"\xff\xd8\xff"), ("webp", b"RIFF")])
async def test_a_picture_is_base64_in_the_format_asked_for(
    tab: ChromiumTab, format_: Literal["png", "jpeg", "webp"], magic: bytes
) -> None:
    assert (await picture(tab, format=format_)).startswith(magic)


async def test_a_full_page_is_as_tall_as_the_page(tab: ChromiumTab, site: Site) -> None:
    await perform(tab, Navigate(url=f"{site.origin}/tall"))
    assert png_size(await picture(tab))[1] < 3000
    assert png_size(await picture(tab, full_page=True))[1] == 3000


async def test_an_element_has_a_picture_of_its_size_wherever_it_is(tab: ChromiumTab) -> None:
    await show(tab, "<div style='height:3000px'></div><div id=x style='width:70px;height:50px;background:#f00'></div>")
    assert png_size(await picture(tab, selector="#x")) == (70, 50)


async def test_an_element_larger_than_the_viewport_is_shown_whole(tab: ChromiumTab) -> None:
    await show(tab, "<div style='height:500px'></div><div id=x style='width:70px;height:2500px;background:#f00'></div>")
    assert png_size(await picture(tab, selector="#x")) == (70, 2500)


async def test_an_element_is_waited_for_before_its_picture_is_taken(tab: ChromiumTab) -> None:
    await show(tab, "<div id=x style='width:70px;height:50px' hidden></div>")
    async with Waiting(tab, Screenshot(selector="#x")) as waiting:
        await waiting.until("visible")
        await ask(tab, "void (x.hidden = false)")
        assert png_size(base64.b64decode(await waiting.result())) == (70, 50)


async def test_an_element_and_the_full_page_exclude_each_other(tab: ChromiumTab) -> None:
    with pytest.raises(InvalidRequest):
        await picture(tab, selector="body", full_page=True)


class Stuck:
    """A background tab whose first pictures never come."""

    target_id = "T"
    cdp_session_id = "S"

    def __init__(self, never: int) -> None:
        self._never = never
        self.calls: list[str] = []
        self.running = 0

    async def call(self, method: str, params: Any = None) -> dict[str, Any]:
        self.calls.append(method)
        self.running += 1
        try:
            if method == "Page.captureScreenshot" and self.calls.count(method) <= self._never:
                await asyncio.Event().wait()
            return {"data": base64.b64encode(b"picture").decode()}
        finally:
            # Ending takes a moment, as any clean-up may.
            await asyncio.sleep(0.01)
            self.running -= 1


async def test_a_picture_that_does_not_come_is_asked_for_again_in_the_foreground(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STUCK_AFTER_S", 0.01)
    tab = Stuck(never=1)
    assert await picture(tab) == b"picture"
    assert tab.calls == ["Page.captureScreenshot", "Page.bringToFront", "Page.captureScreenshot"]
    assert tab.running == 0


async def test_a_cancelled_screenshot_leaves_no_call_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STUCK_AFTER_S", 0.01)
    tab = Stuck(never=2)
    waiting = asyncio.create_task(picture(tab))
    while len(tab.calls) < 3:
        await asyncio.sleep(0.005)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert tab.running == 0
