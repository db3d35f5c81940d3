"""A session that somebody opens afterwards: what it finds must not depend on who was there before."""

from __future__ import annotations

import secrets

from tests.cdp_life.conftest import ws_of
from tests.cdp_life.wire_client import Message, wire_client
from tests.server.conftest import Server

from .site import Site
from .victim import LOOK


async def look_around(server: Server, site: Site, pool: str) -> Message:
    """How the browser looks to a new session, which tries everything that usually works."""
    mark = f"fresh{secrets.token_hex(8)}"
    async with wire_client(ws_of(server, f"pool={pool}"), server.token_of("fresh")) as client:
        page = await client.page()
        await client.call("Page.enable", {}, page)
        await client.call("Page.navigate", {"url": site.url(mark)}, page)
        await client.event("Page.loadEventFired")
        assert await client.value("ready", page) == f"{mark}: are you there"
        seen: Message = await client.value(LOOK, page)
        assert mark in seen["cookie"]
        version = await client.call("Browser.getVersion")
        names = ("permissions", "inner", "outer", "ratio", "screen", "agent", "languages", "zone", "cores")
        names += ("isOnline", "isDark", "isPrint", "touch", "visibility", "history")
        return {name: seen[name] for name in names} | {"version": version}
