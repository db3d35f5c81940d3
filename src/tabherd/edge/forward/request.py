"""Writes the head of a request to another node, from one that came in.

Invariants:
- How long the body is, is said anew and once: whatever the client wrote about it is left out, so that two readers of
  the same bytes cannot disagree about where a request ends (request smuggling).
- What concerns only one connection stays there: the hop-by-hop headers, those that `Connection` names, and `Expect`.
- `x-tabherd-*` is what nodes say to each other: a client's own are left out.
- Nothing gets into a head that could end a line, wherever it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from starlette.types import Scope

from ...errors import InvalidRequest

Fields = Sequence[tuple[bytes, bytes]]

# Between two neighbours only; and what is written anew.
HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"expect",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
PRIVATE_PREFIX: Final = b"x-tabherd-"
_FRAMING: Final = HOP_BY_HOP | {b"content-length"}
_METHOD: Final = re.compile(r"[A-Z]{1,20}")
_TARGET: Final = re.compile(rb"/[!-~]*")
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(rb"[\t -~\x80-\xff]*")


def target_of(scope: Scope) -> bytes:
    """Path and query as they stand in the request line; sender and receiver come to the same."""
    query: bytes = scope["query_string"]
    path: bytes = scope["raw_path"]
    return path + b"?" + query if query else path


def declared_length(fields: Iterable[tuple[bytes, bytes]]) -> int | None:
    """How long the client says the body is; None when it does not say so, once and clearly."""
    values = [value for name, value in fields if name == b"content-length"]
    return int(values[0]) if len(values) == 1 and values[0].isdigit() and len(values[0]) < 20 else None


def passed_on(fields: Iterable[tuple[bytes, bytes]], instead: Fields) -> list[tuple[bytes, bytes]]:
    """A client's headers without those that are not for the other node; `instead` replaces those of the same name.

    Names are in lower case, as ASGI has them.
    """
    left_out = _FRAMING
    if instead:
        left_out = left_out | {name for name, _ in instead}
    kept = []
    for name, value in fields:
        if name == b"connection":
            left_out = left_out | {token.strip().lower() for token in value.split(b",")} - {b"host"}
        if name not in left_out and not name.startswith(PRIVATE_PREFIX):
            kept.append((name, value))
    # `Connection` may come after what it names.
    return [*(field for field in kept if field[0] not in left_out), *instead]


def request_head(method: str, target: bytes, fields: Iterable[tuple[bytes, bytes]], framing: Fields) -> bytes:
    """The head, up to and with its empty line. Raises `InvalidRequest` for what cannot stand in one."""
    if not _METHOD.fullmatch(method):
        raise InvalidRequest("The method is none that can be passed on.", field="method")
    if not _TARGET.fullmatch(target):
        raise InvalidRequest("The address is none that can be passed on.", field="path")
    lines = [b"%b %b HTTP/1.1" % (method.encode("ascii"), target)]
    for name, value in (*fields, *framing):
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise InvalidRequest("A header cannot be passed on.", field=name.decode("latin-1")[:100])
        lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
