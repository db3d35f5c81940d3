"""Attempts at what is the victim's, from every kind of session: seeing it, naming it, and speaking in its name."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.cdp_life.conftest import ws_of
from tests.cdp_life.wire_client import CdpError
from tests.server.conftest import Server, act, open_session, value_of
from tests.shared_server import unique

from .conftest import POOL, Scene
from .hostile import Shot, hostile
from .sessions import KINDS

pytestmark = [pytest.mark.server, pytest.mark.browser]

EVERYTHING = [{}]


def grabs(scene: Scene) -> list[tuple[str, dict[str, Any]]]:
    """Methods that name something of the victim's, each as an attacker would want it to work."""
    ids = scene.victim.ids
    target, context = {"targetId": ids["targetId"]}, {"browserContextId": ids["browserContextId"]}
    cookie = {"name": "who", "value": "me", "url": scene.site.origin}
    bounds = {"windowState": "minimized"}
    permission = {"permission": {"name": "camera"}, "setting": "granted"}
    tabs = [{"targetId": ids[name]} for name in ("tabTargetId", "childFrameId", "workerTargetId")]
    return [
        *(("Target.attachToTarget", {**one, "flatten": True}) for one in (target, *tabs)),
        *(("Target.getTargetInfo", one) for one in (target, *tabs)),
        ("Target.attachToTarget", target),
        ("Target.closeTarget", target),
        ("Target.activateTarget", target),
        ("Target.exposeDevToolsProtocol", {**target, "bindingName": "cdp"}),
        ("Target.openDevTools", target),
        ("Target.autoAttachRelated", {**target, "waitForDebuggerOnStart": True}),
        ("Target.sendMessageToTarget", {**target, "message": '{"id":1,"method":"Page.close"}'}),
        ("Target.sendMessageToTarget", {"sessionId": ids["sessionId"], "message": '{"id":1,"method":"Page.close"}'}),
        ("Target.detachFromTarget", {"sessionId": ids["sessionId"]}),
        ("Target.detachFromTarget", target),
        ("Target.createTarget", {"url": "about:blank", **context}),
        ("Target.disposeBrowserContext", context),
        ("Browser.getWindowForTarget", target),
        ("Browser.getWindowBounds", {"windowId": ids["windowId"]}),
        ("Browser.setWindowBounds", {"windowId": ids["windowId"], "bounds": bounds}),
        ("Browser.setContentsSize", {"windowId": ids["windowId"], "width": 100, "height": 100}),
        ("Browser.grantPermissions", {"permissions": ["camera"], **context}),
        ("Browser.setPermission", permission | context),
        ("Browser.resetPermissions", context),
        ("Browser.setDownloadBehavior", {"behavior": "deny", **context}),
        ("Browser.cancelDownload", {"guid": ids["guid"], **context}),
        ("Browser.cancelDownload", {"guid": ids["guid"]}),
        ("Storage.getCookies", context),
        ("Storage.setCookies", {"cookies": [cookie], **context}),
        ("Storage.clearCookies", context),
        ("Page.navigate", {"url": "about:blank", "frameId": ids["frameId"]}),
        ("Page.createIsolatedWorld", {"frameId": ids["frameId"], "grantUniveralAccess": True}),
        ("Page.getResourceContent", {"frameId": ids["frameId"], "url": scene.victim.url}),
        ("DOM.getFrameOwner", {"frameId": ids["childFrameId"]}),
        ("Storage.getStorageKeyForFrame", {"frameId": ids["frameId"]}),
        ("Runtime.evaluate", {"expression": "1", "uniqueContextId": ids["uniqueContextId"]}),
        ("Runtime.getProperties", {"objectId": ids["objectId"]}),
        ("Network.getResponseBody", {"requestId": ids["requestId"]}),
        ("Network.loadNetworkResource", {"frameId": ids["frameId"], "url": scene.site.url("x"), "options": {}}),
        ("IO.read", {"handle": ids["blobHandle"]}),
        ("IO.resolveBlob", {"objectId": ids["objectId"]}),
    ]


