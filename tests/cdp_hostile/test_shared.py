"""Tenants that share one context: cookies are everybody's there, but no tab, frame, worker or window of another is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cdp_life.conftest import ws_of
from tests.server.conftest import Server, browser_pids, open_session

from .filling import Filler
from .hostile import hostile
from .sessions import AUTO_ATTACH, Sessions
from .site import Site
from .test_every_method import ENDING, protocol_of
from .victim import Victim, victim_at

pytestmark = [pytest.mark.server, pytest.mark.browser]

# What tenants have in common here, as the documentation says.
COMMON = {"cookie", "cookies", "localStorage", "caches", "databases", "workers", "permissions"}


# The pool of the worker's server in which they do.
POOL = "shared"


def values_of(victim: Victim, site: Site) -> dict[str, Any]:
    return {**victim.ids, "url": site.url("public"), "urls": site.url("public"), "expression": "1"}


async def test_only_tabs_around_own_pages_are_shown(server: Server, site: Site) -> None:
    """Also of what was there before anybody connected: Chromium lists that in no order."""
    token = server.token_of("tenant")
    with server.client(token) as tenant:
        sessions = [open_session(tenant, pool=POOL, url=site.url(f"tenant{number}")) for number in range(4)]
        for session in sessions:
            async with hostile(ws_of(server, f"session={session['sessionId']}"), token) as client:
                shown = (await client.call("Target.getTargets", {"filter": [{}]}))["targetInfos"]
                (page,) = [one["targetId"] for one in shown if one["type"] == "page"]
                (tab,) = [one["targetId"] for one in shown if one["type"] == "tab"]
                await client.call("Target.setAutoAttach", AUTO_ATTACH, await client.attach(tab))
                wrapped = await client.event(
                    "Target.attachedToTarget", lambda told: told["targetInfo"]["type"] == "page"
                )
                assert wrapped["targetInfo"]["targetId"] == page


async def test_no_method_reaches_a_tab_of_another_where_the_context_is_shared(server: Server, site: Site) -> None:
    protocol = await protocol_of(server)
    url, token = ws_of(server, f"pool={POOL}"), server.token_of("attacker")
    with server.client() as admin:
        async with victim_at(url, server.token_of("victim"), site, is_shared=True) as victim:
            pids = browser_pids(admin, POOL)
            filler = Filler(protocol, values_of(victim, site))
            ids = [secret for secret in victim.secrets if secret != victim.mark]

            async def attack_from(kind: str) -> None:
                async with hostile(url, token) as attacker:
                    sessions = await Sessions.of(attacker, site, is_shared=True)
                    shots = [one for one in filler.shots(sessions.by_kind[kind]) if one.method not in ENDING]
                    await attacker.volley(shots)
                    assert attacker.leaks(ids) == []

            await asyncio.gather(*map(attack_from, ("browser", "page")))
            assert await victim.changes() <= COMMON
        assert browser_pids(admin, POOL) == pids
