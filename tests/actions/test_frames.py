"""Acting inside frames of a real page: of the same origin, of another, and in renderers of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import AmbiguousTarget, StaleRef
from tabherd.wire import Check, Click, Drag, Fill, Html, Navigate, Press, Screenshot, Snapshot, Text, Type, Upload, Wait

from .conftest import Pages
from .driving import Waiting, act, ask
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

INNER = """<body style='margin:0'><button onclick='this.textContent = "done"'>Go</button><input id=i>
<label><input id=c type=checkbox>Agree</label>"""
# Things to carry, to move, and to give files to.
BY_HAND = """<body style='margin:0'><style>div {width:60px; height:60px; background:tan}</style>
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
SAME, OTHER, APART = "same origin", "other origin", "other origin in a renderer of its own"
DEEP = "#f >> [name=deep]"


@pytest_asyncio.fixture(loop_scope="session", params=[SAME, APART])
async def inside(request: pytest.FixtureRequest, reused: Pages, reused_apart: Pages, site: Site) -> ChromiumTab:
    """A page with a frame far down, and a frame in that; the frame in the middle may be of another origin."""
    there = site.origin if request.param == SAME else site.other_origin
    site.own["/top"] = (
        "<div style='height:2000px'>top</div>"
        f"<iframe id=f style='border:7px solid;padding:11px' width=500 height=400 src={there}/middle></iframe>"
    )
    site.own["/middle"] = (
        f"<div style='height:900px'></div><iframe name=deep height=200 src={site.origin}/inner></iframe>{INNER}"
    )
    site.own["/inner"] = INNER
    tab = await (reused_apart if request.param == APART else reused).shared()
    await act(tab, Navigate(url=f"{site.origin}/top"))
    return tab


@pytest_asyncio.fixture(loop_scope="session")
async def by_hand(inside: ChromiumTab, site: Site) -> ChromiumTab:
    """The same, with what is done by hand in each of the frames."""
    site.own["/middle"] = f"{BY_HAND}<iframe name=deep width=450 height=300 src={site.origin}/inner></iframe>"
    site.own["/inner"] = BY_HAND
    await act(inside, Navigate(url=f"{site.origin}/top?by-hand"))
    return inside


@pytest.fixture
def note(tmp_path: Path) -> str:
    path = tmp_path / "note.txt"
    path.write_text("hello")
    return str(path)


@pytest.mark.parametrize("inside", [SAME, OTHER, APART], indirect=True)
async def test_elements_in_frames_are_clicked_filled_typed_into_and_checked(inside: ChromiumTab) -> None:
    for frame in ("body >> #f", DEEP):
        await act(inside, Click(selector=f"{frame} >> text=Go"))
        await act(inside, Wait(selector=f"{frame} >> text=done"))
        await act(inside, Fill(selector=f"{frame} >> #i", value="fil"))
        await act(inside, Type(selector=f"{frame} >> #i", text="led é"))
        await act(inside, Press(key="!"))
        await act(inside, Check(selector=f"{frame} >> role=checkbox[name=Agree]"))
        assert "done" in await act(inside, Text(selector=f"{frame} >> body"))
        assert 'value="filled é!"' in await act(inside, Snapshot(selector=f"{frame} >> body"))
        assert await act(inside, Wait(selector=f"{frame} >> role=checkbox[checked]")) is None


async def test_a_snapshot_has_the_frames_in_place_and_its_refs_work(inside: ChromiumTab) -> None:
    await act(inside, Wait(selector=f"{DEEP} >> text=Go"))
    written: str = await act(inside, Snapshot())
    buttons = [line for line in written.splitlines() if 'button "Go"' in line]
    assert [len(line) - len(line.lstrip()) for line in buttons] == [4, 2]
    deep, middle = (line.partition("[ref=")[2].partition("]")[0] for line in buttons)
    assert f"[ref={deep}]" in await act(inside, Snapshot(interactive=True))
    await act(inside, Click(ref=deep))
    assert await act(inside, Text(ref=deep)) == "done"
    assert await act(inside, Text(ref=middle)) == "Go"
    await ask(inside, "void f.remove()")
    with pytest.raises(StaleRef):
        await act(inside, Click(ref=middle))


@pytest.mark.parametrize("inside", [APART], indirect=True)
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


@pytest.mark.parametrize("inside", [APART], indirect=True)
async def test_what_covers_a_frame_is_named(inside: ChromiumTab) -> None:
    await ask(inside, "document.body.insertAdjacentHTML('beforeend', '<div id=over style=\"position:fixed;inset:0\">')")
    async with Waiting(inside, Click(selector="#f >> text=Go")) as waiting:
        assert (await waiting.until("receives_events"))["coveredBy"] == '<div id="over">'
        await ask(inside, "void over.remove()")
        await waiting.result()


@pytest.mark.parametrize("inside", [SAME], indirect=True)
async def test_several_frames_that_fit_are_ambiguous(inside: ChromiumTab, site: Site) -> None:
    await ask(inside, f"document.body.insertAdjacentHTML('beforeend', '<iframe src={site.origin}/inner>')")
    with pytest.raises(AmbiguousTarget):
        await act(inside, Click(selector="iframe >> text=Go"))


async def test_an_element_in_a_frame_has_its_picture_and_its_html(inside: ChromiumTab) -> None:
    await act(inside, Wait(selector="#f >> #i"))
    assert await act(inside, Html(selector="#f >> #i")) == '<input id="i">'
    assert (await act(inside, Screenshot(selector="#f >> #i"))).startswith("iVBOR")


async def test_things_are_carried_and_moved_inside_a_frame(by_hand: ChromiumTab) -> None:
    await act(by_hand, Drag(from_=f"{DEEP} >> #a", to=f"{DEEP} >> #b"))
    assert await act(by_hand, Text(selector=f"{DEEP} >> #p")) == "a thing"
    await act(by_hand, Drag(from_=f"{DEEP} >> #m", to=f"{DEEP} >> #n"))
    assert await act(by_hand, Text(selector=f"{DEEP} >> #p")) == "moved"


@pytest.mark.parametrize(("source", "target"), [("#f", DEEP), (DEEP, "#f")], ids=["inwards", "outwards"])
async def test_things_are_carried_into_another_frame_of_the_same_site_only(
    by_hand: ChromiumTab, site: Site, source: str, target: str
) -> None:
    """Chromium lets nothing be carried between sites within a page, whoever drags."""
    is_same = f"{site.origin}/middle" in site.own["/top"]
    await act(by_hand, Drag(from_=f"{source} >> #a", to=f"{target} >> #b"))
    assert await act(by_hand, Text(selector=f"{target} >> #p")) == ("a thing" if is_same else "")
    await act(by_hand, Drag(from_=f"{target} >> #m", to=f"{target} >> #n"))
    assert await act(by_hand, Text(selector=f"{target} >> #p")) == "moved"


async def test_a_frame_is_given_a_file_and_may_read_it(by_hand: ChromiumTab, note: str) -> None:
    for frame, element in (("#f", "#i"), (DEEP, "#o")):
        assert await act(by_hand, Upload(selector=f"{frame} >> {element}", files=[note])) == ["note.txt"]
        await act(by_hand, Wait(selector=f"{frame} >> text=note.txt: hello"))
