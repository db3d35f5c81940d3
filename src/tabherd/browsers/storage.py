"""Takes cookies and localStorage out of a context, and puts them into another one.

Invariants:
- What is taken out can be put in again and is then sent, or read, exactly as before. What could not be is left out
  where it is taken: cookies of an opaque partition, items that are not valid Unicode.
- Reading never waits for a page that does not answer, takes at most so many bytes, and runs none of its scripts.
- Writing makes no connection to anybody: every request is answered here, and Chromium is not let know beforehand
  where it is going to.
- No value of a cookie or item is ever logged or put into a message: they are secrets.

Cookies are spelled as in Playwright's storage state, so that its files can be put in and ours be given to it.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog

from .cdp import CdpConnection, CdpSession
from .pages import in_context
from .port import CdpFailure, Origins, TabGone

log = structlog.get_logger(__name__)

# How long a page may take to hand over its localStorage if nobody has more patience; one that answers at all does
# within a few milliseconds, on a machine that has time for it.
READ_LIMIT_S: Final = 0.25
# What may be taken of one origin.
ORIGIN_MAX_BYTES: Final = 1 << 20
# How long one origin may take to be written.
WRITE_LIMIT_S: Final = 5.0
# A renderer hands what it stores over to another process, and what is still on its way when it ends is lost: up to
# this much leaves it at once, before it has even answered us. Found with a mebibyte on a busy machine.
SURE_CHARS: Final = 16_384
# How long is waited before a page is asked again whether it finds all that another wrote.
STORED_PAUSE_S: Final = 0.02
# Our code for what Chromium did not take.
REFUSED: Final = -32097

# For what we wrote ourselves.
_ANY_SIZE: Final = 1 << 30
# The name of the world that scripts of ours have to themselves in a page.
_WORLD: Final = "tabherd"
# Counts as it goes, so that a page cannot make us take more. Items that are not valid Unicode cannot be kept as text.
_READ: Final = """
((room) => {
    const items = [];
    for (let i = 0; i < localStorage.length; i++) {
        const name = localStorage.key(i), value = localStorage.getItem(name);
        room -= name.length + value.length;
        if (room < 0) return null;
        if (name.isWellFormed() && value.isWellFormed()) items.push([name, value]);
    }
    return [self.origin, items];
})(%d)
"""
_WRITE: Final = """
((origin, items) => {
    if (self.origin !== origin) throw new Error('this is ' + self.origin);
    for (const [name, value] of items) localStorage.setItem(name, value);
})(%s, %s)
"""
# Where writing starts from: a port that Chromium itself connects to for nobody. It connects in advance to where a page
# is told to go, before we are asked, but not to where it is redirected.
_START: Final = "http://127.0.0.1:1/"
# With an icon, or Chromium would ask for one.
_EMPTY_DOCUMENT: Final = base64.b64encode(b"<!doctype html><link rel=icon href='data:,'>").decode()


# --- Cookies --------------------------------------------------------------------------------------------------------


async def read_cookies(connection: CdpConnection, context_id: str) -> list[dict[str, Any]]:
    """Every cookie of the context."""
    found = await connection.call("Storage.getCookies", in_context(context_id))
    return [_spelled(cookie) for cookie in found["cookies"] if not cookie.get("partitionKeyOpaque")]


async def write_cookies(connection: CdpConnection, context_id: str, cookies: list[dict[str, Any]]) -> None:
    """Add those that have not expired. When one is refused `CdpFailure` names it, and the others are there."""
    now_s = time.time()
    live = [cookie for cookie in cookies if not 0 <= cookie.get("expires", -1) <= now_s]
    if not live:
        return
    try:
        await _set_cookies(connection, context_id, live)
    except CdpFailure:
        # Chromium takes all or none, and does not say which one it does not like.
        for cookie in live:
            try:
                await _set_cookies(connection, context_id, [cookie])
            except CdpFailure as failure:
                log.debug("a cookie was refused", name=cookie["name"], error=failure.message)
    # Some it takes and then drops without a word: SameSite=None that is not secure, for one.
    there = {_identity(cookie) for cookie in await read_cookies(connection, context_id)}
    refused = [cookie for cookie in live if _identity(cookie) not in there]
    # One whose time came only now is no failure.
    refused = [cookie for cookie in refused if not 0 <= cookie.get("expires", -1) <= time.time()]
    if refused:
        first = f"{refused[0]['name'][:100]!r} of {refused[0].get('domain', '')[:100]}"
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        raise CdpFailure("Storage.setCookies", REFUSED, f"not a valid cookie: {first}{more}")


async def _set_cookies(connection: CdpConnection, context_id: str, cookies: list[dict[str, Any]]) -> None:
    wired = [_wired(cookie) for cookie in cookies]
    await connection.call("Storage.setCookies", {"cookies": wired, **in_context(context_id)})


def _spelled(cookie: Mapping[str, Any]) -> dict[str, Any]:
    """Chromium's cookie in Playwright's spelling."""
    spelled = {name: cookie[name] for name in ("name", "value", "domain", "path", "httpOnly", "secure")}
    # Null stands for a time that JSON cannot express.
    spelled["expires"] = -1 if cookie.get("expires") is None else cookie["expires"]
    # That is how browsers treat one that does not say.
    spelled["sameSite"] = cookie.get("sameSite", "Lax")
    if partition := cookie.get("partitionKey"):
        spelled["partitionKey"] = partition["topLevelSite"]
        spelled["_crHasCrossSiteAncestor"] = partition["hasCrossSiteAncestor"]
    return spelled


def _wired(cookie: Mapping[str, Any]) -> dict[str, Any]:
    """Playwright's cookie in Chromium's spelling."""
    names = ("name", "value", "domain", "path", "httpOnly", "secure", "sameSite")
    wired = {name: cookie[name] for name in names if name in cookie}
    if cookie.get("expires", -1) >= 0:
        wired["expires"] = cookie["expires"]
    if "partitionKey" in cookie:
        wired["partitionKey"] = {
            "topLevelSite": cookie["partitionKey"],
            # Playwright's default for files that do not say.
            "hasCrossSiteAncestor": cookie.get("_crHasCrossSiteAncestor", True),
        }
    return wired


def _identity(cookie: Mapping[str, Any]) -> tuple[str, str]:
    # Without the dot: Chromium takes it away where a domain cannot have subdomains, of an address for one.
    return cookie["name"], cookie.get("domain", "").removeprefix(".").lower()


# --- localStorage ---------------------------------------------------------------------------------------------------


async def read_local_storage(
    tab: CdpSession, frame_id: str, patience_s: float = 0.0
) -> tuple[str, dict[str, str]] | None:
    """Origin and localStorage of a page's document; None when it has none, is too large, or does not answer."""
    try:
        async with asyncio.timeout(max(READ_LIMIT_S, patience_s)):
            # A page can replace every function that its own scripts see, but none in this world.
            world = await tab.call("Page.createIsolatedWorld", {"frameId": frame_id, "worldName": _WORLD})
            answer = await tab.call(
                "Runtime.evaluate",
                {
                    "expression": _READ % ORIGIN_MAX_BYTES,
                    "contextId": world["executionContextId"],
                    "returnByValue": True,
                },
            )
    except (TimeoutError, TabGone, CdpFailure) as reason:
        log.debug("the localStorage of a page could not be read", frameId=frame_id, reason=str(reason))
        return None
    # Absent where the document may not have any, and the script failed.
    if (value := answer["result"].get("value")) is None:
        return None
    origin, items = value
    # Counted in the page were characters, of which one may be three bytes.
    size_bytes = sum(len(name.encode()) + len(item.encode()) for name, item in items)
    return (origin, dict(items)) if is_web(origin) and size_bytes <= ORIGIN_MAX_BYTES else None


