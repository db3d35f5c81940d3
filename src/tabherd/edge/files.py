"""Files over HTTP: the list, a file coming in as it is read, and one going out as it is sent.

What goes out may be anything that some site served. It is offered to be saved, never to be shown, whatever it claims to
be: as plain bytes that no browser may take for a page of ours.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from msgspec import Meta

from .. import wire
from .route import BYTES, Call, Service, Stream, headers_of


class UploadQuery(wire.Request, frozen=True, kw_only=True):
    # Under which a page sees it; made harmless and unique, and answered.
    name: Annotated[str, Meta(max_length=1_000)] = ""


async def list_files(service: Service, call: Call) -> wire.FilePage:
    return await service.broker.files.list(call.caller, call.id)


async def upload_file(service: Service, call: Call) -> wire.UploadedFile:
    query: UploadQuery = call.query
    assert call.pieces is not None, "the route takes a file"
    declared = call.head.content_length
    # A length of more digits than this is refused like the largest number of so many.
    declared_bytes = int(declared[:20]) if declared is not None and declared.isdigit() else 0
    return await service.broker.files.upload(call.caller, call.id, query.name, declared_bytes, call.pieces)


async def get_file(service: Service, call: Call) -> Stream:
    file = await service.broker.files.open(call.caller, call.id, call.name)
    headers = {
        "content-type": BYTES,
        "content-length": str(file.size_bytes),
        "content-disposition": disposition(file.name),
        # Should somebody open it all the same, it can do nothing.
        "content-security-policy": "sandbox; default-src 'none'",
    }
    return Stream(file.pieces, file.close, headers_of(headers))


def disposition(name: str) -> str:
    """How RFC 6266 offers a file to be saved: in ASCII for old clients, and as it is."""
    plain = "".join(letter if letter.isascii() and letter not in '"\\%' else "_" for letter in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
