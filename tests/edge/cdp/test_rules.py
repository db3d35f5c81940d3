"""What is done with the messages of a CDP client, and with what is in them."""

from __future__ import annotations

from typing import Any

import pytest

from tabherd.edge.cdp.rules import Kind, Refuse, Rule, Tenancy, denial, is_answer, is_shown, kind_of, rule_for

from .owner import (
    ALONE,
    ATTACHED,
    CONTEXT,
    CONTEXTS,
    DOWNLOAD,
    DOWNLOADS,
    FILE,
    FOREIGN,
    FOREIGN_WINDOW,
    MADE_CONTEXT,
    SHARED,
    TARGET,
    TENANCIES,
    WINDOW,
    WORKERS,
    Client,
    forwarded,
    refused,
)

NO_TARGET = Refuse(-32602, "No target with given id found", is_denial=False)


# --- Rules ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target_type", "kind"),
    [
        *(("browser", Kind.ROOT), ("tab", Kind.TAB), ("page", Kind.PAGE), ("iframe", Kind.FRAME)),
        *(("webview", Kind.FRAME), ("worker", Kind.WORKER), ("service_worker", Kind.SERVICE_WORKER)),
        *(("shared_worker", Kind.WORKER), ("auction_worklet", Kind.WORKER), ("shared_storage_worklet", Kind.WORKER)),
        *(("browser_ui", None), ("other", None), ("background_page", None), ("", None), ("Page", None)),
    ],
)
def test_a_session_is_of_the_kind_of_its_target_and_unknown_types_are_not_attached_to(
    target_type: str, kind: Kind | None
) -> None:
    assert kind_of(target_type) is kind


def rules_of(method: str) -> set[Rule]:
    """What is done with it, in every kind of session of every kind of pool."""
    return {rule_for(kind, method, tenancy) for kind in Kind for tenancy in TENANCIES}


@pytest.mark.parametrize(
    "method", ["Target.setDiscoverTargets", "Target.getTargets", "Target.getBrowserContexts", "Browser.close"]
)
def test_what_is_about_every_tenant_is_answered_by_tabherd_in_every_session(method: str) -> None:
    assert rules_of(method) == {Rule.EMULATE}


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        *((Kind.ROOT, Rule.EMULATE), (Kind.TAB, Rule.CHECK), (Kind.PAGE, Rule.CHECK)),
        *((Kind.FRAME, Rule.CHECK), (Kind.WORKER, Rule.CHECK)),
    ],
)
def test_only_the_browsers_own_auto_attach_is_emulated(kind: Kind, rule: Rule) -> None:
    assert rule_for(kind, "Target.setAutoAttach", CONTEXTS) is rule


def test_certificates_are_ignored_by_tabherd_for_the_browser_and_by_chromium_for_a_page() -> None:
    assert rule_for(Kind.ROOT, "Security.setIgnoreCertificateErrors", CONTEXTS) is Rule.EMULATE
    assert rule_for(Kind.PAGE, "Security.setIgnoreCertificateErrors", CONTEXTS) is Rule.PASS


@pytest.mark.parametrize(
    "method",
    [
        *("Browser.crash", "Browser.crashGpuProcess", "Browser.executeBrowserCommand", "Browser.getBrowserCommandLine"),
        *("Browser.getHistograms", "Browser.addMockCamera", "Browser.setGlobalPrivacyControl", "Browser.setDockTile"),
        *("Target.sendMessageToTarget", "Target.exposeDevToolsProtocol", "Target.autoAttachRelated"),
        *("Target.setRemoteLocations", "Target.openDevTools"),
        *("SystemInfo.getInfo", "SystemInfo.getProcessInfo", "Tethering.bind", "Extensions.loadUnpacked"),
        *("Extensions.triggerAction", "PWA.install", "Cast.startDesktopMirroring", "DeviceAccess.selectPrompt"),
        *("Memory.simulatePressureNotification", "Memory.setPressureNotificationsSuppressed"),
        *("Memory.startSampling", "Memory.getBrowserSamplingProfile"),
        *("Page.handleFileChooser", "Network.continueInterceptedRequest"),
        # What nobody knows yet, where it would be about the whole browser.
        *("Browser.novelty", "Target.novelty", "Storage.novelty", "Memory.novelty", "SystemInfo.novelty"),
        *("IO.novelty", "Security.novelty", "Tracing.novelty", "Extensions.novelty"),
    ],
)
def test_what_reaches_the_machine_or_the_browsers_life_is_denied_in_every_session(method: str) -> None:
    assert rules_of(method) == {Rule.DENY}


