"""Finding elements and waiting until they can be acted upon, in a real page."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tabherd.actions.engine import perform
from tabherd.actions.progress import Progress
from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import AmbiguousTarget, InvalidSelector
from tabherd.wire import Click, Navigate, Text

from .driving import Waiting, act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

# Whatever is clicked says its id.
TELL = """<script>clicked = [];
addEventListener('click', (event) => clicked.push(event.target.closest('[id]')?.id), true);</script>"""
CARD = """<my-card></my-card><script>
customElements.define('my-card', class extends HTMLElement {
  connectedCallback() {
    this.attachShadow({mode: 'open'}).innerHTML = '<p>Card</p><button id=deep onclick="hit=1">Buy now</button>';
  }
});</script>"""


async def clicked(tab: ChromiumTab, selector: str) -> Any:
    await act(tab, Click(selector=selector))
    return await ask(tab, "clicked")


# --- Which element ----------------------------------------------------------------------------------------------


WAYS = (
    "#b",
    "css=form > button + button",
    "//button[2]",
    "xpath=//button[@id='b']",
    "text=save IT",
    'text="Save it now"',
    "role=button[name='Save it now']",
    "role=button[name*='it']",
    "role=button[name='save it NOW' i]",
    "role=button[pressed]",
    "form >> text=Save",
    "form >> role=button[pressed=true]",
)


async def test_each_way_to_name_an_element_finds_it(tab: ChromiumTab) -> None:
    page = "<p>Do not Save</p><form><button id=a type=button>Cancel</button>"
    await show(tab, f"{page}<button id=b type=button aria-pressed=true> Save <i>it</i>\n now</button></form>{TELL}")
    for count, selector in enumerate(WAYS, 1):
        assert await clicked(tab, selector) == ["b"] * count, selector


@pytest.mark.parametrize(
    ("html", "selector"),
    [
        ("<input id=x type=submit value='Send off'>", "text=send"),
        ("<label for=x>Your name</label><input id=x>", "role=textbox[name='Your name']"),
        ("<span id=l>Long</span><div id=x role=button aria-labelledby=l>y</div>", "role=button[name=Long]"),
        ("<a id=x href=%23><img alt=Home></a>", "role=link[name=Home]"),
        ("<h2 id=x>Top</h2><h3>Top</h3>", "role=heading[level=2]"),
        ("<p hidden>Pay</p><p id=x>Pay</p>", "text=Pay"),
        (
            "<form><input name=getAttribute><input name=localName><button id=x type=button>Go</button></form>",
            "form >> text=Go",
        ),
        (
            "<img name=querySelectorAll><img name=elementFromPoint><div id=tabherd></div><button id=x>Go</button>",
            "text=Go",
        ),
    ],
)
async def test_names_are_found_where_pages_put_them(tab: ChromiumTab, html: str, selector: str) -> None:
    await show(tab, html.replace("%23", "#") + TELL)
    assert (await clicked(tab, selector))[0] == "x"


async def test_open_shadow_roots_are_looked_into(tab: ChromiumTab) -> None:
    await show(tab, CARD)
    for selector in ("#deep", "text=buy", "role=button[name='Buy now']", "my-card >> button"):
        await ask(tab, "void (globalThis.hit = 0)")
        await act(tab, Click(selector=selector))
        assert await ask(tab, "hit") == 1


async def test_several_visible_matches_are_refused_with_refs_that_work(tab: ChromiumTab) -> None:
    await show(tab, f"<button id=a>One</button><button id=b>Two</button><button hidden>Three</button>{TELL}")
    with pytest.raises(AmbiguousTarget) as caught:
        await act(tab, Click(selector="button"))
    assert [each["element"] for each in caught.value.details["candidates"]] == [
        '<button id="a">One</button>',
        '<button id="b">Two</button>',
    ]
    await act(tab, Click(ref=caught.value.details["candidates"][1]["ref"]))
    assert await ask(tab, "clicked") == ["b"]


async def test_what_is_no_selector_is_told_at_once(tab: ChromiumTab) -> None:
    await show(tab, "<iframe srcdoc=x></iframe>")
    for selector in ("##", "a[", "p:nope", "xpath=//[", "iframe >> ##"):
        with pytest.raises(InvalidSelector):
            await act(tab, Click(selector=selector))


# --- How ready --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "condition", "cure"),
    [
        ("<div id=d></div>", "attached", "d.innerHTML = '<button id=x>Go</button>'"),
        ("<button id=x style='display:none'>Go</button>", "visible", "x.style.display = ''"),
        (
            "<button id=x style='width:0;padding:0;border:0;overflow:hidden'></button>",
            "visible",
            "x.style.width = x.style.height = '9px'",
        ),
        ("<button id=x disabled>Go</button>", "enabled", "x.disabled = false"),
        ("<fieldset id=f disabled><button id=x>Go</button></fieldset>", "enabled", "f.disabled = false"),
        ("<div id=f aria-disabled=true><button id=x>Go</button></div>", "enabled", "f.ariaDisabled = 'false'"),
        (
            "<button id=x>Go</button><div id=over style='position:fixed;inset:0'>Wait</div>",
            "receives_events",
            "over.remove()",
        ),
        (
            "<style>@keyframes m {to {transform: translateX(300px)}}</style>"
            "<style>#x {animation: m 7s linear infinite}</style><button id=x>Go</button>",
            "stable",
            "x.style.animation = 'none'",
        ),
    ],
)
async def test_a_click_waits_until_its_element_is_ready(tab: ChromiumTab, html: str, condition: str, cure: str) -> None:
    await show(tab, html + TELL)
    async with Waiting(tab, Click(selector="#x")) as waiting:
        await waiting.until(condition)
        assert await ask(tab, "clicked") == []
        await ask(tab, f"void ({cure})")
        await waiting.result()
    assert await ask(tab, "clicked") == ["x"]


async def test_an_element_that_is_taken_away_and_put_back_is_waited_for(tab: ChromiumTab) -> None:
    await show(tab, f"<div id=d><button id=x disabled>Go</button></div>{TELL}")
    async with Waiting(tab, Click(selector="#x")) as waiting:
        await waiting.until("enabled")
        await ask(tab, "void (gone = d.firstChild, gone.remove())")
        await waiting.until("attached")
        await ask(tab, "void (gone.disabled = false, d.append(gone))")
        await waiting.result()
    assert await ask(tab, "clicked") == ["x"]


async def test_a_page_that_goes_to_another_document_is_waited_for(tab: ChromiumTab, site: Site) -> None:
    site.own["/first"] = "<title>1</title>"
    site.own["/second"] = f"<button id=x>Go</button>{TELL}"
    await act(tab, Navigate(url=f"{site.origin}/first"))
    async with Waiting(tab, Click(selector="#x")) as waiting:
        await waiting.until("attached")
        await ask(tab, "void (location.href = '/second')")
        await waiting.result()
    assert await ask(tab, "clicked") == ["x"]


async def test_a_page_that_replaces_its_button_all_the_time_is_clicked(tab: ChromiumTab) -> None:
    # Until it is pressed: Chromium makes no click of a press whose button is gone at the release.
    await show(
        tab,
        f"<div id=d></div>{TELL}<script>"
        "const going = setInterval(() => { d.innerHTML = '<button id=x>Go</button>' }, 5);"
        "addEventListener('mousedown', () => clearInterval(going))</script>",
    )
    assert await clicked(tab, "#x") == ["x"]


async def test_an_element_below_the_fold_or_inside_a_scroller_is_brought_into_view(tab: ChromiumTab) -> None:
    await show(
        tab,
        "<style>html {scroll-behavior: smooth}</style><div style='height:3000px'></div>"
        "<div style='height:100px;overflow:auto'><div style='height:900px'></div><button id=x>Go</button></div>"
        f"<div style='height:3000px'></div>{TELL}",
    )
    assert await clicked(tab, "#x") == ["x"]


async def test_an_element_under_a_fixed_header_is_scrolled_from_under_it(tab: ChromiumTab) -> None:
    await show(
        tab,
        "<div style='position:fixed;top:0;left:0;right:0;height:90px;background:red'>Header</div>"
        f"<div style='height:2000px'></div><button id=x>Go</button><div style='height:2000px'></div>{TELL}",
    )
    await ask(tab, "x.scrollIntoView({block: 'start'})")
    assert await clicked(tab, "#x") == ["x"]


@pytest.mark.parametrize(
    "html",
    [
        "<button id=x><span style='pointer-events:none'>Go</span></button>",
        "<label>Go<input id=x type=checkbox style='opacity:0'></label>",
    ],
)
async def test_a_press_that_reaches_the_element_by_a_detour_is_fine(tab: ChromiumTab, html: str) -> None:
    await show(tab, html + TELL)
    assert "x" in await clicked(tab, "text=Go" if "span" in html else "#x")


HOSTILE = """<button id=x>Go</button><script>
clicked = []; x.addEventListener('click', () => { clicked[clicked.length] = 'x' });
const broken = () => { throw new Error('patched') };
for (const kind of [Array, String, Map, Set, Element, Document, Node, Promise, EventTarget]) {
  for (const name of Object.getOwnPropertyNames(kind.prototype)) {
    if (name === 'constructor') continue;
    try { Object.defineProperty(kind.prototype, name, {get: broken, configurable: true}) } catch {}
  }
}
window.requestAnimationFrame = window.setTimeout = window.getComputedStyle = broken;
window.Array = window.Map = window.WeakMap = window.WeakRef = undefined;
JSON.stringify = () => 'no'; performance.now = broken;
</script>"""


async def test_a_page_that_breaks_its_own_prototypes_does_not_break_ours(tab: ChromiumTab) -> None:
    await show(tab, HOSTILE)
    await act(tab, Click(selector="text=Go"))
    assert await act(tab, Text(selector="#x")) == "Go"
    assert await ask(tab, "clicked.length") == 1


async def test_a_press_is_swallowed_when_something_slides_under_it(tab: ChromiumTab) -> None:
    # The mouse that comes first makes the page put something over the button, as menus do.
    await show(
        tab,
        "<button id=x>Go</button><div id=over style='position:fixed;inset:0;display:none'></div>"
        "<script>clicked = []; document.onclick = (event) => clicked.push(event.target.id)</script>"
        "<script>x.onmousemove = () => { over.style.display = 'block' }</script>",
    )
    async with Waiting(tab, Click(selector="#x")) as waiting:
        details = await waiting.until("receives_events")
        assert details["coveredBy"] == '<div id="over">'
        assert await ask(tab, "clicked") == []
        await ask(tab, "void (x.onmousemove = null, over.remove())")
        await waiting.result()
    assert await ask(tab, "clicked") == ["x"]


async def test_a_cancelled_wait_leaves_no_call_and_no_listener_behind(
    browser: ChromiumBrowser, tab: ChromiumTab
) -> None:
    connection = browser._connection

    def left() -> tuple[int, int]:
        return connection.calls_waiting, sum(len(heard) for heard in connection._listeners.values())

    await show(tab, "<button id=x disabled>Go</button>")
    before = left()
    progress = Progress()
    waiting = asyncio.create_task(perform(tab, Click(selector="#x"), progress))
    while progress.waiting_for != "enabled":
        await asyncio.sleep(0.005)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert left() == before
