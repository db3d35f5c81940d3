"""Reading and setting cookies through a real page."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import InvalidRequest
from tabherd.wire import Cookies, Navigate, SetCookie, SetCookies

from .driving import act, ask
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def tab(own_tab: ChromiumTab) -> ChromiumTab:
    return own_tab


async def put(tab: ChromiumTab, **cookie: Any) -> None:
    await act(tab, SetCookies(cookies=[SetCookie(**cookie)]))


async def test_a_cookie_of_the_page_is_read_in_playwrights_spelling(tab: ChromiumTab, site: Site) -> None:
    await act(tab, Navigate(url=f"{site.origin}/"))
    await ask(tab, "void (document.cookie = 'a=1; path=/; samesite=strict')")
    assert await act(tab, Cookies()) == [
        {
            "name": "a",
            "value": "1",
            "domain": "127.0.0.1",
            "path": "/",
            "expires": -1,
            "httpOnly": False,
            "secure": False,
            "sameSite": "Strict",
        }
    ]


async def test_a_cookie_without_an_address_is_the_pages(tab: ChromiumTab, site: Site) -> None:
    await act(tab, Navigate(url=f"{site.origin}/"))
    await put(tab, name="a", value="é=1")
    assert await ask(tab, "document.cookie") == "a=é=1"


async def test_what_was_set_is_what_is_read(tab: ChromiumTab) -> None:
    await put(tab, name="a", value="1", domain="a.test", http_only=True, secure=True, same_site="None", expires=4e9)
    (cookie,) = await act(tab, Cookies(urls=["https://a.test/"]))
    assert cookie["httpOnly"]
    assert cookie["secure"]
    assert cookie["sameSite"] == "None"
    assert cookie["expires"] > 0


async def test_a_cookie_that_has_expired_is_removed(tab: ChromiumTab) -> None:
    await put(tab, name="a", value="1", url="http://a.test/")
    await put(tab, name="a", value="1", url="http://a.test/", expires=1)
    assert await act(tab, Cookies(urls=["http://a.test/"])) == []


@pytest.mark.parametrize(
    "cookie",
    [
        {"name": "a", "value": "1"},
        {"name": "a", "value": "1", "url": "ftp://a.test"},
        {"name": "a", "value": "1\r\n", "domain": "a.test"},
        {"name": "__Host-a", "value": "1", "domain": "a.test"},
    ],
)
async def test_a_cookie_that_cannot_be_is_the_callers_mistake(tab: ChromiumTab, cookie: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await put(tab, **cookie)
    assert caught.value.details["field"].startswith("cookies")
