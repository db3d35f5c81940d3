"""Makes bad inputs of good ones: cut, doubled, spliced, bent byte by byte, and stuffed with what parsers trip on.

All chance comes from the given `Random`, so that a case is the same whenever its seed is.
"""

from __future__ import annotations

from random import Random
from typing import Final

MUTATIONS_MAX: Final = 4
# Longest case; longer ones are cut. How large an input may be is tested elsewhere.
CASE_MAX_BYTES: Final = 8_192

# What has made parsers stumble before.
TROUBLE: Final[tuple[bytes, ...]] = (
    *(b"\x00", b"\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xef\xbb\xbf", b"\xe2\x80\xae"),
    *(b"\\u0000", b"\\ud800", b"\\udc00\\ud800", b"\\", b'"', b"'", b"\r\n", b"\n", b"\t", b"\x1b[2J", b"%00", b"%ff"),
    *(b"-1", b"0", b"-0", b"1e999", b"-1e999", b"NaN", b"Infinity", b"1.5", b"9223372036854775808", b"1" * 400),
    *(b"2147483648", b"-2147483649", b"18446744073709551616", b"null", b"true", b"[]", b"{}", b'""', b"[[", b"]]"),
    *(b"../../etc/passwd", b"file:///etc/passwd", b"javascript:1", b"//", b"/..", b"%2e%2e%2f", b"@", b"#", b"?", b"&"),
    *(b"=", b";", b",", b":", b">>", b"(", b")", b"*", b"$", b"__proto__", b"constructor", b"[" * 600, b'{"a":' * 600),
    *(b"9999-12-31T23:59:59+00:00", b"0001-01-01T00:00:00+14:00", b"2026-02-30T00:00:00Z", b"24:60:60", b"+", b" "),
    *("ｅｖａｌ".encode(), "\u202e\u2066".encode(), "é".encode(), "\U0001f600".encode(), "\u0130".encode()),
)


def mutated(chance: Random, seeds: tuple[bytes, ...]) -> bytes:
    """One of the good inputs, bent a few times; now and then left as it is."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randrange(MUTATIONS_MAX + 1)):
        _bend(chance, data, seeds)
    return bytes(data[:CASE_MAX_BYTES])


def _bend(chance: Random, data: bytearray, seeds: tuple[bytes, ...]) -> None:
    here = chance.randrange(len(data) + 1)
    there = min(len(data), here + chance.randrange(1, 24))
    match chance.randrange(8):
        case 0:
            del data[here:there]
        case 1:
            data[here:here] = chance.choice(TROUBLE)
        case 2:
            data[here:there] = chance.choice(TROUBLE)
        case 3:
            data[here:here] = data[here:there] * chance.randrange(1, 4)
        case 4:
            other = chance.choice(seeds)
            data[here:] = other[chance.randrange(len(other) + 1) :]
        case 5 if data:
            data[min(here, len(data) - 1)] ^= 1 << chance.randrange(8)
        case 6:
            data[here:there] = chance.randbytes(chance.randrange(1, 5))
        case _:
            # A word of another input where a word of this one was.
            other = chance.choice(seeds)
            start = chance.randrange(len(other) + 1)
            data[here:there] = other[start : start + chance.randrange(1, 24)]
