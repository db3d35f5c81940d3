"""A client's sessions of every kind: with the browser, a tab, a page, a frame out of process, and workers."""

from __future__ import annotations

import secrets
from typing import Any

from .hostile import Hostile
from .site import Site

KINDS = ("root", "browser", "tab", "page", "iframe", "worker", "service_worker")
AUTO_ATTACH = {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": True}


class Sessions:
    """One client at a page of the site, attached to everything that there is. Made by `of`."""

    def __init__(self, client: Hostile) -> None:
        self.client = client
        self.mark = f"attacker{secrets.token_hex(8)}"
        # By kind; that of the connection itself is empty.
        self.by_kind: dict[str, str] = {"root": ""}
        # The client's own ids, by the names that the protocol has for them.
        self.ids: dict[str, Any] = {}

    @classmethod
    async def of(cls, client: Hostile, site: Site, *, is_shared: bool = False) -> Sessions:
        self = cls(client)
        self.by_kind["browser"] = (await client.call("Target.attachToBrowserTarget"))["sessionId"]
        page = (await client.pages())[0]
        self.by_kind["page"] = session_id = await client.attach(page["targetId"])
        await client.call("Page.enable", {}, session_id)
        await client.call("Page.navigate", {"url": site.url(self.mark)}, session_id)
        await client.event("Page.loadEventFired")
        assert await client.value("ready", session_id) == f"{self.mark}: are you there"
        await client.call("Target.setAutoAttach", AUTO_ATTACH, session_id)
        for kind in ("iframe", "worker"):
            attached = await client.event(
                "Target.attachedToTarget", lambda told, kind=kind: told["targetInfo"]["type"] == kind
            )
            self.by_kind[kind] = attached["sessionId"]
        everything = (await client.call("Target.getTargets", {"filter": [{}]}))["targetInfos"]
        # A service worker of a context that is shared is nobody's.
        for kind in ("tab",) if is_shared else ("tab", "service_worker"):
            # The full browser wraps parts of its own window in tabs, too.
            fitting = [one for one in everything if one["type"] == kind and not one["url"].startswith("chrome:")]
            self.by_kind[kind] = await client.attach(fitting[0]["targetId"])
        window = await client.call("Browser.getWindowForTarget", {}, session_id)
        document = await client.call("DOM.getDocument", {}, session_id)
        self.ids = {
            "targetId": page["targetId"],
            "frameId": page["targetId"],
            "browserContextId": page["browserContextId"],
            "sessionId": session_id,
            "windowId": window["windowId"],
            "nodeId": document["root"]["nodeId"],
            "backendNodeId": document["root"]["backendNodeId"],
        }
        return self