@pytest.mark.parametrize("kind", [Kind.ROOT, Kind.TAB])
@pytest.mark.parametrize(
    "method",
    [
        *("Fetch.enable", "Fetch.continueRequest", "Page.navigate", "Runtime.evaluate", "Network.enable"),
        *("Storage.clearDataForOrigin", "Emulation.getScreenInfos", "Security.enable", "Novel.method"),
    ],
)
def test_the_browsers_and_a_tabs_session_may_do_nothing_that_is_not_listed(kind: Kind, method: str) -> None:
    assert rule_for(kind, method, CONTEXTS) is Rule.DENY


@pytest.mark.parametrize("kind", WORKERS)
@pytest.mark.parametrize(
    "method",
    [
        *("Storage.untrackIndexedDBForStorageKey", "Storage.trackIndexedDBForOrigin", "Storage.deleteStorageBucket"),
        *("Storage.getCookies", "Network.setCookies", "Network.getAllCookies", "Page.navigate", "IndexedDB.enable"),
        *("Target.createTarget", "Browser.grantPermissions", "Input.dispatchMouseEvent", "Novel.method"),
    ],
)
def test_a_workers_session_may_do_nothing_that_is_not_listed(kind: Kind, method: str) -> None:
    assert {rule_for(kind, method, tenancy) for tenancy in TENANCIES} == {Rule.DENY}


@pytest.mark.parametrize("kind", WORKERS)
@pytest.mark.parametrize(
    "method",
    [
        # What Playwright and Puppeteer send there,
        *("Runtime.enable", "Runtime.evaluate", "Runtime.callFunctionOn", "Runtime.runIfWaitingForDebugger"),
        *("Runtime.addBinding", "Target.setAutoAttach", "Target.detachFromTarget", "Emulation.setUserAgentOverride"),
        *("Network.enable", "Network.setCacheDisabled", "Network.setExtraHTTPHeaders", "Network.setUserAgentOverride"),
        *("Network.emulateNetworkConditions", "Network.emulateNetworkConditionsByRule", "Fetch.enable"),
        *("Fetch.disable", "Fetch.continueRequest", "Fetch.continueWithAuth", "Fetch.fulfillRequest"),
        # and debuggers.
        *("Debugger.enable", "Debugger.setBreakpointByUrl", "Log.enable", "Profiler.start", "HeapProfiler.enable"),
    ],
)
def test_what_clients_need_of_a_worker_is_let_through(kind: Kind, method: str) -> None:
    assert rule_for(kind, method, CONTEXTS) is not Rule.DENY


def test_a_service_worker_that_may_be_stopped_is_not_asked_for_bodies() -> None:
    assert rule_for(Kind.WORKER, "Network.getResponseBody", CONTEXTS) is Rule.PASS
    assert rule_for(Kind.SERVICE_WORKER, "Network.getResponseBody", CONTEXTS) is Rule.DENY


@pytest.mark.parametrize("kind", [Kind.PAGE, Kind.FRAME, Kind.WORKER])
@pytest.mark.parametrize("method", ["Fetch.getResponseBody", "Network.loadNetworkResource"])
def test_bodies_are_not_kept_whole_in_the_process_that_tenants_share(kind: Kind, method: str) -> None:
    assert {rule_for(kind, method, tenancy) for tenancy in (CONTEXTS, SHARED, ATTACHED)} == {Rule.DENY}
    assert rule_for(kind, method, ALONE) is not Rule.DENY
    assert "Fetch.takeResponseBodyAsStream and IO.read" in denial(method).message
    assert "isolation = browser" in denial(method).message


