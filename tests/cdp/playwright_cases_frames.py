"""Playwright cases: frames in the page's own process and in others."""

from __future__ import annotations

from playwright.async_api import Frame, Page

from .client import Client, repeating


@repeating
async def near_and_far_frames_are_scripted(client: Client) -> None:
    page = await client.page("frames")
    for name, host in (("near", "a.test"), ("far", "b.test")):
        frame = _frame(page, name)
        assert await frame.evaluate("location.hostname") == host
        assert await frame.title() == f"{client.mark} inner"


@repeating
async def a_button_in_a_frame_of_another_process_is_pressed(client: Client) -> None:
    page = await client.page("frames")
    button = page.frame_locator("[name=far]").get_by_role("button")
    await button.click()
    assert await button.inner_text() == "pressed"


async def a_frame_of_another_site_is_a_target_of_its_own(client: Client) -> None:
    page = await client.page("frames")
    session = await client.context.new_cdp_session(_frame(page, "far"))
    found = await session.send("Runtime.evaluate", {"expression": "location.hostname", "returnByValue": True})
    assert found["result"]["value"] == "b.test"
    await session.detach()


async def nested_frames_alternate_between_processes(client: Client) -> None:
    page = await client.page("nested")
    hosts = {frame.name: await frame.evaluate("location.hostname") for frame in page.frames}
    assert hosts == {"": "a.test", "outer": "b.test", "near": "b.test", "far": "b.test"}
    await _frame(page, "near").goto(client.url("inner"))
    assert await _frame(page, "near").evaluate("location.hostname") == "a.test"
    outer = _frame(page, "outer")
    assert [child.name for child in outer.child_frames] == ["near", "far"]


async def init_scripts_run_first_in_frames_of_other_processes(client: Client) -> None:
    context = await client.new_context()
    await context.add_init_script(f"window.planted = '{client.mark}'")
    page = await client.page("frames", context)
    assert [await frame.evaluate("first") for frame in page.frames] == [client.mark] * 3


async def a_removed_frame_is_reported_detached(client: Client) -> None:
    page = await client.page("frames")
    for name in ("near", "far"):
        frame = _frame(page, name)
        async with page.expect_event("framedetached", lambda gone, frame=frame: gone is frame):
            await page.evaluate(f"document.querySelector('[name={name}]').remove()")
        assert frame.is_detached()
    assert page.frames == [page.main_frame]


async def a_frame_moves_to_another_process_and_back(client: Client) -> None:
    page = await client.page("frames")
    frame = _frame(page, "near")
    for host in ("b.test", "c.test", "a.test"):
        url = client.url("inner?moved", host)
        await page.eval_on_selector("[name=near]", "(frame, url) => { frame.src = url }", url)
        await frame.wait_for_url(url)
        assert await frame.evaluate("location.hostname") == host
        await frame.click("button")
        assert await frame.inner_text("button") == "pressed"


@repeating
async def a_frame_written_in_place_is_scripted(client: Client) -> None:
    page = await client.page("empty")
    await page.set_content('<iframe srcdoc="<p>in place</p>"></iframe>')
    assert await page.frame_locator("iframe").locator("p").inner_text() == "in place"


async def a_frame_element_leads_to_its_frame_and_back(client: Client) -> None:
    page = await client.page("frames")
    for name in ("near", "far"):
        element = await _frame(page, name).frame_element()
        assert await element.get_attribute("name") == name
        assert await element.content_frame() is _frame(page, name)


def _frame(page: Page, name: str) -> Frame:
    frame = page.frame(name)
    assert frame is not None
    return frame
