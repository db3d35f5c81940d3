"""Playwright cases: keyboard, mouse, touch, forms, files, and finding things on a page."""

from __future__ import annotations

import json

from .client import Client, repeating


async def a_form_is_filled_and_sent(client: Client) -> None:
    page = await client.page("form")
    await page.fill("#name", client.mark)
    await page.select_option("select", "green")
    await page.check("[name=agree]")
    await page.click("button")
    sent = json.loads(await page.inner_text("#sent"))
    assert sent == [["name", client.mark], ["colour", "green"], ["agree", "yes"]]


@repeating
async def things_are_found_in_every_way(client: Client) -> None:
    page = await client.page("form")
    await page.get_by_label("Name").fill("x")
    assert await page.get_by_placeholder("who").input_value() == "x"
    assert await page.get_by_role("button", name="Send").get_attribute("type") == "submit"
    assert await page.get_by_title("Sends it").count() == 1
    assert await page.get_by_test_id("sent").count() == 1
    assert await page.locator("xpath=//li").nth(1).inner_text() == "two"
    assert await page.get_by_text("three", exact=True).count() == 1
    assert await page.locator("li", has_text="o").all_inner_texts() == ["one", "two"]
    assert await page.locator("#deep").inner_text() == "in the shadow"


async def keys_arrive_as_they_were_pressed(client: Client) -> None:
    page = await client.page("input")
    await page.click("#keys")
    await page.keyboard.type("aB")
    await page.keyboard.press("Control+a")
    await page.keyboard.press("Backspace")
    await page.keyboard.insert_text("é")
    assert await page.input_value("#keys") == "é"
    assert await page.evaluate("log") == ["a", "B", "ctrl+Control", "ctrl+a", "Backspace"]


async def the_mouse_clicks_in_every_way(client: Client) -> None:
    page = await client.page("input")
    await page.mouse.click(50, 50)
    await page.mouse.dblclick(50, 50)
    await page.click("#pad", button="right")
    once = ["mousedown", "mouseup", "click"]
    right = [*(f"{kind}:2" for kind in ("mousedown", "contextmenu")), "mouseup:2"]
    assert await page.evaluate("log") == [*once, *once, *once, "dblclick", *right]


@repeating
async def the_wheel_scrolls(client: Client) -> None:
    page = await client.page("tall")
    await page.mouse.move(50, 50)
    await page.mouse.wheel(0, 500)
    await page.wait_for_function("scrollY === 500")


@repeating
async def hovering_is_seen_by_the_page(client: Client) -> None:
    page = await client.page("input")
    await page.hover("#pad")
    assert await page.evaluate("pad.matches(':hover')")


async def a_tap_is_a_touch(client: Client) -> None:
    context = await client.new_context(has_touch=True)
    page = await client.page("input", context)
    await page.tap("#pad")
    await page.wait_for_function("log.includes('click')")
    assert "touchstart" in await page.evaluate("log")


async def a_thing_is_dragged_to_a_place(client: Client) -> None:
    page = await client.page("drag")
    await page.drag_and_drop("#thing", "#place")
    assert await page.inner_text("#place") == f"got thing of {client.who}"


async def a_file_chooser_is_answered(client: Client) -> None:
    page = await client.page("form")
    async with page.expect_file_chooser() as waiting:
        await page.click("#file")
    chooser = await waiting.value
    assert chooser.is_multiple()
    contents = [{"name": name, "mimeType": "text/plain", "buffer": client.mark.encode()} for name in ("a", "b")]
    await chooser.set_files(contents)
    await page.wait_for_function(f"sent.textContent === 'a={client.mark},b={client.mark}'")


@repeating
async def a_file_is_uploaded_by_its_content(client: Client) -> None:
    page = await client.page("form")
    await page.set_input_files("#file", {"name": "c.txt", "mimeType": "text/plain", "buffer": client.mark.encode()})
    await page.wait_for_function(f"sent.textContent === 'c.txt={client.mark}'")
    await page.set_input_files("#file", [])
    await page.wait_for_function("sent.textContent === ''")


async def a_file_is_uploaded_by_its_path(client: Client) -> None:
    file = client.files / "d.txt"
    file.write_text(client.mark)
    page = await client.page("form")
    await page.set_input_files("#file", file)
    await page.wait_for_function(f"sent.textContent === 'd.txt={client.mark}'")


@repeating
async def waiting_ends_when_the_page_changes(client: Client) -> None:
    page = await client.page("empty")
    await page.evaluate("setTimeout(() => { document.body.innerHTML = '<p id=late>late</p>' }, 20)")
    assert await (await page.wait_for_selector("#late")).inner_text() == "late"
    await page.evaluate("setTimeout(() => { late.remove() }, 20)")
    await page.wait_for_selector("#late", state="detached")
    await page.evaluate("setTimeout(() => { window.done = 7 }, 20)")
    assert await (await page.wait_for_function("window.done")).json_value() == 7


@repeating
async def a_handler_clears_what_covers_the_page(client: Client) -> None:
    page = await client.page("form")
    await page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', "
        "'<dialog id=cover open style=\"position: fixed; inset: 0; width: 100%; height: 100%\">cover</dialog>')"
    )
    await page.add_locator_handler(page.locator("#cover"), lambda: page.evaluate("cover.remove()"))
    await page.click("button")
    assert await page.inner_text("#sent") != ""