@pytest.mark.parametrize("kind", [Kind.PAGE, Kind.FRAME])
@pytest.mark.parametrize(
    "method", ["Runtime.evaluate", "Page.captureScreenshot", "Fetch.fulfillRequest", "IO.read", "Novel.method"]
)
def test_a_pages_own_business_passes_also_when_it_is_new(kind: Kind, method: str) -> None:
    assert rule_for(kind, method, CONTEXTS) is Rule.PASS


@pytest.mark.parametrize(
    "method",
    [
        *("", ".", "Page", "Page.", ".enable", "Page.enable.x", "Page.enable ", " Page.enable", "Page.enable\n"),
        *('Page.x","method":"Browser.crash', "Page.en\\u0061ble", "Pагe.enable", "Page.\x00", "A" * 61 + ".b"),
    ],
)
def test_what_has_not_the_form_of_a_method_is_denied(method: str) -> None:
    assert rules_of(method) == {Rule.DENY}


@pytest.mark.parametrize(
    "method", ["Tracing.end", "BluetoothEmulation.enable", "Emulation.addScreen", "Page.startScreenRecording"]
)
def test_what_reaches_every_tenant_is_for_one_who_has_the_browser_alone(method: str) -> None:
    assert rule_for(Kind.PAGE, method, ALONE) is Rule.PASS
    assert rule_for(Kind.ROOT, method, ALONE) is Rule.PASS
    assert rule_for(Kind.PAGE, method, CONTEXTS) is Rule.DENY
    assert rule_for(Kind.ROOT, method, CONTEXTS) is Rule.DENY
    assert rule_for(Kind.TAB, method, ALONE) is Rule.DENY


def test_what_only_harms_others_is_not_checked_for_one_who_is_alone() -> None:
    assert rule_for(Kind.PAGE, "Input.dispatchKeyEvent", ALONE) is Rule.PASS
    assert rule_for(Kind.PAGE, "Input.dispatchKeyEvent", CONTEXTS) is Rule.CHECK


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(
    "method",
    [
        *("Target.createBrowserContext", "Target.disposeBrowserContext", "Browser.grantPermissions"),
        *("Browser.resetPermissions", "Browser.setPermission", "Browser.cancelDownload", "Page.setDownloadBehavior"),
    ],
)
def test_nobody_may_change_the_context_that_tenants_share(kind: Kind, method: str) -> None:
    assert rule_for(kind, method, SHARED) is Rule.DENY


def test_the_cookies_of_a_shared_context_are_for_its_pages_and_not_for_the_browsers_session() -> None:
    assert rule_for(Kind.ROOT, "Storage.getCookies", SHARED) is Rule.DENY
    assert rule_for(Kind.PAGE, "Storage.getCookies", SHARED) is Rule.CHECK


def test_the_download_wish_with_which_clients_connect_is_answered_where_a_context_is_shared() -> None:
    assert rule_for(Kind.ROOT, "Browser.setDownloadBehavior", SHARED) is Rule.EMULATE
    assert rule_for(Kind.PAGE, "Browser.setDownloadBehavior", SHARED) is Rule.DENY


def test_a_denial_is_counted_and_says_what_is_not_allowed_and_what_to_do_instead() -> None:
    refusal = denial("Target.sendMessageToTarget")
    assert (refusal.code, refusal.is_denial) == (-32000, True)
    assert refusal.message == (
        "policy_denied: tabherd does not allow Target.sendMessageToTarget here. "
        "Attach with flatten: true and send messages with a sessionId."
    )


# --- Targets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["Target.attachToTarget", "Target.closeTarget", "Target.activateTarget", "Target.getTargetInfo"]
)
@pytest.mark.parametrize("target_id", [FOREIGN, "nobody's", ""])
def test_foreign_and_missing_targets_look_the_same(method: str, target_id: str) -> None:
    assert refused(method, {"targetId": target_id, "flatten": True}) == NO_TARGET


def test_own_targets_are_attached_to() -> None:
    assert forwarded("Target.attachToTarget", {"targetId": TARGET, "flatten": True, "more": FOREIGN}) == {
        "targetId": TARGET,
        "flatten": True,
    }


@pytest.mark.parametrize("params", [{}, {"flatten": False}, {"flatten": None}])
def test_sessions_whose_messages_would_be_wrapped_are_denied(params: dict[str, Any]) -> None:
    assert refused("Target.attachToTarget", {"targetId": TARGET, **params}).is_denial
    assert refused("Target.setAutoAttach", {"autoAttach": True, **params}, Kind.PAGE).is_denial


