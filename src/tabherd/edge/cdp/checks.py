"""Checks of the methods that name targets, contexts, windows and downloads: each must be the client's own.

Whether what is named belongs to somebody else or to nobody is never told: the answer is the same, in Chromium's words.
"""

from __future__ import annotations

from typing import Final

from .params import Params, judged_url
from .verdict import INVALID_PARAMS, SERVER_ERROR, Kind, Owner, Refused, Tenancy, denied, invalid

# No window is larger: its surfaces are in processes that all tenants share.
WINDOW_MAX_PX: Final = 16_384
_WINDOW_ID_MAX: Final = (1 << 31) - 1
_PLACES: Final = ("left", "top")
_SIZES: Final = ("width", "height")

# Permissions that let a page read the clipboard, as `grantPermissions` and as the web spell them.
_CLIPBOARD: Final = "clipboardReadWrite"
_CLIPBOARD_READING: Final = frozenset({"clipboard-read", _CLIPBOARD})
# What is granted in its place: writing alone.
_CLIPBOARD_WRITE: Final = "clipboardSanitizedWrite"


def no_target() -> Refused:
    return Refused(INVALID_PARAMS, "No target with given id found")


def _own_target(params: Params, owner: Owner) -> None:
    if not owner.owns_target(params.needed("targetId")):
        raise no_target()


def _own_context(params: Params, owner: Owner) -> None:
    """The context it names, if that is the client's own; the session's if it names none."""
    given = params.string("browserContextId")
    if given is not None and not owner.owns_context(given):
        raise Refused(INVALID_PARAMS, f"Failed to find browser context with id {given}")
    if given is None:
        if not owner.context_id:
            raise denied("the sessions of this pool share one context, which none of them may change for the others.")
        params.kept["browserContextId"] = owner.context_id


# --- Target ---------------------------------------------------------------------------------------------------------


