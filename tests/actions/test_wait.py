"""Waiting for what a real page does."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.port import TabGone
from tabherd.errors import CommandTimedOut, InvalidRequest, JavascriptError, StaleRef
from tabherd.wire import Navigate, Snapshot, Wait

from .driving import Waiting, act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    ("html", "action", "condition", "cure"),
    [
        ("", Wait(selector="#x"), "attached", "document.body.innerHTML = '<p id=x>here'"),
        ("<p id=x hidden>here", Wait(selector="#x"), "visible", "x.hidden = false"),
        ("<p id=x>here", Wait(selector="#x", state="hidden"), "hidden", "x.hidden = true"),
        ("<p id=x>here", Wait(selector="#x", state="detached"), "detached", "x.remove()"),
        ("<p id=x hidden>Done!", Wait(text="done"), "visible", "x.hidden = false"),
    ],
)
async def test_an_element_is_waited_for(tab: ChromiumTab, html: str, action: Wait, condition: str, cure: str) -> None:
    await show(tab, html)
    async with Waiting(tab, action) as waiting:
        await waiting.until(condition)
        assert not waiting.progress.has_acted
        await ask(tab, f"void ({cure})")
        assert await waiting.result() is None


async def test_what_is_there_already_is_not_waited_for(tab: ChromiumTab) -> None:
    await show(tab, "<p hidden id=x>one<p>two<p>two")
    await act(tab, Wait(selector="#x", state="attached"))
    await act(tab, Wait(selector="#x", state="hidden"))
    await act(tab, Wait(selector="#y", state="detached"))
    await act(tab, Wait(text="two"))
    await act(tab, Wait(url="data:text/html*"))


@pytest.mark.parametrize("wanted", ["/two", "http*/two"])
async def test_an_address_is_waited_for_across_documents(tab: ChromiumTab, site: Site, wanted: str) -> None:
    site.own |= {"/one": "1", "/between": "<script>location.href = '/two'</script>", "/two": "2"}
    await act(tab, Navigate(url=f"{site.origin}/one"))
    async with Waiting(tab, Wait(url=wanted)) as waiting:
        assert (await waiting.until("url"))["url"] == f"{site.origin}/one"
        assert isinstance(waiting.progress.failure(), CommandTimedOut)
        await ask(tab, "void (location.href = '/between')")
        await waiting.result()
    assert await ask(tab, "location.pathname") == "/two"


async def test_an_address_that_a_script_sets_is_noticed(tab: ChromiumTab, site: Site) -> None:
    await act(tab, Navigate(url=f"{site.origin}/"))
    async with Waiting(tab, Wait(url="/pushed?a=[1]")) as waiting:
        await waiting.until("url")
        await ask(tab, "history.pushState(0, 0, '/pushed?a=[1]')")
        await waiting.result()


async def test_a_function_is_asked_until_it_is_true_also_on_the_next_page(tab: ChromiumTab, site: Site) -> None:
    site.own |= {"/one": "1", "/two": "<script>answer = 42</script>"}
    await act(tab, Navigate(url=f"{site.origin}/one"))
    async with Waiting(tab, Wait(function="() => globalThis.answer // soon")) as waiting:
        while waiting.progress.waiting_for != "function":
            await asyncio.sleep(0.005)
        await ask(tab, "void (location.href = '/two')")
        assert await waiting.result() == 42


@pytest.mark.parametrize("function", ["1 + 1", "async () => 2"])
async def test_an_expression_or_a_promise_will_do(tab: ChromiumTab, function: str) -> None:
    assert await act(tab, Wait(function=function)) == 2


async def test_a_function_that_throws_is_told(tab: ChromiumTab) -> None:
    with pytest.raises(JavascriptError, match="boom"):
        await act(tab, Wait(function="() => { throw new Error('boom') }"))


async def test_time_is_waited_for(tab: ChromiumTab) -> None:
    await ask(tab, "void (globalThis.start = performance.now())")
    await act(tab, Wait(ms=50))
    assert await ask(tab, "performance.now() - start") >= 50


@pytest.mark.parametrize("action", [Wait(), Wait(ms=1, text="a"), Wait(selector="a", url="b")])
async def test_exactly_one_thing_is_waited_for(tab: ChromiumTab, action: Wait) -> None:
    with pytest.raises(InvalidRequest):
        await act(tab, action)


@pytest.mark.parametrize("action", [Wait(url="/never"), Wait(selector="#never")])
async def test_a_tab_that_is_closed_ends_the_wait(browser: ChromiumBrowser, own_tab: ChromiumTab, action: Wait) -> None:
    await show(own_tab, "x")
    async with Waiting(own_tab, action) as waiting:
        while not waiting.progress.waiting_for:
            await asyncio.sleep(0.005)
        await browser.close_tab(own_tab.target_id)
        # Which of the two depends on whether something was on its way to the page at that moment.
        with pytest.raises(TabGone):
            await waiting.result()


@pytest.mark.parametrize("state", ["hidden", "detached"])
async def test_the_element_of_a_ref_is_waited_for_until_it_has_gone(tab: ChromiumTab, state: Any) -> None:
    await show(tab, "<button id=x>Busy</button>")
    snapshot = await act(tab, Snapshot())
    ref = re.search(r"\[ref=(\w+)\]", str(snapshot))
    assert ref is not None
    async with Waiting(tab, Wait(ref=ref[1], state=state)) as waiting:
        await waiting.until(state)
        await ask(tab, "x.remove()")
        await waiting.result()
    with pytest.raises(StaleRef):
        await act(tab, Wait(ref=ref[1], state=state))