def test_auto_attach_within_a_page_keeps_its_filter() -> None:
    params = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True, "filter": [{"type": "page"}, {}]}
    assert forwarded("Target.setAutoAttach", params, Kind.PAGE) == params


def test_auto_attach_may_be_ended_without_saying_flat() -> None:
    params = {"autoAttach": False, "waitForDebuggerOnStart": False}
    assert forwarded("Target.setAutoAttach", params, Kind.TAB) == params


def test_a_session_may_ask_about_its_own_target_and_leave_another_of_its_sessions() -> None:
    assert forwarded("Target.getTargetInfo", {}, Kind.PAGE) == {}
    assert forwarded("Target.detachFromTarget", {"sessionId": "s"}) == {"sessionId": "s"}
    assert refused("Target.detachFromTarget", {"targetId": FOREIGN}) == NO_TARGET


def test_a_new_page_is_in_the_sessions_context_unless_an_own_one_is_named() -> None:
    assert forwarded("Target.createTarget", {"url": ""}) == {"url": "about:blank", "browserContextId": CONTEXT}
    params = {"url": "https://a.test/", "browserContextId": MADE_CONTEXT, "width": 800, "forTab": True}
    assert forwarded("Target.createTarget", params) == params


def test_a_new_page_in_a_shared_context_names_none() -> None:
    assert forwarded("Target.createTarget", {"url": "about:blank"}, tenancy=SHARED) == {"url": "about:blank"}
    assert refused("Target.createTarget", {"url": "about:blank", "browserContextId": CONTEXT}, tenancy=SHARED)


@pytest.mark.parametrize("name", ["hidden", "enableBeginFrameControl"])
def test_pages_that_nobody_could_look_at_are_denied(name: str) -> None:
    assert refused("Target.createTarget", {"url": "about:blank", name: True}).is_denial


def test_too_many_pages_are_a_matter_of_capacity() -> None:
    client = Client()
    client.targets_left = 0
    refusal = refused("Target.createTarget", {"url": "about:blank"}, client=client)
    assert refusal.message.startswith("capacity:")
    assert not refusal.is_denial


# --- Contexts -------------------------------------------------------------------------------------------------------


def test_a_clients_context_goes_with_its_connection_and_may_have_a_proxy() -> None:
    params = {"disposeOnDetach": False, "proxyServer": "p.test:1", "originsWithUniversalNetworkAccess": []}
    assert forwarded("Target.createBrowserContext", params) == {"proxyServer": "p.test:1", "disposeOnDetach": True}


def test_the_pools_proxy_is_put_into_every_context() -> None:
    client = Client()
    client.proxy = {"proxyServer": "127.0.0.1:9", "proxyBypassList": "<-loopback>"}
    assert forwarded("Target.createBrowserContext", {}, client=client) == {"disposeOnDetach": True, **client.proxy}


@pytest.mark.parametrize("params", [{"proxyServer": "direct://"}, {"proxyBypassList": "*"}])
def test_the_pools_proxy_cannot_be_replaced_or_gone_around(params: dict[str, str]) -> None:
    client = Client()
    client.proxy = {"proxyServer": "127.0.0.1:9"}
    assert refused("Target.createBrowserContext", params, client=client).is_denial


def test_origins_without_a_same_origin_policy_are_denied() -> None:
    assert refused("Target.createBrowserContext", {"originsWithUniversalNetworkAccess": ["https://a.test"]}).is_denial


def test_too_many_contexts_are_a_matter_of_capacity() -> None:
    client = Client()
    client.contexts_left = 0
    assert refused("Target.createBrowserContext", {}, client=client).message.startswith("capacity:")


