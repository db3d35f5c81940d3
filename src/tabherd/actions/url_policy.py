"""Which addresses an agent may send a page to: the web, and pages that carry their own content.

`file:` would read this machine's files, `chrome:` and its kin reach the browser's own pages (one of them crashes the
whole browser), `view-source:` and `filesystem:` wrap others, `javascript:` is what `evaluate` has a scope for. So this
is an allow-list. The address is cleaned as a browser cleans it, before it is judged, and it is the cleaned one that is
sent, so that both parsers see the same text.
"""

from __future__ import annotations

import re
from typing import Final

from ..errors import InvalidRequest, PolicyDenied

ALLOWED_SCHEMES: Final = frozenset({"http", "https", "data", "blob"})
# The only page of its scheme that is not the browser's own.
_BLANK: Final = re.compile(r"blank(?:[?#].*)?", re.DOTALL)
# What the URL standard strips from both ends; it also removes tabs and the ends of lines wherever they stand.
_ENDS: Final = "".join(chr(code) for code in range(0x21))
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def allowed_url(url: str) -> str:
    """The address as a browser reads it, or `PolicyDenied`, or `InvalidRequest` when it is none."""
    # Addresses have up to 2 MiB, and `translate` takes twenty times as long.
    cleaned = url.strip(_ENDS).replace("\t", "").replace("\n", "").replace("\r", "")
    match = _SCHEME.match(cleaned)
    if match is None:
        raise InvalidRequest(
            "url is not absolute: it must start with a scheme, like https://example.com/.",
            field="url",
        )
    scheme, rest = match[1].lower(), cleaned[match.end() :]
    if scheme in ALLOWED_SCHEMES or (scheme == "about" and _BLANK.fullmatch(rest)):
        return f"{scheme}:{rest}"
    raise PolicyDenied(
        f"Pages may not be sent to {scheme}: addresses.",
        action="Use an http, https, data or blob address, or about:blank.",
        scheme=scheme,
    )
