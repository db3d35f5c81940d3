"""Prints a page into a PDF, as base64.

It is fetched from the browser in pieces, so that a page which prints without end is refused at a limit and never
becomes one message that no connection carries. A caller that leaves takes what was printed with it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from .. import wire
from ..browsers.port import CdpFailure, TabPort
from ..errors import BodyTooLarge, InvalidRequest, StateConflict
from .progress import Progress

# A thousand pages of text are a few megabytes; whoever prints more prints it in parts.
PDF_MAX_BYTES: Final = 32 << 20
PIECE_BYTES: Final = 1 << 20
# Width and height, in inches.
FORMATS: Final[Mapping[str, tuple[float, float]]] = {
    "A3": (11.7, 16.54),
    "A4": (8.27, 11.7),
    "A5": (5.83, 8.27),
    "Letter": (8.5, 11),
    "Legal": (8.5, 14),
    "Tabloid": (11, 17),
}
# How Chromium begins its complaints about `pages`.
_PAGE_RANGE: Final = "Page range"


async def pdf(tab: TabPort, action: wire.Pdf, progress: Progress) -> str:
    width, height = FORMATS[action.format]
    params = {
        "transferMode": "ReturnAsStream",
        "paperWidth": width,
        "paperHeight": height,
        "landscape": action.landscape,
        "printBackground": action.background,
        "scale": action.scale,
        "pageRanges": action.pages,
    }
    try:
        stream: str = (await tab.call("Page.printToPDF", params))["stream"]
    except CdpFailure as failure:
        raise _refusal(failure) from failure
    try:
        return base64.b64encode(await _read(tab, stream)).decode()
    finally:
        tab.post("IO.close", {"handle": stream})


async def _read(tab: TabPort, stream: str) -> bytes:
    content = bytearray()
    while True:
        piece: dict[str, Any] = await tab.call("IO.read", {"handle": stream, "size": PIECE_BYTES})
        data: str = piece["data"]
        content += base64.b64decode(data) if piece.get("base64Encoded") else data.encode()
        if len(content) > PDF_MAX_BYTES:
            raise BodyTooLarge(
                f"The PDF has more than {PDF_MAX_BYTES} bytes.",
                action="Print a part of it with pages, or without background.",
                field="pages",
                cap=PDF_MAX_BYTES,
            )
        if piece["eof"]:
            return bytes(content)


def _refusal(failure: CdpFailure) -> InvalidRequest | StateConflict:
    if failure.message.startswith(_PAGE_RANGE):
        return InvalidRequest(f"pages: {failure.message}.", field="pages")
    return StateConflict(
        f"The browser cannot print this page: {failure.message}.",
        action="Use a pool whose browsers are headless, or take a screenshot with fullPage.",
        method=failure.method,
        error=failure.message,
    )
