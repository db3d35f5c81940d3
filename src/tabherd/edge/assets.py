"""The dashboard's files: read once, sent compressed where that is understood, kept by browsers until they change.

Everything in `dashboard/` is served, by its name. The policy lets the page run these files and talk to this server, and
nothing else: no inline code, no text that turns into markup, no other host, no frame around it.
"""

from __future__ import annotations

import gzip
import hashlib
from importlib import resources
from pathlib import PurePosixPath
from typing import Final

import msgspec

from ..errors import CATALOGUE, ResourceNotFound
from .head import Head
from .reply import Reply
from .route import headers_of

MEDIA: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FRONT: Final = "index.html"
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)


class Asset(msgspec.Struct, frozen=True, kw_only=True):
    """One file, as it is sent."""

    plain: bytes
    packed: bytes
    etag: bytes
    headers: tuple[tuple[bytes, bytes], ...]

    def reply(self, head: Head) -> Reply:
        """The file, or that the browser has it already."""
        headers = (*self.headers, (b"etag", self.etag), (b"vary", b"accept-encoding"))
        if head.if_none_match is not None and self.etag in head.if_none_match:
            return Reply(304, b"", headers, is_kept=True)
        if b"gzip" in head.accept_encoding:
            return Reply(200, self.packed, (*headers, (b"content-encoding", b"gzip")), is_kept=True)
        return Reply(200, self.plain, headers, is_kept=True)


def find(name: str) -> Asset:
    """The file of that name, or `ResourceNotFound`."""
    asset = ASSETS.get(name)
    if asset is None:
        raise ResourceNotFound("The dashboard has no such file.", action="Open / in a browser.")
    return asset


def _load() -> dict[str, Asset]:
    directory = resources.files(__package__).joinpath("dashboard")
    files = {file.name: file.read_bytes() for file in directory.iterdir() if _media(file.name)}
    return {name: _asset(name, plain) for name, plain in {**files, "next-steps.js": _next_steps()}.items()}


def _next_steps() -> bytes:
    """What to do about each error, for pages that have no more of it than its code: a task keeps no more."""
    steps = msgspec.json.encode({code: error.next_step for code, error in CATALOGUE.items()})
    return b"// Written by the server from its catalogue of errors.\nexport const NEXT_STEPS = %s;\n" % steps


def _asset(name: str, plain: bytes) -> Asset:
    media = _media(name)
    fields = {"content-type": media, "referrer-policy": "no-referrer"}
    if name == FRONT:
        fields |= {"content-security-policy": POLICY, "cross-origin-opener-policy": "same-origin"}
    return Asset(
        plain=plain,
        # Without a time stamp, so that the same file is the same bytes.
        packed=gzip.compress(plain, mtime=0),
        etag=b'"%s"' % hashlib.sha256(plain).hexdigest()[:20].encode(),
        headers=headers_of(fields),
    )


def _media(name: str) -> str:
    return MEDIA.get(PurePosixPath(name).suffix, "")


ASSETS: Final = _load()
