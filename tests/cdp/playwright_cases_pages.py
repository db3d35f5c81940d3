"""Playwright cases: pages, popups, contexts and navigation."""

from __future__ import annotations

import asyncio
import socket

import pytest
from playwright.async_api import Error, Page

from .client import Client, repeating


@repeating
async def a_page_has_the_title_of_what_it_loads(client: Client) -> None:
    page = await client.page("empty")
    assert await page.title() == f"{client.mark} empty"
    assert page in client.context.pages


async def many_pages_live_side_by_side(client: Client) -> None:
    pages = await asyncio.gather(*(client.page(f"empty?{number}") for number in range(8)))
    assert [await page.evaluate("location.search") for page in pages] == [f"?{number}" for number in range(8)]
    assert set(pages) <= set(client.context.pages)
    await asyncio.gather(*(page.close() for page in pages))
    assert not set(pages) & set(client.context.pages)


async def contexts_of_one_client_share_no_cookies(client: Client) -> None:
    first, second = await client.new_context(), await client.new_context()
    await client.page("empty", first)
    assert [cookie["value"] for cookie in await first.cookies()] == [client.mark]
    assert await second.cookies() == []
    assert {first, second, client.context} == set(client.browser.contexts)


async def closing_a_context_closes_its_pages_and_no_others(client: Client) -> None:
    kept, context = await client.page("empty"), await client.new_context()
    page = await client.page("empty", context)
    await context.close()
    assert page.is_closed()
    assert await kept.title() == f"{client.mark} empty"


async def a_popup_is_reported_with_its_opener(client: Client) -> None:
    page = await client.page("opener")
    async with page.expect_popup() as waiting:
        await page.click("#open")
    popup = await waiting.value
    await popup.wait_for_load_state()
    assert await popup.title() == f"{client.mark} opened"
    assert await popup.opener() is page


@repeating
async def a_popup_of_another_site_is_reported(client: Client) -> None:
    page = await client.page("opener")
    async with page.expect_popup() as waiting:
        await page.click("#far")
    popup = await waiting.value
    await popup.wait_for_load_state()
    assert popup.url == client.url("opened", "b.test")


async def a_link_without_opener_makes_a_page(client: Client) -> None:
    page = await client.page("opener")
    async with client.context.expect_page() as waiting:
        await page.click("#noopener")
    opened = await waiting.value
    await opened.wait_for_load_state()
    assert await opened.title() == f"{client.mark} opened"
    assert await opened.evaluate("window.opener") is None


async def a_blank_popup_can_be_written_to(client: Client) -> None:
    page = await client.page("opener")
    async with page.expect_popup() as waiting:
        await page.click("#blank")
    assert await (await waiting.value).title() == f"{client.mark} written"


async def init_scripts_run_before_the_scripts_of_popups(client: Client) -> None:
    context = await client.new_context()
    await context.add_init_script(f"window.planted = '{client.mark}'")
    page = await client.page("opener", context)
    for button in ("#open", "#far"):
        async with page.expect_popup() as waiting:
            await page.click(button)
        popup = await waiting.value
        await popup.wait_for_load_state()
        assert await popup.evaluate("first") == client.mark, button


@repeating
async def init_scripts_run_before_the_scripts_of_windows_without_opener(client: Client) -> None:
    context = await client.new_context()
    await context.add_init_script(f"window.planted = '{client.mark}'")
    page = await client.page("opener", context)
    async with context.expect_page() as waiting:
        await page.click("#noopener")
    opened = await waiting.value
    await opened.wait_for_load_state()
    assert await opened.evaluate("first") == client.mark


