"""Checks of the methods that give a page addresses, files, keys, or values that would harm other tenants."""

from __future__ import annotations

import re
from typing import Final

from .checks import send_downloads_home
from .params import Params, judged_url
from .verdict import SERVER_ERROR, Kind, Owner, Refused, Tenancy, denied, invalid

# Bodies of answers that the browser keeps outside of the page's own process, for one session of a client.
DURABLE_MAX_BYTES: Final = 64 << 20
# Above this, and below zero, Chromium's conversion to a whole number fails and ends the browser.
QUOTA_MAX_BYTES: Final = 1 << 50
_INT_MAX: Final = (1 << 31) - 1

_CTRL: Final = 2
_META: Final = 4
_SHIFT: Final = 8
_KEY_V: Final = 86
_KEY_INSERT: Final = 45
_PASTE: Final = "paste"
_MIDDLE: Final = "middle"
_MIDDLE_BIT: Final = 4
_MOUSE_DETAILS: Final = (
    *("x", "y", "modifiers", "timestamp", "clickCount", "force", "tangentialPressure", "tiltX", "tiltY", "twist"),
    *("deltaX", "deltaY", "pointerType"),
)
_KEY_DETAILS: Final = (
    *("timestamp", "text", "unmodifiedText", "keyIdentifier", "nativeVirtualKeyCode"),
    *("autoRepeat", "isKeypad", "isSystemKey", "location"),
)
_URI_LIST: Final = "text/uri-list"
_LINE_ENDS: Final = re.compile(r"[\r\n]+")


# --- Addresses ------------------------------------------------------------------------------------------------------


def navigate(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    params.needed("url")
    params.url("url")
    # Frames are looked for in the page's own tree only. A referrer is sent as a header and nothing else.
    for name in ("frameId", "referrer", "referrerPolicy", "transitionType"):
        params.string(name)


def load_network_resource(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    params.needed("url")
    params.url("url")
    params.string("frameId")
    params.opaque("options")


def continue_request(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    params.needed("requestId")
    params.url("url")
    params.scalars("method", "postData", "interceptResponse")
    params.opaque("headers")


# --- Files ----------------------------------------------------------------------------------------------------------


def set_file_input_files(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    for path in params.strings("files"):
        # The rest is for the session to say; what has more than one reading is not even asked about.
        is_plain = path.startswith("/") and "\0" not in path and ".." not in path.split("/")
        if not is_plain or not owner.may_read(path):
            raise denied(
                f"tabherd does not let pages read {path!r}: only files of the session may be used. "
                "Upload it to the session first."
            )
    params.scalars("nodeId", "backendNodeId", "objectId")


def set_download_behavior(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    send_downloads_home(params, owner)


def dispatch_drag_event(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    """A page that does not take what is dropped on it is left: the browser opens the file or address itself.

    A page of a file may go on to every other file of the machine; so files are not dropped at all.
    """
    params.scalars("type", "x", "y", "modifiers")
    if (data := params.group("data")) is None:
        raise invalid("data is required")
    if data.items("files"):
        raise denied("tabherd does not allow files in a drag. Use DOM.setFileInputFiles.")
    data.scalars("dragOperationsMask")
    for item in data.groups("items"):
        content = item.needed("data")
        if item.needed("mimeType").strip().lower().startswith(_URI_LIST):
            lines = (line for line in _LINE_ENDS.split(content) if line.strip() and not line.lstrip().startswith("#"))
            item.kept["data"] = "\r\n".join(judged_url(line) for line in lines)
        # Only what relative addresses in dropped markup are resolved against, so it is left out.
        item.string("title")


# --- What is everybody's --------------------------------------------------------------------------------------------


def dispatch_key_event(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    """No pasting: all tenants of a browser have one clipboard, and one would read what another copied."""
    modifiers = params.integer("modifiers", 0, _INT_MAX) or 0
    code = params.integer("windowsVirtualKeyCode", -_INT_MAX, _INT_MAX)
    # Chromium goes by this code, whatever the names of the key say; but there is also a key that is named so.
    is_shortcut = (code == _KEY_V and modifiers & (_CTRL | _META)) or (code == _KEY_INSERT and modifiers & _SHIFT)
    names = (params.string("key"), params.string("code"), *params.strings("commands"))
    is_named = any(name is not None and _PASTE in name.lower() for name in names)
    if (is_shortcut or is_named) and params.string("type") != "keyUp":
        raise denied(
            "tabherd does not paste: the clipboard is one for all sessions of this browser. "
            "Use Input.insertText, or a pool with isolation = browser."
        )
    params.scalars("type", *_KEY_DETAILS)


def mouse_event(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    """No middle button: it pastes the selection, and one tenant would read what another selected."""
    buttons = params.integer("buttons", 0, _INT_MAX) or 0
    if params.string("button") == _MIDDLE or buttons & _MIDDLE_BIT:
        raise denied(
            "tabherd does not press the middle button here: it pastes what other sessions of this browser selected. "
            "Use the left button, with modifiers: 2 for a new tab, or a pool that launches its browsers."
        )
    params.scalars("type", *_MOUSE_DETAILS)


def ime_set_composition(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    # A negative replacement ends the whole browser.
    for name in ("replacementStart", "replacementEnd"):
        params.integer(name, 0, _INT_MAX)
    for name in ("selectionStart", "selectionEnd"):
        params.integer(name, 0, _INT_MAX)
    params.scalars("text")


def set_display_features(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    # An empty list ends the whole browser.
    features = params.groups("features")
    if not features:
        raise invalid("features must not be empty: use Emulation.clearDisplayFeaturesOverride")
    for feature in features:
        feature.string("orientation")
        feature.integer("offset", 0, _INT_MAX)
        feature.integer("maskLength", 0, _INT_MAX)


def override_quota(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    params.needed("origin")
    params.number("quotaSize", 0, QUOTA_MAX_BYTES)


def keep_bodies(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    """`Network.configureDurableMessages`."""
    for name in ("maxTotalBufferSize", "maxResourceBufferSize"):
        params.integer(name, 0, DURABLE_MAX_BYTES)


def enable_network(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    if params.flag("enableDurableMessages"):
        keep_bodies(kind, params, owner, tenancy)
    params.scalars("maxTotalBufferSize", "maxResourceBufferSize", "maxPostDataSize", "reportDirectSocketTraffic")


def crash(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    if not owner.may_crash():
        raise Refused(SERVER_ERROR, "rate_limited: too many pages of this session were crashed lately.")


def start_tracing(kind: Kind, params: Params, owner: Owner, tenancy: Tenancy) -> None:
    # A configuration of its own may name files to write, and the system's backend traces the whole machine.
    if params.string("perfettoConfig") or params.string("tracingBackend") not in (None, "auto", "chrome"):
        raise denied("tabherd does not allow perfettoConfig and tracingBackend. Use traceConfig or categories.")
    params.kept["tracingBackend"] = "chrome"
    params.scalars("categories", "options", "bufferUsageReportingInterval", "transferMode", "streamFormat")
    params.scalars("streamCompression", "screenshotMaxSize", "screenshotMaxCount")
    params.opaque("traceConfig")
