"""One Playwright client as a compatibility case gets it, and the proof that it saw nothing of the others.

Everything a client makes carries its mark (`site.py`). Whatever it can list or hear about, pages, targets, cookies,
requests, console messages, must therefore carry no other mark.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from playwright.async_api import Browser, BrowserContext, Page, Playwright

from .endpoint import Endpoint
from .site import MARK, Site


class Client:
    """A connected Playwright with a name of its own."""

    def __init__(
        self,
        who: str,
        browser: Browser,
        site: Site,
        files: Path,
        address: str,
        playwright: Playwright,
        *,
        takes_first: bool = False,
    ) -> None:
        self.who = who
        self.mark = f"~{who}~"
        self.browser = browser
        # A directory of its own.
        self.files = files
        self.playwright = playwright
        # What its contexts told it without being asked.
        self.heard: list[str] = []
        self._address = address
        self._site = site
        # The page that is there from the start, as long as it is to be used before a new one is opened.
        self._first = self.context.pages[:1] if takes_first else []
        self._listen(self.context)

    @property
    def context(self) -> BrowserContext:
        """The one that is there from the start."""
        return self.browser.contexts[0]

    async def new_context(self, **options: Any) -> BrowserContext:
        context = await self.browser.new_context(**options)
        self._listen(context)
        return context

    def url(self, name: str, host: str = "a.test") -> str:
        return self._site.url(self.who, name, host)

    async def blank_page(self) -> Page:
        """A page in the context that is there from the start, which the client has not used yet."""
        return self._first.pop() if self._first else await self.context.new_page()

    async def page(self, name: str, context: BrowserContext | None = None, host: str = "a.test") -> Page:
        """Such a page at that address, or a new one in another context."""
        page = await (self.blank_page() if context is None else context.new_page())
        await page.goto(self.url(name, host))
        return page

    async def connect_again(self) -> Browser:
        """A second connection with the same credential."""
        return await self.playwright.chromium.connect_over_cdp(self._address)

    def _listen(self, context: BrowserContext) -> None:
        context.on("page", lambda page: self.heard.append(page.url))
        context.on("request", lambda request: self.heard.append(request.url))
        context.on("console", lambda message: self.heard.append(message.text))
        context.on("weberror", lambda error: self.heard.append(str(error.error)))

    async def watch_targets(self) -> None:
        """Hear of every target from now on, as a debugger would."""
        session = await self.browser.new_browser_cdp_session()
        for event in ("targetCreated", "targetInfoChanged"):
            session.on(f"Target.{event}", lambda told: self.heard.append(told["targetInfo"]["url"]))
        await session.send("Target.setDiscoverTargets", {"discover": True, "filter": [{}]})

    async def tidy_up(self) -> None:
        """Leave nothing of one case to the next: no page that was used, no further context, no cookie."""
        for context in self.browser.contexts[1:]:
            await context.close()
        for page in self.context.pages:
            if page not in self._first:
                await page.close()
        await self.context.clear_cookies()

    async def strangers(self) -> set[str]:
        """Marks of others, in anything that it can see."""
        seen = list(self.heard)
        if self.browser.is_connected():
            for context in self.browser.contexts:
                seen += [page.url for page in context.pages]
                seen += [cookie.get("value", "") for cookie in await context.cookies()]
            session = await self.browser.new_browser_cdp_session()
            seen += [str(target) for target in (await session.send("Target.getTargets"))["targetInfos"]]
            seen += [str(cookie) for cookie in (await session.send("Storage.getCookies"))["cookies"]]
            await session.detach()
        return set(MARK.findall("\n".join(seen))) - {self.who}


Case: TypeAlias = Callable[[Client], Awaitable[None]]
# Cases that need a connection of their own: they end it, or cannot take back what they set in its first context.
ALONE: set[Case] = set()

# Cases of which others go the same way: `make soak` runs them.
REPEATING: set[Case] = set()


def alone(case: Case) -> Case:
    """Mark a case as one that needs a connection of its own."""
    ALONE.add(case)
    return case


def repeating(case: Case) -> Case:
    """Mark a case as one whose commands and events others have as well."""
    REPEATING.add(case)
    return case


def cases_of(*modules: ModuleType) -> list[Case]:
    """Every public coroutine function that those modules define."""
    found: list[Case] = []
    for module in modules:
        for name, function in inspect.getmembers(module, inspect.iscoroutinefunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                found.append(function)
    return found


@asynccontextmanager
async def connected(
    playwright: Playwright, endpoint: Endpoint, site: Site, files: Path, who: str, *, takes_first: bool = False
) -> AsyncIterator[Client]:
    async with endpoint.door(who) as door:
        browser = await playwright.chromium.connect_over_cdp(door.http)
        try:
            yield Client(who, browser, site, files, door.http, playwright, takes_first=takes_first)
        finally:
            await browser.close()