# A field, to be clicked in its middle; and what the page heard of the mouse.
FIELD = """document.body.innerHTML = '<input id=field style="position: fixed; inset: 0; width: 90vw; height: 90vh">';
window.heard = []; addEventListener("auxclick", () => heard.push("auxclick")); 0"""
MIDDLE = {"x": 50, "y": 50, "button": "middle", "clickCount": 1}


@pytest.mark.parametrize("pool", [POOL, "full"])
async def test_nobody_pastes_what_another_has_selected(server: Server, pool: str) -> None:
    url = ws_of(server, f"pool={pool}")
    async with hostile(url, server.token_of("attacker")) as attacker:
        page = await attacker.page()
        await attacker.value(FIELD, page)
        with server.agent(unique("victim")) as victim, server.agent(unique("thief")) as thief:
            tab = open_session(victim, pool=pool)["tabs"][0]["tabId"]
            value_of(victim, tab, f"{FIELD}; field.type = 'password'; field.value = 'a-secret-password'; 0")
            # A script's selection would not count.
            assert act(victim, tab, "press", selector="#field", key="Control+A").status_code == 200
            assert value_of(victim, tab, "field.selectionEnd") == len("a-secret-password")
            stolen = open_session(thief, pool=pool)["tabs"][0]["tabId"]
            value_of(thief, stolen, FIELD)
            for kind in ("click", "dblclick"):
                assert act(thief, stolen, kind, selector="#field", button="middle").status_code == 200
            # The button itself works.
            assert value_of(thief, stolen, "[field.value, heard[0]]") == ["", "auxclick"]
        for method in ("Input.dispatchMouseEvent", "Input.emulateTouchFromMouseEvent"):
            for type in ("mousePressed", "mouseReleased"):
                await attacker.call(method, {**MIDDLE, "type": type}, page)
        with pytest.raises(CdpError, match="policy_denied"):
            await attacker.call(
                "Input.dispatchKeyEvent", {"type": "keyDown", "commands": ["PasteGlobalSelection"]}, page
            )
        assert await attacker.value("[field.value, heard[0]]", page) == ["", "auxclick"]


# What reaches the whole browser.
DENIED = (
    *("Browser.crash", "Browser.crashGpuProcess", "Browser.getBrowserCommandLine", "Browser.getHistograms"),
    *("SystemInfo.getInfo", "SystemInfo.getProcessInfo", "Tracing.start", "Tracing.end", "Tethering.bind"),
    *("Memory.simulatePressureNotification", "Memory.getBrowserSamplingProfile", "Target.setRemoteLocations"),
    *("Extensions.loadUnpacked", "PWA.install", "Cast.enable", "Browser.executeBrowserCommand"),
)


def not_flat(own: str) -> list[tuple[str, dict[str, Any]]]:
    """Ways to a session whose messages would be wrapped in others."""
    return [
        ("Target.attachToTarget", {"targetId": own}),
        ("Target.attachToTarget", {"targetId": own, "flatten": False}),
        ("Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": False}),
        ("Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": False}),
    ]


async def test_nothing_of_the_victims_and_nothing_of_the_browsers_can_be_named_in_any_session(scene: Scene) -> None:
    attacker = scene.attacker
    # Handles of streams are short numbers, so an own one may have the same; never the same content.
    streams = [("IO.read", {"handle": str(number)}) for number in range(1, 20)]
    wanted = [*grabs(scene), *not_flat(scene.sessions.ids["targetId"]), *streams]
    for kind in KINDS:
        session_id = scene.sessions.by_kind[kind]
        answered = await attacker.volley(Shot(method, params, session_id) for method, params in wanted)
        granted = [(shot.method, answer) for shot, answer in answered if answer is None or "error" not in answer]
        assert granted == [], kind
        answered = await attacker.volley(Shot(method, {}, session_id) for method in DENIED)
        codes = [answer["error"]["message"].partition(":")[0] for _, answer in answered if answer]
        assert codes == ["policy_denied"] * len(DENIED), kind
    for name in ("sessionId", "frameSessionId", "workerSessionId"):
        with pytest.raises(CdpError) as refused:
            await attacker.call("Runtime.evaluate", {"expression": "document.title"}, scene.victim.ids[name])
        assert refused.value.code == -32001


