"""What would end the browser for everybody, found by sending everything everywhere: none of it does any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.cdp_life.conftest import ws_of
from tests.server.conftest import Server, browser_pids, open_session, release, value_of

from .hostile import Shot, hostile
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


@pytest.mark.parametrize("build", ["server", "full_server"])
async def test_the_browser_survives_what_used_to_end_it(build: str, site: Site, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(build)
    with server.client() as admin:
        before = browser_pids(admin)
        async with hostile(ws_of(server), server.token_of("attacker")) as attacker:
            sessions = await Sessions.of(attacker, site)
            for kind, shots in FATAL:
                await attacker.volley(Shot(method, params, sessions.by_kind[kind]) for method, params in shots)
            # Its answer comes after the effect of all that was sent before.
            assert await attacker.value("1 + 1", sessions.by_kind["page"]) == 2
        assert browser_pids(admin) == before


@pytest.mark.parametrize("how", ["Page.navigate", "Page.reload", "by itself"])
async def test_the_browser_survives_a_client_that_leaves_with_a_dialog_open(
    server: Server, site: Site, how: str
) -> None:
    with server.client() as admin:
        before = browser_pids(admin)
        for _ in range(3):
            async with hostile(ws_of(server), server.token_of("attacker")) as attacker:
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
        assert browser_pids(admin) == before


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


@pytest.mark.parametrize("way", PARTING)
@pytest.mark.parametrize("build", ["server", "full_server"])
async def test_the_browser_survives_a_client_that_parts_with_a_page_whose_dialog_nobody_can_answer(
    build: str, site: Site, way: str, request: pytest.FixtureRequest
) -> None:
    """The script goes on until the next document is ready, and only then asks."""
    server: Server = request.getfixturevalue(build)
    ask = f"location = '{site.url('there', 'frame')}'; const end = Date.now() + 300; while (Date.now() < end); alert(1)"
    with server.client() as admin:
        before = browser_pids(admin)
        async with hostile(ws_of(server), server.token_of("attacker")) as attacker:
            page = await attacker.page()
            await attacker.call("Page.enable", {}, page)
            await attacker.call("Page.navigate", {"url": site.url("here", "frame")}, page)
            await attacker.event("Page.loadEventFired")
            await attacker.value(f"void setTimeout(() => {{ {ask} }})", page)
            await attacker.event("Page.javascriptDialogOpening")
            await attacker.volley(PARTING[way](page))
        with server.agent("innocent") as agent:
            session = open_session(agent)
            assert value_of(agent, session["tabs"][0]["tabId"], "1 + 1") == 2
            release(agent, session)
        assert browser_pids(admin) == before
