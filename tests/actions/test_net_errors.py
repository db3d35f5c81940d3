"""What Chromium's network errors are to a caller."""

from __future__ import annotations

import pytest

from tabherd.actions.net_errors import REASONS, navigation_failed, reason_of


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("net::ERR_NAME_NOT_RESOLVED", "dns"),
        ("net::ERR_DNS_TIMED_OUT", "dns"),
        ("net::ERR_CONNECTION_REFUSED", "refused"),
        ("net::ERR_CONNECTION_TIMED_OUT", "timeout"),
        ("net::ERR_CONNECTION_RESET", "closed"),
        ("net::ERR_EMPTY_RESPONSE", "closed"),
        ("net::ERR_ADDRESS_UNREACHABLE", "unreachable"),
        ("net::ERR_TUNNEL_CONNECTION_FAILED", "unreachable"),
        ("net::ERR_CERT_AUTHORITY_INVALID", "tls"),
        ("net::ERR_SSL_PROTOCOL_ERROR", "tls"),
        ("net::ERR_TOO_MANY_REDIRECTS", "redirects"),
        ("net::ERR_BLOCKED_BY_RESPONSE", "blocked"),
        ("net::ERR_UNSAFE_PORT", "blocked"),
        ("net::ERR_INVALID_HTTP_RESPONSE", "response"),
        ("net::ERR_SOMETHING_NEW", "network"),
        ("", "network"),
    ],
)
def test_an_error_is_of_the_kind_that_a_caller_can_do_something_about(error: str, reason: str) -> None:
    assert reason_of(error) == reason


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_says_what_happened_and_what_to_do(reason: str) -> None:
    told = navigation_failed("http://a.test/", reason, "net::ERR_X").to_wire()
    assert told["details"] == {"url": "http://a.test/", "reason": reason, "error": "net::ERR_X"}
    assert told["message"].startswith("http://a.test/ could not be loaded: ")
    assert told["action"].endswith(".")


def test_a_long_address_is_cut_in_the_message_only() -> None:
    url = "data:text/html," + "x" * 10_000
    told = navigation_failed(url, "dns")
    assert len(told.message) < 400
    assert told.details["url"] == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://ada:hunter2@a.test/x", "http://ada:***@a.test/x"),
        ("HTTPS://:hunter2@a.test", "HTTPS://:***@a.test"),
        ("http:\\\\ada:hunt@er:2@a.test/", "http:\\\\ada:***@a.test/"),
        ("http:ada:hunter2@a.test/", "http:ada:***@a.test/"),
        ("http://a.test:80/ada:lovelace@b.test", "http://a.test:80/ada:lovelace@b.test"),
        ("data:text/plain,ada:lovelace@b.test", "data:text/plain,ada:lovelace@b.test"),
    ],
)
def test_a_password_in_the_address_is_not_repeated(url: str, shown: str) -> None:
    told = navigation_failed(url, "dns").to_wire()
    assert told["details"]["url"] == shown
    assert told["message"].startswith(f"{shown} could not be loaded")
