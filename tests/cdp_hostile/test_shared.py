"""Tenants that share one context: cookies are everybody's there, but no tab, frame, worker or window of another is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cdp_life.conftest import ws_of
from tests.server.conftest import Server, browser_pids, open_session

from .conftest import of_build
from .filling import Filler
from .hostile import hostile
from .sessions import AUTO_ATTACH, Sessions
from .site import Site
from .test_every_method import ENDING, protocol_of
from .victim import Victim, victim_at

pytestmark = [pytest.mark.server, pytest.mark.browser]

# What tenants have in common here, as the documentation says.
COMMON = {"cookie", "cookies", "localStorage", "caches", "databases", "workers", "permissions"}


@pytest.fixture(scope="module")
def shared_server(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with of_build(tmp_path_factory.mktemp("shared"), "headless-shell", 'isolation = "shared"\n') as server:
        yield server


def values_of(victim: Victim, site: Site) -> dict[str, Any]:
    return {**victim.ids, "url": site.url("public"), "urls": site.url("public"), "expression": "1"}


async def test_only_tabs_around_own_pages_are_shown(shared_server: Server, site: Site) -> None:
    """Also of what was there before anybody connected: Chromium lists that in no order."""
    server, token = shared_server, shared_server.token_of("tenant")
    with server.client(token) as tenant:
        sessions = [open_session(tenant, url=site.url(f"tenant{number}")) for number in range(6)]
        # Each ends when its client leaves.
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


async def test_no_method_reaches_a_tab_of_another_where_the_context_is_shared(
    shared_server: Server, site: Site
) -> None:
    server = shared_server
    protocol = await protocol_of(server)
    token = server.token_of("attacker")
    with server.client() as admin:
        pids = browser_pids(admin)
        async with victim_at(ws_of(server), server.token_of("victim"), site, is_shared=True) as victim:
            filler = Filler(protocol, values_of(victim, site))
            ids = [secret for secret in victim.secrets if secret != victim.mark]

            async def attack_from(kind: str) -> None:
                async with hostile(ws_of(server), token) as attacker:
                    sessions = await Sessions.of(attacker, site, is_shared=True)
                    shots = [one for one in filler.shots(sessions.by_kind[kind]) if one.method not in ENDING]
                    await attacker.volley(shots)
                    assert attacker.leaks(ids) == []

            await asyncio.gather(*map(attack_from, ("root", "browser", "page", "iframe")))
            assert await victim.changes() <= COMMON
        assert browser_pids(admin) == pids