def own_target(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    _own_target(params, owner)


def detach_from_target(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    # Chromium looks for it among the sessions of this connection only.
    params.string("sessionId")
    own_target_if_named(kind, params, owner, tenancy)


def own_target_if_named(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    # Without one it is about the session's own target.
    if params.string("targetId") is not None:
        _own_target(params, owner)


def attach_to_target(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    _own_target(params, owner)
    _need_flat(params)


def set_auto_attach(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    if params.flag("autoAttach"):
        _need_flat(params)
    params.flag("waitForDebuggerOnStart")
    for entry in params.groups("filter"):
        entry.string("type")
        entry.flag("exclude")


def _need_flat(params: Params) -> None:
    """Messages wrapped in messages would not be judged."""
    if not params.flag("flatten"):
        raise denied("tabherd does not allow sessions that are not flat. Send flatten: true.")


def create_target(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    # An empty address is a blank page.
    params.kept["url"] = judged_url(params.needed("url") or "about:blank")
    # The full browser would make a target of no known type, and the shell one that never draws by itself, so that
    # whoever wants a picture of it waits for ever.
    for name in ("hidden", "enableBeginFrameControl"):
        if params.flag(name):
            raise denied(f"tabherd does not allow pages that are made with {name}. Leave it out.")
    for name in ("newWindow", "background", "focus", "forTab"):
        params.flag(name)
    _bounds(params)
    given = params.string("browserContextId")
    if given is not None and (tenancy.is_shared or not owner.owns_context(given)):
        raise Refused(INVALID_PARAMS, f"Failed to find browser context with id {given}")
    if given is None and owner.context_id:
        params.kept["browserContextId"] = owner.context_id
    if owner.targets_left <= 0:
        raise Refused(SERVER_ERROR, "capacity: the session has as many pages as it may have. Close one first.")


def create_browser_context(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    if params.items("originsWithUniversalNetworkAccess"):
        raise denied("tabherd does not allow originsWithUniversalNetworkAccess. Leave it out.")
    params.kept.clear()
    server, bypass = params.string("proxyServer"), params.string("proxyBypassList")
    if owner.proxy:
        if server or bypass:
            raise denied("this pool has a proxy that all its contexts use. Leave proxyServer and proxyBypassList out.")
        params.kept.update(owner.proxy)
    # So that none is left behind by a client that has gone.
    params.kept["disposeOnDetach"] = True
    if owner.contexts_left <= 0:
        raise Refused(SERVER_ERROR, "capacity: the session has as many contexts as it may have. Dispose of one first.")


def dispose_browser_context(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    given = params.needed("browserContextId")
    if not owner.owns_context(given):
        raise Refused(SERVER_ERROR, f"Failed to find context with id {given}")
    if given == owner.context_id:
        raise Refused(
            SERVER_ERROR, "This is the session's own context: it goes with the session. Release that instead."
        )


# --- Browser --------------------------------------------------------------------------------------------------------


def get_window_for_target(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    if params.string("targetId") is None:
        return
    _own_target(params, owner)
    if not tenancy.is_alone:
        # The headless shell crashes, with everybody in it, when the target has just been closed.
        raise Refused(SERVER_ERROR, "Ask for the window in the page's own session, without a targetId.")


def own_window(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    window_id = params.integer("windowId", 0, _WINDOW_ID_MAX)
    if window_id is None:
        raise invalid("windowId is required")
    if not owner.owns_window(window_id):
        raise Refused(SERVER_ERROR, "Browser window not found")
    for name in _SIZES:
        params.integer(name, 0, WINDOW_MAX_PX)
    if (bounds := params.group("bounds")) is not None:
        _bounds(bounds)


def _bounds(params: Params) -> None:
    for name in _PLACES:
        params.integer(name, -WINDOW_MAX_PX, WINDOW_MAX_PX)
    for name in _SIZES:
        params.integer(name, 0, WINDOW_MAX_PX)
    params.string("windowState")


def grant_permissions(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    _own_context(params, owner)
    wanted = params.strings("permissions")
    # All tenants have one clipboard between them: a page may write it, but not read what others wrote.
    if not tenancy.is_alone:
        params.kept["permissions"] = [_CLIPBOARD_WRITE if name == _CLIPBOARD else name for name in wanted]
    params.string("origin")


def set_permission(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    _own_context(params, owner)
    descriptor = params.group("permission")
    if descriptor is None:
        raise invalid("permission is required")
    if _is_reading_clipboard(descriptor) and params.string("setting") == "granted" and not tenancy.is_alone:
        raise denied(
            "tabherd does not let pages read the clipboard: it is one for all sessions of this browser. "
            "Use a pool with isolation = browser."
        )
    for name in ("setting", "origin", "embeddedOrigin"):
        params.string(name)


def _is_reading_clipboard(descriptor: Params) -> bool:
    name = descriptor.needed("name")
    for detail in ("sysex", "userVisibleOnly", "allowWithoutGesture", "panTiltZoom"):
        descriptor.flag(detail)
    # To write what is not sanitised is, to Chromium, the same permission as to read.
    is_raw = descriptor.flag("allowWithoutSanitization")
    return name in _CLIPBOARD_READING or (name == "clipboard-write" and is_raw)


def own_context(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    _own_context(params, owner)


def set_download_behavior(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    _own_context(params, owner)
    send_downloads_home(params, owner)
    params.flag("eventsEnabled")


def send_downloads_home(params: Params, owner: Owner) -> None:
    """Files are written to the session's directory or not at all, whatever path was asked for."""
    match params.needed("behavior"):
        case "allow" | "allowAndName":
            params.kept["downloadPath"] = owner.download_dir
        case "deny" | "default":
            # The full browser's default is the download directory of whoever started it.
            params.kept["behavior"] = "deny"
        case _:
            raise invalid("behavior must be deny, allow, allowAndName or default")


def cancel_download(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    _own_context(params, owner)
    if not owner.owns_download(params.needed("guid")):
        raise Refused(INVALID_PARAMS, "No download item found for the given GUID")


# --- Storage --------------------------------------------------------------------------------------------------------


def cookies(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    if kind is Kind.ROOT:
        _own_context(params, owner)
    elif params.string("browserContextId") is not None:
        # A page's session is bound to its context already.
        raise Refused(INVALID_PARAMS, "browserContextId is only allowed for Browser target")
    params.items("cookies")
