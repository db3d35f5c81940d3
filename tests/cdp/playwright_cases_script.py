"""Playwright cases: running scripts in pages, and being called by them."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Error

from .client import Client, alone, repeating


@repeating
async def values_of_every_kind_pass_both_ways(client: Client) -> None:
    page = await client.page("empty")
    value = {"n": 1.5, "none": None, "list": [True, "é\U0001f411", {"deep": []}], "who": client.mark}
    assert await page.evaluate("value => value", value) == value


@repeating
async def handles_stay_in_the_page(client: Client) -> None:
    page = await client.page("form")
    handle = await page.evaluate_handle("document.querySelectorAll('li')")
    assert await handle.evaluate("items => items.length") == 3
    first = (await page.query_selector_all("li"))[0]
    assert await page.evaluate("item => item.textContent", first) == "one"
    await handle.dispose()
    assert await page.eval_on_selector_all("li", "items => items.map(i => i.textContent)") == ["one", "two", "three"]


@repeating
async def an_exception_comes_back_with_its_text(client: Client) -> None:
    page = await client.page("empty")
    with pytest.raises(Error, match=f"thrown by {client.mark}"):
        await page.evaluate(f"() => {{ throw new Error('thrown by {client.mark}') }}")


async def an_evaluation_ends_when_the_page_leaves(client: Client) -> None:
    page = await client.page("empty")
    with pytest.raises(Error, match="navigation"):
        await page.evaluate("() => { location.href = 'form'; return new Promise(() => {}) }")
    await page.wait_for_url("**/form")


async def an_exposed_function_is_called_by_pages_popups_and_far_frames(client: Client) -> None:
    context = await client.new_context()
    calls: list[str] = []
    await context.expose_function("tell", lambda text: calls.append(text) or f"heard {text}")
    page = await client.page("opener", context)
    assert await page.evaluate("tell('page')") == "heard page"
    async with page.expect_popup() as waiting:
        await page.click("#far")
    popup = await waiting.value
    await popup.wait_for_load_state()
    assert await popup.evaluate("tell('popup')") == "heard popup"
    await page.goto(client.url("frames"))
    for frame in page.frames[1:]:
        assert await frame.evaluate("tell('frame')") == "heard frame"
    assert calls == ["page", "popup", "frame", "frame"]


async def a_binding_knows_who_called_it(client: Client) -> None:
    page = await client.blank_page()
    callers: list[str] = []

    def note(source: dict[str, Any], who: str) -> str:
        callers.append(f"{who} at {source['frame'].url}")
        return client.mark

    await page.expose_binding("note", note)
    await page.goto(client.url("frames"))
    assert await page.frames[1].evaluate("note('frame')") == client.mark
    assert callers == [f"frame at {page.frames[1].url}"]


async def init_scripts_run_in_order_before_the_page(client: Client) -> None:
    context = await client.new_context()
    await context.add_init_script("window.planted = ['context']")
    page = await context.new_page()
    await page.add_init_script("window.planted.push('page')")
    await page.goto(client.url("empty"))
    assert await page.evaluate("first") == ["context", "page"]
    await page.reload()
    assert await page.evaluate("first") == ["context", "page"]


@alone
async def init_scripts_of_the_first_context_reach_its_popups(client: Client) -> None:
    await client.context.add_init_script(f"window.planted = '{client.mark}'")
    page = await client.page("opener")
    assert await page.evaluate("first") == client.mark
    async with page.expect_popup() as waiting:
        await page.click("#open")
    popup = await waiting.value
    await popup.wait_for_load_state()
    assert await popup.evaluate("first") == client.mark


@repeating
async def scripts_and_styles_are_added(client: Client) -> None:
    page = await client.page("tall")
    await page.add_script_tag(content="window.added = 5")
    await page.add_style_tag(content="#box { width: 77px !important }")
    assert await page.evaluate("[added, box.offsetWidth]") == [5, 77]


@repeating
async def custom_selectors_of_a_client_are_its_own(client: Client) -> None:
    page = await client.page("form")
    await page.evaluate("document.querySelectorAll('li')[1].dataset.pick = 'me'")
    assert await page.locator("[data-pick=me]").inner_text() == "two"
    assert await page.locator("css=li:nth-match(li, 3)").inner_text() == "three"
