"""What a caller whose time is over is told about its element, on real pages: a situation, and what the error says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tabherd import wire
from tabherd.actions.progress import Progress
from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import (
    AmbiguousTarget,
    ElementNotActionable,
    ElementNotFound,
    InvalidSelector,
    StaleRef,
    TabherdError,
)
from tabherd.wire import Click, Navigate, Select, Snapshot, Text

from .driving import LIMIT_S, act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

# An error is read by models, which pay for each word of it.
BYTES_MAX = 4_000
PAY = "<iframe id=pay srcdoc='<button id=b>Pay now</button>'></iframe>"
COOKIES = """<button id=x>Go</button><div role=dialog aria-label=Cookies style='position:fixed;inset:0'>
<p style='height:90%'>We use them</p><a href='#'>Read more</a><button>Accept all</button></div>"""
CLOSED = """<my-x></my-x><script>customElements.define('my-x', class extends HTMLElement {
connectedCallback() { this.attachShadow({mode: 'closed'}).innerHTML = '<button>Go</button>' }})</script>"""
OPEN = CLOSED.replace("closed", "open")
MOVING = "<style>@keyframes m {to {transform: translateX(300px)}} #x {animation: m 7s linear infinite}</style>"

Told = Callable[[TabherdError], bool]


async def failure(tab: Any, action: wire.AnyAction, is_told: Told) -> TabherdError:
    """What the caller would be told, as soon as it is what it should be; the last of it when it never is."""
    progress = Progress()
    running = asyncio.ensure_future(act(tab, action, progress))
    last: TabherdError | None = None
    try:
        async with asyncio.timeout(LIMIT_S / 2):
            while not running.done():
                last = progress.failure() or last
                if last is not None and is_told(last):
                    return last
                await asyncio.sleep(0.005)
        with pytest.raises(TabherdError) as caught:
            running.result()
        return caught.value
    except TimeoutError:
        assert last is not None, "nothing was told"
        return last
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def missing(tab: Any, html: str, action: wire.AnyAction, key: str = "candidates") -> TabherdError:
    await show(tab, html)
    error = await failure(tab, action, lambda error: key in error.details)
    assert isinstance(error, ElementNotFound)
    return error


# --- Not found --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "selector", "name"),
    [
        ("<button id=save-btn>Save</button><button>Help</button>", "#sav-btn", "Save"),
        ("<button data-testid=checkoutButton>→</button>", "[data-testid=checkout-btn]", "→"),
        ("<label for=e>E-mail</label><input id=e>", "input[type=email]", "E-mail"),
        ("<button>Submit order</button>", "text=Sumbit", "Submit order"),
        ("<button>Log in</button>", "text=Sign in", "Log in"),
        ("<a href='#'>Save changes</a>", "role=button[name=Save]", "Save changes"),
        ("<button>Send message</button>", "//button[contains(., 'Send mesage')]", "Send message"),
        ("<button>保存</button>", "text=保存しました", "保存"),
        (OPEN, "text=Go now", "Go"),
    ],
)
async def test_the_nearest_thing_is_named_with_a_ref_that_works(
    tab: ChromiumTab, html: str, selector: str, name: str
) -> None:
    error = await missing(tab, html, Click(selector=selector))
    nearest = error.details["candidates"][0]
    assert nearest["name"] == name
    assert f'Did you mean {nearest["role"]} "{name}" [ref={nearest["ref"]}]' in error.action
    assert await act(tab, wire.Html(ref=nearest["ref"]))


async def test_three_are_named_and_the_nearest_is_the_first(tab: ChromiumTab) -> None:
    buttons = [f"<button>{name}</button>" for name in ("Save as", "Save all the pages", "Cancel", "Saves", "Save it")]
    error = await missing(tab, "".join(buttons), Click(selector="text=Save it!"))
    names = [each["name"] for each in error.details["candidates"]]
    assert len(names) == 3
    assert names[0] == "Save it"
    assert "Cancel" not in names


async def test_a_role_decides_between_equal_names(tab: ChromiumTab) -> None:
    html = "<h2>Archives</h2><button>Archives</button>"
    error = await missing(tab, html, Click(selector="role=button[name=Archive]"))
    assert error.details["candidates"][0]["role"] == "button"


async def test_a_button_and_what_it_consists_of_are_one_candidate(tab: ChromiumTab) -> None:
    html = "<button id=archive><span class=archive><b>Archive</b></span></button>"
    error = await missing(tab, html, Click(selector="text=Archived"))
    assert [each["role"] for each in error.details["candidates"]] == ["button"]


@pytest.mark.parametrize("selector", ["text=Zebra", "#q"])
async def test_nothing_is_named_when_nothing_is_near(tab: ChromiumTab, selector: str) -> None:
    await show(tab, "<button>Apples</button><a href='#'>Bananas</a>")
    error = await failure(tab, Click(selector=selector), lambda error: isinstance(error, ElementNotFound))
    assert "candidates" not in error.details
    assert error.action == ElementNotFound.next_step


async def test_a_thing_that_is_there_but_hidden_says_what_shows_it(tab: ChromiumTab) -> None:
    html = "<details><summary>More</summary><button>Go</button></details>"
    error = await missing(tab, html, Click(selector="role=button[name=Go]"))
    opener = error.details["candidates"][0]["opener"]
    assert error.details["candidates"][0]["hiddenBecause"] == "closed_details"
    assert f'click button "More" [ref={opener["ref"]}]' in error.action
    await act(tab, Click(ref=opener["ref"]))
    await act(tab, Click(selector="role=button[name=Go]"))


async def test_a_closed_shadow_root_is_suspected(tab: ChromiumTab) -> None:
    error = await missing(tab, CLOSED, Click(selector="text=Go"), "closedRoot")
    assert "<my-x>" in error.action
    assert "closed shadow root" in error.action


async def test_a_text_that_was_read_as_css_is_told(tab: ChromiumTab) -> None:
    error = await missing(tab, "<button>Sign in</button>", Click(selector="Sign in"))
    assert "text=Sign in" in error.action
    assert error.details["candidates"][0]["name"] == "Sign in"


# --- Frames, and parts of the way -------------------------------------------------------------------------------


async def test_what_is_in_a_frame_is_found_there_with_the_way_to_it(tab: ChromiumTab) -> None:
    error = await missing(tab, PAY, Click(selector="#b"))
    assert error.details["candidates"][0]["selector"] == "iframe#pay >> #b"
    assert "It is inside a frame" in error.action
    await act(tab, Click(selector=error.details["candidates"][0]["selector"]))
    await act(tab, Click(ref=error.details["candidates"][0]["ref"]))


async def test_what_is_nearly_in_a_frame_of_another_origin_is_named(tab: ChromiumTab, site: Site) -> None:
    site.own["/top"] = f"<iframe src={site.other_origin}/inner></iframe>"
    site.own["/inner"] = "<button>Pay now</button>"
    await act(tab, Navigate(url=f"{site.origin}/top"))
    error = await failure(tab, Click(selector="text=Pay mow"), lambda error: "candidates" in error.details)
    nearest = error.details["candidates"][0]
    assert (nearest["name"], nearest["frame"]) == ("Pay now", "iframe")
    await act(tab, Click(ref=nearest["ref"]))


async def test_inside_a_frame_the_refs_lead_there(tab: ChromiumTab) -> None:
    error = await missing(tab, PAY, Click(selector="iframe#pay >> text=Pay mow"))
    assert error.details["part"] == "text=Pay mow"
    assert error.details["inside"] == "iframe#pay"
    assert "the frame 'iframe#pay' was found" in error.message
    await act(tab, Click(ref=error.details["candidates"][0]["ref"]))


async def test_a_frame_that_is_not_there_is_told_from_one_that_is(tab: ChromiumTab) -> None:
    error = await missing(tab, PAY, Click(selector="iframe#paid >> #b"))
    assert error.details["part"] == "iframe#paid"
    assert "inside" not in error.details
    assert [each["element"] for each in error.details["candidates"]] == ['<iframe id="pay">']


async def test_refused_frames_and_their_candidates_have_refs_that_work(tab: ChromiumTab) -> None:
    await show(tab, "<iframe id=f srcdoc='<button>One</button><button>Two</button>'></iframe>")
    await act(tab, wire.Wait(selector="#f >> text=Two"))
    with pytest.raises(AmbiguousTarget) as caught:
        await act(tab, Click(selector="#f >> button"))
    assert await act(tab, Text(ref=caught.value.details["candidates"][1]["ref"])) == "Two"


# --- Not ready --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "details", "words"),
    [
        (
            "<details><summary>More</summary><button id=x>Go</button></details>",
            {"hiddenBecause": "closed_details", "hiddenBy": "<details>More Go</details>"},
            'click button "More"',
        ),
        (
            "<button aria-controls=m>Menu</button><ul id=m hidden><li><button id=x>Go</button></ul>",
            {"hiddenBecause": "display_none"},
            'Click button "Menu"',
        ),
        (
            "<button popovertarget=p>Tips</button><div id=p popover><button id=x>Go</button></div>",
            {"hiddenBecause": "closed_popover"},
            'click button "Tips"',
        ),
        ("<dialog><button id=x>Go</button></dialog>", {"hiddenBecause": "closed_dialog"}, "do what opens it first"),
        ("<button id=x style='visibility:hidden'>Go</button>", {"hiddenBecause": "visibility_hidden"}, "hover"),
        ("<button id=x style='all:unset'></button>", {"hiddenBecause": "empty_box"}, "no size"),
        (
            "<form><input required aria-label=Name><input value=1><button id=x disabled>Go</button></form>",
            {"waitingFor": "enabled"},
            'see to textbox "Name"',
        ),
        (
            "<fieldset id=f disabled><button id=x>Go</button></fieldset>",
            {"disabledBy": '<fieldset id="f">Go</fieldset>'},
            "do what enables that first",
        ),
        (MOVING + "<button id=x>Go</button>", {"waitingFor": "stable"}, 'The animation "m"'),
        (COOKIES, {"coveredBy": "<p>We use them</p>"}, 'Click button "Accept all"'),
        (
            "<button id=x>Go</button><div style='position:fixed;inset:0'>Wait</div>",
            {"coveredBy": "<div>Wait</div>"},
            'Close element "Wait" [ref=',
        ),
    ],
)
async def test_what_keeps_an_element_from_being_used_is_told_with_what_to_try(
    tab: ChromiumTab, html: str, details: dict[str, Any], words: str
) -> None:
    await show(tab, html)
    error = await failure(tab, Click(selector="#x"), lambda error: words in error.action)
    assert isinstance(error, ElementNotActionable)
    assert words in error.action
    assert {name: error.details.get(name) for name in details} == details


async def test_what_an_element_says_of_itself_does_not_get_out_of_its_brackets(tab: ChromiumTab) -> None:
    cover = "<div style='position:fixed;inset:0' class='a\">(b)'>&lt;/div> (c) &lt;b></div>"
    await show(tab, f"<button id=x>Go</button>{cover}")
    error = await failure(tab, Click(selector="#x"), lambda error: "coveredBy" in error.details)
    assert error.details["coveredBy"] == """<div class="a'>(b)">‹/div› (c) ‹b›</div>"""


async def test_following_the_advice_uncovers_the_element(tab: ChromiumTab) -> None:
    await show(tab, COOKIES + "<script>onclick = () => document.querySelector('[role=dialog]')?.remove()</script>")
    error = await failure(tab, Click(selector="#x"), lambda error: "cover" in error.details)
    assert error.details["cover"]["inside"]["name"] == "Cookies"
    await act(tab, Click(ref=error.details["cover"]["closer"]["ref"]))
    await act(tab, Click(selector="#x"))


async def test_an_option_that_is_nearly_there_is_named(tab: ChromiumTab) -> None:
    await show(tab, "<select id=s><option>Germany<option>France</select>")
    error = await failure(tab, Select(selector="#s", values=["Germny"]), lambda error: "options" in error.details)
    assert 'Did you mean "Germany"?' in error.action


# --- At once ----------------------------------------------------------------------------------------------------


async def test_several_that_fit_are_told_by_role_and_name_and_can_be_counted(tab: ChromiumTab) -> None:
    await show(
        tab, "<button>One</button><button>Two</button><script>onclick = (e) => hit = e.target.innerText</script>"
    )
    with pytest.raises(AmbiguousTarget) as caught:
        await act(tab, Click(selector="button"))
    told = [(each["role"], each["name"]) for each in caught.value.details["candidates"]]
    assert told == [("button", "One"), ("button", "Two")]
    for selector, name in (("button >> nth=0", "One"), ("button >> nth=1", "Two"), ("button >> nth=-1", "Two")):
        await act(tab, Click(selector=selector))
        assert await ask(tab, "hit") == name


async def test_what_is_counted_beyond_the_last_is_not_there(tab: ChromiumTab) -> None:
    error = await missing(tab, "<p>One</p>", Click(selector="p >> nth=1"), "part")
    assert error.details["part"] == "nth=1"


async def test_a_frame_can_be_counted_too(tab: ChromiumTab) -> None:
    await show(tab, "<iframe srcdoc='<p>One</p>'></iframe><iframe srcdoc='<p>Two</p>'></iframe>")
    await act(tab, wire.Wait(selector="iframe >> nth=1 >> text=Two"))


async def test_another_tools_selector_is_answered_with_ours(tab: ChromiumTab) -> None:
    await show(tab, "<button>Save</button>")
    with pytest.raises(InvalidSelector) as caught:
        await act(tab, Click(selector='button:has-text("Save")'))
    assert caught.value.action == "Write it like button >> text=Save"
    await act(tab, Click(selector="button >> text=Save"))


async def test_a_line_of_a_snapshot_is_its_element(tab: ChromiumTab) -> None:
    await show(tab, "<button>Save</button><script>hits = 0; onclick = () => hits++</script>")
    line: str = await act(tab, Snapshot())
    await act(tab, Click(selector=line))
    await act(tab, Click(selector='button "Save"'))
    assert await ask(tab, "hits") == 2


async def test_a_stale_ref_says_what_it_was_and_what_is_nearest_now(tab: ChromiumTab) -> None:
    await show(tab, "<button id=b>Save</button>")
    ref = (await act(tab, Snapshot())).partition("[ref=")[2].partition("]")[0]
    await ask(tab, "void (b.remove(), document.body.insertAdjacentHTML('beforeend', '<a href=\"#\">Save all</a>'))")
    with pytest.raises(StaleRef) as caught:
        await act(tab, Click(ref=ref))
    assert caught.value.details["ref"] == ref
    assert caught.value.message == f'The element of ref {ref} (button "Save") is no longer in the page.'
    assert 'The nearest now is link "Save all"' in caught.value.action


# --- Reading ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "selector", "words"),
    [(PAY, "#b", "It is inside a frame")],
)
async def test_reading_what_is_not_there_is_told_alike(tab: ChromiumTab, html: str, selector: str, words: str) -> None:
    await show(tab, html)
    if html == PAY:
        await act(tab, wire.Wait(selector="iframe >> #b"))
    with pytest.raises(ElementNotFound) as caught:
        await act(tab, Text(selector=selector))
    assert words in caught.value.action


# --- Pages that are hostile about it ----------------------------------------------------------------------------

LONG = """<body><script>
const long = 'Save ' + 'w'.repeat(1e6);
for (let i = 0; i < 6; i++) {
  const made = document.createElement(i ? 'button' : 'save-' + 'x'.repeat(1e6));
  for (const name of ['id', 'class', 'name', 'title', 'aria-label', 'role', 'data-testid', 'placeholder']) {
    made.setAttribute(name, long + i);
  }
  made.textContent = long.slice(0, 1e4);
  document.body.append(made);
}
Object.defineProperty(Element.prototype, 'textContent', {get() { for (;;); }});
</script>"""
# Hidden, because drawing them is what would take the time.
MANY = """<body><div id=d hidden></div><script>
d.innerHTML = Array.from({length: 1e5}, (_, i) => `<button id=b${i}>Sabe the long name ${i}</button>`).join('');
</script>"""
HIDING = ("labels", "type", "value", "shadowRoot", "attributes", "children", "id", "contains")
FIELDS = "".join(f"<input name={name} required>" for name in HIDING)
CLOBBERED = f"<form id=f>{FIELDS}<button disabled>Save</button></form>"
COVERED = """<button id=x>Go</button><script>
const over = document.createElement('div');
over.style = 'position:fixed;inset:0';
over.setAttribute('role', 'dialog');
over.setAttribute('aria-label', 'n'.repeat(1e6));
const closers = ('<button>Close ' + 'c'.repeat(1e3) + '</button>').repeat(600);
over.innerHTML = closers + '<p style="height:100%">' + 'p'.repeat(1e4);
document.body.append(over);</script>"""


@pytest.mark.parametrize(
    ("html", "selector", "key"),
    [
        (LONG, "#saved", "candidates"),
        (MANY, "#save", "waitingFor"),
        (CLOBBERED, "#f >> text=Save", "invalidFields"),
        (COVERED, "#x", "cover"),
    ],
)
async def test_an_error_stays_small_on_a_hostile_page(tab: ChromiumTab, html: str, selector: str, key: str) -> None:
    await show(tab, html)
    error = await failure(tab, Click(selector=selector), lambda error: key in error.details)
    assert not isinstance(error, InvalidSelector)
    assert key in error.details
    assert "unexplained" not in error.details
    assert len(msgspec.json.encode(error.to_wire())) < BYTES_MAX


async def test_an_ambiguous_selector_on_a_hostile_page_is_refused_in_few_words(tab: ChromiumTab) -> None:
    await show(tab, LONG)
    with pytest.raises(AmbiguousTarget) as caught:
        await act(tab, Click(selector="button"))
    assert len(msgspec.json.encode(caught.value.to_wire())) < BYTES_MAX
