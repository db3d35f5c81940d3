"""Driving a browser: contexts and pages, and pages that do not want to be closed or attached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tabherd.browsers import attach, driver
from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.port import BrowserGone, CdpFailure, TabGone, Viewport

from .fake_cdp import FakeBrowser, connected
from .real import blank_tab, new_row
from .site import answering

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SPIN = "for (;;);"
# Tell the server what time it is, again and again, each in its own way.
ASK_BY_TIMER = "setInterval(() => fetch('/hit?' + Date.now()), 1); 1"
ASK_AND_SPIN = """
for (;;) {
    const x = new XMLHttpRequest();
    x.open('GET', '/hit?' + Date.now(), false);
    try { x.send(); } catch (e) {}
}
"""


class Hits:
    """A server that is told the time."""

    def __init__(self) -> None:
        self.origin = ""
        # The latest time at which a script said that it still ran, in milliseconds.
        self.latest_ms = 0
        self.first = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
            if path.startswith(b"/hit?"):
                self.latest_ms = max(self.latest_ms, int(path.removeprefix(b"/hit?")))
                self.first.set()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
            )
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def listening() -> AsyncIterator[Hits]:
    hits = Hits()
    async with answering(hits.answer) as port:
        hits.origin = f"http://127.0.0.1:{port}"
        yield hits


async def load(tab: ChromiumTab, url: str) -> None:
    loaded = tab.expect("load")
    tab.listen("Page.loadEventFired", lambda _: loaded.done() or loaded.set_result(None))
    await tab.call("Page.navigate", {"url": url})
    await loaded


async def target_ids(browser: ChromiumBrowser) -> set[str]:
    return {page.target_id for page in await browser.pages()}


async def begin(tab: ChromiumTab, script: str) -> None:
    """Start a script that never ends; the page is in it when this returns."""
    started = tab.expect("console")
    stop = tab.listen("Runtime.consoleAPICalled", lambda _: started.done() or started.set_result(None))
    await tab.call("Runtime.enable")
    tab.post("Runtime.evaluate", {"expression": f"console.log('on'); {script}"})
    await started
    stop()


# --- Closing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["1", SPIN, "onbeforeunload = () => 'stay'; onunload = () => { for (;;); }; 1"])
async def test_a_closed_page_is_not_there_any_more(browser: ChromiumBrowser, script: str) -> None:
    tab = await blank_tab(browser)
    await begin(tab, script)
    await browser.close_tab(tab.target_id)
    assert tab.target_id not in await target_ids(browser)


@pytest.mark.parametrize("script", [ASK_BY_TIMER, ASK_AND_SPIN], ids=["by timer", "in a loop"])
async def test_a_closed_page_runs_no_script_any_more(browser: ChromiumBrowser, script: str) -> None:
    await _close_and_listen(browser, script)


async def test_a_page_that_spins_is_not_left_to_chromium_to_drop(
    browser: ChromiumBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a machine so busy that what follows the grace comes late.
    monkeypatch.setattr(driver, "CLOSE_GRACE_S", 1.0)
    await _close_and_listen(browser, ASK_AND_SPIN)


async def _close_and_listen(browser: ChromiumBrowser, script: str) -> None:
    """The page shares its renderer with another one, which outlives it."""
    async with listening() as hits:
        tab = await blank_tab(browser)
        await load(tab, hits.origin)
        await tab.call("Runtime.evaluate", {"expression": "window.open('/popup'); 1", "userGesture": True})
        await begin(tab, script)
        await hits.first.wait()
        await browser.close_tab(tab.target_id)
        closed_ms = time.time() * 1000
        # What was on its way by then may still arrive, but says so; a page that lives sends a hundred in this time.
        await asyncio.sleep(0.3)
        assert hits.latest_ms <= closed_ms


async def test_a_page_that_is_closed_while_it_navigates_is_gone(browser: ChromiumBrowser) -> None:
    async with listening() as hits:
        for _ in range(3):
            tab = await blank_tab(browser)
            tab.post("Page.navigate", {"url": hits.origin})
            await browser.close_tab(tab.target_id)
            assert tab.target_id not in await target_ids(browser)


async def test_a_crashed_page_can_be_closed(browser: ChromiumBrowser) -> None:
    tab = await blank_tab(browser)
    with pytest.raises(TabGone):
        await tab.call("Page.crash")
    await browser.close_tab(tab.target_id)
    assert tab.target_id not in await target_ids(browser)


async def test_a_page_that_was_never_attached_can_be_closed(browser: ChromiumBrowser) -> None:
    made = await browser._connection.call("Target.createTarget", {"url": "about:blank"})
    await browser.close_tab(made["targetId"])
    assert made["targetId"] not in await target_ids(browser)


async def test_several_callers_may_close_the_same_page(browser: ChromiumBrowser) -> None:
    tab = await blank_tab(browser)
    await begin(tab, SPIN)
    await asyncio.gather(*(browser.close_tab(tab.target_id) for _ in range(3)))
    assert tab.target_id not in await target_ids(browser)


def attach_only(peer: FakeBrowser, message: dict[str, object]) -> None:
    """Answers everything, ends nothing."""
    peer.say({"id": message["id"], "result": {"sessionId": "S"}})


async def test_a_page_that_cannot_be_closed_is_reported_after_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CLOSE_GRACE_S", 0.01)
    monkeypatch.setattr(driver, "CLOSE_LIMIT_S", 0.01)
    async with connected(attach_only) as (connection, _):
        with pytest.raises(CdpFailure, match="still there"):
            await driver.DrivenBrowser(new_row(), connection).close_tab("T")
        # Whatever it gave up is forgotten in the loop's next turns.
        for _ in range(3):
            await asyncio.sleep(0)
        assert connection.calls_waiting == 0


async def test_a_browser_that_dies_while_a_page_is_closed_is_told_at_once() -> None:
    async with connected(attach_only) as (connection, peer):
        closing = asyncio.create_task(driver.DrivenBrowser(new_row(), connection).close_tab("T"))
        while (await peer.received.get())["method"] != "Target.closeTarget":
            pass
        peer.hang_up()
        with pytest.raises(BrowserGone):
            await closing


# --- Finding and attaching ------------------------------------------------------------------------------------------


async def test_contexts_and_pages_are_listed_and_the_browsers_own_profile_has_no_name(browser: ChromiumBrowser) -> None:
    context_id = await browser.new_context()
    tab, own = await browser.new_tab(context_id), await browser.new_tab("")
    await load(tab, "data:text/html,<title>Here</title>")
    assert context_id in await browser.context_ids()
    pages = {page.target_id: page for page in await browser.pages()}
    assert pages[tab.target_id].context_id == context_id
    assert pages[tab.target_id].url.startswith("data:")
    assert pages[own.target_id].context_id == ""
    await browser.dispose_context(context_id)
    await browser.close_tab(own.target_id)
    assert context_id not in await browser.context_ids()


async def test_tabs_of_the_browsers_own_profile_share_its_cookies(browser: ChromiumBrowser) -> None:
    first, second = await browser.new_tab(""), await browser.new_tab("")
    cookie = {"name": "who", "value": "all", "url": "http://example.test/"}
    await first.call("Network.setCookie", cookie)
    assert len((await second.call("Network.getCookies", {"urls": [cookie["url"]]}))["cookies"]) == 1
    await asyncio.gather(browser.close_tab(first.target_id), browser.close_tab(second.target_id))


async def test_an_existing_page_is_attached_ready_to_be_driven(browser: ChromiumBrowser) -> None:
    made = await browser._connection.call("Target.createTarget", {"url": "about:blank"})
    tab = await browser.attach_tab(made["targetId"])
    async with asyncio.timeout(60):
        assert (await tab.call("Runtime.evaluate", {"expression": "confirm('x')"}))["result"]["value"] is False
    assert await browser.attach_tab(made["targetId"]) is tab
    await browser.close_tab(tab.target_id)


@pytest.mark.parametrize("ailment", ["spinning", "crashed"])
async def test_attaching_a_page_that_does_not_answer_is_bounded(
    browser: ChromiumBrowser, monkeypatch: pytest.MonkeyPatch, ailment: str
) -> None:
    monkeypatch.setattr(driver, "ATTACH_LIMIT_S", 0.3)
    monkeypatch.setattr(driver, "CRASH_LIMIT_S", 0.3)
    tab = await blank_tab(browser)
    if ailment == "spinning":
        await begin(tab, SPIN)
    else:
        with pytest.raises(TabGone):
            await tab.call("Page.crash")
    # As a later life would: without the attachment that was there before.
    browser._detach(tab.target_id)
    async with asyncio.timeout(60):
        with pytest.raises(TabGone):
            await browser.attach_tab(tab.target_id)
        await browser.close_tab(tab.target_id)
    assert tab.target_id not in await target_ids(browser)


async def test_a_maker_that_is_cancelled_before_it_knows_its_page_has_it_closed(browser: ChromiumBrowser) -> None:
    context_id = await browser.new_context()
    making = asyncio.create_task(browser.new_tab(context_id))
    while not browser._connection.calls_waiting:
        await asyncio.sleep(0)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    # Answered after the page was made: calls are taken in order.
    await browser.probe()
    async with asyncio.timeout(60):
        while any(page.context_id == context_id for page in await browser.pages()):
            pass


# --- Letting go -----------------------------------------------------------------------------------------------------


async def test_a_page_that_is_let_go_stays_as_it_is(browser: ChromiumBrowser) -> None:
    tab = await blank_tab(browser)
    await tab.call("Runtime.evaluate", {"expression": "state = 42"})
    await browser.let_go(tab.target_id)
    with pytest.raises(TabGone):
        await tab.call("Runtime.evaluate", {"expression": "0"})
    again = await browser.attach_tab(tab.target_id)
    assert (await again.call("Runtime.evaluate", {"expression": "state"}))["result"]["value"] == 42


async def test_dialogs_of_a_page_that_was_let_go_are_not_answered(browser: ChromiumBrowser) -> None:
    tab = await blank_tab(browser)
    await browser.let_go(tab.target_id)
    # As its owner would: attached, but with nobody who answers.
    connection = browser._connection
    attached = await connection.call("Target.attachToTarget", {"targetId": tab.target_id, "flatten": True})
    owner = connection.session(attached["sessionId"])
    opened = owner.expect("a dialog")
    owner.listen("Page.javascriptDialogOpening", lambda dialog: opened.set_result(dialog["message"]))
    await owner.call("Page.enable")
    asking = asyncio.create_task(owner.call("Runtime.evaluate", {"expression": "confirm('stay?')"}))
    assert await opened == "stay?"
    await owner.call("Page.handleJavaScriptDialog", {"accept": True})
    assert (await asking)["result"]["value"] is True


@pytest.mark.parametrize("state", ["let go before", "closed", "never attached"])
async def test_letting_go_of_a_page_that_is_not_held_is_fine(browser: ChromiumBrowser, state: str) -> None:
    tab = await blank_tab(browser)
    if state == "let go before":
        await browser.let_go(tab.target_id)
    elif state == "closed":
        await browser.close_tab(tab.target_id)
    await browser.let_go("0" * 32 if state == "never attached" else tab.target_id)


async def test_a_guest_that_leaves_does_not_close_what_it_let_go(browser: ChromiumBrowser) -> None:
    tab = await blank_tab(browser)
    guest = await attach.attach(new_row(), browser.row.endpoint, 20_000)
    try:
        await guest.attach_tab(tab.target_id)
        await guest.let_go(tab.target_id)
    finally:
        await guest.stop()
    assert tab.target_id in await target_ids(browser)


async def test_letting_go_of_a_page_that_goes_at_that_moment_is_fine() -> None:
    def answer(peer: FakeBrowser, message: dict[str, object]) -> None:
        if message["method"] == "Target.detachFromTarget":
            peer.say({"id": message["id"], "error": {"code": -32602, "message": "No session with given id"}})
        else:
            attach_only(peer, message)

    async with connected(answer) as (connection, _):
        browser = driver.DrivenBrowser(new_row(), connection)
        await browser.attach_tab("T")
        await browser.let_go("T")


# --- The size of a page ---------------------------------------------------------------------------------------------


async def test_a_page_keeps_its_size_when_it_goes_elsewhere(browser: ChromiumBrowser) -> None:
    tab = await blank_tab(browser)
    await tab.set_viewport(Viewport(width=432, height=321, device_scale_factor=2))
    async with listening() as hits:
        for url in (hits.origin, "data:text/html,x"):
            await load(tab, url)
            size = "[innerWidth, innerHeight, devicePixelRatio]"
            measured = await tab.call("Runtime.evaluate", {"expression": size, "returnByValue": True})
            assert measured["result"]["value"] == [432, 321, 2]
