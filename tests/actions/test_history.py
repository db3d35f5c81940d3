"""Going back and forth in the history of a real tab."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import NavigationFailed
from tabherd.wire import Back, Forward, Navigate, Reload

from .driving import act, ask
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def visit(tab: ChromiumTab, site: Site) -> None:
    site.own |= {"/one": "<title>1</title>", "/two": "<title>2</title>"}
    for path in ("/one", "/two"):
        await act(tab, Navigate(url=site.origin + path))


@pytest.fixture(params=["answered first", "answered last"])
def _in_any_order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to a move, and what comes of it: whoever is busy with something else hears of both in one go."""
    if request.param == "answered first":
        return
    call = ChromiumTab.call

    async def last(tab: ChromiumTab, method: str, params: Any = None) -> Any:
        if method not in ("Page.reload", "Page.navigateToHistoryEntry"):
            return await call(tab, method, params)
        stopped = asyncio.Event()
        stop = tab.listen("Page.frameStoppedLoading", lambda event: stopped.set())
        answer = await call(tab, method, params)
        await stopped.wait()
        stop()
        return answer

    monkeypatch.setattr(ChromiumTab, "call", last)


@pytest.mark.usefixtures("_in_any_order")
async def test_back_and_forward_describe_the_page_they_reach(tab: ChromiumTab, site: Site) -> None:
    await visit(tab, site)
    assert (await act(tab, Back()))["title"] == "1"
    assert (await act(tab, Forward(wait_until="domcontentloaded")))["title"] == "2"


async def test_after_a_commit_only_the_address_is_told(tab: ChromiumTab, site: Site) -> None:
    await visit(tab, site)
    assert await act(tab, Back(wait_until="commit")) == {"url": f"{site.origin}/one", "title": None, "status": None}


async def test_an_entry_of_the_same_document_is_reached_without_leaving_it(tab: ChromiumTab, site: Site) -> None:
    await visit(tab, site)
    await ask(tab, "globalThis.kept = 1, history.pushState(0, 0, '/pushed')")
    assert (await act(tab, Back()))["url"] == f"{site.origin}/two"
    assert await ask(tab, "kept") == 1


async def test_a_page_that_comes_back_out_of_the_cache_is_reached(tab: ChromiumTab, site: Site) -> None:
    await visit(tab, site)
    for _ in range(2):
        assert (await act(tab, Back()))["url"] == f"{site.origin}/one"
        assert (await act(tab, Forward()))["url"] == f"{site.origin}/two"


async def test_where_there_is_nothing_to_go_to_it_says_so(own_tab: ChromiumTab) -> None:
    with pytest.raises(NavigationFailed, match="back"):
        await act(own_tab, Back())
    with pytest.raises(NavigationFailed, match="forward"):
        await act(own_tab, Forward())


async def test_a_reload_makes_a_new_document_of_the_same_address(tab: ChromiumTab, site: Site) -> None:
    await visit(tab, site)
    await ask(tab, "void (globalThis.kept = 1)")
    assert await act(tab, Reload()) == {"url": f"{site.origin}/two", "title": "2", "status": 200}
    assert await ask(tab, "typeof kept") == "undefined"


@pytest.mark.usefixtures("_in_any_order")
@pytest.mark.parametrize("move", [Back(), Reload()], ids=["back", "reload"])
async def test_a_page_that_cannot_be_had_again_is_an_error_with_its_reason(
    tab: ChromiumTab, site: Site, move: Back | Reload
) -> None:
    await act(tab, Navigate(url=f"{site.other_origin}/fresh"))
    if isinstance(move, Back):
        await act(tab, Navigate(url=f"{site.origin}/"))
    site.is_down = True
    with pytest.raises(NavigationFailed) as caught:
        await act(tab, move)
    assert caught.value.details["reason"] == "closed"
    assert caught.value.details["url"] == f"{site.other_origin}/fresh"


@pytest.mark.usefixtures("_in_any_order")
@pytest.mark.parametrize(("path", "reason"), [("/nothing", "no_content"), ("/file", "download")])
async def test_a_reload_that_brings_no_page_ends(tab: ChromiumTab, site: Site, path: str, reason: str) -> None:
    site.own[path] = "<title>Once</title>"
    await act(tab, Navigate(url=site.origin + path))
    del site.own[path]
    with pytest.raises(NavigationFailed) as caught:
        await act(tab, Reload())
    assert caught.value.details["reason"] == reason
