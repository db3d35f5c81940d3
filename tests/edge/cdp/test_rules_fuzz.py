"""Whatever parameters a client sends, the check does not raise, and nothing gets through that is not its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tabherd.actions.url_policy import allowed_url
from tabherd.edge.cdp import methods
from tabherd.edge.cdp.rules import Forward, Kind, Refuse, Rule, check, rule_for

from .owner import (
    CONTEXT,
    CONTEXTS,
    DOWNLOAD,
    DOWNLOADS,
    FILE,
    FOREIGN,
    FOREIGN_WINDOW,
    MADE_CONTEXT,
    TARGET,
    TENANCIES,
    WINDOW,
    Client,
)

CHECKED = sorted(methods.CHECKED | methods.CHECKED_FOR_OTHERS | methods.CHECKED_FOR_SELECTION | methods.CHECKED_ALONE)
# Every place at which a check is asked for.
PLACES = [
    (kind, method, tenancy)
    for kind in Kind
    for method in CHECKED
    for tenancy in TENANCIES
    if rule_for(kind, method, tenancy) is Rule.CHECK
]

FOREIGN_STRINGS = (
    *(FOREIGN, "/etc/passwd", "/sessions/own/../other/x", "file:///etc/passwd", " fi\nle:///etc/passwd"),
    *("chrome://settings", "javascript:1", "#x\r\nfile:///x", "view-source:http://a.test", "system", "CgA="),
)
OWN_STRINGS = (CONTEXT, MADE_CONTEXT, TARGET, DOWNLOAD, FILE, "https://a.test/", "about:blank", "", "text/uri-list")
WORDS = (
    "allow",
    "allowAndName",
    "default",
    "deny",
    "granted",
    "clipboard-read",
    "clipboardReadWrite",
    "paste",
    "drop",
    "middle",
)
NAMES = (
    *("targetId", "browserContextId", "windowId", "guid", "url", "files", "downloadPath", "behavior", "flatten"),
    *("autoAttach", "filter", "type", "exclude", "bounds", "left", "width", "height", "hidden", "forTab", "sessionId"),
    *("proxyServer", "proxyBypassList", "originsWithUniversalNetworkAccess", "disposeOnDetach", "permissions"),
    *("permission", "name", "setting", "origin", "cookies", "data", "items", "mimeType", "title", "requestId"),
    *("headers", "options", "frameId", "modifiers", "windowsVirtualKeyCode", "commands", "key", "code", "features"),
    *("quotaSize", "replacementStart", "replacementEnd", "text", "enableDurableMessages", "maxTotalBufferSize"),
    *("perfettoConfig", "tracingBackend", "traceConfig", "eventsEnabled", "enableBeginFrameControl", "nodeId"),
    *("button", "buttons"),
)
# What goes to Chromium as it is, because it reaches nothing, whatever is in it.
OPAQUE = frozenset({"cookies", "headers", "options", "traceConfig"})

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from((WINDOW, FOREIGN_WINDOW, 45, 86, 2, 8, -1, 1 << 40)),
    st.sampled_from(FOREIGN_STRINGS + OWN_STRINGS + WORDS),
    st.text(max_size=20),
)
names = st.one_of(st.sampled_from(NAMES), st.text(max_size=10))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=5)),
    max_leaves=12,
)
# Mostly as they should be, so that the deeper parts of the checks are reached too.
likely = st.fixed_dictionaries(
    {},
    optional={
        "targetId": st.sampled_from((TARGET, FOREIGN)),
        "browserContextId": st.sampled_from((CONTEXT, MADE_CONTEXT, FOREIGN)),
        "windowId": st.sampled_from((WINDOW, FOREIGN_WINDOW)),
        "guid": st.sampled_from((DOWNLOAD, FOREIGN)),
        "url": st.sampled_from(FOREIGN_STRINGS + OWN_STRINGS),
        "files": st.lists(st.sampled_from((FILE, "/etc/passwd")), max_size=2),
        "flatten": st.booleans(),
        "autoAttach": st.booleans(),
        "behavior": st.sampled_from(WORDS),
        "downloadPath": st.sampled_from(FOREIGN_STRINGS),
        "requestId": st.just("r"),
        "data": st.fixed_dictionaries(
            {
                "items": st.lists(
                    st.fixed_dictionaries(
                        {
                            "mimeType": st.sampled_from(("text/uri-list", "text/plain", "TEXT/URI-LIST")),
                            "data": st.sampled_from(FOREIGN_STRINGS + OWN_STRINGS),
                        }
                    ),
                    max_size=3,
                )
            },
            optional={"files": st.lists(st.sampled_from((FILE, "/etc/passwd")), max_size=1)},
        ),
    },
)
messages = st.one_of(likely, st.dictionaries(names, values, max_size=8), st.builds(dict.__or__, likely, likely))


def named(params: Any, within: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in the parameters that is not opaque, with the name it stands under."""
    if isinstance(params, dict):
        for name, value in params.items():
            if name not in OPAQUE:
                yield name, value
                yield from named(value, name)
    elif isinstance(params, list):
        for value in params:
            yield within, value
            yield from named(value, within)


