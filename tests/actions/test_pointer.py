"""Clicking and hovering in a real page."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tabherd.actions import navigations, pointer
from tabherd.actions.locate import Held
from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.port import TabGone
from tabherd.wire import Click, Dblclick, Hover, Navigate

from .driving import Waiting, act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

HEARD = """<button id=x>Go</button><script>heard = [];
for (const type of ['mouseover', 'mousedown', 'mouseup', 'click', 'dblclick', 'contextmenu', 'auxclick']) {
  x.addEventListener(type, (event) => heard.push([type, event.isTrusted, event.detail, event.button]));
}</script>"""


async def types(tab: ChromiumTab) -> list[str]:
    return [event[0] for event in await ask(tab, "heard")]


async def test_a_click_is_the_real_input_of_a_person(tab: ChromiumTab) -> None:
    await show(tab, HEARD)
    assert await act(tab, Click(selector="#x")) is None
    assert await ask(tab, "heard") == [
        ["mouseover", True, 0, 0],
        ["mousedown", True, 1, 0],
        ["mouseup", True, 1, 0],
        ["click", True, 1, 0],
    ]


async def test_a_double_click_counts_to_two(tab: ChromiumTab) -> None:
    await show(tab, HEARD)
    await act(tab, Dblclick(selector="#x"))
    clicks = [event for event in await ask(tab, "heard") if event[0] in ("click", "dblclick")]
    assert [(event[0], event[2]) for event in clicks] == [("click", 1), ("click", 2), ("dblclick", 2)]


async def test_the_right_button_opens_the_context_menu(tab: ChromiumTab) -> None:
    await show(tab, HEARD)
    await act(tab, Click(selector="#x", button="right"))
    assert "contextmenu" in await types(tab)
    assert "click" not in await types(tab)


async def test_modifiers_are_down_during_a_click(tab: ChromiumTab) -> None:
    await show(tab, "<button id=x onclick='got = [event.shiftKey, event.ctrlKey, event.altKey]'>Go</button>")
    await act(tab, Click(selector="#x", modifiers=("Shift", "Alt")))
    assert await ask(tab, "got") == [True, False, True]


async def test_hovering_presses_nothing(tab: ChromiumTab) -> None:
    await show(tab, HEARD + "<style>#x:hover {color: rgb(1, 2, 3)}</style>")
    await act(tab, Hover(selector="#x"))
    assert await types(tab) == ["mouseover"]
    assert await ask(tab, "getComputedStyle(x).color") == "rgb(1, 2, 3)"


async def test_a_guard_that_was_there_for_one_click_does_not_swallow_the_next(tab: ChromiumTab) -> None:
    await show(tab, HEARD + "<button id=y onclick='other = 1'>Other</button>")
    await act(tab, Hover(selector="#x"))
    await act(tab, Click(selector="#y"))
    assert await ask(tab, "other") == 1


async def test_a_dialog_does_not_hold_a_click_up(tab: ChromiumTab) -> None:
    await show(tab, "<button id=x onclick='answer = [confirm(1)]'>Go</button>")
    await act(tab, Click(selector="#x"))
    assert await ask(tab, "answer") == [False]


@pytest.mark.parametrize(
    "html",
    [
        "<a id=x href=/two>Go</a>",
        "<form action=/two method=post><input type=submit id=x></form>",
        "<button id=x onclick='location.href = \"/two\"'>Go</button>",
        "<body onbeforeunload='return 1'><a id=x href=/two>Go</a>",
    ],
)
async def test_after_a_click_that_navigates_the_new_page_is_there(tab: ChromiumTab, site: Site, html: str) -> None:
    site.own |= {"/one": html, "/two": "the second page"}
    await act(tab, Navigate(url=f"{site.origin}/one"))
    await act(tab, Click(selector="#x"))
    assert (await ask(tab, "location.pathname")) == "/two"


async def test_a_click_waits_for_a_navigation_that_takes_its_time(tab: ChromiumTab, site: Site) -> None:
    site.own["/one"] = "<a id=x href=/never>Go</a>"
    await act(tab, Navigate(url=f"{site.origin}/one"))
    async with Waiting(tab, Click(selector="#x")) as waiting:
        await site.asked_never.wait()
        assert not waiting.is_done
        assert waiting.progress.failure() is None
        site.hang_up()
        await waiting.result()


@pytest.mark.parametrize(
    "html",
    [
        "<a id=x href='#here'>Go</a>",
        "<a id=x href='mailto:a@b.test'>Go</a>",
        "<a id=x href=/nothing>Go</a>",
        "<a id=x href=/file>Go</a>",
        "<a id=x href=/two target=_blank>Go</a>",
        "<a id=x href=/never onclick='setTimeout(() => stop(), 20)'>Go</a>",
        "<button id=x onclick='history.pushState(0, 0, \"/pushed\")'>Go</button>",
        "<button id=x onclick='document.open(); document.write(\"new\"); document.close()'>Go</button>",
        "<iframe name=f></iframe><a id=x href=/two target=f>Go</a>",
    ],
)
async def test_a_click_that_leaves_the_page_where_it_is_ends(
    tab: ChromiumTab, site: Site, html: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some of them ask for a navigation that never begins.
    monkeypatch.setattr(navigations, "START_LIMIT_S", 0.5)
    site.own |= {"/one": html, "/two": "the second page"}
    await act(tab, Navigate(url=f"{site.origin}/one"))
    await act(tab, Click(selector="#x"))
    assert (await ask(tab, "location.pathname")) in ("/one", "/pushed")


async def test_a_click_that_ends_the_page_has_an_unknown_outcome(own_tab: ChromiumTab) -> None:
    await show(own_tab, "<button id=x onclick='for (;;);'>Go</button>")
    async with Waiting(own_tab, Click(selector="#x")) as waiting:
        while not waiting.progress.has_acted:
            await asyncio.sleep(0.005)
        own_tab.post("Page.crash")
        with pytest.raises(TabGone):
            await waiting.result()


async def test_what_takes_the_place_of_a_vanishing_element_is_not_pressed(tab: ChromiumTab) -> None:
    await show(
        tab,
        """<style>button {position: absolute; left: 90px; top: 90px; width: 200px; height: 50px}</style>
        <button id=danger hidden onclick='presses++'>Delete all</button><button id=x>Next</button><script>presses = 0;
        x.onmousemove = () => { x.remove(); danger.hidden = false; }</script>""",
    )
    async with Waiting(tab, Click(selector="#x")) as waiting:
        await waiting.until("attached")
        assert await ask(tab, "[danger.hidden, presses]") == [False, 0]


async def test_a_button_that_flees_for_ever_is_told_to_be_out_of_reach(tab: ChromiumTab) -> None:
    await show(
        tab,
        """<style>#x {position: absolute; left: 20px}</style><button id=x onclick='presses++'>Go</button><script>
        presses = 0;
        x.onmouseover = () => { x.style.left = x.style.left === "300px" ? "20px" : "300px"; }</script>""",
    )
    async with Waiting(tab, Click(selector="#x")) as waiting:
        await waiting.until("receives_events")
        failure = waiting.progress.failure()
        assert failure is not None
        assert failure.code == "element_not_actionable"
        assert await ask(tab, "presses") == 0


async def test_an_inert_element_is_not_said_to_be_covered(tab: ChromiumTab) -> None:
    await show(tab, "<div inert><button id=x>Go</button></div>")
    async with Waiting(tab, Click(selector="#x")) as waiting:
        details = await waiting.until("receives_events")
        assert "inert" in details["reason"]
        assert "coveredBy" not in details


async def test_an_element_that_is_always_drawn_anew_is_said_to_be_so(tab: ChromiumTab) -> None:
    await show(
        tab,
        """<p id=p></p><script>const draw = () => { p.innerHTML = "<button id=x>Go</button>";
        requestAnimationFrame(draw); }; draw()</script>""",
    )
    async with Waiting(tab, Click(selector="#x")) as waiting:
        details = await waiting.until("stable")
        assert "replacing" in details["reason"]


async def test_a_mouse_that_came_beside_the_element_is_moved_again(
    tab: ChromiumTab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await show(tab, "<button id=x>Go</button>")
    moves: list[dict[str, Any]] = []
    aimed = pointer._mouse

    def beside_at_first(held: Held, kind: str, bits: int) -> dict[str, Any]:
        event = aimed(held, kind, bits)
        moves.append(event)
        # As if the page had moved it after the look.
        return event if len(moves) > 1 else event | {"x": event["x"] + 300}

    monkeypatch.setattr(pointer, "_mouse", beside_at_first)
    await act(tab, Hover(selector="#x"))
    assert len(moves) == 2
    assert await ask(tab, "x.matches('#x:hover')")


async def test_a_disabled_button_can_be_hovered(tab: ChromiumTab) -> None:
    await show(tab, "<button id=x disabled>Go</button>")
    await act(tab, Hover(selector="#x"))
    assert await ask(tab, "x.matches('#x:hover')")
