"""Why a page did not come, in words: Chromium's network errors by what a caller can do about them.

Every failed navigation has `reason`, one of `REASONS`, beside Chromium's own `error`, and an `action` that fits it. An
answer of the server is none of these, whatever its status: a 404 is a page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..errors import NavigationFailed

# What a message shows of an address.
URL_SHOWN_CHARS: Final = 200
# A password in an address, as Chromium reads it: any slashes, and up to the last @ of the host's part.
_PASSWORD: Final = re.compile(r"\A((?:https?|wss?|ftp):[/\\]*[^/\\?#:@]*:)[^/\\?#]*(?=@)", re.IGNORECASE)


class Reason(msgspec.Struct, frozen=True):
    """One kind of failure."""

    # Goes after the address: "... could not be loaded: <it>".
    what: str
    action: str
    # How Chromium's names for it begin, without ERR_.
    begins: tuple[str, ...] = ()


REASONS: Final[Mapping[str, Reason]] = {
    "dns": Reason(
        "its host name is not known",
        "Check the spelling of the host name.",
        ("NAME_", "DNS_", "ICANN_NAME_COLLISION"),
    ),
    "refused": Reason(
        "nothing listens there",
        "Check host and port, and that the site is up.",
        ("CONNECTION_REFUSED",),
    ),
    "timeout": Reason(
        "the site does not answer",
        "Try again later, or check host and port.",
        ("CONNECTION_TIMED_OUT", "TIMED_OUT"),
    ),
    "unreachable": Reason(
        "there is no way to it in the network",
        "Check that the browser's machine reaches that network, and the pool's proxy.",
        (
            *("ADDRESS_", "INTERNET_DISCONNECTED", "NETWORK_", "CONNECTION_FAILED", "PROXY_", "TUNNEL_", "SOCKS_"),
            *("NO_SUPPORTED_PROXIES", "MANDATORY_PROXY"),
        ),
    ),
    "tls": Reason(
        "its certificate or its encryption is not accepted",
        "Check that the address is right (https on the right port) and that the certificate is valid.",
        ("CERT_", "SSL_", "BAD_SSL", "ECH_"),
    ),
    "redirects": Reason(
        "it redirects for ever",
        "Clear the site's cookies, or go to the address that it should lead to.",
        ("TOO_MANY_REDIRECTS",),
    ),
    "blocked": Reason(
        "the browser does not allow it",
        "Use another address: this one is closed to pages, by the browser, the site or the pool's policy.",
        ("BLOCKED_", "UNSAFE_", "ACCESS_DENIED", "DISALLOWED_URL_SCHEME", "UNKNOWN_URL_SCHEME"),
    ),
    "closed": Reason(
        "the connection ended before the page was there",
        "Try again; if it stays like that, the site is broken or wants another protocol (http or https).",
        (
            *("CONNECTION_", "EMPTY_RESPONSE", "CONTENT_LENGTH_MISMATCH", "INCOMPLETE_CHUNKED", "SOCKET_"),
            *("HTTP2_", "QUIC_"),
        ),
    ),
    "response": Reason(
        "the answer is not HTTP that a browser understands",
        "Check that a web site listens at that port.",
        ("INVALID_HTTP", "INVALID_RESPONSE", "RESPONSE_HEADERS_", "INVALID_REDIRECT", "CONTENT_DECODING", "HTTP_"),
    ),
    "not_found": Reason("it does not exist in this browser", "Use an address that exists.", ("FILE_NOT_FOUND",)),
    "invalid": Reason("it is not a valid address", "Correct the address.", ("INVALID_URL",)),
    # The rest is told from what happened besides, not from the error's name.
    "no_content": Reason(
        "the site answered without a page (204 or 205), so the tab stays where it was",
        "Nothing is wrong with the address; look at the page that is there.",
    ),
    "superseded": Reason(
        "the page that was there went to another address meanwhile",
        "Look at where the tab is now; navigate again if that is not where you want to be.",
    ),
    "aborted": Reason(
        "it was stopped before the page was there", "Look at where the tab is now, and navigate again if need be."
    ),
    "endless": Reason(
        "each page sends the visitor on to the next one",
        "Look at where the tab is now, or clear the site's cookies and try again.",
    ),
    "download": Reason(
        "it is a download, not a page; the file is being saved and the tab stays where it was",
        "Read the session's files: GET /sessions/{sessionId}/files lists it when it is whole.",
    ),
    "network": Reason("the network failed", "Check the address and that the site answers."),
}


def reason_of(error: str) -> str:
    """The kind of a network error, by Chromium's name of it, such as `net::ERR_CONNECTION_REFUSED`."""
    name = error.removeprefix("net::").removeprefix("ERR_")
    for reason, told in REASONS.items():
        # In their order: what is more special comes first.
        if told.begins and name.startswith(told.begins):
            return reason
    return "network"


def navigation_failed(url: str, reason: str, error: str = "", **details: Any) -> NavigationFailed:
    """The error for a page that did not come. It is kept and shown to others, so a password is not in it."""
    url = _PASSWORD.sub(r"\1***", url)
    told = REASONS[reason]
    known = {name: value for name, value in {"error": error, **details}.items() if value not in (None, "")}
    failure = NavigationFailed(
        f"{url[:URL_SHOWN_CHARS]} could not be loaded: {told.what}.", action=told.action, url=url, **known
    )
    failure.details["reason"] = reason
    return failure
