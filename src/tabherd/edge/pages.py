"""The page that describes the interface: self-contained HTML, under a policy that lets nothing else run.

It brings its own style and script inline. The Content-Security-Policy names them by hash, so a page that was tampered
with, or into which something was injected, does not run.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources
from typing import Final

from .route import Raw, headers_of


def _load(name: str) -> Raw:
    text = resources.files(__package__).joinpath("static", name).read_text(encoding="utf-8")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hashes(text, 'script')}",
            f"style-src {_hashes(text, 'style')}",
            "connect-src 'self'",
            "img-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return Raw(
        text.encode(),
        headers_of(
            {
                "content-type": "text/html; charset=utf-8",
                "content-security-policy": policy,
                "referrer-policy": "no-referrer",
            }
        ),
    )


def _hashes(text: str, element: str) -> str:
    bodies = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies)
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"


DOCS: Final = _load("docs.html")