def test_only_contexts_that_the_client_made_are_disposed_of() -> None:
    params = {"browserContextId": MADE_CONTEXT}
    assert forwarded("Target.disposeBrowserContext", params) == params
    assert refused("Target.disposeBrowserContext", {"browserContextId": CONTEXT}).code == -32000
    assert refused("Target.disposeBrowserContext", {"browserContextId": FOREIGN}).code == -32000


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("Storage.getCookies", {}),
        ("Storage.setCookies", {"cookies": [{"name": "a", "value": "b", "url": "https://a.test"}]}),
        ("Storage.clearCookies", {}),
        ("Browser.grantPermissions", {"permissions": ["geolocation"], "origin": "https://a.test"}),
        ("Browser.resetPermissions", {}),
        ("Browser.setPermission", {"permission": {"name": "midi", "sysex": True}, "setting": "granted"}),
        ("Browser.cancelDownload", {"guid": DOWNLOAD}),
    ],
)
def test_what_is_of_a_context_is_of_an_own_one(method: str, params: dict[str, Any]) -> None:
    assert forwarded(method, params) == params | {"browserContextId": CONTEXT}
    named = params | {"browserContextId": MADE_CONTEXT}
    assert forwarded(method, named) == named
    assert refused(method, params | {"browserContextId": FOREIGN}).code == -32602


def test_a_page_may_not_name_a_context_for_its_cookies() -> None:
    assert forwarded("Storage.getCookies", {}, Kind.PAGE) == {}
    assert refused("Storage.getCookies", {"browserContextId": CONTEXT}, Kind.PAGE).code == -32602


def test_the_download_of_another_cannot_be_cancelled() -> None:
    refusal = refused("Browser.cancelDownload", {"guid": "foreign"})
    assert refusal == Refuse(-32602, "No download item found for the given GUID", is_denial=False)


def test_pages_may_write_the_clipboard_that_all_tenants_have_but_not_read_it() -> None:
    params = {"permissions": ["clipboardReadWrite", "midi"]}
    assert forwarded("Browser.grantPermissions", params)["permissions"] == ["clipboardSanitizedWrite", "midi"]
    assert forwarded("Browser.grantPermissions", params, tenancy=ALONE)["permissions"] == params["permissions"]


@pytest.mark.parametrize(
    "descriptor",
    [
        *({"name": "clipboard-read"}, {"name": "clipboardReadWrite"}),
        {"name": "clipboard-write", "allowWithoutSanitization": True},
    ],
)
def test_a_permission_to_read_the_clipboard_is_denied_and_may_be_taken_away(descriptor: dict[str, Any]) -> None:
    assert refused("Browser.setPermission", {"permission": descriptor, "setting": "granted"}).is_denial
    assert forwarded("Browser.setPermission", {"permission": descriptor, "setting": "denied"})
    assert forwarded("Browser.setPermission", {"permission": descriptor, "setting": "granted"}, tenancy=ALONE)


# --- Windows --------------------------------------------------------------------------------------------------------


def test_own_windows_are_moved() -> None:
    params = {"windowId": WINDOW, "bounds": {"left": -10, "width": 800, "windowState": "normal"}}
    assert forwarded("Browser.setWindowBounds", params) == params


@pytest.mark.parametrize("method", ["Browser.getWindowBounds", "Browser.setWindowBounds", "Browser.setContentsSize"])
def test_foreign_windows_are_not_found(method: str) -> None:
    refusal = refused(method, {"windowId": FOREIGN_WINDOW, "bounds": {"left": 0}})
    assert refusal == Refuse(-32000, "Browser window not found", is_denial=False)


@pytest.mark.parametrize("bounds", [{"width": 1_000_000}, {"height": -1}, {"left": 1.5}, [], "x"])
def test_windows_of_impossible_sizes_are_refused(bounds: Any) -> None:
    assert refused("Browser.setWindowBounds", {"windowId": WINDOW, "bounds": bounds}).code == -32602


def test_the_window_of_a_target_is_told_in_the_targets_own_session() -> None:
    assert forwarded("Browser.getWindowForTarget", {}, Kind.PAGE) == {}
    assert refused("Browser.getWindowForTarget", {"targetId": FOREIGN}) == NO_TARGET


def test_a_target_that_may_have_just_gone_is_not_looked_for_where_that_would_crash_everybodys_browser() -> None:
    assert refused("Browser.getWindowForTarget", {"targetId": TARGET}).code == -32000
    assert forwarded("Browser.getWindowForTarget", {"targetId": TARGET}, tenancy=ALONE) == {"targetId": TARGET}


