"""Downloads of real pages: each context's files go where it was told, and nobody else hears of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tabherd.browsers.cdp import CdpConnection
from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab

from .file_site import HELD_BYTES, HELD_FIRST_BYTES, FileSite, serving_files
from .real import launched
from .site import BUILDS, run

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

# Long enough for a machine at work; a test that waits this long fails.
LIMIT_S = 60.0


class Heard:
    """What a session would hear of its downloads."""

    def __init__(self) -> None:
        # By guid: the address and the suggested name.
        self.began: dict[str, tuple[str, str]] = {}
        # By guid: the latest of received and total.
        self.moved: dict[str, tuple[int, int]] = {}
        # By guid: the size and whether it is whole.
        self.ended: dict[str, tuple[int, bool]] = {}
        self._news = asyncio.Event()

    def download_began(self, guid: str, url: str, suggested_name: str) -> None:
        assert guid not in self.began
        self.began[guid] = (url, suggested_name)
        self._news.set()

    def download_moved(self, guid: str, received_bytes: int, total_bytes: int) -> None:
        assert guid in self.began
        assert guid not in self.ended
        self.moved[guid] = (received_bytes, total_bytes)
        self._news.set()

    def download_ended(self, guid: str, size_bytes: int, *, is_complete: bool) -> None:
        assert guid in self.began
        assert guid not in self.ended
        self.ended[guid] = (size_bytes, is_complete)
        self._news.set()

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.began.values()]

    async def until(self, count: int) -> None:
        """Until so many have ended."""
        await self._until(lambda: len(self.ended) >= count)

    async def until_received(self, received_bytes: int) -> str:
        """Until one has got that far; which."""
        await self._until(lambda: any(moved[0] >= received_bytes for moved in self.moved.values()))
        return next(guid for guid, moved in self.moved.items() if moved[0] >= received_bytes)

    async def _until(self, is_so: object) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not is_so():  # type: ignore[operator]
                self._news.clear()
                await self._news.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def light(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ChromiumBrowser]:
    async with launched(tmp_path_factory.mktemp("profiles"), browser="headless-shell") as live:
        await live.watch_pages(Unheard())
        yield live


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def full(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ChromiumBrowser]:
    async with launched(tmp_path_factory.mktemp("profiles"), browser="chromium") as live:
        await live.watch_pages(Unheard())
        yield live


@pytest.fixture
def browser(light: ChromiumBrowser) -> ChromiumBrowser:
    return light


@pytest.fixture(params=BUILDS)
def either(request: pytest.FixtureRequest, light: ChromiumBrowser, full: ChromiumBrowser) -> ChromiumBrowser:
    """One build after the other: saving files is part of the full one's user interface."""
    return full if request.param == "chromium" else light


class Unheard:
    """Nobody here is interested in pages."""

    def page_opened(self, page: object) -> None: ...

    def page_ended(self, target_id: str, how: object) -> None: ...

    def page_moved(self, target_id: str, url: str, title: str) -> None: ...


@pytest.fixture(scope="module")
def site() -> Iterator[FileSite]:
    with serving_files() as site:
        yield site


@pytest.fixture(autouse=True)
def _held_again(site: FileSite) -> None:
    site.finish.clear()


class Visitor:
    """A context that may save files, with one page."""

    def __init__(self, browser: ChromiumBrowser, context_id: str, tab: ChromiumTab, directory: Path) -> None:
        self.browser = browser
        self.context_id = context_id
        self.tab = tab
        self.directory = directory
        self.heard = Heard()

    @classmethod
    async def come(cls, browser: ChromiumBrowser, directory: Path) -> Visitor:
        context_id = await browser.new_context()
        visitor = cls(browser, context_id, await browser.new_tab(context_id), directory)
        browser.allow_downloads(context_id, str(directory), visitor.heard)
        return visitor

    async def go(self, url: str) -> None:
        await self.tab.call("Page.navigate", {"url": url})

    @property
    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.directory.iterdir()} if self.directory.exists() else {}


async def leave(client: CdpConnection, browser: ChromiumBrowser) -> None:
    """Close the connection, and return when Chromium has noticed: what it made goes with it."""
    made = (await client.call("Target.createBrowserContext", {"disposeOnDetach": True}))["browserContextId"]
    await client.close()
    async with asyncio.timeout(LIMIT_S):
        while made in await browser.context_ids():
            await asyncio.sleep(0)


async def test_a_file_that_a_page_saves_is_in_its_directory_and_told_from_begin_to_end(
    either: ChromiumBrowser, site: FileSite, tmp_path: Path
) -> None:
    visitor = await Visitor.come(either, tmp_path / "not" / "made" / "yet")
    await visitor.go(site.url("/file?name=bill.pdf&body=12345"))
    await visitor.heard.until(1)
    ((guid, began),) = visitor.heard.began.items()
    assert began == (site.url("/file?name=bill.pdf&body=12345"), "bill.pdf")
    assert visitor.heard.ended == {guid: (5, True)}
    assert visitor.files == {guid: b"12345"}


async def test_sessions_that_save_at_once_hear_and_get_their_own_only(
    browser: ChromiumBrowser, site: FileSite, tmp_path: Path
) -> None:
    visitors = [await Visitor.come(browser, tmp_path / str(n)) for n in range(3)]
    await asyncio.gather(*(v.go(site.url(f"/file?name=n{n}.txt&body=body{n}")) for n, v in enumerate(visitors)))
    for n, visitor in enumerate(visitors):
        await visitor.heard.until(1)
        assert visitor.heard.names == [f"n{n}.txt"]
        assert list(visitor.files.values()) == [f"body{n}".encode()]


