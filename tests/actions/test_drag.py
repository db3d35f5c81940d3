"""Dragging in a real page: with the mouse alone, and as the browser carries things."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tabherd.actions import drag
from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import ElementNotActionable, InvalidRequest, InvalidSelector
from tabherd.wire import Click, Drag, Navigate, Place, Snapshot, Wait

from .driving import Waiting, act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

BOXES = """<body style='margin:0'><style>div {position:absolute; width:80px; height:80px; user-select:none}</style>
<div id=a style='left:20px;top:20px;background:tan'>A</div>
<div id=b style='left:400px;top:300px;background:teal'>B</div>
"""
# What the page hears, by element.
HEARD = """<script>heard = []; allTrusted = true;
const mouse = ['mousedown', 'mouseup', 'click'];
for (const type of [...mouse, 'dragstart', 'dragenter', 'dragover', 'dragleave', 'drop', 'dragend']) {
  document.addEventListener(type, (event) => {
    allTrusted &&= event.isTrusted;
    const name = type + ' ' + (event.target.id || event.target.localName);
    if (heard.at(-1) !== name) heard.push(name);
  }, true);
}</script>"""
# A target that takes what is dropped, and says what it got.
CARRIED = (
    BOXES.replace("id=a", "id=a draggable=true")
    + HEARD
    + """<script>
a.ondragstart = (event) => event.dataTransfer.setData('text/plain', 'a thing');
b.ondragover = (event) => event.preventDefault();
b.ondrop = (event) => { event.preventDefault(); b.textContent = event.dataTransfer.getData('text/plain'); };
a.ondragend = (event) => { effect = event.dataTransfer.dropEffect; };
</script>"""
)
# A box that follows the mouse by itself.
FOLLOWING = (
    BOXES
    + HEARD
    + """<script>let from = null;
