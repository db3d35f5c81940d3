"""Acting inside frames of a real page: of the same origin, of another, and in renderers of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.browsers.real import blank_tab, launched

from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import AmbiguousTarget, StaleRef
from tabherd.wire import Check, Click, Fill, Html, Navigate, Press, Screenshot, Snapshot, Text, Type, Wait

from .driving import Waiting, act, ask
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

INNER = """<body style='margin:0'><button onclick='this.textContent = "done"'>Go</button><input id=i>
<label><input id=c type=checkbox>Agree</label>"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["shared renderers", "own renderers"])
async def browser(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ChromiumBrowser]:
    flags = ("--site-per-process",) if request.param == "own renderers" else ()
    async with launched(tmp_path_factory.mktemp("profiles"), flags=flags) as live:
        yield live


@pytest_asyncio.fixture(loop_scope="module", params=["same origin", "other origin"])
async def inside(request: pytest.FixtureRequest, browser: ChromiumBrowser, site: Site) -> AsyncIterator[ChromiumTab]:
    """A page with a frame far down, and a frame in that."""
    there = site.origin if request.param == "same origin" else site.other_origin
    site.own["/top"] = (
        "<div style='height:2000px'>top</div>"
        f"<iframe id=f style='border:7px solid;padding:11px' width=500 height=400 src={there}/middle></iframe>"
    )
    site.own["/middle"] = (
        f"<div style='height:900px'></div><iframe name=deep height=200 src={site.origin}/inner></iframe>{INNER}"
    )
    site.own["/inner"] = INNER
    tab = await blank_tab(browser)
    await act(tab, Navigate(url=f"{site.origin}/top"))
    yield tab
    await browser.close_tab(tab.target_id)


@pytest.mark.parametrize("frame", ["iframe#f", "iframe#f >> [name=deep]", "body >> #f"])
async def test_elements_in_frames_are_clicked_filled_typed_into_and_checked(inside: ChromiumTab, frame: str) -> None:
    await act(inside, Click(selector=f"{frame} >> text=Go"))
    await act(inside, Wait(selector=f"{frame} >> text=done"))
    await act(inside, Fill(selector=f"{frame} >> #i", value="fil"))
    await act(inside, Type(selector=f"{frame} >> #i", text="led é"))
    await act(inside, Press(key="!"))
    await act(inside, Check(selector=f"{frame} >> role=checkbox[name=Agree]"))
    await act(inside, Fill(selector=f"{frame} >> #i", value=""))
    await act(inside, Type(selector=f"{frame} >> #i", text="typed"))
    assert "done" in await act(inside, Text(selector=f"{frame} >> body"))
    assert await act(inside, Wait(selector=f"{frame} >> role=checkbox[checked]")) is None


async def test_a_snapshot_has_the_frames_in_place_and_its_refs_work(inside: ChromiumTab) -> None:
    await act(inside, Wait(selector="#f >> [name=deep] >> text=Go"))
    written: str = await act(inside, Snapshot())
    buttons = [line for line in written.splitlines() if 'button "Go"' in line]
    assert [len(line) - len(line.lstrip()) for line in buttons] == [4, 2]
    deep, middle = (line.partition("[ref=")[2].partition("]")[0] for line in buttons)
    await act(inside, Click(ref=deep))
    assert await act(inside, Text(ref=deep)) == "done"
    assert await act(inside, Text(ref=middle)) == "Go"


async def test_a_ref_keeps_its_meaning_in_the_next_snapshot_and_ends_with_its_frame(inside: ChromiumTab) -> None:
    await act(inside, Wait(selector="#f >> text=Go"))
    first: str = await act(inside, Snapshot(interactive=True))
    ref = next(line for line in first.splitlines() if 'button "Go"' in line).partition("[ref=")[2].partition("]")[0]
    assert f"[ref={ref}]" in await act(inside, Snapshot())
    await ask(inside, "void f.remove()")
    with pytest.raises(StaleRef):
        await act(inside, Click(ref=ref))


async def test_a_frame_that_comes_late_and_goes_elsewhere_is_waited_for(inside: ChromiumTab, site: Site) -> None:
    site.own["/other"] = "<button id=late>Late</button>"
    await ask(inside, "void f.remove()")
    async with Waiting(inside, Click(selector="#g >> #late")) as waiting:
        await waiting.until("attached")
        frame = f"<iframe id=g src={site.other_origin}/inner></iframe>"
        # Chromium itself sometimes forgets about an address that is given while the one before is on its way.
        await ask(inside, f"document.body.insertAdjacentHTML('beforeend', '{frame}'); new Promise((r) => g.onload = r)")
        await ask(inside, f"void (g.src = '{site.other_origin}/other')")
        await waiting.result()


async def test_what_covers_a_frame_is_named(inside: ChromiumTab) -> None:
    await ask(inside, "document.body.insertAdjacentHTML('beforeend', '<div id=over style=\"position:fixed;inset:0\">')")
    async with Waiting(inside, Click(selector="#f >> text=Go")) as waiting:
        assert (await waiting.until("receives_events"))["coveredBy"] == '<div id="over">'
        await ask(inside, "void over.remove()")
        await waiting.result()


async def test_several_frames_that_fit_are_ambiguous(inside: ChromiumTab, site: Site) -> None:
    await ask(inside, f"document.body.insertAdjacentHTML('beforeend', '<iframe src={site.origin}/inner>')")
    with pytest.raises(AmbiguousTarget):
        await act(inside, Click(selector="iframe >> text=Go"))


async def test_an_element_in_a_frame_has_its_picture_and_its_html(inside: ChromiumTab) -> None:
    await act(inside, Wait(selector="#f >> #i"))
    assert await act(inside, Html(selector="#f >> #i")) == '<input id="i">'
    assert (await act(inside, Screenshot(selector="#f >> #i"))).startswith("iVBOR")