async def test_a_file_that_an_embedded_frame_saves_belongs_to_the_session_of_its_page(
    browser: ChromiumBrowser, site: FileSite, tmp_path: Path
) -> None:
    visitor, other = [await Visitor.come(browser, tmp_path / name) for name in ("mine", "other")]
    await visitor.go(site.url("/frame"))
    await visitor.heard.until(1)
    assert (visitor.heard.names, other.heard.names) == (["from-frame.txt"], [])


async def test_a_file_that_a_window_of_the_page_saves_belongs_to_the_same_session(
    either: ChromiumBrowser, site: FileSite, tmp_path: Path
) -> None:
    visitor = await Visitor.come(either, tmp_path)
    await visitor.go(site.url())
    await run(visitor.tab, f"window.open('{site.url('/file?name=popup.txt')}'); 1")
    await visitor.heard.until(1)
    assert visitor.heard.names == ["popup.txt"]


async def test_what_a_script_makes_up_is_saved_like_any_file(browser: ChromiumBrowser, tmp_path: Path) -> None:
    visitor = await Visitor.come(browser, tmp_path)
    await run(
        visitor.tab,
        "{ const a = document.createElement('a'); a.download = 'made.csv'; "
        "a.href = URL.createObjectURL(new Blob(['a,b'])); a.click(); }",
    )
    await visitor.heard.until(1)
    assert visitor.heard.names == ["made.csv"]
    assert list(visitor.files.values()) == [b"a,b"]


async def test_a_context_that_was_not_told_where_saves_nothing_and_the_others_still_hear(
    browser: ChromiumBrowser, site: FileSite, tmp_path: Path
) -> None:
    visitor = await Visitor.come(browser, tmp_path)
    # Making it says to the whole connection that it may not save.
    fresh = await browser.new_context()
    page = await browser.new_tab(fresh)
    begun = asyncio.get_running_loop().create_future()
    stop = browser._connection.listen(
        None, "Browser.downloadProgress", lambda event: event["state"] == "canceled" and begun.set_result(event)
    )
    await page.call("Page.navigate", {"url": site.url("/file?name=refused.txt")})
    async with asyncio.timeout(LIMIT_S):
        await begun
    stop()
    await visitor.go(site.url("/file?name=mine.txt"))
    await visitor.heard.until(1)
    assert visitor.heard.names == ["mine.txt"]
    assert len(visitor.files) == 1


async def test_a_download_that_is_cancelled_half_way_ends_and_leaves_nothing(
    either: ChromiumBrowser, site: FileSite, tmp_path: Path
) -> None:
    visitor = await Visitor.come(either, tmp_path)
    await visitor.go(site.url("/held"))
    guid = await visitor.heard.until_received(HELD_FIRST_BYTES // 2)
    assert visitor.heard.moved[guid][1] == HELD_BYTES
    either.cancel_download(guid)
    await visitor.heard.until(1)
    assert visitor.heard.ended[guid][1] is False
    # Chromium tells of the end before it has removed what had come.
    async with asyncio.timeout(LIMIT_S):
        while any(tmp_path.iterdir()):
            await asyncio.sleep(0.01)


async def test_forbidden_again_a_context_saves_nothing_more(
    browser: ChromiumBrowser, site: FileSite, tmp_path: Path
) -> None:
    visitor, other = [await Visitor.come(browser, tmp_path / name) for name in ("mine", "other")]
    await browser.forbid_downloads(visitor.context_id)
    await visitor.go(site.url("/file?name=refused.txt"))
    # Both pass the same way through the browser, one after the other.
    await other.go(site.url("/file?name=other.txt"))
    await other.heard.until(1)
    assert (visitor.heard.names, visitor.files) == ([], {})


async def test_forbidding_returns_when_what_was_on_its_way_has_ended(
    browser: ChromiumBrowser, site: FileSite, tmp_path: Path
) -> None:
    visitor = await Visitor.come(browser, tmp_path)
    await visitor.go(site.url("/held"))
    guid = await visitor.heard.until_received(HELD_FIRST_BYTES // 2)
    await browser.forbid_downloads(visitor.context_id)
    assert visitor.heard.ended[guid][1] is False


async def test_said_again_where_files_go_outlives_a_client_that_had_said_otherwise(
    browser: ChromiumBrowser, site: FileSite, tmp_path: Path
) -> None:
    visitor = await Visitor.come(browser, tmp_path / "mine")
    client = await CdpConnection.connect(browser.row.endpoint)
    await client.call(
        "Browser.setDownloadBehavior",
        {
            "behavior": "allowAndName",
            "browserContextId": visitor.context_id,
            "downloadPath": str(tmp_path / "client"),
            "eventsEnabled": True,
        },
    )
    browser.allow_downloads(visitor.context_id, str(visitor.directory), visitor.heard)
    await browser.probe()
    await leave(client, browser)
    await visitor.go(site.url("/file?name=again.txt"))
    await visitor.heard.until(1)
    assert list(visitor.files.values()) == [b"hello"]


async def test_a_client_that_leaves_takes_its_setting_along(
    browser: ChromiumBrowser, site: FileSite, tmp_path: Path
) -> None:
    """Why it has to be said again: if this fails, `Files.allow_downloads` is no longer needed."""
    visitor = await Visitor.come(browser, tmp_path / "mine")
    client = await CdpConnection.connect(browser.row.endpoint)
    where = {"browserContextId": visitor.context_id, "downloadPath": str(tmp_path / "client")}
    await client.call("Browser.setDownloadBehavior", {"behavior": "allowAndName", **where})
    await leave(client, browser)
    await visitor.go(site.url("/file"))
    await visitor.heard.until(1)
    assert [is_complete for _, is_complete in visitor.heard.ended.values()] == [False]
