"""What would end the browser for everybody, found by sending everything everywhere: none of it does any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.cdp_life.conftest import ws_of
from tests.cdp_life.wire_client import LIMIT_S
from tests.server.conftest import Server, browser_pids, open_session, value_of

from .conftest import POOL
from .hostile import Hostile, Shot, hostile
from .sessions import Sessions
from .site import Site

pytestmark = [pytest.mark.server, pytest.mark.browser]

FEATURES = {"features": [{"orientation": "vertical", "offset": 1, "maskLength": 1}]}
POINT = {"x": 1, "y": 1}
# By the kind of session in which it did, the messages that together did it.
FATAL = [
    ("iframe", [("Emulation.setDisplayFeaturesOverride", FEATURES)]),
    (
        "iframe",
        [
            ("Emulation.setPageScaleFactor", {"pageScaleFactor": 4}),
            ("Input.synthesizePinchGesture", {**POINT, "scaleFactor": 2}),
            ("Input.synthesizeScrollGesture", {**POINT, "yDistance": 5}),
            ("Input.synthesizeTapGesture", POINT),
        ],
    ),
    ("worker", [("Network.setCookies", {"cookies": []})]),
    ("service_worker", [("Network.setCookies", {"cookies": []})]),
    # It is stopped now.
    ("page", [("ServiceWorker.enable", {}), ("ServiceWorker.stopAllWorkers", {})]),
    (
        "service_worker",
        [
            ("Storage.deleteStorageBucket", {"bucket": {"storageKey": "http://localhost/", "name": "x"}}),
            ("Network.getResponseBody", {"requestId": "x"}),
            ("Network.loadNetworkResource", {"url": "http://localhost/", "options": {}}),
        ],
    ),
]


@pytest.mark.parametrize("pool", [POOL, "full"])
async def test_the_browser_survives_what_used_to_end_it(pool: str, server: Server, site: Site) -> None:
    with server.client() as admin:
        async with hostile(ws_of(server, f"pool={pool}"), server.token_of("attacker")) as attacker:
            before = browser_pids(admin, pool)
            sessions = await Sessions.of(attacker, site)
            await attacker.volley(
                Shot(method, params, sessions.by_kind[kind]) for kind, shots in FATAL for method, params in shots
            )
            # Its answer comes after the effect of all that was sent before.
            assert await attacker.value("1 + 1", sessions.by_kind["page"]) == 2
        assert browser_pids(admin, pool) == before


async def test_the_browser_survives_the_end_of_a_context_whose_worker_was_to_watch_storage(
    server: Server, site: Site
) -> None:
    watching: list[tuple[str, dict[str, Any]]] = [
        ("Storage.untrackIndexedDBForStorageKey", {"storageKey": "file:///"}),
        ("Storage.trackIndexedDBForStorageKey", {"storageKey": f"{site.origin}/"}),
        ("Storage.trackIndexedDBForOrigin", {"origin": site.origin}),
    ]
    with server.client() as admin:
        async with hostile(ws_of(server, f"pool={POOL}"), server.token_of("attacker")) as attacker:
            before = browser_pids(admin, POOL)
            context = await attacker.call("Target.createBrowserContext")
            made = await attacker.call("Target.createTarget", {"url": "about:blank", **context})
            page = await attacker.attach(made["targetId"])
            await attacker.call("Page.enable", {}, page)
            await attacker.call("Page.navigate", {"url": site.url("here", "frame")}, page)
            await attacker.event("Page.loadEventFired")
            await attacker.value("window.shared = new SharedWorker('/here/worker.js'); 1", page)
            worker = await attacker.attach(await shared_worker(attacker))
            answered = await attacker.volley(Shot(method, params, worker) for method, params in watching)
            assert [answer and "policy_denied" in answer["error"]["message"] for _, answer in answered] == [True] * 3
            await attacker.call("Target.disposeBrowserContext", context)
            assert await attacker.value("1 + 1", await attacker.page()) == 2
        assert browser_pids(admin, POOL) == before


async def shared_worker(client: Hostile) -> str:
    """The target of the one there is, once there is one."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            told = await client.call("Target.getTargets", {"filter": [{"type": "shared_worker"}]})
            if told["targetInfos"]:
                return str(told["targetInfos"][0]["targetId"])


async def test_the_browser_survives_a_client_that_leaves_with_a_dialog_open(server: Server, site: Site) -> None:
    url, token = ws_of(server, f"pool={POOL}"), server.token_of("attacker")
    with server.client() as admin:
        pids = []
        for how in ("Page.navigate", "Page.reload", "by itself"):
            async with hostile(url, token) as attacker:
                pids.append(browser_pids(admin, POOL))
                page = await attacker.page()
                await attacker.call("Page.enable", {}, page)
                await attacker.call("Page.navigate", {"url": site.url("here")}, page)
                await attacker.event("Page.loadEventFired")
                await attacker.event("Page.frameNavigated", is_whole)
                first = f"location = '{site.url('there')}';" if how == "by itself" else ""
                await attacker.value(f"void setTimeout(() => {{ {first} alert(1) }})", page)
                await attacker.event("Page.javascriptDialogOpening")
                if how == "Page.navigate":
                    await attacker.call(how, {"url": site.url("there", host="127.0.0.1")}, page)
                elif how == "Page.reload":
                    await attacker.call(how, {}, page)
                # Its next document is ready, or would be: only then has anything been shown.
                await attacker.event("Page.frameNavigated", is_whole)
        assert pids == [browser_pids(admin, POOL)] * 3


def is_whole(navigated: dict[str, Any]) -> bool:
    """Whether it was the page, and not one of its frames."""
    return "parentId" not in navigated["frame"]


# How a client may part with a page, whose session it knows, before it leaves.
PARTING: dict[str, Callable[[str], list[Shot]]] = {
    "leaves": lambda page: [],
    "hears no more of it": lambda page: [Shot("Page.disable", {}, page)],
    "lets go of it": lambda page: [Shot("Target.detachFromTarget", {"sessionId": page})],
    "closes its browser": lambda page: [Shot("Browser.close", {})],
}


# The full browser was seen to end of it, on a busy machine; the light one was not.
@pytest.mark.parametrize("pool", ["full", pytest.param(POOL, marks=pytest.mark.soak)])
async def test_the_browser_survives_a_client_that_parts_with_a_page_whose_dialog_nobody_can_answer(
    pool: str, server: Server, site: Site
) -> None:
    """The script goes on until the next document is ready, and only then asks."""
    url, token = ws_of(server, f"pool={pool}"), server.token_of("attacker")
    ask = f"location = '{site.url('there', 'frame')}'; const end = Date.now() + 300; while (Date.now() < end); alert(1)"
    with server.client() as admin, server.agent("innocent") as agent:
        # The browser is there.
        innocent = open_session(agent, pool=pool)["tabs"][0]["tabId"]
        before = browser_pids(admin, pool)
        for shots_of in PARTING.values():
            async with hostile(url, token) as attacker:
                page = await attacker.page()
                await attacker.call("Page.enable", {}, page)
                await attacker.call("Page.navigate", {"url": site.url("here", "frame")}, page)
                await attacker.event("Page.loadEventFired")
                await attacker.value(f"void setTimeout(() => {{ {ask} }})", page)
                await attacker.event("Page.javascriptDialogOpening")
                await attacker.volley(shots_of(page))
            assert value_of(agent, innocent, "1 + 1") == 2
        assert browser_pids(admin, pool) == before