a.onmousedown = (event) => { from = {x: event.clientX - a.offsetLeft, y: event.clientY - a.offsetTop}; };
addEventListener('mousemove', (event) => {
  if (!from) return;
  a.style.left = event.clientX - from.x + 'px';
  a.style.top = event.clientY - from.y + 'px';
  a.dataset.buttons = event.buttons;
});
addEventListener('mouseup', () => { from = null; });</script>"""
)

A_TO_B = Drag(from_="#a", to="#b")


async def place_of(tab: ChromiumTab, element: str) -> tuple[float, float]:
    box: dict[str, Any] = await ask(tab, f"{element}.getBoundingClientRect().toJSON()")
    return box["x"], box["y"]


async def is_mouse_free(tab: ChromiumTab) -> bool:
    """Whether the page hears a click as ever, with no button down before it."""
    await ask(
        tab,
        """void (document.body.insertAdjacentHTML('beforeend',
        '<button id=free style="position:fixed;right:0;bottom:0">free</button>'),
        free.onmousemove = (event) => free.dataset.buttons ??= event.buttons,
        free.onclick = () => free.dataset.clicked = 1)""",
    )
    await act(tab, Click(selector="#free"))
    return bool(await ask(tab, "free.dataset.buttons === '0' && free.dataset.clicked === '1'"))


async def test_what_follows_the_mouse_is_dragged_onto_the_target(tab: ChromiumTab) -> None:
    await show(tab, FOLLOWING)
    assert await act(tab, A_TO_B) is None
    assert await place_of(tab, "a") == (400, 300)
    heard = await ask(tab, "[heard[0], heard[1], allTrusted, a.dataset.buttons]")
    assert heard == ["mousedown a", "mouseup b", True, "1"]


async def test_a_slider_takes_the_value_under_the_mouse(tab: ChromiumTab) -> None:
    await show(tab, "<input id=r type=range min=0 max=100 value=0 style='position:absolute;left:0;top:0;width:400px'>")
    await act(tab, Drag(from_=Place(x=8, y=10), to=Place(x=200, y=10)))
    assert 45 < await ask(tab, "Number(r.value)") < 55
    assert await is_mouse_free(tab)


async def test_what_the_browser_carries_is_dropped_with_its_data(tab: ChromiumTab) -> None:
    await show(tab, CARRIED)
    await act(tab, A_TO_B)
    assert await ask(tab, "[b.textContent, effect, allTrusted]") == ["a thing", "copy", True]
    heard: list[str] = await ask(tab, "heard")
    assert heard[:2] == ["mousedown a", "dragstart a"]
    assert heard[-2:] == ["drop b", "dragend a"]
    assert "mouseup a" not in heard
    assert await is_mouse_free(tab)


async def test_a_page_that_prevents_the_carrying_hears_the_mouse(tab: ChromiumTab) -> None:
    await show(tab, FOLLOWING.replace("id=a", "id=a draggable=true") + "<script>a.ondragstart = () => false</script>")
    await act(tab, A_TO_B)
    assert await place_of(tab, "a") == (400, 300)


async def test_a_target_that_never_takes_anything_gets_no_drop(tab: ChromiumTab) -> None:
    await show(tab, CARRIED.replace("b.ondragover = (event) => event.preventDefault();", ""))
    await act(tab, A_TO_B)
    heard: list[str] = await ask(tab, "heard")
    assert "drop b" not in heard
    assert heard[-1] == "dragend a"
    assert await ask(tab, "effect") == "none"
    assert await is_mouse_free(tab)


async def test_a_page_that_removes_what_is_dragged_when_it_is_dropped_holds_nobody_up(tab: ChromiumTab) -> None:
    await show(tab, CARRIED.replace("b.textContent =", "a.remove(); b.textContent ="))
    await act(tab, A_TO_B)
    assert await ask(tab, "b.textContent") == "a thing"
    assert await is_mouse_free(tab)


async def test_ends_are_refs_points_and_objects_too(tab: ChromiumTab) -> None:
    await show(
        tab, FOLLOWING.replace("<div id=a", "<div id=a role=button").replace("<div id=b", "<div id=b role=button")
    )
    written: str = await act(tab, Snapshot())
    a, b = (line.partition("[ref=")[2].partition("]")[0] for line in written.splitlines() if "button" in line)
    await act(tab, Drag(from_=f"ref={a}", to=Place(x=240, y=140)))
    assert await place_of(tab, "a") == (200, 100)
    await act(tab, Drag(from_=Place(selector="#a"), to=Place(ref=b)))
    assert await place_of(tab, "a") == (400, 300)
    await ask(tab, "void (b.style.left = '20px', a.style.zIndex = 1)")
    await act(tab, Drag(from_=Place(x=430, y=330), to="#b"))
    assert await place_of(tab, "a") == (30, 310)


async def test_a_target_far_below_is_brought_into_view(tab: ChromiumTab) -> None:
    await show(tab, CARRIED.replace("top:300px", "top:5000px"))
    await act(tab, A_TO_B)
    assert await ask(tab, "b.textContent") == "a thing"


async def test_both_ends_are_seen_together_where_that_can_be(tab: ChromiumTab) -> None:
    page = CARRIED.replace("left:20px;top:20px", "left:20px;top:3000px").replace("top:300px", "top:3300px")
    await show(tab, page + "<script>a.addEventListener('dragstart', () => { at = scrollY; })</script>")
    await act(tab, A_TO_B)
    assert await ask(tab, "[b.textContent, at === scrollY]") == ["a thing", True]


async def test_a_target_that_shows_only_during_the_drag_is_found(tab: ChromiumTab) -> None:
    page = CARRIED.replace("<div id=b style='", "<div id=b style='display:none;")
    await show(
        tab, page + "<script>a.addEventListener('dragstart', () => setTimeout(() => b.style.display = ''))</script>"
    )
    await act(tab, A_TO_B)
    assert await ask(tab, "b.textContent") == "a thing"


async def test_a_target_that_moves_when_the_drag_begins_is_hit_where_it_went(tab: ChromiumTab) -> None:
    page = (
        FOLLOWING.replace("#x", "")
        + "<script>a.addEventListener('mousedown', () => { b.style.left = '250px'; })</script>"
    )
    await show(tab, page)
    await act(tab, A_TO_B)
    assert await place_of(tab, "a") == (250, 300)


async def test_a_target_that_never_stands_still_ends_the_drag_and_is_told(
    tab: ChromiumTab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drag, "TARGET_LIMIT_S", 0.3)
    flee = """<script>a.addEventListener('mousedown', () => {
    const flee = () => { b.style.left = 300 + Math.random() * 200 + 'px'; requestAnimationFrame(flee); };
    flee(); });</script>"""
    await show(tab, FOLLOWING + flee)
    with pytest.raises(ElementNotActionable) as caught:
        await act(tab, A_TO_B)
    assert "keeps moving" in caught.value.message
    assert "given up" in caught.value.message
    # The mouse is let go of without waiting for the page.
    await act(tab, Wait(function="heard.includes('mouseup html')"))
    assert "click a" not in await ask(tab, "heard")
    assert await is_mouse_free(tab)


@pytest.mark.parametrize(("end", "other"), [("a", "b"), ("b", "a")])
async def test_what_covers_an_end_is_told_while_the_page_is_untouched(tab: ChromiumTab, end: str, other: str) -> None:
    box = "left:10px;top:10px" if end == "a" else "left:390px;top:290px"
    await show(tab, FOLLOWING + f"<div id=over style='{box};width:100px;height:100px;background:red'></div>")
    async with Waiting(tab, A_TO_B) as waiting:
        details = await waiting.until("receives_events")
        assert details["target"] == f"'#{end}'"
        assert details["coveredBy"].startswith('<div id="over"')
        assert not waiting.progress.has_acted
        assert await ask(tab, "heard") == []
        await ask(tab, "void over.remove()")
        await waiting.result()
    assert await place_of(tab, "a") == (400, 300)


async def test_a_press_that_something_else_would_get_is_swallowed_and_tried_again(tab: ChromiumTab) -> None:
    trap = """<script>over = null; a.addEventListener('mousemove', () => {
      if (over) return;
      over = document.body.appendChild(document.createElement('div'));
      over.id = 'over'; over.style = 'left:0;top:0;width:150px;height:150px';
      setTimeout(() => over.remove(), 300);
    });</script>"""
    await show(tab, FOLLOWING + trap)
    await act(tab, A_TO_B)
    assert await place_of(tab, "a") == (400, 300)
    assert [name for name in await ask(tab, "heard") if name.endswith("over")] == []


@pytest.mark.parametrize("page", [FOLLOWING, CARRIED], ids=["mouse", "carried"])
async def test_a_caller_that_leaves_in_the_middle_leaves_no_button_down(tab: ChromiumTab, page: str) -> None:
    held = (
        page + "<script>seen = new Promise((done) => ['mousemove', 'dragover'].forEach((type) => "
        "addEventListener(type, (event) => event.clientX > 100 && done(), true)))</script>"
    )
    await show(tab, held)
    running = asyncio.ensure_future(act(tab, A_TO_B))
    await ask(tab, "seen")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await is_mouse_free(tab)
    heard: list[str] = await ask(tab, "heard")
    assert ("dragend a" if page is CARRIED else "mouseup html") in heard
    assert "drop b" not in heard


async def test_a_drop_that_sends_the_page_away_returns_when_it_is_there(tab: ChromiumTab, site: Site) -> None:
    site.own["/from"] = CARRIED + "<script>b.addEventListener('drop', () => { location = '/' })</script>"
    await act(tab, Navigate(url=f"{site.origin}/from"))
    await act(tab, A_TO_B)
    assert await ask(tab, "document.title") == "Home"


@pytest.mark.parametrize("end", [Place(), Place(selector="#a", ref="abc1")], ids=str)
async def test_an_end_is_exactly_one_thing(tab: ChromiumTab, end: Place) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await act(tab, Drag(from_="#a", to=end))
    assert caught.value.details["field"] == "to"


async def test_a_selector_that_cannot_be_read_says_which_end_it_is(tab: ChromiumTab) -> None:
    with pytest.raises(InvalidSelector) as caught:
        await act(tab, Drag(from_="role=", to="#b"))
    assert caught.value.details["field"] == "from"