def assert_own(params: dict[str, Any]) -> None:
    for name, value in named(params):
        match name:
            case "targetId":
                assert value == TARGET
            case "browserContextId":
                assert value in (CONTEXT, MADE_CONTEXT)
            case "windowId":
                assert value == WINDOW
            case "guid":
                assert value == DOWNLOAD
            case "url":
                assert allowed_url(value) == value
            case "files":
                assert value in ([], [FILE], [FILE, FILE], FILE) or set(value) == {FILE}
            case "downloadPath":
                assert value == DOWNLOADS
            case "tracingBackend":
                assert value == "chrome"
            case "perfettoConfig" | "originsWithUniversalNetworkAccess":
                assert not value
    for item in params.get("data", {}).get("items", ()):
        if item["mimeType"].lower().startswith("text/uri-list"):
            assert all(allowed_url(line) == line for line in item["data"].split("\r\n") if line)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(params=messages)
def test_nothing_foreign_gets_through_and_nothing_raises(params: dict[str, Any]) -> None:
    for kind, method, tenancy in PLACES:
        verdict = check(kind, method, params, Client(tenancy), tenancy)
        if isinstance(verdict, Refuse):
            assert verdict.code in (-32000, -32602), method
            assert verdict.message, method
        else:
            assert verdict.params is not params, method
            assert_own(verdict.params)


@pytest.mark.parametrize(
    "text",
    [
        '{"targetId": "OWN", "targetId": "FOREIGN", "flatten": true}',
        '{"targetId": "FOREIGN", "targetId": "OWN", "flatten": true}',
        '{"targetId": "OWN", "target\\u0049d": "FOREIGN", "flatten": true}',
        '{"target\\u0049d": "FOREIGN", "targetId": "OWN", "flatten": true}',
        '{"targetId": "OWN", "TargetId": "FOREIGN", "flatten": true}',
        '{"targetId": "OWN", "targetId\\u0000": "FOREIGN", "flatten": true}',
        '{"targetId": "OWN", "flatten": true, "params": {"targetId": "FOREIGN"}}',
    ],
)
def test_two_keys_of_one_name_and_escapes_do_not_survive(text: str) -> None:
    raw = text.replace("OWN", TARGET).replace("FOREIGN", FOREIGN).encode()
    params = msgspec.json.decode(raw, type=dict[str, Any])
    verdict = check(Kind.PAGE, "Target.attachToTarget", params, Client(), CONTEXTS)
    if isinstance(verdict, Forward):
        assert msgspec.json.encode(verdict.params) == b'{"targetId":"%b","flatten":true}' % TARGET.encode()
