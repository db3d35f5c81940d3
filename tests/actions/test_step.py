"""Steps that are taken together with the look."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tabherd.actions.locate import ENABLED, Search
from tabherd.actions.navigations import Navigations
from tabherd.actions.progress import Progress
from tabherd.actions.selectors import parse
from tabherd.actions.step import take_step
from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import ElementNotFound
from tabherd.wire import Fill, Navigate, Select

from .driving import LIMIT_S, Waiting, act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SEARCH = Search(parts=parse("#x"), label="'#x'", needs=ENABLED, is_field=True)


async def test_while_a_step_may_be_taken_the_page_counts_as_acted_upon(tab: ChromiumTab) -> None:
    await show(tab, "<input id=x>")
    progress = Progress()
    await take_step(tab, SEARCH, progress, "focus")
    assert progress.has_acted


async def test_whoever_gives_up_while_the_element_is_missing_is_told_that_the_page_is_untouched(
    tab: ChromiumTab,
) -> None:
    await show(tab, "")
    async with Waiting(tab, Fill(selector="#x", value="a")) as waiting:
        await waiting.until("attached")
        assert isinstance(waiting.progress.failure(), ElementNotFound)
        await ask(tab, "void (document.body.innerHTML = '<input id=x>')")
        await waiting.result()
    assert await ask(tab, "x.value") == "a"


class Counting(Progress):
    """Tells when it was told often enough, and how often the page was acted upon."""

    def __init__(self) -> None:
        super().__init__()
        self.acted = self.waited = 0
        self.is_enough = asyncio.Event()

    def acts(self) -> None:
        super().acts()
        self.acted += 1

    def waits(self, condition: str, **details: Any) -> None:
        super().waits(condition, **details)
        self.waited += 1
        if self.waited == 5:
            self.is_enough.set()


async def test_while_a_step_finds_something_missing_the_page_is_only_asked(tab: ChromiumTab) -> None:
    await show(tab, "<select id=x><option>a</select>")
    progress = Counting()
    taken = asyncio.ensure_future(take_step(tab, SEARCH, progress, "select", ["b"], asked="hasOptions"))
    async with asyncio.timeout(LIMIT_S):
        await progress.is_enough.wait()
        assert progress.acted == 1
        await ask(tab, "void x.add(new Option('b'))")
        assert (await taken).answer["values"] == ["b"]


@pytest.mark.parametrize(
    ("action", "methods"),
    [
        (Fill(selector="#x", value="a"), ["Runtime.callFunctionOn", "Input.insertText", "Runtime.callFunctionOn"]),
        (Select(selector="#y", values=["b"]), ["Runtime.callFunctionOn"] * 2),
    ],
)
async def test_no_message_is_sent_that_could_be_spared(
    tab: ChromiumTab, action: Any, methods: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await show(tab, "<input id=x><select id=y><option>a<option>b</select>")
    # The script is there from now on.
    await act(tab, Fill(selector="#x", value="before"))
    sent: list[str] = []
    call = ChromiumTab.call

    async def counted(tab: ChromiumTab, method: str, *args: Any, **kwargs: Any) -> Any:
        sent.append(method)
        return await call(tab, method, *args, **kwargs)

    monkeypatch.setattr(ChromiumTab, "call", counted)
    await act(tab, action)
    assert sent == methods


async def test_a_navigation_that_was_going_on_is_not_taken_for_one_of_the_step(tab: ChromiumTab, site: Site) -> None:
    site.own |= {"/one": "one", "/two": "<select id=x><option>a<option>b</select>"}
    await act(tab, Navigate(url=f"{site.origin}/one"))
    progress = Progress()
    with Navigations(tab) as navigations:
        step = take_step(tab, SEARCH, progress, "select", ["b"], navigations=navigations)
        taken = asyncio.ensure_future(step)
        async with asyncio.timeout(LIMIT_S):
            while progress.waiting_for != "attached":
                await asyncio.sleep(0.005)
            await ask(tab, "void (location.href = '/two')")
            await taken
        assert not navigations.is_asked
