"""Makes pictures small: a PNG of at most 256 colours from one of any, with nothing but the standard library.

Screens have few colours that matter and many that soften the edges of letters. Colours are divided into boxes (median
cut), and each box is shown as its most frequent colour, so that grounds and texts keep theirs exactly.
"""

from __future__ import annotations

import heapq
import itertools
import struct
import zlib
from collections import Counter
from typing import Final

COLOURS_MAX: Final = 256
SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
# Red, green and blue.
Colour = tuple[int, int, int]
# Colours and how often each is there.
Box = list[tuple[Colour, int]]


def shrunk(png: bytes) -> bytes:
    """The same picture with at most 256 colours."""
    width, height, pixels = _pixels(png)
    counted = Counter(pixels)
    boxes = _boxes(list(counted.items()))
    index_of = {colour: index for index, box in enumerate(boxes) for colour, _ in box}
    shown = [max(box, key=lambda each: each[1])[0] for box in boxes]
    indexes = bytes([index_of[pixel] for pixel in pixels])
    rows = b"".join(b"\0" + indexes[start : start + width] for start in range(0, width * height, width))
    return SIGNATURE + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", b"".join(bytes(colour) for colour in shown)),
            _chunk(b"IDAT", zlib.compress(rows, 9)),
            _chunk(b"IEND", b""),
        )
    )


def _boxes(colours: Box) -> list[Box]:
    # Those whose colours differ most first, weighed by how much of the picture they are; a number tells equals apart.
    numbers = itertools.count()
    heap = [(-_spread(colours), next(numbers), colours)]
    while len(heap) < COLOURS_MAX and heap[0][0] < 0:
        _, _, widest = heapq.heappop(heap)
        for half in _halves(widest):
            heapq.heappush(heap, (-_spread(half), next(numbers), half))
    return [box for _, _, box in heap]


def _spread(box: Box) -> float:
    if len(box) < 2:
        return 0.0
    return float(max(_ranges(box))) * sum(count for _, count in box) ** 0.5


def _ranges(box: Box) -> list[int]:
    return [max(c[part] for c, _ in box) - min(c[part] for c, _ in box) for part in range(3)]


def _halves(box: Box) -> tuple[Box, Box]:
    ranges = _ranges(box)
    part = ranges.index(max(ranges))
    ordered = sorted(box, key=lambda each: each[0][part])
    middle = (ordered[0][0][part] + ordered[-1][0][part]) / 2
    at = sum(colour[part] <= middle for colour, _ in ordered)
    return ordered[:at], ordered[at:]


# --- Reading ------------------------------------------------------------------------------------------------------


def _pixels(png: bytes) -> tuple[int, int, list[Colour]]:
    """Width, height and every pixel of an ordinary PNG, as browsers write them; what shines through is left out."""
    assert png.startswith(SIGNATURE), "not a PNG"
    at, data, header = len(SIGNATURE), b"", b""
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        body = png[at + 8 : at + 8 + length]
        header = body if kind == b"IHDR" else header
        data += body if kind == b"IDAT" else b""
        at += length + 12
    width, height, depth, colour_type, _, _, interlace = struct.unpack(">IIBBBBB", header)
    assert (depth, interlace) == (8, 0), "only eight bits, one row after the other"
    assert colour_type in (2, 6), "only red, green, blue, with or without alpha"
    step = 3 if colour_type == 2 else 4
    raw, before, pixels = zlib.decompress(data), bytes(width * step), []
    for y in range(height):
        start = y * (width * step + 1)
        row = bytearray(raw[start + 1 : start + 1 + width * step])
        _undo_filter(raw[start], row, before, step)
        pixels += zip(row[0::step], row[1::step], row[2::step], strict=True)
        before = bytes(row)
    return width, height, pixels


def _undo_filter(kind: int, row: bytearray, above: bytes, step: int) -> None:
    match kind:
        case 1:
            for i in range(step, len(row)):
                row[i] = (row[i] + row[i - step]) & 255
        case 2:
            row[:] = bytes((one + other) & 255 for one, other in zip(row, above, strict=True))
        case 3:
            for i in range(len(row)):
                left = row[i - step] if i >= step else 0
                row[i] = (row[i] + (left + above[i]) // 2) & 255
        case 4:
            for i in range(len(row)):
                left, corner = (row[i - step], above[i - step]) if i >= step else (0, 0)
                row[i] = (row[i] + _nearest(left, above[i], corner)) & 255


def _nearest(left: int, above: int, corner: int) -> int:
    """Which of the three neighbours is most like what they suggest together."""
    guess = left + above - corner
    to_left, to_above, to_corner = abs(guess - left), abs(guess - above), abs(guess - corner)
    if to_left <= to_above and to_left <= to_corner:
        return left
    return above if to_above <= to_corner else corner


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