# --- Addresses and files --------------------------------------------------------------------------------------------


NAVIGATING = [
    ("Page.navigate", {}, Kind.PAGE),
    ("Target.createTarget", {}, Kind.ROOT),
    ("Fetch.continueRequest", {"requestId": "r"}, Kind.PAGE),
]


@pytest.mark.parametrize(("method", "params", "kind"), NAVIGATING)
@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "FILE:/x", "\tfi\nle:///x", "chrome://settings", "chrome://crash", "about:crash"),
        *("devtools://devtools/", "view-source:http://a.test", "filesystem:http://a.test/t", "javascript:1"),
    ],
)
def test_pages_are_sent_to_the_web_only(method: str, params: dict[str, Any], kind: Kind, url: str) -> None:
    assert refused(method, params | {"url": url}, kind).is_denial


@pytest.mark.parametrize(("method", "params", "kind"), NAVIGATING)
def test_an_address_is_sent_as_a_browser_reads_it(method: str, params: dict[str, Any], kind: Kind) -> None:
    assert forwarded(method, params | {"url": " HT\nTPS://a.test/x"}, kind)["url"] == "https://a.test/x"


def test_one_who_has_the_browser_alone_loads_resources_of_the_web_only() -> None:
    params = {"url": "https://a.test/", "options": {"disableCache": True, "includeCredentials": True}}
    assert forwarded("Network.loadNetworkResource", params, Kind.PAGE, tenancy=ALONE) == params
    assert refused("Network.loadNetworkResource", {"url": "file:///x"}, Kind.PAGE, tenancy=ALONE).is_denial


def test_an_address_without_a_scheme_is_refused_in_chromiums_words() -> None:
    refusal = refused("Page.navigate", {"url": "a.test"}, Kind.PAGE)
    assert refusal == Refuse(-32000, "Cannot navigate to invalid URL", is_denial=False)


def test_a_request_goes_on_as_it_is() -> None:
    params = {"requestId": "r", "headers": [{"name": "a", "value": "b"}], "method": "POST"}
    assert forwarded("Fetch.continueRequest", params, Kind.PAGE) == params


def test_files_of_the_session_are_put_into_a_page() -> None:
    params = {"files": [FILE], "backendNodeId": 4}
    assert forwarded("DOM.setFileInputFiles", params, Kind.PAGE) == params


def test_other_files_are_not_put_into_a_page() -> None:
    assert refused("DOM.setFileInputFiles", {"files": [FILE, "/etc/passwd"], "nodeId": 4}, Kind.PAGE).is_denial


@pytest.mark.parametrize(
    "path", ["upload.txt", "", "/sessions/own/../other/x", "/sessions/own/upload.txt\0", "file:///etc/passwd", "~/x"]
)
def test_a_path_with_more_than_one_reading_is_refused_without_looking_at_the_disk(path: str) -> None:
    client = Client()
    assert refused("DOM.setFileInputFiles", {"files": [path]}, Kind.PAGE, client).is_denial
    assert client.asked == []


def test_downloads_go_to_the_sessions_directory() -> None:
    params = {"behavior": "allowAndName", "downloadPath": "/etc", "eventsEnabled": True}
    assert forwarded("Browser.setDownloadBehavior", params) == {
        "behavior": "allowAndName",
        "downloadPath": DOWNLOADS,
        "eventsEnabled": True,
        "browserContextId": CONTEXT,
    }


def test_the_downloads_of_a_page_go_to_the_sessions_directory() -> None:
    params = {"behavior": "allow", "downloadPath": "/etc"}
    expected = {"behavior": "allow", "downloadPath": DOWNLOADS}
    assert forwarded("Page.setDownloadBehavior", params, Kind.PAGE) == expected


@pytest.mark.parametrize("behavior", ["deny", "default"])
def test_downloads_that_are_not_wanted_go_nowhere(behavior: str) -> None:
    params = {"behavior": behavior, "downloadPath": "/etc"}
    assert forwarded("Page.setDownloadBehavior", params, Kind.PAGE) == {"behavior": "deny"}


def drag(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "drop", "x": 1, "y": 2, "data": {"items": list(items), "dragOperationsMask": 1, **more}}


