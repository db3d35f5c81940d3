"""Playwright cases: another device, place, time and taste than the machine's own."""

from __future__ import annotations

import pytest
from playwright.async_api import Error

from .client import Client, alone

PLACE = "new Promise((done, fail) => navigator.geolocation.getCurrentPosition(p => done(p.coords.latitude), fail))"


async def a_viewport_is_set_and_changed(client: Client) -> None:
    context = await client.new_context(viewport={"width": 480, "height": 320}, device_scale_factor=2)
    page = await client.page("empty", context)
    size = "[innerWidth, innerHeight, devicePixelRatio]"
    assert await page.evaluate(size) == [480, 320, 2]
    await page.set_viewport_size({"width": 700, "height": 400})
    assert await page.evaluate(size) == [700, 400, 2]


async def a_phone_is_emulated(client: Client) -> None:
    context = await client.new_context(**client.playwright.devices["Pixel 5"])
    page = await client.page("empty", context)
    assert "Pixel 5" in await page.evaluate("navigator.userAgent")
    assert await page.evaluate("navigator.maxTouchPoints > 0 && matchMedia('(pointer: coarse)').matches")


async def language_and_time_zone_are_set(client: Client) -> None:
    context = await client.new_context(locale="de-DE", timezone_id="Pacific/Auckland")
    page = await client.page("empty", context)
    assert await page.evaluate("navigator.language") == "de-DE"
    assert await page.evaluate("(1234.5).toLocaleString()") == "1.234,5"
    assert await page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone") == "Pacific/Auckland"


async def a_user_agent_is_set_also_for_popups(client: Client) -> None:
    context = await client.new_context(user_agent=f"agent of {client.mark}")
    page = await client.page("opener", context)
    async with page.expect_popup() as waiting:
        await page.click("#open")
    popup = await waiting.value
    await popup.wait_for_load_state()
    assert await popup.evaluate("navigator.userAgent") == f"agent of {client.mark}"
    got = await popup.evaluate("fetch('api/x').then(response => response.json())")
    assert got["headers"]["user-agent"] == f"agent of {client.mark}"


async def colours_motion_and_media_are_emulated(client: Client) -> None:
    context = await client.new_context(color_scheme="dark", reduced_motion="reduce")
    page = await client.page("media", context)
    assert await page.evaluate("media('(prefers-color-scheme: dark)')")
    assert await page.evaluate("media('(prefers-reduced-motion: reduce)')")
    await page.emulate_media(media="print", color_scheme="light")
    assert await page.evaluate("media('print') && media('(prefers-color-scheme: light)')")


async def a_place_is_pretended(client: Client) -> None:
    where = {"latitude": 10 + len(client.who), "longitude": 20}
    context = await client.new_context(geolocation=where, permissions=["geolocation"])
    page = await client.page("empty", context, "localhost")
    assert await page.evaluate(PLACE) == where["latitude"]
    await context.set_geolocation({"latitude": 50, "longitude": 60})
    assert await page.evaluate(PLACE) == 50


async def scripts_can_be_switched_off(client: Client) -> None:
    page = await client.page("empty", await client.new_context(java_script_enabled=False))
    assert await page.title() == f"{client.mark} empty"
    assert await page.evaluate("typeof first") == "undefined"


async def a_security_policy_is_bypassed_when_asked(client: Client) -> None:
    page = await client.page("strict")
    with pytest.raises(Error):
        await page.add_script_tag(content="window.added = true")
    page = await client.page("strict", await client.new_context(bypass_csp=True))
    await page.add_script_tag(content="window.added = true")
    assert await page.evaluate("added")


@alone
async def the_clock_of_a_page_is_the_clients(client: Client) -> None:
    page = await client.blank_page()
    await page.clock.install(time=1_000_000)
    await page.goto(client.url("empty"))
    await page.evaluate("setTimeout(() => { window.rang = true }, 3600_000)")
    await page.clock.fast_forward(3_600_000)
    assert await page.evaluate("rang")
    assert await page.evaluate("new Date().getFullYear()") == 1970
