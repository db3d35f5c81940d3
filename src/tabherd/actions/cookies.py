"""Reads and sets cookies as the page sees them, in Playwright's spelling."""

from __future__ import annotations

from typing import Any, Final

from .. import wire
from ..browsers.port import CdpFailure, TabPort
from ..errors import InvalidRequest
from .progress import Progress
from .world import DocumentLost, World

_FIELDS: Final = ("name", "value", "domain", "path", "expires", "httpOnly", "secure")
_INVALID: Final = -32602


async def cookies(tab: TabPort, action: wire.Cookies, progress: Progress) -> list[dict[str, Any]]:
    found = await tab.call("Network.getCookies", {} if action.urls is None else {"urls": action.urls})
    # Where a cookie does not say, browsers have taken Lax for years.
    return [
        {field: cookie[field] for field in _FIELDS} | {"sameSite": cookie.get("sameSite", "Lax")}
        for cookie in found["cookies"]
    ]


async def set_cookies(tab: TabPort, action: wire.SetCookies, progress: Progress) -> None:
    page_url = await _page_url(tab) if any(each.url is None and each.domain is None for each in action.cookies) else ""
    params = [_params(number, cookie, page_url) for number, cookie in enumerate(action.cookies)]
    progress.acts()
    try:
        await tab.call("Network.setCookies", {"cookies": params})
    except CdpFailure as failure:
        if failure.code != _INVALID:
            raise
        raise InvalidRequest(
            f"A cookie is not valid: {failure.message}.",
            action="Check that name and value have no control characters, and that domain, secure and sameSite fit.",
            field="cookies",
        ) from failure


def _params(number: int, cookie: wire.SetCookie, page_url: str) -> dict[str, Any]:
    params: dict[str, Any] = {
        "name": cookie.name,
        "value": cookie.value,
        "httpOnly": cookie.http_only,
        "secure": cookie.secure,
        # Of the whole site, not of the directory that the page is in.
        "path": cookie.path or "/",
    }
    if cookie.domain is not None:
        params["domain"] = cookie.domain
    else:
        url = cookie.url or page_url
        if not url.lower().startswith(("http://", "https://")):
            raise InvalidRequest(
                f"cookies[{number}] belongs to no site: give it a domain or a url.", field=f"cookies[{number}]"
            )
        params["url"] = url
    if cookie.same_site is not None:
        params["sameSite"] = cookie.same_site
    if cookie.expires != -1:
        params["expires"] = cookie.expires
    return params


async def _page_url(tab: TabPort) -> str:
    try:
        return str(await (await World.of(tab)).run("addressOf"))
    except DocumentLost:
        # Between two documents there is no page that a cookie could be of.
        return ""