def test_text_and_links_are_dragged() -> None:
    text, link = (
        {"mimeType": "text/plain", "data": "file:///x"},
        {"mimeType": "text/uri-list", "data": "http://a.test/"},
    )
    assert forwarded("Input.dispatchDragEvent", drag(text, link), Kind.PAGE) == drag(text, link)


def test_files_are_not_dropped_on_pages_not_even_own_ones() -> None:
    assert refused("Input.dispatchDragEvent", drag(files=[FILE]), Kind.PAGE).is_denial
    assert refused("Input.dispatchDragEvent", drag(files=[FILE]), Kind.PAGE, tenancy=ALONE).is_denial


@pytest.mark.parametrize(
    "data", ["file:///etc/passwd", " file:///x", "#c\r\nfile:///x", "http://a.test/\nfile:///x", "chrome://crash"]
)
@pytest.mark.parametrize("mime_type", ["text/uri-list", "TEXT/uri-list ", "text/uri-list;charset=utf-8"])
def test_links_out_of_the_web_are_not_dropped_on_pages(mime_type: str, data: str) -> None:
    item = {"mimeType": mime_type, "data": data}
    assert refused("Input.dispatchDragEvent", drag(item), Kind.PAGE).is_denial


# --- What would harm others -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        {"windowsVirtualKeyCode": 86, "modifiers": 2},
        {"windowsVirtualKeyCode": 86, "modifiers": 2 + 8, "key": "x"},
        {"windowsVirtualKeyCode": 86.0, "modifiers": 2.0},
        {"windowsVirtualKeyCode": 86, "modifiers": 4},
        {"windowsVirtualKeyCode": 45, "modifiers": 8},
        {"key": "Paste"},
        {"code": "Paste"},
        {"commands": ["copy", "pasteAndMatchStyle"]},
    ],
)
def test_nobody_pastes_from_the_clipboard_that_all_tenants_have(key: dict[str, Any]) -> None:
    assert refused("Input.dispatchKeyEvent", {"type": "rawKeyDown", **key}, Kind.PAGE).is_denial


@pytest.mark.parametrize(
    "key",
    [
        {"type": "keyDown", "key": "v", "code": "KeyV", "windowsVirtualKeyCode": 86, "text": "v"},
        {"type": "rawKeyDown", "key": "c", "windowsVirtualKeyCode": 67, "modifiers": 2, "commands": ["copy"]},
        {"type": "keyUp", "windowsVirtualKeyCode": 86, "modifiers": 2},
    ],
)
def test_other_keys_are_pressed_as_they_are(key: dict[str, Any]) -> None:
    assert forwarded("Input.dispatchKeyEvent", key, Kind.PAGE) == key


MOUSE = ["Input.dispatchMouseEvent", "Input.emulateTouchFromMouseEvent"]
POINT = {"x": 1.5, "y": 2}


@pytest.mark.parametrize("method", MOUSE)
@pytest.mark.parametrize(
    "event",
    [
        *({"type": "mousePressed", "button": "middle"}, {"type": "mouseReleased", "button": "middle"}),
        *({"type": "mousePressed", "button": "left", "buttons": 5}, {"type": "mouseMoved", "buttons": 4.0}),
    ],
)
def test_the_middle_button_is_not_pressed_where_it_pastes_what_others_selected(
    method: str, event: dict[str, Any]
) -> None:
    assert refused(method, POINT | event, Kind.PAGE, tenancy=ATTACHED).is_denial


@pytest.mark.parametrize("method", MOUSE)
def test_the_other_buttons_are_pressed_there_as_they_are(method: str) -> None:
    event = POINT | {"type": "mousePressed", "button": "left", "buttons": 3, "clickCount": 2, "modifiers": 2}
    assert forwarded(method, event, Kind.PAGE, tenancy=ATTACHED) == event


