"""Cookies and localStorage out of one context and into another, on real Chromiums."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tabherd.browsers import storage
from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab, DrivenBrowser
from tabherd.browsers.port import BrowserGone, CdpFailure, TabGone

from .fake_cdp import FakeBrowser, connected
from .real import launched, new_row
from .site import FLAGS, Site, load, run, serving

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

PAGES = {
    # Answers each page with how many it has been asked for.
    "/worker.js": """
        let asked = 0;
        onfetch = event => {
            if (event.request.mode === 'navigate') event.respondWith(new Response(++asked));
        };
    """,
    # Whatever a script could call to read or write, made useless.
    "/hostile": """<script>
        localStorage.setItem('name', 'value');
        Storage.prototype.getItem = Storage.prototype.key = () => { throw 0 };
        Object.defineProperty(window, 'localStorage', {get() { throw 0 }});
        JSON.stringify = Array.prototype.push = String.prototype.isWellFormed = () => { throw 0 };
    </script>""",
}
COOKIE: dict[str, Any] = {
    "name": "n",
    "value": "v",
    "domain": "a.test",
    "path": "/",
    "expires": -1,
    "httpOnly": False,
    "secure": False,
    "sameSite": "Lax",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ChromiumBrowser]:
    async with launched(tmp_path_factory.mktemp("profiles"), browser="headless-shell", flags=FLAGS) as live:
        yield live


@pytest_asyncio.fixture(loop_scope="module")
async def browser(shared: ChromiumBrowser) -> AsyncIterator[ChromiumBrowser]:
    yield shared
    for context_id in await shared.context_ids():
        await shared.dispose_context(context_id)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is slow only because the machine is busy must not be taken for one that does not answer."""
    monkeypatch.setattr(storage, "READ_LIMIT_S", 60)
    monkeypatch.setattr(storage, "WRITE_LIMIT_S", 60)


@pytest_asyncio.fixture(loop_scope="module")
async def site() -> AsyncIterator[Site]:
    async with serving(PAGES) as live:
        yield live


async def tab_in(browser: ChromiumBrowser) -> tuple[ChromiumTab, str]:
    context_id = await browser.new_context()
    return await browser.new_tab(context_id), context_id


# --- Cookies --------------------------------------------------------------------------------------------------------

# As a server sets them. The second needs a secure origin, which for cookies localhost is.
SET = {
    "a.test": [
        "session=v",
        "domain=v; Domain=a.test",
        "lasting=v; Max-Age=3600",
        "hidden=v; HttpOnly",
        "strict=v; SameSite=Strict",
        "lax=v; SameSite=Lax",
        "path=v; Path=/here",
        "odd=\"v w'",
        "=no name",
        "no value=",
    ],
    "localhost": [
        "secure=v; Secure",
        "none=v; SameSite=None; Secure",
        "__Host-prefix=v; Secure; Path=/",
        "__Secure-prefix=v; Secure",
        "partitioned=v; SameSite=None; Secure; Partitioned",
    ],
}


@pytest.mark.parametrize("host", SET)
async def test_cookies_come_back_to_their_server_from_another_context(
    browser: ChromiumBrowser, site: Site, host: str
) -> None:
    site.set_cookies = SET[host]
    first, first_id = await tab_in(browser)
    await load(first, site.url("/set", host))
    site.set_cookies = []
    taken = await browser.cookies(first_id)
    assert len(taken) == len(SET[host])
    second, second_id = await tab_in(browser)
    await browser.set_cookies(second_id, taken)
    for path, where in (("/here", host), ("/there", host), ("/sub", f"sub.{host}")):
        await load(first, site.url(path, where))
        expected = site.cookies[path]
        await load(second, site.url(path, where))
        assert sorted(site.cookies[path].split("; ")) == sorted(expected.split("; "))
    assert by_name(await browser.cookies(second_id)) == by_name(taken)


