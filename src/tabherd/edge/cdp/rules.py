"""What becomes of a CDP client's message: passed, checked, answered by tabherd, or denied. Pure: facts come in.

Invariants:
- In a session with the powers of the browser, of a tab or of a worker only what is listed is allowed. In the sessions
  of pages and frames everything is that is not known to reach further; what is not known at all passes there, unless
  its domain is about the whole browser.
- What is forwarded after a check names nothing that is not the client's own, reaches no file but the session's, and
  sends no page to an address outside the web. It is built anew from the parameters that were judged.
- A refusal does not tell whether what it was about exists.
- No message makes `check` raise, whatever its parameters are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from . import checks, page_checks
from .methods import (
    ANSWER_ENDINGS,
    ANSWERS,
    CHECKED,
    CHECKED_ALONE,
    CHECKED_FOR_OTHERS,
    CHECKED_FOR_SELECTION,
    DENIED,
    DENIED_DOMAINS,
    EMULATED,
    EMULATED_AT_ROOT,
    FATAL_IN_FRAMES,
    GUARDED_DOMAINS,
    OF_BROWSER,
    OF_BROWSER_DOMAINS,
    OF_CONTEXTS,
    OF_CONTEXTS_DOMAINS,
    OF_ROOT,
    OF_SERVICE_WORKER,
    OF_TAB,
    OF_WORKER,
    PASSED,
)
from .params import Params
from .verdict import SERVER_ERROR, Forward, Kind, Owner, Refuse, Refused, Rule, Tenancy, Verdict

__all__ = [
    "Forward",
    "Kind",
    "Owner",
    "Refuse",
    "Rule",
    "Tenancy",
    "Verdict",
    "check",
    "denial",
    "is_answer",
    "is_shown",
    "kind_of",
    "rule_for",
]

# By `TargetInfo.type`. The browser's own surfaces, extensions and what is new are not attached to.
_KINDS: Final[Mapping[str, Kind]] = {
    "browser": Kind.ROOT,
    "tab": Kind.TAB,
    "page": Kind.PAGE,
    "iframe": Kind.FRAME,
    "webview": Kind.FRAME,
    "worker": Kind.WORKER,
    "shared_worker": Kind.WORKER,
    "service_worker": Kind.SERVICE_WORKER,
    "worklet": Kind.WORKER,
    "auction_worklet": Kind.WORKER,
    "shared_storage_worklet": Kind.WORKER,
}
_BEYOND_PAGES: Final = DENIED_DOMAINS | GUARDED_DOMAINS
# All that is allowed, by the kind of a session; what is not here is a page or a frame.
_ALLOWED: Final[Mapping[Kind, frozenset[str]]] = {
    Kind.ROOT: OF_ROOT,
    Kind.TAB: OF_TAB,
    Kind.WORKER: OF_WORKER,
    Kind.SERVICE_WORKER: OF_SERVICE_WORKER,
}
# A name that can be put into a message as it is.
_METHOD: Final = re.compile(r"[A-Za-z]{1,60}\.[A-Za-z]{1,60}")

Check = Callable[[Kind, Params, Owner, Tenancy], None]

_CHECKS: Final[Mapping[str, Check]] = {
    "Target.activateTarget": checks.own_target,
    "Target.attachToTarget": checks.attach_to_target,
    "Target.closeTarget": checks.own_target,
    "Target.createBrowserContext": checks.create_browser_context,
    "Target.createTarget": checks.create_target,
    "Target.detachFromTarget": checks.detach_from_target,
    "Target.disposeBrowserContext": checks.dispose_browser_context,
    "Target.getTargetInfo": checks.own_target_if_named,
    "Target.setAutoAttach": checks.set_auto_attach,
    "Browser.cancelDownload": checks.cancel_download,
    "Browser.getWindowBounds": checks.own_window,
    "Browser.getWindowForTarget": checks.get_window_for_target,
    "Browser.grantPermissions": checks.grant_permissions,
    "Browser.resetPermissions": checks.own_context,
    "Browser.setContentsSize": checks.own_window,
    "Browser.setDownloadBehavior": checks.set_download_behavior,
    "Browser.setPermission": checks.set_permission,
    "Browser.setWindowBounds": checks.own_window,
    "Storage.clearCookies": checks.cookies,
    "Storage.getCookies": checks.cookies,
    "Storage.setCookies": checks.cookies,
    "Storage.overrideQuotaForOrigin": page_checks.override_quota,
    "Page.crash": page_checks.crash,
    "Page.navigate": page_checks.navigate,
    "Page.setDownloadBehavior": page_checks.set_download_behavior,
    "Network.configureDurableMessages": page_checks.keep_bodies,
    "Network.enable": page_checks.enable_network,
    "Network.loadNetworkResource": page_checks.load_network_resource,
    "Fetch.continueRequest": page_checks.continue_request,
    "DOM.setFileInputFiles": page_checks.set_file_input_files,
    "Input.dispatchDragEvent": page_checks.dispatch_drag_event,
    "Input.dispatchMouseEvent": page_checks.mouse_event,
    "Input.emulateTouchFromMouseEvent": page_checks.mouse_event,
    "Input.dispatchKeyEvent": page_checks.dispatch_key_event,
    "Input.imeSetComposition": page_checks.ime_set_composition,
    "Emulation.setDisplayFeaturesOverride": page_checks.set_display_features,
    "Tracing.start": page_checks.start_tracing,
}

# What to do instead, by method or by domain.
_INSTEAD: Final[Mapping[str, str]] = {
    "Target.sendMessageToTarget": "Attach with flatten: true and send messages with a sessionId.",
    "Target.autoAttachRelated": "Use Target.setAutoAttach.",
    "Target.exposeDevToolsProtocol": "Use a CDP connection of your own.",
    "Target.createBrowserContext": "The sessions of this pool share one context; open pages with Target.createTarget.",
    "Target.disposeBrowserContext": "The sessions of this pool share one context.",
    "Browser.crash": "Page.crash crashes a page of your own.",
    "Page.handleFileChooser": "Use DOM.setFileInputFiles.",
    "Network.loadNetworkResource": (
        "All of it would be kept in a process that every session shares. Load it in a page and use "
        "Fetch.takeResponseBodyAsStream and IO.read, or use a pool with isolation = browser."
    ),
    "Fetch.getResponseBody": (
        "All of it would be kept in a process that every session shares. Use Fetch.takeResponseBodyAsStream and "
        "IO.read, or a pool with isolation = browser."
    ),
    "Network.setRequestInterception": "Use Fetch.enable in the session of a page.",
    "Network.continueInterceptedRequest": "Use Fetch.continueRequest.",
    "Emulation.setDisplayFeaturesOverride": "Use it in the session of the page.",
    "Fetch": "Use it in the session of a page.",
    "Input": "Use it in the session of the page.",
    "Network": "Use it in the session of a page.",
    "Security": "Use it in the session of a page.",
    "Storage": "Use it in the session of a page.",
    "Tracing": "Use a pool with isolation = browser.",
    "Emulation": "Use a pool with isolation = browser.",
    "BluetoothEmulation": "Use a pool with isolation = browser.",
    "Page": "Use a pool with isolation = browser.",
}


def kind_of(target_type: str) -> Kind | None:
    """What a session attached to such a target is; None: it must not be attached to."""
    return _KINDS.get(target_type)


def rule_for(kind: Kind, method: str, tenancy: Tenancy) -> Rule:
    if method in EMULATED or (kind is Kind.ROOT and method in EMULATED_AT_ROOT):
        return Rule.EMULATE
    if tenancy.is_shared and (
        method in OF_CONTEXTS
        or _domain(method) in OF_CONTEXTS_DOMAINS
        or (kind is Kind.ROOT and method.startswith("Storage."))
    ):
        # Playwright sends this one when it connects, and takes a refusal for a broken browser. Answered and no more.
        is_greeting = kind is Kind.ROOT and method == "Browser.setDownloadBehavior"
        return Rule.EMULATE if is_greeting else Rule.DENY
    if (allowed := _ALLOWED.get(kind)) is not None and method not in allowed:
        return _rule_alone(method) if tenancy.is_alone and kind is Kind.ROOT else Rule.DENY
    if kind is Kind.FRAME and method in FATAL_IN_FRAMES:
        return Rule.DENY
    if method in CHECKED:
        return Rule.CHECK
    if method in PASSED:
        return Rule.PASS
    if method in CHECKED_FOR_OTHERS:
        return Rule.PASS if tenancy.is_alone else Rule.CHECK
    if method in CHECKED_FOR_SELECTION:
        return Rule.CHECK if tenancy.shares_selection else Rule.PASS
    if (alone := _rule_alone(method)) is not Rule.DENY:
        return alone if tenancy.is_alone else Rule.DENY
    is_within = method not in DENIED and _domain(method) not in _BEYOND_PAGES
    return Rule.PASS if is_within and _METHOD.fullmatch(method) else Rule.DENY


def _rule_alone(method: str) -> Rule:
    """For what only one who has the browser alone may do."""
    if method in CHECKED_ALONE:
        return Rule.CHECK
    is_of_browser = method in OF_BROWSER or (_domain(method) in OF_BROWSER_DOMAINS and _METHOD.fullmatch(method))
    return Rule.PASS if is_of_browser else Rule.DENY


def check(kind: Kind, method: str, params: dict[str, Any], owner: Owner, tenancy: Tenancy) -> Verdict:
    """Judge the parameters of a method whose rule is `CHECK`."""
    judged = Params(params)
    try:
        _CHECKS[method](kind, judged, owner, tenancy)
    except Refused as refused:
        return refused.refusal
    return Forward(judged.kept)


def denial(method: str) -> Refuse:
    """For a method whose rule is `DENY`."""
    instead = _INSTEAD.get(method) or _INSTEAD.get(_domain(method)) or "It reaches beyond the session."
    return Refuse(SERVER_ERROR, f"policy_denied: tabherd does not allow {method[:121]} here. {instead}", is_denial=True)


def is_answer(method: str) -> bool:
    """Whether it passes also while another controller holds the tab."""
    return method in ANSWERS or method.endswith(ANSWER_ENDINGS)


def is_shown(method: str, params: Mapping[str, Any], owner: Owner) -> bool:
    """Whether an event of Chromium's is the client's business; those of the Target domain are judged elsewhere."""
    if method in ("Browser.downloadWillBegin", "Browser.downloadProgress"):
        guid = params.get("guid")
        return isinstance(guid, str) and owner.owns_download(guid)
    return True


def _domain(method: str) -> str:
    return method.partition(".")[0]