@pytest.mark.parametrize("method", MOUSE)
@pytest.mark.parametrize("tenancy", [CONTEXTS, SHARED, ALONE])
def test_the_mouse_is_not_looked_at_where_the_browser_was_told_not_to_paste(method: str, tenancy: Tenancy) -> None:
    assert rule_for(Kind.PAGE, method, tenancy) is Rule.PASS


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("Storage.overrideQuotaForOrigin", {"origin": "https://a.test", "quotaSize": -1}),
        ("Storage.overrideQuotaForOrigin", {"origin": "https://a.test", "quotaSize": 1e308}),
        ("Storage.overrideQuotaForOrigin", {"origin": "https://a.test", "quotaSize": float("nan")}),
        ("Input.imeSetComposition", {"text": "a", "selectionStart": 0, "selectionEnd": 0, "replacementStart": -1}),
        ("Input.imeSetComposition", {"text": "a", "selectionStart": 0, "selectionEnd": 0, "replacementEnd": -1}),
        ("Emulation.setDisplayFeaturesOverride", {"features": []}),
        ("Emulation.setDisplayFeaturesOverride", {}),
        ("Network.configureDurableMessages", {"maxTotalBufferSize": 1 << 40}),
        ("Network.enable", {"enableDurableMessages": True, "maxTotalBufferSize": 1 << 40}),
    ],
)
def test_values_that_would_end_or_fill_everybodys_browser_are_refused(method: str, params: dict[str, Any]) -> None:
    assert refused(method, params, Kind.PAGE).code == -32602


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("Storage.overrideQuotaForOrigin", {"origin": "https://a.test"}),
        ("Storage.overrideQuotaForOrigin", {"origin": "https://a.test", "quotaSize": 1_000}),
        ("Input.imeSetComposition", {"text": "a", "selectionStart": 0, "selectionEnd": 1}),
        (
            "Emulation.setDisplayFeaturesOverride",
            {"features": [{"orientation": "vertical", "offset": 1, "maskLength": 2}]},
        ),
        ("Network.enable", {}),
        ("Network.enable", {"maxTotalBufferSize": 1 << 30, "maxPostDataSize": 100}),
    ],
)
def test_sensible_values_pass(method: str, params: dict[str, Any]) -> None:
    assert forwarded(method, params, Kind.PAGE) == params


def test_a_client_may_crash_its_own_pages_now_and_then() -> None:
    client = Client()
    assert forwarded("Page.crash", {}, Kind.PAGE, client) == {}
    assert refused("Page.crash", {}, Kind.PAGE, client).message.startswith("rate_limited:")


def test_who_has_the_browser_alone_traces_it_and_not_the_machine() -> None:
    expected = {"tracingBackend": "chrome", "categories": "v8"}
    assert forwarded("Tracing.start", {"categories": "v8"}, Kind.ROOT, tenancy=ALONE) == expected
    assert refused("Tracing.start", {"tracingBackend": "system"}, Kind.ROOT, tenancy=ALONE).is_denial
    assert refused("Tracing.start", {"perfettoConfig": "CgA="}, Kind.ROOT, tenancy=ALONE).is_denial
    assert rule_for(Kind.ROOT, "Tracing.start", CONTEXTS) is Rule.DENY


# --- Answers and events ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        *("Fetch.continueRequest", "Fetch.continueResponse", "Fetch.continueWithAuth", "Fetch.fulfillRequest"),
        *("Fetch.failRequest", "Page.handleJavaScriptDialog", "Runtime.runIfWaitingForDebugger", "Debugger.resume"),
        *("Runtime.releaseObject", "Runtime.releaseObjectGroup", "Target.detachFromTarget"),
        *("Page.enable", "Network.disable", "Novel.enable"),
    ],
)
def test_answers_pass_also_while_another_holds_the_tab(method: str) -> None:
    assert is_answer(method)


@pytest.mark.parametrize(
    "method", ["Fetch.getResponseBody", "Page.navigate", "Runtime.evaluate", "Runtime.enabled", "Debugger.pause"]
)
def test_commands_wait_while_another_holds_the_tab(method: str) -> None:
    assert not is_answer(method)


@pytest.mark.parametrize("method", ["Browser.downloadWillBegin", "Browser.downloadProgress"])
def test_only_own_downloads_are_shown(method: str) -> None:
    assert is_shown(method, {"guid": DOWNLOAD}, Client())
    assert not is_shown(method, {"guid": FOREIGN}, Client())
    assert not is_shown(method, {}, Client())


def test_other_events_are_shown() -> None:
    assert is_shown("Page.frameNavigated", {}, Client())