def by_name(cookies: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {cookie["name"]: cookie for cookie in cookies}


async def test_cookies_are_spelled_as_playwright_spells_them(browser: ChromiumBrowser, site: Site) -> None:
    tab, context_id = await tab_in(browser)
    site.set_cookies = ["n=v; SameSite=None; Secure; Partitioned; Path=/"]
    await load(tab, site.url("/", "localhost"))
    partition = {"partitionKey": "http://localhost", "_crHasCrossSiteAncestor": False}
    expected = {**COOKIE, "domain": "localhost", "secure": True, "sameSite": "None", **partition}
    assert await browser.cookies(context_id) == [expected]


async def test_cookies_of_the_browsers_own_profile_are_those_of_no_context(browser: ChromiumBrowser) -> None:
    context_id = await browser.new_context()
    await browser.set_cookies("", [COOKIE])
    assert await browser.cookies("") == [COOKIE]
    assert await browser.cookies(context_id) == []
    await browser._connection.call("Storage.clearCookies")


async def test_cookies_are_read_while_a_page_of_theirs_spins(browser: ChromiumBrowser, site: Site) -> None:
    tab, context_id = await tab_in(browser)
    await load(tab, site.url())
    await browser.set_cookies(context_id, [COOKIE])
    tab.post("Runtime.evaluate", {"expression": "for (;;);"})
    async with asyncio.timeout(60):
        assert await browser.cookies(context_id) == [COOKIE]


async def test_a_cookie_that_has_expired_is_not_set_and_takes_nothing_away(browser: ChromiumBrowser) -> None:
    context_id = await browser.new_context()
    await browser.set_cookies(context_id, [COOKIE])
    await browser.set_cookies(context_id, [{**COOKIE, "value": "old", "expires": time.time() - 1}])
    assert await browser.cookies(context_id) == [COOKIE]


@pytest.mark.parametrize(
    "invalid",
    [{"value": "a;b"}, {"name": "__Host-bad", "secure": True, "domain": ".a.test"}, {"sameSite": "None"}],
    ids=["separator", "prefix", "none but not secure"],
)
async def test_a_refused_cookie_is_named_without_its_value_and_the_others_are_set(
    browser: ChromiumBrowser, invalid: dict[str, Any]
) -> None:
    context_id = await browser.new_context()
    bad = {**COOKIE, "name": "bad", "value": "secret", **invalid}
    with pytest.raises(CdpFailure, match=bad["name"]) as refused:
        await browser.set_cookies(context_id, [bad, COOKIE])
    assert bad["value"] not in str(refused.value)
    assert await browser.cookies(context_id) == [COOKIE]


async def test_a_cookie_of_an_opaque_partition_is_left_out() -> None:
    opaque = {**COOKIE, "partitionKeyOpaque": True}

    def answer(peer: FakeBrowser, message: dict[str, Any]) -> None:
        peer.say({"id": message["id"], "result": {"cookies": [opaque, {**COOKIE, "expires": None}]}})

    async with connected(answer) as (connection, _):
        assert await storage.read_cookies(connection, "C") == [COOKIE]


# --- localStorage, out ----------------------------------------------------------------------------------------------


async def test_local_storage_is_read_with_its_origin(browser: ChromiumBrowser, site: Site) -> None:
    tab, _ = await tab_in(browser)
    await load(tab, site.url())
    assert await browser.local_storage(tab.target_id) == (site.url(""), {})
    await run(tab, "localStorage.setItem('length', '1'); localStorage.setItem('', '\\0 é 😀'); 0")
    assert await browser.local_storage(tab.target_id) == (site.url(""), {"length": "1", "": "\0 é 😀"})


async def test_no_script_of_the_page_can_interfere_with_reading(browser: ChromiumBrowser, site: Site) -> None:
    tab, _ = await tab_in(browser)
    await load(tab, site.url("/hostile"))
    assert await browser.local_storage(tab.target_id) == (site.url(""), {"name": "value"})


async def test_an_item_that_is_no_text_is_left_out(browser: ChromiumBrowser, site: Site) -> None:
    tab, _ = await tab_in(browser)
    await load(tab, site.url())
    await run(tab, "localStorage.setItem('half', '\\ud800'); localStorage.setItem('whole', '\\ufffd'); 0")
    assert await browser.local_storage(tab.target_id) == (site.url(""), {"whole": "\ufffd"})


async def test_more_than_the_limit_is_not_read(browser: ChromiumBrowser, site: Site) -> None:
    tab, _ = await tab_in(browser)
    await load(tab, site.url())
    await run(tab, f"localStorage.setItem('n', 'é'.repeat({(1 << 19) - 1})); 0")
    assert await browser.local_storage(tab.target_id) is not None
    await run(tab, "localStorage.setItem('n', 'é'.repeat(1 << 19)); 0")
    assert await browser.local_storage(tab.target_id) is None


async def test_what_is_too_large_does_not_even_leave_the_page(
    browser: ChromiumBrowser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab, _ = await tab_in(browser)
    await load(tab, site.url())
    await run(tab, "localStorage.setItem('n', 'x'.repeat(1 << 20)); 0")
    answers, call = [], type(browser._connection).call

    async def keep(*arguments: Any) -> dict[str, Any]:
        answers.append(await call(*arguments))
        return answers[-1]

    monkeypatch.setattr(type(browser._connection), "call", keep)
    assert await browser.local_storage(tab.target_id) is None
    assert answers[-1]["result"] == {"type": "object", "subtype": "null", "value": None}


async def test_a_document_without_storage_has_none(browser: ChromiumBrowser) -> None:
    tab, _ = await tab_in(browser)
    await load(tab, "about:blank")
    assert await browser.local_storage(tab.target_id) is None


async def test_a_page_that_spins_is_not_waited_for(
    browser: ChromiumBrowser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "READ_LIMIT_S", 0.05)
    tab, _ = await tab_in(browser)
    await load(tab, site.url())
    tab.post("Runtime.evaluate", {"expression": "for (;;);"})
    async with asyncio.timeout(60):
        assert await browser.local_storage(tab.target_id) is None
    assert browser._connection.calls_waiting == 0


async def test_a_crashed_page_has_no_storage(browser: ChromiumBrowser, site: Site) -> None:
    tab, _ = await tab_in(browser)
    await load(tab, site.url())
    with pytest.raises(TabGone):
        await tab.call("Page.crash")
    assert await browser.local_storage(tab.target_id) is None


async def test_a_page_that_is_not_attached_has_no_storage(browser: ChromiumBrowser) -> None:
    assert await browser.local_storage("0" * 32) is None


# --- localStorage, in -----------------------------------------------------------------------------------------------

AWKWARD = {
    "": "empty name",
    "__proto__": "no name like any other",
    "length": "1",
    "quotes": "'\"`${x}\\",
    "lines": "a\r\nb\u2028c\u2029d\0",
    "unicode": "é 中 😀 \ufffd",
    "</script>": "<!--",
}


async def test_what_is_put_in_is_read_by_a_page_of_that_origin(browser: ChromiumBrowser, site: Site) -> None:
    context_id = await browser.new_context()
    await browser.put_local_storage(context_id, {site.url(""): AWKWARD})
    tab = await browser.new_tab(context_id)
    await load(tab, site.url())
    assert await browser.local_storage(tab.target_id) == (site.url(""), AWKWARD)


async def test_an_origin_that_is_not_there_can_be_written(tmp_path: Path) -> None:
    # In the first, the full build would rather have https.
    origins = ("http://shop.example.com", "https://shop.example:8443")
    async with launched(tmp_path, browser="chromium") as browser:
        context_id = await browser.new_context()
        await browser.put_local_storage(context_id, {origin: {"name": "value"} for origin in origins})
        tab = await browser.new_tab(context_id)
        for origin in origins:
            # A page of that origin, which nobody serves.
            await storage.write_local_storage(tab, {origin: {"other": "value"}})
            assert await browser.local_storage(tab.target_id) == (origin, {"name": "value", "other": "value"})


async def test_nobody_is_connected_to(browser: ChromiumBrowser, site: Site) -> None:
    origins = [site.url("", host) for host in ("a.test", "localhost")]
    origins += [origin.replace("http:", "https:") for origin in origins]
    context_id = await browser.new_context()
    await browser.put_local_storage(context_id, {origin: {"name": "value"} for origin in origins})
    assert site.connections == 0


async def test_origins_do_not_mix_and_other_contexts_have_nothing(browser: ChromiumBrowser, site: Site) -> None:
    context_id, other_id = await browser.new_context(), await browser.new_context()
    hosts = [f"h{number}.test" for number in range(2)]
    await browser.put_local_storage(context_id, {site.url("", host): {"at": host} for host in hosts})
    tab, other = await browser.new_tab(context_id), await browser.new_tab(other_id)
    for host in hosts:
        await load(tab, site.url("/", host))
        assert await browser.local_storage(tab.target_id) == (site.url("", host), {"at": host})
    await load(other, site.url("/", hosts[0]))
    assert await browser.local_storage(other.target_id) == (site.url("", hosts[0]), {})


async def test_an_origin_that_is_not_of_the_web_is_skipped(browser: ChromiumBrowser) -> None:
    context_id = await browser.new_context()
    pages = await browser.pages()
    await browser.put_local_storage(context_id, {"null": {"a": "b"}, "file://": {"a": "b"}, "chrome://x": {"a": "b"}})
    assert await browser.pages() == pages


async def test_a_worker_of_the_origin_is_not_asked(browser: ChromiumBrowser, site: Site) -> None:
    tab, context_id = await tab_in(browser)
    await load(tab, site.url("/", "localhost"))
    ready = "navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready).then(() => 1)"
    await tab.call("Runtime.evaluate", {"expression": ready, "awaitPromise": True})
    await load(tab, "about:blank")
    await browser.put_local_storage(context_id, {site.url("", "localhost"): {"name": "value"}})
    await load(tab, site.url("/", "localhost"))
    assert await run(tab, "document.body.textContent") == "1"


@pytest.mark.parametrize(
    ("origin", "value"), [("http://not an origin", "v"), ("http://big.test", "x" * (6 << 20))], ids=["origin", "quota"]
)
async def test_a_refused_origin_is_named_and_the_others_are_written(
    browser: ChromiumBrowser, site: Site, origin: str, value: str
) -> None:
    context_id = await browser.new_context()
    with pytest.raises(CdpFailure, match=origin):
        await browser.put_local_storage(context_id, {origin: {"n": value}, site.url(""): {"name": "value"}})
    tab = await browser.new_tab(context_id)
    await load(tab, site.url())
    assert await browser.local_storage(tab.target_id) == (site.url(""), {"name": "value"})


@pytest.mark.parametrize("how", ["written", "refused"])
async def test_the_page_that_writes_is_gone_afterwards(browser: ChromiumBrowser, how: str) -> None:
    context_id = await browser.new_context()
    try:
        origin = "http://a.test" if how == "written" else "http://not an origin"
        await browser.put_local_storage(context_id, {origin: {"name": "value"}})
    except CdpFailure:
        assert how == "refused"
    assert [page for page in await browser.pages() if page.context_id == context_id] == []


@pytest.mark.parametrize("method", ["Target.createTarget", "Fetch.enable", "Runtime.evaluate"])
async def test_a_writer_that_is_cancelled_leaves_no_page(
    browser: ChromiumBrowser, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    context_id = await browser.new_context()
    reached, call = asyncio.Event(), type(browser._connection).call

    async def tell(connection: Any, called: str, *arguments: Any) -> dict[str, Any]:
        if called == method:
            reached.set()
        return await call(connection, called, *arguments)

    monkeypatch.setattr(type(browser._connection), "call", tell)
    writing = asyncio.create_task(browser.put_local_storage(context_id, {"http://a.test": {"name": "value"}}))
    await reached.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    async with asyncio.timeout(60):
        while any(page.context_id == context_id for page in await browser.pages()):
            pass


async def test_a_browser_that_dies_while_storage_is_written_is_told_at_once() -> None:
    def answer(peer: FakeBrowser, message: dict[str, Any]) -> None:
        if message["method"] == "Page.navigate":
            peer.hang_up()
        else:
            peer.say({"id": message["id"], "result": {"targetId": "T", "sessionId": "S"}})

    async with connected(answer) as (connection, _):
        with pytest.raises(BrowserGone):
            await DrivenBrowser(new_row(), connection).put_local_storage("C", {"http://a.test": {"name": "value"}})


async def test_a_page_that_cannot_be_written_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "WRITE_LIMIT_S", 0.01)

    def answer(peer: FakeBrowser, message: dict[str, Any]) -> None:
        if message["method"] != "Page.navigate":
            peer.say({"id": message["id"], "result": {"sessionId": "S"}})

    async with connected(answer) as (connection, _):
        with pytest.raises(CdpFailure, match=r"http://a\.test \(it took too long\)"):
            await storage.write_local_storage(connection.session("S"), {"http://a.test": {"name": "value"}})


async def test_two_writers_do_not_disturb_each_other(browser: ChromiumBrowser) -> None:
    contexts = [await browser.new_context() for _ in range(3)]
    origin = "https://a.example"
    await asyncio.gather(*(browser.put_local_storage(context, {origin: {"at": context}}) for context in contexts))
    for context_id in contexts:
        tab = await browser.new_tab(context_id)
        await storage.write_local_storage(tab, {origin: {"more": ""}})
        assert await browser.local_storage(tab.target_id) == (origin, {"at": context_id, "more": ""})