async def test_nobody_is_told_of_targets_that_come_and_go_elsewhere(scene: Scene) -> None:
    attacker, client = scene.attacker, scene.victim.client
    auto = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True, "filter": EVERYTHING}
    for session_id in scene.sessions.by_kind.values():
        await attacker.volley(
            [
                Shot("Target.setDiscoverTargets", {"discover": True, "filter": EVERYTHING}, session_id),
                Shot("Target.setAutoAttach", auto, session_id),
                Shot("Target.getTargets", {"filter": EVERYTHING}, session_id),
                Shot("Target.getBrowserContexts", {}, session_id),
            ]
        )
    _, session_id = await client.open_page(scene.victim.url)
    assert await client.value("window.open('about:blank') !== null", session_id, userGesture=True) is True
    opened = [one["targetId"] for one in await client.pages() if one["targetId"] != scene.victim.target_id]
    for one in opened:
        await client.call("Target.closeTarget", {"targetId": one})
    for session_id in scene.sessions.by_kind.values():
        await attacker.volley([Shot("Target.getTargets", {"filter": EVERYTHING}, session_id)])
    await client.event("Target.detachedFromTarget")
    assert len(opened) == 2
    assert attacker.leaks(opened) == []


async def test_what_was_denied_is_audited_and_counted(server: Server) -> None:
    with server.agent("prober") as prober, server.client() as admin:
        token = str(prober.headers["Authorization"]).removeprefix("Bearer ")
        before = denied_total(admin)
        async with hostile(ws_of(server), token) as client:
            with pytest.raises(CdpError):
                await client.call("Tethering.bind", {"port": 9})
        entries = admin.get("/audit", params={"agentId": "prober"}).json()["entries"]
        assert [(one["verb"], one["detail"]) for one in entries if one["verb"] == "cdp_denied"] == [
            ("cdp_denied", "Tethering.bind")
        ]
        assert denied_total(admin) == before + 1


def denied_total(admin: httpx.Client) -> float:
    """Of all methods: only so many are counted by their name."""
    lines = [line for line in admin.get("/metrics").text.splitlines() if "cdp_denied_total{" in line]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def test_the_victims_tab_and_session_are_no_doors_and_nobody_is_told_who_holds_them(scene: Scene) -> None:
    """Not even by having to wait: a message about a tab that is held is refused like one about no tab at all."""
    session = scene.session_of(scene.victim.mark)
    tab = session["tabs"][0]
    with scene.server.agent("attacker") as attacker:
        refusals: list[httpx.Response] = [
            attacker.get(f"/json/close/{tab['tabId']}"),
            attacker.get(f"/json/activate/{tab['tabId']}"),
            attacker.put("/json/new", params={"session": session["sessionId"], "url": "about:blank"}),
            attacker.get(f"/devtools/page/{tab['tabId']}", headers=HANDSHAKE),
            attacker.get("/devtools/browser", params={"session": session["sessionId"]}, headers=HANDSHAKE),
        ]
        assert [one.status_code for one in refusals if one.status_code < 400] == []
        assert json.dumps(attacker.get("/json/list").json()).count(tab["tabId"]) == 0
        assert [scene.victim.mark for one in refusals if scene.victim.mark in one.text] == []
    with scene.server.agent("victim") as owner:
        ticket = owner.post(f"/tabs/{tab['tabId']}/lock", json={"controllerId": "holder"}).json()["ticket"]
        for policy in ("fail", "wait"):
            url = ws_of(scene.server, f"pool={POOL}&cdpWaitPolicy={policy}")
            async with hostile(url, scene.server.token_of("attacker")) as other:
                for method in ("Target.closeTarget", "Target.activateTarget"):
                    with pytest.raises(CdpError, match="No target with given id found"):
                        await other.call(method, {"targetId": scene.victim.target_id})
        assert owner.delete(f"/tabs/{tab['tabId']}/lock", params={"ticket": ticket}).status_code == 204


HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
}
