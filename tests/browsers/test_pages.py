"""Following pages: what real Chromiums of both builds say of them, and what is made of it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab, DrivenBrowser
from tabherd.browsers.pages import TITLE_MAX_BYTES, URL_MAX_BYTES, page_of
from tabherd.browsers.port import Page, PageEnd, TabGone

from .fake_cdp import FakeBrowser, connected
from .real import blank_tab, launched, new_row
from .site import BUILDS, FLAGS, Site, load, run, serving

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

PAGES = {
    "/": "<title>Home</title><a id=link href=/linked>link</a>",
    "/ways": """
        <title>Ways</title><a id=blank target=_blank href=/opened></a>
        <a id=without target=_blank rel=noopener href=/opened></a>
        <a id=with_it target=_blank rel=opener href=/opened></a>
        <iframe id=near src=/frame></iframe><iframe id=far src=http://b.test:PORT/frame></iframe>
    """,
    "/frame": "<script>onmessage = () => window.open('/opened')</script>",
    "/opened": "<title>Opened</title>",
    "/other": "<title>Other</title>",
}
# Each opens a page from a script or a click of a page.
WAYS = (
    "window.open('/opened')",
    "window.open('/opened', '_blank', 'noopener')",
    "window.open('/opened', '', 'width=200,height=200')",
    "blank.click()",
    "without.click()",
    "with_it.click()",
    "near.contentWindow.eval(`window.open('/opened')`)",
    "far.contentWindow.postMessage('', '*')",
)


class Told:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.opened: list[Page] = []
        self.ended: list[tuple[str, PageEnd]] = []
        self.moved: list[tuple[str, str, str]] = []
        self._news = asyncio.Event()

    def page_opened(self, page: Page) -> None:
        self.opened.append(page)
        self._news.set()

    def page_ended(self, target_id: str, how: PageEnd) -> None:
        self.ended.append((target_id, how))
        self._news.set()

    def page_moved(self, target_id: str, url: str, title: str) -> None:
        self.moved.append((target_id, url, title))
        self._news.set()

    def answers_dialogs(self, target_id: str) -> bool:
        return False

    def accepts_dialogs(self) -> bool:
        return False

    async def until(self, is_so: Callable[[], Any]) -> Any:
        """Returns what it says as soon as that is something."""
        async with asyncio.timeout(60):
            while not (found := is_so()):
                self._news.clear()
                await self._news.wait()
        return found

    async def opened_in(self, context_id: str, count: int = 1) -> Page:
        """The latest page that was opened there, as soon as there are so many."""
        told: list[Page] = []

        def are_told() -> bool:
            told[:] = [page for page in self.opened if page.context_id == context_id]
            return len(told) >= count

        await self.until(are_told)
        return told[count - 1]

    def ends_of(self, target_id: str) -> list[PageEnd]:
        return [how for ended, how in self.ended if ended == target_id]

    def ids(self) -> set[str]:
        """Every page of which anything was told."""
        told = (*self.ended, *self.moved)
        return {page.target_id for page in self.opened} | {event[0] for event in told}


class Watched:
    """A browser whose pages are followed, with a site for them to be at."""

    def __init__(self, browser: ChromiumBrowser, told: Told, site: Site) -> None:
        self.browser = browser
        self.told = told
        self.site = site

    async def tab_at(self, path: str = "/") -> tuple[ChromiumTab, str]:
        """A page there, and its context."""
        context_id = await self.browser.new_context()
        tab = await self.browser.new_tab(context_id)
        await load(tab, self.site.url(path))
        return tab, context_id

    async def settle(self) -> set[str]:
        """Returns when everything that has happened so far has been told: events come in order. Which pages it took."""
        tab = await blank_tab(self.browser)
        await run(tab, "window.open(); 0")
        popups = await self.told.until(lambda: [page for page in self.told.opened if page.opener_id == tab.target_id])
        return {tab.target_id, popups[0].target_id}


@asynccontextmanager
async def watching(build: str, profiles: Path) -> AsyncIterator[Watched]:
    # Each site in a renderer of its own, as on a machine with more memory; and frames may open pages unasked.
    flags = (*FLAGS, "--site-per-process", "--disable-popup-blocking")
    async with launched(profiles, browser=build, flags=flags) as browser, serving(PAGES) as site:
        told = Told()
        await browser.watch_pages(told)
        yield Watched(browser, told, site)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def light(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
    async with watching("headless-shell", tmp_path_factory.mktemp("profiles")) as live:
        yield live


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def full(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
    async with watching("chromium", tmp_path_factory.mktemp("profiles")) as live:
        yield live


@pytest_asyncio.fixture(loop_scope="module")
async def watched(light: Watched) -> AsyncIterator[Watched]:
    yield light
    await _forget(light.browser)


@pytest_asyncio.fixture(loop_scope="module", params=BUILDS)
async def either(request: pytest.FixtureRequest, light: Watched, full: Watched) -> AsyncIterator[Watched]:
    """One build after the other, where windows and tabs are not the same in both."""
    chosen = full if request.param == "chromium" else light
    yield chosen
    await _forget(chosen.browser)


async def _forget(browser: ChromiumBrowser) -> None:
    for context_id in await browser.context_ids():
        await browser.dispose_context(context_id)


# --- Opened ---------------------------------------------------------------------------------------------------------


async def test_a_page_that_a_page_opens_is_told_with_its_opener(either: Watched) -> None:
    tab, context_id = await either.tab_at("/ways")
    for count, script in enumerate(WAYS, 1):
        await run(tab, f"{script}; 0")
        opened = await either.told.opened_in(context_id, count)
        assert opened.opener_id == tab.target_id, script


@pytest.mark.parametrize(("button", "modifiers"), [("middle", 0), ("left", 8)], ids=["middle", "shift"])
async def test_a_link_opened_in_a_tab_of_its_own_is_told_by_its_context(
    either: Watched, button: str, modifiers: int
) -> None:
    tab, context_id = await either.tab_at()
    x, y = await run(tab, "(({x, y}) => [x + 2, y + 4])(link.getBoundingClientRect())")
    click = {"x": x, "y": y, "button": button, "modifiers": modifiers, "clickCount": 1}
    for kind in ("mousePressed", "mouseReleased"):
        await tab.call("Input.dispatchMouseEvent", {"type": kind, **click})
    page = await either.told.opened_in(context_id)
    assert page.opener_id == ""


async def test_a_popup_of_a_popup_is_told_with_the_popup_as_its_opener(watched: Watched) -> None:
    tab, context_id = await watched.tab_at()
    await run(tab, "window.open('/opened'); 0")
    popup = await watched.browser.attach_tab((await watched.told.opened_in(context_id)).target_id)
    await run(popup, "window.open('/other'); 0")
    await watched.told.until(lambda: [page for page in watched.told.opened if page.opener_id == popup.target_id])


async def test_pages_that_the_broker_makes_are_not_told_as_opened(watched: Watched) -> None:
    context_id = await watched.browser.new_context()
    made = await asyncio.gather(*(watched.browser.new_tab(context_id) for _ in range(3)))
    own = await watched.browser.new_tab("")
    await watched.settle()
    assert not watched.told.ids() & {tab.target_id for tab in (*made, own)}


async def test_nothing_is_told_of_the_page_that_writes_local_storage(watched: Watched) -> None:
    context_id = await watched.browser.new_context()
    before = watched.told.ids()
    await watched.browser.put_local_storage(context_id, {"https://a.test": {"name": "value"}})
    others = await watched.settle()
    assert watched.told.ids() - before - others == set()


async def test_pages_that_were_there_before_are_followed_but_not_told_as_opened(tmp_path: Path) -> None:
    async with launched(tmp_path, flags=FLAGS) as browser, serving(PAGES) as site:
        tab = await blank_tab(browser)
        await load(tab, site.url())
        told = Told()
        await browser.watch_pages(told)
        await browser.close_tab(tab.target_id)
        await told.until(lambda: told.ended)
        assert (told.opened, told.ended) == ([], [(tab.target_id, PageEnd.CLOSED)])


# --- Ended ----------------------------------------------------------------------------------------------------------


async def test_a_crashed_page_ends_once_even_if_it_is_closed_later(watched: Watched) -> None:
    tab, _ = await watched.tab_at()
    with pytest.raises(TabGone):
        await tab.call("Page.crash")
    await watched.told.until(lambda: watched.told.ends_of(tab.target_id))
    await watched.browser.close_tab(tab.target_id)
    await watched.settle()
    assert watched.told.ends_of(tab.target_id) == [PageEnd.CRASHED]


async def test_every_page_of_a_killed_renderer_has_crashed(watched: Watched) -> None:
    tab, context_id = await watched.tab_at()
    await run(tab, "window.open('/opened'); 0")
    popup = await watched.told.opened_in(context_id)
    for info in (await watched.browser._connection.call("SystemInfo.getProcessInfo"))["processInfo"]:
        if info["type"] == "renderer":
            os.kill(info["id"], signal.SIGKILL)
    for target_id in (tab.target_id, popup.target_id):
        assert await watched.told.until(lambda it=target_id: watched.told.ends_of(it)) == [PageEnd.CRASHED]


@pytest.mark.parametrize("how", ["by itself", "with its context"])
async def test_a_page_that_is_closed_is_told_once(watched: Watched, how: str) -> None:
    tab, context_id = await watched.tab_at()
    if how == "by itself":
        await run(tab, "window.open('/opened'); 0")
        tab = await watched.browser.attach_tab((await watched.told.opened_in(context_id)).target_id)
        tab.post("Runtime.evaluate", {"expression": "window.close()"})
    else:
        await watched.browser.dispose_context(context_id)
    await watched.told.until(lambda: watched.told.ends_of(tab.target_id))
    await watched.settle()
    assert watched.told.ends_of(tab.target_id) == [PageEnd.CLOSED]


async def test_a_page_whose_dialog_nobody_can_answer_is_told_as_crashed_and_is_gone(watched: Watched) -> None:
    tab, _ = await watched.tab_at()
    wait = "const end = Date.now() + 300; while (Date.now() < end);"
    await run(tab, f"void setTimeout(() => {{ location = '/other'; {wait} alert('lost') }})")
    await watched.told.until(lambda: watched.told.ends_of(tab.target_id))
    async with asyncio.timeout(60):
        while tab.target_id in {page.target_id for page in await watched.browser.pages()}:
            await asyncio.sleep(0.01)
    await watched.settle()
    assert watched.told.ends_of(tab.target_id) == [PageEnd.CRASHED]


async def test_a_dismissed_popup_does_not_take_the_page_that_opened_it_along(watched: Watched) -> None:
    tab, context_id = await watched.tab_at()
    await run(tab, "window.popup = open(''); 0")
    popup = await watched.told.opened_in(context_id)
    # Attached, and not yet asked to tell of dialogs: one that opens now is answered by nobody and holds up both.
    await watched.browser._attach(popup.target_id)
    await tab.call("Runtime.addBinding", {"name": "asking"})
    asked = tab.expect("Runtime.bindingCalled")
    tab.listen("Runtime.bindingCalled", lambda _: asked.done() or asked.set_result(None))
    opener = asyncio.create_task(run(tab, "asking(''); popup.alert('open'); 'went on'"))
    await asked
    await watched.browser.dismiss_tab(popup.target_id)
    assert await opener == "went on"
    assert await watched.told.until(lambda: watched.told.ends_of(popup.target_id)) == [PageEnd.CLOSED]


@pytest.mark.parametrize(
    ("build", "how"),
    [("headless-shell", "killed"), ("headless-shell", "stopped"), ("chromium", "stopped with a kept profile")],
)
async def test_pages_that_die_with_their_browser_are_not_told(tmp_path: Path, build: str, how: str) -> None:
    settings = {"profile_dir": str(tmp_path / "kept"), "isolation": "shared"} if "kept" in how else {}
    async with launched(tmp_path / "profiles", browser=build, **settings) as browser:
        told = Told()
        await browser.watch_pages(told)
        await browser.new_tab("")
        if how == "killed":
            os.kill(browser.row.pid, signal.SIGKILL)
            await browser.wait_gone()
        else:
            await browser.stop()
        assert told.ids() == set()


# --- Moved ----------------------------------------------------------------------------------------------------------


async def test_a_page_that_loads_another_document_is_told_with_its_title(watched: Watched) -> None:
    tab, _ = await watched.tab_at("/other")
    await watched.told.until(lambda: (tab.target_id, watched.site.url("/other"), "Other") in watched.told.moved)


@pytest.mark.parametrize(
    ("script", "path"),
    [("location.hash = 'part'", "/#part"), ("history.pushState(0, '', '/pushed')", "/pushed")],
    ids=["fragment", "pushState"],
)
async def test_a_page_that_moves_within_its_document_is_told(watched: Watched, script: str, path: str) -> None:
    tab, _ = await watched.tab_at()
    await run(tab, f"{script}; 0")
    await watched.told.until(lambda: (tab.target_id, watched.site.url(path), "Home") in watched.told.moved)


async def test_a_page_that_did_not_move_is_not_told(watched: Watched) -> None:
    tab, _ = await watched.tab_at()
    await watched.told.until(lambda: (tab.target_id, watched.site.url(), "Home") in watched.told.moved)
    count = sum(event[0] == tab.target_id for event in watched.told.moved)
    # Chromium says that something has changed: that somebody is attached.
    await watched.browser.let_go(tab.target_id)
    await run(await watched.browser.attach_tab(tab.target_id), "location.hash = 'part'")
    await watched.told.until(lambda: (tab.target_id, watched.site.url("/#part"), "Home") in watched.told.moved)
    assert sum(event[0] == tab.target_id for event in watched.told.moved) == count + 1


async def test_a_long_address_is_cut(watched: Watched) -> None:
    tab = await blank_tab(watched.browser)
    await load(tab, f"data:text/html,<title>{'t' * 3000}</title>{'x' * 100_000}")
    await watched.told.until(lambda: any(event[0] == tab.target_id for event in watched.told.moved))
    _, url, title = next(event for event in watched.told.moved if event[0] == tab.target_id)
    assert (len(url), len(title)) == (URL_MAX_BYTES, TITLE_MAX_BYTES)


# --- What Chromium may say ------------------------------------------------------------------------------------------


def info(target_id: str, **facts: object) -> dict[str, Any]:
    return {"targetId": target_id, "type": "page", "url": "", "title": "", "browserContextId": "made", **facts}


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b", "\U0001f600" * 10_000], ids=["NUL", "surrogate", "long"])
async def test_addresses_and_titles_can_be_stored_anywhere(text: str) -> None:
    page = page_of(info("T", url=text, title=text), "own")
    for kept, max_bytes in ((page.url, URL_MAX_BYTES), (page.title, TITLE_MAX_BYTES)):
        assert "\0" not in kept
        assert 0 < len(kept.encode()) <= max_bytes


def a_browser(peer: FakeBrowser, message: dict[str, Any]) -> None:
    """One that has one context and no page, and leaves the making of pages to the test."""
    answers: dict[str, dict[str, Any]] = {
        "Target.getBrowserContexts": {"browserContextIds": ["made"], "defaultBrowserContextId": "own"},
        "Target.getTargets": {"targetInfos": []},
    }
    if message["method"] != "Target.createTarget":
        peer.say({"id": message["id"], "result": answers.get(message["method"], {"sessionId": "S"})})


async def asked_to_create(peer: FakeBrowser) -> int:
    while (message := await peer.received.get())["method"] != "Target.createTarget":
        pass
    return int(message["id"])


async def test_a_page_that_comes_up_while_the_broker_makes_another_is_told_afterwards() -> None:
    async with connected(a_browser) as (connection, peer):
        browser, told = DrivenBrowser(new_row(), connection), Told()
        await browser.watch_pages(told)
        making = asyncio.create_task(browser.new_tab("made"))
        call_id = await asked_to_create(peer)
        peer.emit("Target.targetCreated", targetInfo=info("ours"))
        peer.emit("Target.targetCreated", targetInfo=info("theirs"))
        peer.emit("Target.targetInfoChanged", targetInfo=info("theirs", url="http://a.test/"))
        peer.say({"id": call_id, "result": {"targetId": "ours"}})
        await making
        assert [(page.target_id, page.url) for page in told.opened] == [("theirs", "http://a.test/")]
        assert told.moved == []


async def test_a_page_that_goes_while_the_broker_makes_another_is_never_told() -> None:
    async with connected(a_browser) as (connection, peer):
        browser, told = DrivenBrowser(new_row(), connection), Told()
        await browser.watch_pages(told)
        making = asyncio.create_task(browser.new_tab("made"))
        call_id = await asked_to_create(peer)
        peer.emit("Target.targetCreated", targetInfo=info("theirs"))
        peer.emit("Target.targetDestroyed", targetId="theirs")
        peer.say({"id": call_id, "result": {"targetId": "ours"}})
        await making
        assert told.ids() == set()


async def test_a_page_that_is_only_being_prepared_is_not_told() -> None:
    async with connected(a_browser) as (connection, peer):
        browser, told = DrivenBrowser(new_row(), connection), Told()
        await browser.watch_pages(told)
        peer.emit("Target.targetCreated", targetInfo=info("T", openerId="O", subtype="prerender"))
        peer.emit("Target.targetCreated", targetInfo=info("U", openerId="O"))
        await told.until(lambda: told.opened)
        assert [page.target_id for page in told.opened] == ["U"]


async def test_a_title_with_half_a_surrogate_pair_is_told() -> None:
    async with connected(a_browser) as (connection, peer):
        browser, told = DrivenBrowser(new_row(), connection), Told()
        await browser.watch_pages(told)
        peer.emit("Target.targetCreated", targetInfo=info("T", openerId="O"))
        changed = (
            b'{"method":"Target.targetInfoChanged","params":{"targetInfo":{"targetId":"T","type":"page","url":"u",'
        )
        peer.say_raw(changed + b'"title":"a\\ud800b","browserContextId":"made"}}}')
        assert await told.until(lambda: told.moved) == [("T", "u", "a\ufffdb")]


# --- Windows --------------------------------------------------------------------------------------------------------


async def test_a_window_begins_where_all_do_and_not_where_the_last_one_was_left(either: Watched) -> None:
    place = "[outerWidth, outerHeight, innerWidth, innerHeight, screenX, screenY]"
    first = await blank_tab(either.browser)
    began = await run(first, place)
    window = await first.call("Browser.getWindowForTarget", {})
    bounds = {"width": 640, "height": 480, "left": 30, "top": 40}
    await first.call("Browser.setWindowBounds", {"windowId": window["windowId"], "bounds": bounds})
    await run(first, "window.open('', '', 'width=300,height=200,left=99'); 0")
    assert await run(await blank_tab(either.browser), place) == began