async def write_local_storage(tab: CdpSession, origins: Origins) -> None:
    """Write these into the context of this page, which must be blank and nobody else's.

    When an origin is refused `CdpFailure` names it, and the others are written.
    """
    await asyncio.gather(
        tab.call("Page.enable"),
        # A worker of that origin would otherwise be asked before us.
        tab.call("Network.enable"),
        tab.call("Network.setBypassServiceWorker", {"bypass": True}),
        tab.call("Fetch.enable"),
    )
    refused = []
    for origin, items in origins.items():
        try:
            async with asyncio.timeout(WRITE_LIMIT_S):
                await _go(tab, origin)
                await _fill(tab, origin, items)
        except (TimeoutError, CdpFailure) as failure:
            refused.append(f"{origin[:100]} ({str(failure) or 'it took too long'})")
    if refused:
        raise CdpFailure("localStorage", REFUSED, f"not written: {', '.join(refused[:3])}; {len(refused)} in all")


async def wait_until_stored(tab: CdpSession, origins: Origins) -> None:
    """Returns when this page, which must be blank and not the one that wrote them, finds all of it.

    Only then may the one that wrote them be closed. Raises `CdpFailure` when that takes too long.
    """
    await asyncio.gather(tab.call("Page.enable"), tab.call("Fetch.enable"))
    for origin, items in origins.items():
        try:
            async with asyncio.timeout(WRITE_LIMIT_S):
                await _go(tab, origin)
                while True:
                    if await _has(tab, items):
                        break
                    await asyncio.sleep(STORED_PAUSE_S)
        except TimeoutError:
            raise CdpFailure("localStorage", REFUSED, f"written in part: {origin[:100]}") from None


