"""Dragging things and giving files inside frames of a real page: of the same origin, of another, in own renderers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.browsers.real import blank_tab, launched

from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab
from tabherd.wire import Drag, Navigate, Text, Upload, Wait

from .driving import act
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

INNER = """<body style='margin:0'><style>div {width:60px; height:60px; background:tan}</style>
<div id=a draggable=true>A</div><div id=b style='margin-top:30px'>B</div>
<div id=m style='position:absolute;left:150px;top:0'>M</div>
<div id=n style='position:absolute;left:250px;top:90px'>N</div>
<input id=i type=file hidden><button id=o>Choose</button><p id=p></p><script>
a.ondragstart = (event) => event.dataTransfer.setData('text/plain', 'a thing');
b.ondragover = (event) => event.preventDefault();
b.ondrop = (event) => { event.preventDefault(); p.textContent = event.dataTransfer.getData('text/plain'); };
m.onmousedown = () => { n.onmouseup = () => { p.textContent = 'moved'; }; };
const read = async (input) => { p.textContent = input.files[0].name + ': ' + await input.files[0].text(); };
i.onchange = () => read(i);
o.onclick = () => {
  const made = Object.assign(document.createElement('input'), {type: 'file'});
  made.onchange = () => read(made);
  made.click();
};</script>"""
FRAMES = ["#f", "#f >> [name=deep]"]


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
    site.own["/middle"] = f"{INNER}<iframe name=deep width=450 height=300 src={site.origin}/inner></iframe>"
    site.own["/inner"] = INNER
    tab = await blank_tab(browser)
    await act(tab, Navigate(url=f"{site.origin}/top"))
    yield tab
    await browser.close_tab(tab.target_id)


@pytest.fixture
def note(tmp_path: Path) -> str:
    path = tmp_path / "note.txt"
    path.write_text("hello")
    return str(path)


@pytest.mark.parametrize("frame", FRAMES)
async def test_things_are_carried_and_moved_inside_a_frame(inside: ChromiumTab, frame: str) -> None:
    await act(inside, Drag(from_=f"{frame} >> #a", to=f"{frame} >> #b"))
    assert await act(inside, Text(selector=f"{frame} >> #p")) == "a thing"
    await act(inside, Drag(from_=f"{frame} >> #m", to=f"{frame} >> #n"))
    assert await act(inside, Text(selector=f"{frame} >> #p")) == "moved"


@pytest.mark.parametrize(("source", "target"), [FRAMES, FRAMES[::-1]], ids=["inwards", "outwards"])
async def test_things_are_carried_into_another_frame_of_the_same_site_only(
    inside: ChromiumTab, site: Site, source: str, target: str
) -> None:
    """Chromium lets nothing be carried between sites within a page, whoever drags."""
    is_same = f"{site.origin}/middle" in site.own["/top"]
    await act(inside, Drag(from_=f"{source} >> #a", to=f"{target} >> #b"))
    assert await act(inside, Text(selector=f"{target} >> #p")) == ("a thing" if is_same else "")
    await act(inside, Drag(from_=f"{target} >> #m", to=f"{target} >> #n"))
    assert await act(inside, Text(selector=f"{target} >> #p")) == "moved"


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("element", ["#i", "#o"], ids=["hidden input", "button"])
async def test_a_frame_is_given_a_file_and_may_read_it(
    inside: ChromiumTab, frame: str, element: str, note: str
) -> None:
    assert await act(inside, Upload(selector=f"{frame} >> {element}", files=[note])) == ["note.txt"]
    await act(inside, Wait(selector=f"{frame} >> text=note.txt: hello"))
