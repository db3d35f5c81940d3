"""Which addresses a page may be sent to."""

from __future__ import annotations

import pytest

from tabherd.actions.url_policy import allowed_url
from tabherd.errors import InvalidRequest, PolicyDenied


@pytest.mark.parametrize(
    ("given", "cleaned"),
    [
        ("http://a.test/", "http://a.test/"),
        ("HTTPS://a.test/Path?q#f", "https://a.test/Path?q#f"),
        ("data:text/html,<p>x", "data:text/html,<p>x"),
        ("blob:https://a.test/123", "blob:https://a.test/123"),
        ("about:blank", "about:blank"),
        ("About:blank#x", "about:blank#x"),
        ("\x00\x1f  http://a.test/ \n", "http://a.test/"),
        ("ht\ttp:\r\n//a.test/x y", "http://a.test/x y"),
    ],
)
def test_the_web_and_pages_with_their_own_content_are_allowed_as_a_browser_reads_them(given: str, cleaned: str) -> None:
    assert allowed_url(given) == cleaned


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "FILE:///etc/passwd", " file:///x", "\x01file:///x", "fi\nle:///x", "f\til\re:///x"),
        *("chrome://settings", "chrome-error://x", "chrome-untrusted://x", "devtools://devtools/x", "edge://x"),
        *("view-source:http://a.test/", "filesystem:http://a.test/t/x", "javascript:alert(1)", "JavaScript:1"),
        *("about:version", "about:BLANK", "about:blank/x", "about:srcdoc", "about:", "about:blankx"),
        *("ftp://a.test/", "ws://a.test/", "mailto:a@b.test", "blob+x:y", "intent://x", "x:y"),
    ],
)
def test_everything_else_is_denied_however_it_is_written(url: str) -> None:
    with pytest.raises(PolicyDenied):
        allowed_url(url)


@pytest.mark.parametrize("url", ["a.test", "//a.test/", "/etc/passwd", "", "  ", ":x", "1http://x", "ﬁle:///x"])
def test_what_has_no_scheme_is_not_an_address(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        allowed_url(url)
    assert caught.value.details["field"] == "url"
