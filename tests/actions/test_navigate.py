"""Sending a real page somewhere."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.browsers.real import blank_tab, launched

from tabherd.actions import arrival
from tabherd.actions.engine import perform
from tabherd.actions.net_errors import REASONS
from tabherd.actions.progress import Progress
from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.port import BrowserGone, TabGone
from tabherd.errors import InvalidRequest, NavigationFailed, PolicyDenied
from tabherd.wire import Evaluate, Navigate

from .driving import LIMIT_S
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

Until = Literal["load", "domcontentloaded", "networkidle", "commit"]


async def navigate(tab: ChromiumTab, url: str, wait_until: Until = "load") -> Any:
    # A test that waits for what never comes shall fail, not hang.
    async with asyncio.timeout(LIMIT_S):
        return await perform(tab, Navigate(url=url, wait_until=wait_until))


def listeners_of(browser: ChromiumBrowser) -> int:
    return sum(len(heard) for heard in browser._connection._listeners.values())


@pytest.mark.parametrize("wait_until", ["load", "domcontentloaded", "networkidle"])
async def test_the_page_that_was_reached_is_described(tab: ChromiumTab, site: Site, wait_until: Until) -> None:
    reached = await navigate(tab, f"{site.origin}/", wait_until)
    assert reached == {"url": f"{site.origin}/", "title": "Home", "status": 200}


async def test_an_http_error_is_a_page_with_its_status(tab: ChromiumTab, site: Site) -> None:
    reached = await navigate(tab, f"{site.origin}/missing")
    assert reached == {"url": f"{site.origin}/missing", "title": "Nothing here", "status": 404}


@pytest.mark.parametrize("path", ["/moved", "/onward"])
async def test_redirects_by_server_and_by_script_are_followed(tab: ChromiumTab, site: Site, path: str) -> None:
    assert (await navigate(tab, f"{site.origin}{path}", "networkidle"))["url"] == f"{site.origin}/"


async def test_commit_does_not_wait_for_the_page(own_tab: ChromiumTab, site: Site) -> None:
    reached = await navigate(own_tab, f"{site.origin}/busy", "commit")
    assert reached == {"url": f"{site.origin}/busy", "title": None, "status": None}


async def test_domcontentloaded_does_not_wait_for_images(tab: ChromiumTab, site: Site) -> None:
    assert (await navigate(tab, f"{site.origin}/slow-image", "domcontentloaded"))["title"] == "Slow"


async def test_load_waits_for_images(tab: ChromiumTab, site: Site) -> None:
    loading = asyncio.create_task(navigate(tab, f"{site.origin}/slow-image"))
    await site.asked_never.wait()
    assert not loading.done()
    site.hang_up()
    assert (await loading)["title"] == "Slow"


async def test_a_jump_within_the_document_keeps_it(tab: ChromiumTab, site: Site) -> None:
    await navigate(tab, f"{site.origin}/")
    await perform(tab, Evaluate(expression="globalThis.kept = 1"))
    assert (await navigate(tab, f"{site.origin}/#p"))["url"] == f"{site.origin}/#p"
    assert await perform(tab, Evaluate(expression="globalThis.kept")) == 1


@pytest.mark.parametrize("url", ["about:blank", "data:text/html,<title>x</title>", "  ABOUT:blank\n"])
async def test_pages_without_a_server_are_reached_too(tab: ChromiumTab, url: str) -> None:
    assert (await navigate(tab, url))["url"] == url.strip().lower()


@pytest.mark.parametrize(
    ("url", "reason", "error"),
    [
        ("http://127.0.0.1:6666/", "blocked", "net::ERR_UNSAFE_PORT"),
        ("http://no-such-host.invalid/", "dns", "net::ERR_NAME_NOT_RESOLVED"),
        ("blob:null/123", "not_found", "net::ERR_FILE_NOT_FOUND"),
    ],
)
async def test_a_network_error_is_told_with_its_name(tab: ChromiumTab, url: str, reason: str, error: str) -> None:
    with pytest.raises(NavigationFailed) as caught:
        await navigate(tab, url)
    assert caught.value.details == {"url": url, "reason": reason, "error": error}
    assert caught.value.action == REASONS[reason].action


async def test_a_port_where_nobody_listens_refuses(tab: ChromiumTab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(NavigationFailed) as caught:
        await navigate(tab, f"http://127.0.0.1:{port}/")
    assert caught.value.details["reason"] == "refused"


async def test_pages_that_send_the_visitor_on_without_end_are_an_error(
    own_tab: ChromiumTab, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival, "DOCUMENTS_MAX", 5)
    with pytest.raises(NavigationFailed) as caught:
        await navigate(own_tab, f"{site.origin}/chain")
    assert caught.value.details["reason"] == "endless"


async def test_what_a_server_keeps_for_those_who_log_in_is_a_page_too(tab: ChromiumTab, site: Site) -> None:
    assert (await navigate(tab, f"{site.origin}/private"))["status"] == 401


async def test_a_download_is_not_a_page(own_tab: ChromiumTab, site: Site) -> None:
    with pytest.raises(NavigationFailed, match="is a download") as caught:
        await navigate(own_tab, f"{site.origin}/file")
    assert caught.value.details["isDownload"]
    assert "/files" in caught.value.action


async def test_an_answer_without_a_page_leaves_the_tab_where_it_was(tab: ChromiumTab, site: Site) -> None:
    await navigate(tab, f"{site.origin}/")
    with pytest.raises(NavigationFailed) as caught:
        await navigate(tab, f"{site.origin}/nothing")
    assert caught.value.details["reason"] == "no_content"
    assert await perform(tab, Evaluate(expression="location.pathname")) == "/"


async def test_a_navigation_that_another_one_takes_the_place_of_says_so(tab: ChromiumTab, site: Site) -> None:
    loading = asyncio.create_task(navigate(tab, f"{site.origin}/never"))
    await site.asked_never.wait()
    await tab.call("Page.navigate", {"url": f"{site.origin}/"})
    with pytest.raises(NavigationFailed) as caught:
        await loading
    assert caught.value.details["reason"] == "superseded"


async def answers(tab: ChromiumTab) -> bool:
    try:
        async with asyncio.timeout(0.3):
            await tab.ping()
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "script",
    ["for (;;);", "(function again() { Promise.resolve().then(again) })()"],
)
async def test_a_page_whose_script_never_ends_can_be_left(
    own_tab: ChromiumTab, site: Site, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    site.own["/stuck"] = f"<script>{script}</script>"
    await navigate(own_tab, f"{site.origin}/stuck", "commit")
    async with asyncio.timeout(LIMIT_S):
        while await answers(own_tab):
            pass
    monkeypatch.setattr(arrival, "STUCK_AFTER_S", 0.3)
    assert (await navigate(own_tab, f"{site.origin}/"))["title"] == "Home"


async def test_what_is_still_loading_can_be_told_at_any_time(tab: ChromiumTab, site: Site) -> None:
    progress = Progress()
    action = Navigate(url=f"{site.origin}/polling", wait_until="networkidle")
    loading = asyncio.create_task(perform(tab, action, progress))
    async with asyncio.timeout(LIMIT_S):
        while "load" not in progress.details.get("reached", ()) or len(progress.details.get("loading", ())) < 2:
            await asyncio.sleep(0.005)
    assert progress.waiting_for == "networkidle"
    assert progress.details["url"] == f"{site.origin}/polling"
    assert set(progress.details["loading"]) == {f"{site.origin}/polling", f"{site.origin}/missing"}
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading


async def test_an_address_that_is_none_is_the_callers_mistake(tab: ChromiumTab) -> None:
    with pytest.raises(InvalidRequest):
        await navigate(tab, "http://")


async def test_a_denied_address_does_not_touch_the_page(tab: ChromiumTab, site: Site) -> None:
    await navigate(tab, f"{site.origin}/")
    with pytest.raises(PolicyDenied):
        await navigate(tab, "fi\tle:///etc/passwd")
    assert await perform(tab, Evaluate(expression="location.href")) == f"{site.origin}/"


@pytest.mark.parametrize("path", ["/slow-image", "/never"])
async def test_a_cancelled_navigation_takes_its_listeners_with_it(
    browser: ChromiumBrowser, tab: ChromiumTab, site: Site, path: str
) -> None:
    listeners, calls = listeners_of(browser), browser._connection.calls_waiting
    loading = asyncio.create_task(navigate(tab, f"{site.origin}{path}"))
    await site.asked_never.wait()
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert (listeners_of(browser), browser._connection.calls_waiting) == (listeners, calls)


async def test_a_page_that_crashes_while_it_loads_has_an_unknown_outcome(own_tab: ChromiumTab, site: Site) -> None:
    loading = asyncio.create_task(navigate(own_tab, f"{site.origin}/slow-image"))
    await site.asked_never.wait()
    own_tab.post("Page.crash")
    with pytest.raises(TabGone):
        await loading


async def test_a_browser_that_dies_while_a_page_loads_is_told_at_once(tmp_path: Path, site: Site) -> None:
    async with launched(tmp_path) as own:
        tab = await blank_tab(own)
        loading = asyncio.create_task(navigate(tab, f"{site.origin}/slow-image"))
        await site.asked_never.wait()
        os.kill(own.row.pid, signal.SIGKILL)
        with pytest.raises(BrowserGone) as caught:
            await loading
        assert caught.value.was_sent is True


class Scripted:
    """A page whose Chromium says what the test writes."""

    target_id = "MAIN"
    cdp_session_id = "S"
    script: tuple[int, str] | None = None

    def __init__(self) -> None:
        self._listeners: dict[str, Any] = {}
        self.is_answered = asyncio.Event()

    async def call(self, method: str, params: Any = None) -> dict[str, Any]:
        if method == "Page.navigate":
            await self.is_answered.wait()
            return {"frameId": "MAIN", "loaderId": "OURS"}
        if method == "Page.createIsolatedWorld":
            return {"executionContextId": 1}
        answer = {"url": "http://ours.test/", "title": "", "status": 200}
        return {"result": {"value": {"token": "T", "answer": answer}}}

    async def ping(self) -> None:
        """It is not busy."""

    def listen(self, method: str, listener: Any) -> Any:
        self._listeners[method] = listener
        return lambda: self._listeners.pop(method)

    def expect(self, what: str) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def load(self, loader: str, *, up_to: str) -> None:
        """The events of one document's life, as far as the named one."""
        url = f"http://{loader}.test/"
        self._listeners["Page.frameNavigated"]({"frame": {"id": "MAIN", "loaderId": loader, "url": url}})
        for name in ("commit", "DOMContentLoaded", "load"):
            self._listeners["Page.lifecycleEvent"]({"frameId": "MAIN", "loaderId": loader, "name": name})
            if name == up_to:
                return


async def test_the_load_of_a_document_that_was_already_on_its_way_is_not_taken_for_ours() -> None:
    tab = Scripted()
    loading = asyncio.create_task(perform(tab, Navigate(url="http://ours.test/")))
    await asyncio.sleep(0)
    tab.load("EARLIER", up_to="load")
    tab.is_answered.set()
    tab.load("OURS", up_to="DOMContentLoaded")
    await asyncio.sleep(0.01)
    assert not loading.done()
    tab.load("OURS", up_to="load")
    assert (await loading)["status"] == 200
