"""Every method of the protocol, in every kind of session, with everything of the victim's that it can name.

Nothing of the victim's changes, and nothing of it is heard. The control shows that the same messages, sent to the same
Chromium without tabherd in between, do reach the victim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cdp_life.conftest import ws_of
from tests.cdp_life.wire_client import LIMIT_S
from tests.server.conftest import Server, browser_pids

from .conftest import POOL, debug_port
from .filling import Filler, Protocol
from .fresh import look_around
from .hostile import hostile
from .sessions import KINDS, Sessions
from .site import Site
from .victim import Victim, victim_at

pytestmark = [pytest.mark.server, pytest.mark.browser]

# They end the client's own page or connection: sent when all else has been.
ENDING = ("Page.crash", "Page.close", "Browser.close", "Target.detachFromTarget", "Target.closeTarget")

# Of about two thousand: a page that was paused, or left, does not answer what it was sent.
ANSWERED_MIN = 300


def values_of(victim: Victim, site: Site, trap: Path) -> dict[str, Any]:
    """By the name that a parameter, or its type, may have: the victim's value."""
    ids = victim.ids
    return {
        **ids,
        "openerId": ids["targetId"],
        "parentFrameId": ids["frameId"],
        "executionContextId": ids["contextId"],
        "origin": site.origin,
        "securityOrigin": site.origin,
        "storageKey": f"{site.origin}/",
        # Where anybody may go; the victim's own address is one that only it knows.
        "url": site.url("public"),
        "urls": site.url("public"),
        "scopeURL": f"{site.origin}/{victim.mark}/",
        "domain": "localhost",
        "databaseName": victim.mark,
        "objectStoreName": victim.mark,
        "cacheName": victim.mark,
        "cacheId": f"{site.origin}|{victim.mark}",
        "files": "/etc/passwd",
        "path": "/",
        "downloadPath": str(trap),
        "expression": "1",
        "behavior": "allow",
        "uuid": ids["blobHandle"].removeprefix("blob:"),
    }


async def attack(server: Server, pool: str, site: Site, kinds: Iterable[str], trap: Path) -> None:
    """One attacker for each kind of session, all at once."""
    site.may_finish.clear()
    protocol = await protocol_of(server)
    before = await look_around(server, site, pool)
    with server.client() as admin:
        pids = browser_pids(admin, pool)
    url, token = ws_of(server, f"pool={pool}"), server.token_of("attacker")
    async with victim_at(url, server.token_of("victim"), site) as victim:
        filler = Filler(protocol, values_of(victim, site, trap))

        async def attack_from(kind: str) -> None:
            async with hostile(url, token) as attacker:
                sessions = await Sessions.of(attacker, site)
                shots = list(filler.shots(sessions.by_kind[kind]))
                answered = await attacker.volley(shot for shot in shots if shot.method not in ENDING)
                assert not attacker.is_over, kind
                await attacker.volley(shot for method in ENDING for shot in shots if shot.method == method)
                assert attacker.leaks(victim.secrets) == []
                assert len([one for one, answer in answered if answer is not None]) > ANSWERED_MIN, kind

        await asyncio.gather(*map(attack_from, kinds))
        await victim.check()
        await victim.check_download()
    assert list(trap.iterdir()) == []
    assert await look_around(server, site, pool) == before
    with server.client() as admin:
        assert browser_pids(admin, pool) == pids


async def protocol_of(server: Server) -> Protocol:
    headers = {"Authorization": f"Bearer {server.admin_token}"}
    async with httpx.AsyncClient(timeout=LIMIT_S) as http:
        protocol: Protocol = (await http.get(f"{server.record['url']}/json/protocol", headers=headers)).json()
    return protocol


# The kinds of session in which most passes: those of documents and workers. `test_foreign.py` looks at every kind.
SOME_KINDS = ("page", "iframe", "service_worker")


@pytest.mark.parametrize(
    ("pool", "kinds"),
    [
        (POOL, SOME_KINDS),
        pytest.param(POOL, KINDS, marks=pytest.mark.soak),
        pytest.param("full", SOME_KINDS, marks=pytest.mark.soak),
    ],
)
async def test_no_method_reaches_another_tenant(
    pool: str, kinds: tuple[str, ...], server: Server, site: Site, tmp_path: Path
) -> None:
    await attack(server, pool, site, kinds, tmp_path)


async def test_without_tabherd_the_same_messages_reach_the_victim(server: Server, site: Site) -> None:
    """The control: it shows that the victim would notice, and that what the attacker hears is looked through."""
    site.may_finish.clear()
    async with victim_at(ws_of(server, f"pool={POOL}"), server.token_of("victim"), site) as victim:
        about = httpx.get(f"http://127.0.0.1:{debug_port(server)}/json/version").json()
        async with hostile(about["webSocketDebuggerUrl"]) as attacker:
            await attacker.call("Target.getTargets")
            assert attacker.leaks([victim.mark]) != []
            session_id = await attacker.attach(victim.target_id)
            await attacker.value("sessionStorage.mark = 'mine'", session_id)
        assert await victim.changes() == {"sessionStorage"}
