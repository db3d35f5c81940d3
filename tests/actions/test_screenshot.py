"""Pictures of a real page."""

from __future__ import annotations

import asyncio
import base64
import struct
from typing import Any, Literal

import pytest

from tabherd.actions import screenshot as module
from tabherd.actions.engine import perform
from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.port import Viewport
from tabherd.errors import InvalidRequest, StateConflict
from tabherd.wire import Navigate, Screenshot

from .driving import Waiting, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


# The first pixel of a picture, and its rows of one colour, as the page itself sees them.
_DRAWN = """(async () => {
  const shown = new Image();
  shown.src = 'data:image/png;base64,%%s';
  await shown.decode();
  const canvas = new OffscreenCanvas(shown.width, shown.height), pen = canvas.getContext('2d');
  pen.drawImage(shown, 0, 0);
  const at = (y) => Array.from(pen.getImageData(0, y, 1, 1).data);
  %s
})()"""
PIXEL = _DRAWN % "return at(0);"
ROWS = (
    _DRAWN
    % """const rows = [];
  for (let y = 0; y < shown.height; y++) {
    const [red, green] = at(y), isRed = red > 200 && green < 50;
    if (rows.at(-1)?.isRed === isRed) rows.at(-1).height++;
    else rows.push({isRed, height: 1});
  }
  return rows;"""
)


# Neither margins nor scroll bars.
BARE = "<style>html {scrollbar-width: none} body {margin: 0}</style>"


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


async def test_an_element_is_waited_for_before_its_picture_is_taken(tab: ChromiumTab) -> None:
    await show(tab, "<div id=x style='width:70px;height:50px' hidden></div>")
    async with Waiting(tab, Screenshot(selector="#x")) as waiting:
        await waiting.until("visible")
        await ask(tab, "void (x.hidden = false)")
        assert png_size(base64.b64decode(await waiting.result())) == (70, 50)


async def test_an_element_and_the_full_page_exclude_each_other(tab: ChromiumTab) -> None:
    with pytest.raises(InvalidRequest):
        await picture(tab, selector="body", full_page=True)


async def test_a_picture_has_the_pixels_of_the_screen(browser: ChromiumBrowser, own_tab: ChromiumTab) -> None:
    await own_tab.set_viewport(Viewport(width=400, height=300, device_scale_factor=2))
    await show(own_tab, f"{BARE}<div id=x style='width:70px;height:900px;background:#f00'></div>")
    assert png_size(await picture(own_tab)) == (800, 600)
    assert png_size(await picture(own_tab, full_page=True)) == (800, 1800)
    assert png_size(await picture(own_tab, selector="#x")) == (140, 1800)


async def test_of_an_endless_page_the_beginning_is_shown(own_tab: ChromiumTab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIDE_MAX_PX", 2_000)
    await own_tab.set_viewport(Viewport(width=400, height=300, device_scale_factor=2))
    await show(own_tab, f"{BARE}<div id=x style='height:10000000px'></div>")
    assert png_size(await picture(own_tab, full_page=True)) == (800, 2_000)
    monkeypatch.setattr(module, "AREA_MAX_PX", 800 * 500)
    assert png_size(await picture(own_tab, selector="#x")) == (800, 500)


async def test_a_picture_that_is_too_large_is_refused_with_what_to_do(
    tab: ChromiumTab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PICTURE_MAX_CHARS", 100)
    with pytest.raises(StateConflict, match="characters") as caught:
        await picture(tab)
    assert caught.value.details["reason"] == "too_large"
    assert "jpeg" in caught.value.action


async def test_an_element_in_a_frame_of_another_site_has_a_picture_of_its_own(tab: ChromiumTab, site: Site) -> None:
    site.own["/inner"] = "<body style='margin:0'><div id=x style='width:60px;height:40px;background:#0f0'></div>"
    site.own["/outer"] = f"<div style='height:2000px'></div><iframe src='{site.other_origin}/inner'></iframe>"
    await perform(tab, Navigate(url=f"{site.origin}/outer"))
    taken = await picture(tab, selector="iframe >> #x")
    assert png_size(taken) == (60, 40)
    pixel = await ask(tab, PIXEL % base64.b64encode(taken).decode())
    assert pixel == [0, 255, 0, 255]


async def test_what_is_fixed_to_the_window_is_shown_once(tab: ChromiumTab) -> None:
    bar = "<div style='position:fixed;top:0;left:0;width:100%;height:20px;background:#f00'></div>"
    await show(tab, f"<body style='margin:0;background:#fff'>{bar}<div style='height:2000px'></div>")
    rows = await ask(tab, ROWS % base64.b64encode(await picture(tab, full_page=True)).decode())
    assert [row["height"] for row in rows if row["isRed"]] == [20]


async def test_a_tab_behind_another_one_has_its_picture_taken(browser: ChromiumBrowser, own_tab: ChromiumTab) -> None:
    context_id = next(page.context_id for page in await browser.pages() if page.target_id == own_tab.target_id)
    await show(own_tab, "<body style='margin:0'><div id=x style='width:60px;height:40px;background:#0f0'></div>")
    front = await browser.new_tab(context_id)
    await front.call("Page.bringToFront")
    for _ in range(4):
        assert png_size(await picture(own_tab, selector="#x")) == (60, 40)


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
