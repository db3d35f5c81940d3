"""Too much of what is allowed: others go on, and what has a limit ends there."""

from __future__ import annotations

import asyncio

import pytest

from .conftest import Scene
from .hostile import Shot
from .sessions import AUTO_ATTACH

pytestmark = [pytest.mark.server, pytest.mark.browser]

STORM = 150
STORMS: dict[str, dict[str, object]] = {
    "Page.bringToFront": {},
    "Page.reload": {},
    "Target.getTargets": {},
    "Target.setAutoAttach": AUTO_ATTACH,
    "Browser.getWindowForTarget": {},
    "Network.clearBrowserCache": {},
    "Runtime.evaluate": {"expression": "for (let end = performance.now() + 5; performance.now() < end;);"},
    "Emulation.setDeviceMetricsOverride": {"width": 9, "height": 9, "deviceScaleFactor": 0, "mobile": False},
}


async def test_the_victim_goes_on_in_every_storm(scene: Scene) -> None:
    for method, params in STORMS.items():
        storm = asyncio.ensure_future(scene.attacker.volley([Shot(method, params, scene.page)] * STORM))
        await scene.victim.check()
        await storm


async def test_pages_crash_and_contexts_and_sessions_are_made_only_so_often(scene: Scene) -> None:
    attacker = scene.attacker
    answered = await attacker.volley([Shot("Target.createBrowserContext", {})] * 40)
    made = [answer["result"]["browserContextId"] for _, answer in answered if answer and "result" in answer]
    assert len(made) == 20
    await attacker.volley(Shot("Target.disposeBrowserContext", {"browserContextId": one}) for one in made)
    own = {"targetId": scene.sessions.ids["targetId"], "flatten": True}
    answered = await attacker.volley([Shot("Target.attachToTarget", own)] * 1_100)
    usable = [one["params"]["sessionId"] for one in attacker.inbox if one["method"] == "Target.attachedToTarget"]
    named = {answer["result"]["sessionId"] for _, answer in answered if answer and "result" in answer}
    assert 900 < len(named.intersection(usable)) < 1_000
    detaches = [answer["result"]["sessionId"] for _, answer in answered if answer and "result" in answer]
    await attacker.volley(Shot("Target.detachFromTarget", {"sessionId": one}) for one in detaches)
    pages = [await attacker.open_page() for _ in range(7)]
    # Nothing is ever answered by a page that is gone; what is too much is refused.
    answered = await attacker.volley(Shot("Page.crash", {}, session_id) for _, session_id in pages)
    refused = [answer["error"]["message"].partition(":")[0] for _, answer in answered if answer and "error" in answer]
    assert refused.count("rate_limited") == 2