async def _has(tab: CdpSession, items: Mapping[str, str]) -> bool:
    answer = await tab.call("Runtime.evaluate", {"expression": _READ % _ANY_SIZE, "returnByValue": True})
    found = dict(answer["result"]["value"][1])
    return all(found.get(name) == value for name, value in items.items())


def is_large(items: Mapping[str, str]) -> bool:
    """Whether a page that is closed right after writing it may take a part of it along."""
    return sum(len(name) + len(value) for name, value in items.items()) > SURE_CHARS


def is_web(origin: str) -> bool:
    """Whether it is an origin that has localStorage to be kept."""
    return origin.startswith(("http://", "https://"))


async def _go(tab: CdpSession, origin: str) -> None:
    """Make the page an empty one of that origin."""

    def answer(paused: Mapping[str, Any]) -> None:
        request_id, url = paused["requestId"], paused["request"]["url"]
        if url == _START:
            location = {"name": "Location", "value": f"{origin}/"}
            tab.post("Fetch.fulfillRequest", _response(request_id, 302, location))
        elif url == f"{origin}/":
            kind = {"name": "Content-Type", "value": "text/html"}
            tab.post("Fetch.fulfillRequest", {**_response(request_id, 200, kind), "body": _EMPTY_DOCUMENT})
        else:
            # The full build tries https first where http was asked for, and takes http when that does not work.
            tab.post("Fetch.failRequest", {"requestId": request_id, "errorReason": "ConnectionRefused"})

    stop = tab.listen("Fetch.requestPaused", answer)
    try:
        went = await tab.call("Page.navigate", {"url": _START})
    finally:
        stop()
    if "errorText" in went:
        raise CdpFailure("Page.navigate", REFUSED, went["errorText"])


async def _fill(tab: CdpSession, origin: str, items: Mapping[str, str]) -> None:
    # Pairs: in an object "__proto__" would not be a name like any other.
    pairs = msgspec.json.encode(list(items.items())).decode()
    written = await tab.call("Runtime.evaluate", {"expression": _WRITE % (msgspec.json.encode(origin).decode(), pairs)})
    if (details := written.get("exceptionDetails")) is not None:
        raise CdpFailure("Runtime.evaluate", REFUSED, details.get("exception", {}).get("className", "it failed"))


def _response(request_id: str, code: int, header: Mapping[str, str]) -> dict[str, Any]:
    return {"requestId": request_id, "responseCode": code, "responseHeaders": [header]}