async def all_that_was_set_holds_for_the_first_script_of_windows_without_opener(client: Client) -> None:
    context = await client.new_context(
        user_agent=client.mark, timezone_id="Asia/Tokyo", locale="de-DE", color_scheme="dark", has_touch=True
    )
    reported: list[list[object]] = []
    await context.expose_function("report", lambda seen: reported.append(seen))
    await context.add_init_script("window.runs = (window.runs ?? 0) + 1")
    # The page's first script reads this property.
    await context.add_init_script("""Object.defineProperty(window, 'planted', {get: () => report([
        runs, navigator.userAgent, Intl.DateTimeFormat().resolvedOptions().timeZone, navigator.language,
        matchMedia('(prefers-color-scheme: dark)').matches, 'ontouchstart' in window])})""")
    page = await client.page("opener", context)
    reported.clear()
    async with context.expect_page() as waiting:
        await page.click("#noopener")
    opened = await waiting.value
    await opened.evaluate("first")
    assert reported == [[1, client.mark, "Asia/Tokyo", "de-DE", True, True]]
    assert await opened.evaluate("runs") == 1


async def a_popup_that_closes_itself_is_reported_closed(client: Client) -> None:
    page = await client.page("opener")
    async with page.expect_popup() as waiting:
        await page.click("#open")
    popup = await waiting.value
    await popup.wait_for_load_state()
    async with popup.expect_event("close"):
        # The page may be gone before the click is confirmed.
        await popup.evaluate("setTimeout(() => window.close())")
    assert popup not in client.context.pages
    assert await page.title() == f"{client.mark} opener"


async def history_goes_back_and_forward_and_reloads(client: Client) -> None:
    page = await client.page("links")
    await page.click("#next")
    await page.wait_for_url("**/next")
    await page.go_back()
    assert page.url == client.url("links")
    await page.go_forward()
    assert page.url == client.url("next")
    await page.evaluate("window.kept = true")
    await page.reload()
    assert await page.evaluate("window.kept") is None


@repeating
async def pushed_history_changes_the_url(client: Client) -> None:
    page = await client.page("links")
    await page.click("#push")
    await page.wait_for_url("**/pushed")
    assert await page.title() == f"{client.mark} links"


async def goto_follows_redirects_and_tells_the_status(client: Client) -> None:
    page = await client.blank_page()
    response = await page.goto(client.url("redirect"))
    assert response is not None
    assert (response.status, page.url) == (200, client.url("empty"))
    came_from = response.request.redirected_from
    assert came_from is not None
    assert came_from.url == client.url("redirect")
    missing = await page.goto(client.url("missing"))
    assert missing is not None
    assert missing.status == 404


async def goto_says_why_it_failed(client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    page = await client.blank_page()
    with pytest.raises(Error, match="ERR_CONNECTION_REFUSED"):
        await page.goto(f"http://127.0.0.1:{port}/")
    with pytest.raises(Error, match="Timeout"):
        await (await client.context.new_page()).goto(client.url("never"), timeout=100)


async def a_page_moves_between_sites(client: Client) -> None:
    page = await client.page("empty")
    for host in ("b.test", "127.0.0.1", "localhost", "a.test"):
        await page.goto(client.url("empty", host))
        assert await page.evaluate("location.hostname") == host


@repeating
async def content_can_be_set(client: Client) -> None:
    page = await client.blank_page()
    await page.set_content(f"<title>{client.mark}</title><p>set</p>")
    assert await page.inner_text("p") == "set"
    assert "<p>set</p>" in await page.content()


async def pages_take_turns_in_front(client: Client) -> None:
    first, second = await client.page("empty"), await client.page("empty")
    for page in (first, second, first):
        await page.bring_to_front()
        assert await _is_visible(page)


async def a_crashed_page_is_reported_and_the_others_live_on(client: Client) -> None:
    kept, context = await client.page("empty", host="b.test"), await client.new_context()
    page = await client.page("empty", context)
    session = await context.new_cdp_session(page)
    async with page.expect_event("crash"):
        # It never answers: the renderer that would is gone.
        crashing = asyncio.ensure_future(session.send("Page.crash"))
    await page.close()
    await asyncio.gather(crashing, return_exceptions=True)
    assert await kept.title() == f"{client.mark} empty"


async def _is_visible(page: Page) -> bool:
    return bool(await page.evaluate("document.visibilityState === 'visible'"))
