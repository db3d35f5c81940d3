"""The victim: a client with something of everything, which knows what it is like when nobody has touched it.

`ids` has one of each kind of id that the protocol knows, as the victim's own connection learnt them; `secrets` is what
nobody else may ever hear.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.cdp_life.wire_client import Message, WireClient, wire_client

from .sessions import AUTO_ATTACH
from .site import Site

# How a page finds itself: what it keeps, where it is, and how the browser looks to it.
LOOK = """(async () => {
  const asked = name => navigator.permissions.query({name}).then(found => found.state, error => String(error));
  return {
    url: location.href, title: document.title, text: document.body.innerText, html: document.body.outerHTML,
    mark: window.mark, cookie: document.cookie, localStorage: {...localStorage}, sessionStorage: {...sessionStorage},
    caches: await caches.keys(), databases: (await indexedDB.databases()).map(each => each.name),
    workers: (await navigator.serviceWorker.getRegistrations()).map(each => each.scope),
    permissions: await Promise.all(['geolocation', 'notifications', 'camera', 'clipboard-read'].map(asked)),
    blob: await (await fetch(blobUrl)).text(), worker: await ask('still there'),
    inner: [innerWidth, innerHeight], outer: [outerWidth, outerHeight], ratio: devicePixelRatio,
    screen: [screen.width, screen.height], agent: navigator.userAgent, languages: navigator.languages,
    zone: Intl.DateTimeFormat().resolvedOptions().timeZone, cores: navigator.hardwareConcurrency,
    isOnline: navigator.onLine, isDark: matchMedia('(prefers-color-scheme: dark)').matches, history: history.length,
    visibility: document.visibilityState, isPrint: matchMedia('print').matches, touch: navigator.maxTouchPoints,
  };
})()"""
# Answered when the page's own timers have run once more.
TICK = """new Promise(done => {
  const was = ticks, timer = setInterval(() => { if (ticks > was) { clearInterval(timer); done(true); } });
})"""
BOUNDS = {"left": 11, "top": 12, "width": 640, "height": 480}


class Victim:
    """One client at a page of the site."""

    def __init__(self, client: WireClient, site: Site) -> None:
        self.client = client
        self.mark = f"victim{secrets.token_hex(8)}"
        self.url = site.url(self.mark)
        self.target_id = ""
        # A session with its page.
        self.page = ""
        # Sessions with its frame.
        self.frame = ""
        # One of each kind of id.
        self.ids: dict[str, Any] = {}
        self._site = site
        self._before: Message = {}

    async def settle_in(self, *, is_shared: bool = False) -> None:
        """Have something of everything."""
        client, site = self.client, self._site
        page = (await client.pages())[0]
        self.target_id, context_id = page["targetId"], page["browserContextId"]
        self.page = await client.attach(self.target_id)
        await client.call("Page.enable", {}, self.page)
        await client.call("Network.enable", {}, self.page)
        await client.call("Debugger.enable", {}, self.page)
        await client.call("Runtime.enable", {}, self.page)
        navigated = await client.call("Page.navigate", {"url": self.url}, self.page)
        request = await client.event("Network.requestWillBeSent")
        await client.event("Page.loadEventFired")
        assert await client.value("ready", self.page) == f"{self.mark}: are you there"
        await client.call("Target.setAutoAttach", AUTO_ATTACH, self.page)
        frame = await client.event("Target.attachedToTarget", lambda told: told["targetInfo"]["type"] == "iframe")
        worker = await client.event("Target.attachedToTarget", lambda told: told["targetInfo"]["type"] == "worker")
        self.frame = frame["sessionId"]
        script = await client.event("Debugger.scriptParsed", lambda told: told["url"] == self.url)
        await client.call("Debugger.disable", {}, self.page)
        context = await client.event(
            "Runtime.executionContextCreated", lambda told: told["context"]["origin"] == site.origin
        )
        document = await client.call("DOM.getDocument", {}, self.page)
        found = await client.call("Runtime.evaluate", {"expression": "window"}, self.page)
        printed = await client.call("Page.printToPDF", {"transferMode": "ReturnAsStream"}, self.page)
        blob = await client.call("Runtime.evaluate", {"expression": "new Blob([mark])"}, self.page)
        uuid = (await client.call("IO.resolveBlob", {"objectId": blob["result"]["objectId"]}, self.page))["uuid"]
        window_id = (await client.call("Browser.getWindowForTarget", {}, self.page))["windowId"]
        await client.call("Browser.setWindowBounds", {"windowId": window_id, "bounds": BOUNDS}, self.page)
        guid = ""
        if not is_shared:
            granted = {"permissions": ["geolocation"], "origin": site.origin}
            await client.call("Browser.grantPermissions", granted)
            await client.call("Browser.setDownloadBehavior", {"behavior": "allowAndName", "eventsEnabled": True})
            await client.value(f"location.href = '/{self.mark}/download'; 1", self.page)
            guid = (await client.event("Page.downloadWillBegin"))["guid"]
        tabs = (await client.call("Target.getTargets", {"filter": [{"type": "tab"}]}))["targetInfos"]
        self.ids = {
            "targetId": self.target_id,
            "browserContextId": "" if is_shared else context_id,
            "frameId": self.target_id,
            "childFrameId": frame["targetInfo"]["targetId"],
            "workerTargetId": worker["targetInfo"]["targetId"],
            "tabTargetId": tabs[0]["targetId"],
            "sessionId": self.page,
            "frameSessionId": self.frame,
            "workerSessionId": worker["sessionId"],
            "loaderId": navigated["loaderId"],
            "requestId": request["requestId"],
            "scriptId": script["scriptId"],
            "contextId": context["context"]["id"],
            "uniqueContextId": context["context"]["uniqueId"],
            "nodeId": document["root"]["nodeId"],
            "backendNodeId": document["root"]["backendNodeId"],
            "objectId": found["result"]["objectId"],
            "handle": printed["stream"],
            "blobHandle": f"blob:{uuid}",
            "windowId": window_id,
            "guid": guid,
        }
        self._before = await self.look()

    @property
    def secrets(self) -> list[str]:
        """What nobody else may hear: ids that nobody has by chance, and the mark, which is in everything it has."""
        return [self.mark, *(id for id in self.ids.values() if isinstance(id, str) and len(id) >= 16)]

    async def look(self) -> Message:
        """What it is like now."""
        client = self.client
        seen: Message = await client.value(LOOK, self.page)
        seen["frame"] = await client.value("document.body.innerText", self.frame)
        cookies = await client.call("Network.getCookies", {"urls": [self.url]}, self.page)
        seen["cookies"] = sorted((one["name"], one["value"]) for one in cookies["cookies"])
        seen["targets"] = [(one["targetId"], one["url"], one["title"]) for one in await client.pages()]
        seen["bounds"] = await client.call("Browser.getWindowBounds", {"windowId": self.ids["windowId"]}, self.page)
        return seen

    async def changes(self) -> set[str]:
        """What is not as it was."""
        now = await self.look()
        return {name for name, was in self._before.items() if now[name] != was}

    async def check(self) -> None:
        """Nobody has touched it: it is as it was, its scripts run, and its download is under way."""
        assert await self.client.value(TICK, self.page) is True
        assert await self.client.value(TICK, self.frame) is True
        changes = await self.changes()
        assert not changes, f"somebody changed {sorted(changes)}"
        ended = [one for one in self.client.inbox if one.get("method") in ENDINGS]
        assert not ended, f"the victim was told {ended}"

    async def check_download(self) -> None:
        """The download comes to its end once the site lets it."""
        self._site.may_finish.set()
        done = await self.client.event("Browser.downloadProgress", lambda told: told["state"] != "inProgress")
        assert (done["guid"], done["state"]) == (self.ids["guid"], "completed")


# What a client is told when something of its own has ended.
ENDINGS = ("Target.detachedFromTarget", "Target.targetCrashed", "Inspector.targetCrashed", "Inspector.detached")


@asynccontextmanager
async def victim_at(url: str, token: str, site: Site, *, is_shared: bool = False) -> AsyncIterator[Victim]:
    async with wire_client(url, token) as client:
        victim = Victim(client, site)
        await victim.settle_in(is_shared=is_shared)
        yield victim
