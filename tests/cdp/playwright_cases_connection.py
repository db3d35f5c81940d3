"""Playwright cases: the connection itself, raw protocol sessions, leaving and coming back."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Error

from .client import Client, alone


async def the_browser_says_what_it_is(client: Client) -> None:
    assert client.browser.is_connected()
    assert client.browser.version.split(".")[0].isdigit()
    assert client.browser.browser_type.name == "chromium"


async def a_raw_session_of_a_page_calls_and_hears(client: Client) -> None:
    page = await client.page("empty")
    session = await client.context.new_cdp_session(page)
    heard: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()
    session.once("Network.requestWillBeSent", lambda event: heard.set_result(event))
    await session.send("Network.enable")
    await page.evaluate("fetch('api/x').then(r => r.text())")
    assert (await heard)["documentURL"] == client.url("empty")
    ran = await session.send("Runtime.evaluate", {"expression": "document.title"})
    assert ran["result"]["value"] == f"{client.mark} empty"
    await session.detach()
    with pytest.raises(Error):
        await session.send("Runtime.evaluate", {"expression": "1"})


async def a_raw_session_of_the_browser_lists_only_own_targets(client: Client) -> None:
    await client.page("empty")
    session = await client.browser.new_browser_cdp_session()
    assert "Chrom" in (await session.send("Browser.getVersion"))["product"]
    pages = [t for t in (await session.send("Target.getTargets"))["targetInfos"] if t["type"] == "page"]
    assert client.url("empty") in [target["url"] for target in pages]
    assert {target["url"] for target in pages} <= {client.url("empty"), "about:blank", "chrome://newtab/"}
    await session.detach()


async def a_raw_session_of_the_browser_hears_of_new_targets(client: Client) -> None:
    session = await client.browser.new_browser_cdp_session()
    urls: list[str] = []
    heard = asyncio.Event()

    def note(event: dict[str, dict[str, str]]) -> None:
        urls.append(event["targetInfo"]["url"])
        if client.url("form") in urls:
            heard.set()

    session.on("Target.targetCreated", note)
    session.on("Target.targetInfoChanged", note)
    await session.send("Target.setDiscoverTargets", {"discover": True})
    await client.page("form")
    await heard.wait()
    client.heard += urls


async def a_raw_session_measures_coverage_and_performance(client: Client) -> None:
    page = await client.page("form")
    session = await client.context.new_cdp_session(page)
    await session.send("Performance.enable")
    metrics = {metric["name"] for metric in (await session.send("Performance.getMetrics"))["metrics"]}
    assert "JSHeapUsedSize" in metrics
    await session.send("Profiler.enable")
    await session.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": True})
    await page.reload()
    covered = (await session.send("Profiler.takePreciseCoverage"))["result"]
    assert client.url("form") in [script["url"] for script in covered]


async def an_unknown_method_is_an_error_and_no_more(client: Client) -> None:
    page = await client.page("empty")
    session = await client.context.new_cdp_session(page)
    with pytest.raises(Error):
        await session.send("Page.doesNotExist")
    assert await page.title() == f"{client.mark} empty"


@alone
async def closing_the_browser_ends_this_client_only(client: Client) -> None:
    page = await client.page("empty")
    gone = asyncio.Event()
    client.browser.on("disconnected", lambda _: gone.set())
    await client.browser.close()
    await gone.wait()
    assert not client.browser.is_connected()
    with pytest.raises(Error):
        await page.title()
    again = await client.connect_again()
    await again.close()


async def a_second_connection_works_beside_the_first(client: Client) -> None:
    page = await client.page("empty")
    other = await client.connect_again()
    second = await other.contexts[0].new_page()
    await second.goto(client.url("form"))
    assert await second.title() == f"{client.mark} form"
    assert await page.title() == f"{client.mark} empty"
    await other.close()
    assert await page.evaluate("1 + 1") == 2


async def many_calls_at_once_each_get_their_own_answer(client: Client) -> None:
    page = await client.page("empty")
    answers = await asyncio.gather(*(page.evaluate("n => n * 2", number) for number in range(200)))
    assert answers == [number * 2 for number in range(200)]
