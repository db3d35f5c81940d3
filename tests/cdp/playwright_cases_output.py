"""Playwright cases: pictures, documents, downloads, dialogs, messages, errors, traces."""

from __future__ import annotations

import asyncio
import struct
import zipfile

from playwright.async_api import Dialog

from .client import Client, repeating

BIG_CHARACTERS = 8_000_000
BIG_ARGUMENT_CHARACTERS = 2_000_000


def _size(png: bytes) -> tuple[int, int]:
    """Width and height, from the header of the picture."""
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


async def pictures_have_the_size_that_was_asked_for(client: Client) -> None:
    context = await client.new_context(viewport={"width": 300, "height": 200})
    page = await client.page("tall", context)
    assert _size(await page.screenshot()) == (300, 200)
    assert _size(await page.screenshot(full_page=True)) == (300, 3040)
    assert _size(await page.locator("#box").screenshot()) == (60, 40)
    assert _size(await page.screenshot(clip={"x": 0, "y": 0, "width": 10, "height": 20})) == (10, 20)
    assert (await page.screenshot(type="jpeg", quality=50)).startswith(b"\xff\xd8")


@repeating
async def two_pages_are_pictured_at_the_same_time(client: Client) -> None:
    context = await client.new_context(viewport={"width": 300, "height": 200})
    pages = [await client.page("tall", context) for _ in range(2)]
    assert [_size(png) for png in await asyncio.gather(*(page.screenshot() for page in pages))] == [(300, 200)] * 2


async def a_page_becomes_a_document(client: Client) -> None:
    page = await client.page("tall")
    assert (await page.pdf(format="A4", print_background=True)).startswith(b"%PDF-")


async def a_download_is_reported_and_kept(client: Client) -> None:
    page = await client.page("download")
    async with page.expect_download() as waiting:
        await page.click("#get")
    download = await waiting.value
    assert download.suggested_filename == f"{client.who}.txt"
    assert await download.failure() is None
    await download.save_as(client.files / "saved.txt")
    assert (client.files / "saved.txt").read_text() == f"for {client.mark}"


@repeating
async def a_download_in_a_context_of_its_own_is_kept(client: Client) -> None:
    page = await client.page("download", await client.new_context())
    async with page.expect_download() as waiting:
        await page.click("#get")
    assert (await (await waiting.value).path()).read_text() == f"for {client.mark}"


async def dialogs_are_answered(client: Client) -> None:
    page = await client.page("dialogs")
    seen: list[tuple[str, str, str]] = []

    async def answer(dialog: Dialog) -> None:
        seen.append((dialog.type, dialog.message, dialog.default_value))
        await dialog.accept("somebody" if dialog.type == "prompt" else "")

    page.on("dialog", answer)
    assert await page.evaluate("[ask.alert(), ask.confirm(), ask.prompt()]") == [None, True, "somebody"]
    mark = client.mark
    assert seen == [("alert", mark, ""), ("confirm", mark, ""), ("prompt", mark, "nobody")]


async def dialogs_that_nobody_answers_are_dismissed(client: Client) -> None:
    page = await client.page("dialogs")
    assert await page.evaluate("[ask.confirm(), ask.prompt()]") == [False, None]


async def a_page_asks_before_it_is_left(client: Client) -> None:
    page = await client.page("stays")
    await page.click("#touch")
    async with page.expect_event("dialog") as waiting:
        await page.close(run_before_unload=True)
    dialog = await waiting.value
    assert dialog.type == "beforeunload"
    async with page.expect_event("close"):
        await dialog.accept()


async def console_messages_are_heard_with_their_arguments(client: Client) -> None:
    page = await client.page("empty")
    async with page.expect_console_message() as waiting:
        await page.evaluate(f"console.warn('{client.mark}', {{n: 1}}, [2])")
    message = await waiting.value
    assert message.type == "warning"
    assert [await argument.json_value() for argument in message.args] == [client.mark, {"n": 1}, [2]]


async def errors_of_a_page_are_heard(client: Client) -> None:
    page = await client.blank_page()
    async with page.expect_event("pageerror") as waiting:
        await page.goto(client.url("broken"))
    assert (await waiting.value).message == f"broken of {client.mark}"


async def a_trace_is_recorded(client: Client) -> None:
    context = await client.new_context()
    await context.tracing.start(screenshots=True, snapshots=True)
    page = await client.page("form", context)
    await page.click("button")
    file = client.files / "trace.zip"
    await context.tracing.stop(path=file)
    with zipfile.ZipFile(file) as trace:
        names = trace.namelist()
        assert client.url("form") in trace.read("trace.trace").decode()
    assert any(name.startswith("resources/") for name in names)


async def a_big_result_arrives_whole(client: Client) -> None:
    page = await client.page("empty")
    text = await page.evaluate(f"'{client.who[0]}'.repeat({BIG_CHARACTERS})")
    assert (len(text), set(text)) == (BIG_CHARACTERS, {client.who[0]})


async def a_big_argument_arrives_whole(client: Client) -> None:
    page = await client.page("empty")
    assert await page.evaluate("text => text.length", "x" * BIG_ARGUMENT_CHARACTERS) == BIG_ARGUMENT_CHARACTERS


@repeating
async def the_accessible_tree_is_told(client: Client) -> None:
    page = await client.page("form")
    tree = await page.locator("body").aria_snapshot()
    assert '- button "Send"' in tree
