"""Reads a request's body, whole and within a bound."""

from __future__ import annotations

from starlette.types import Receive

from ..errors import BodyTooLarge
from .head import Head


class ClientLeft(Exception):
    """There is nobody to answer."""


async def read_body(head: Head, receive: Receive, cap_bytes: int) -> bytes | bytearray:
    """The whole body, or `BodyTooLarge` as soon as that is certain."""
    declared = head.content_length
    if declared is not None and declared.isdigit() and int(declared[:20]) > cap_bytes:
        raise _too_large(cap_bytes)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        chunk: bytes = message.get("body", b"")
        if len(body) + len(chunk) > cap_bytes:
            raise _too_large(cap_bytes)
        is_last = not message.get("more_body", False)
        if is_last and not body:
            return chunk
        body += chunk
        if is_last:
            return body


def _too_large(cap_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {cap_bytes} bytes.", field="body", cap=cap_bytes)
