"""The few request headers that the edge reads, collected in one pass, and the ids by which a request is traced.

`X-Request-Id` and `traceparent` are taken over when they are well-formed and minted otherwise; whatever is echoed or
logged has passed the pattern, so a caller cannot write into our logs or headers.
"""

from __future__ import annotations

import itertools
import random
import re
import secrets
from collections.abc import Iterable
from typing import Final

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_TRACEPARENT: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

# Minting must be cheap: chance once per process and a counter, instead of chance per request.
_PROCESS: Final = b"req_" + secrets.token_hex(6).encode()
_count: Final = itertools.count(1)
# Trace ids must be unique, not secret.
_chance: Final = random.Random(secrets.randbits(128))


class Head:
    """What the edge needs to know of a request before it reads the body."""

    __slots__ = (
        "accept_encoding",
        "agent_id",
        "authorization",
        "content_length",
        "cookie",
        "csrf",
        "forwarded_host",
        "forwarded_proto",
        "hop",
        "host",
        "if_none_match",
        "last_event_id",
        "mcp_session_id",
        "origin",
        "repeated",
        "request_id",
        "traceparent",
        "user_agent",
    )

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.host: bytes | None = None
        self.origin: bytes | None = None
        self.authorization: bytes | None = None
        self.agent_id: bytes | None = None
        self.content_length: bytes | None = None
        self.last_event_id: bytes | None = None
        self.user_agent: bytes | None = None
        # What a person's browser shows instead of a token, and the word that must go with it.
        self.cookie: bytes | None = None
        self.csrf: bytes | None = None
        self.accept_encoding: bytes = b""
        self.if_none_match: bytes | None = None
        self.mcp_session_id: bytes | None = None
        # What a proxy before us says about the address that its client used.
        self.forwarded_host: bytes | None = None
        self.forwarded_proto: bytes | None = None
        # What another node says that passed the request on.
        self.hop: bytes | None = None
        # A header that decides who may do what and came twice: which of the two a proxy believed is anybody's guess.
        self.repeated: str = ""
        request_id: bytes | None = None
        traceparent: bytes | None = None
        for name, value in headers:
            match name:
                case b"host":
                    self.repeated = self.repeated or ("Host" if self.host is not None else "")
                    self.host = value
                case b"authorization":
                    self.repeated = self.repeated or ("Authorization" if self.authorization is not None else "")
                    self.authorization = value
                case b"origin":
                    self.repeated = self.repeated or ("Origin" if self.origin is not None else "")
                    self.origin = value
                case b"x-agent-id":
                    self.repeated = self.repeated or ("X-Agent-Id" if self.agent_id is not None else "")
                    self.agent_id = value
                case b"cookie":
                    self.repeated = self.repeated or ("Cookie" if self.cookie is not None else "")
                    self.cookie = value
                case b"x-csrf-token":
                    self.repeated = self.repeated or ("X-Csrf-Token" if self.csrf is not None else "")
                    self.csrf = value
                case b"accept-encoding":
                    self.accept_encoding = value
                case b"if-none-match":
                    self.if_none_match = value
                case b"x-tabherd-hop":
                    self.repeated = self.repeated or ("X-Tabherd-Hop" if self.hop is not None else "")
                    self.hop = value
                case b"content-length":
                    self.content_length = value
                case b"mcp-session-id":
                    self.mcp_session_id = value
                case b"user-agent":
                    self.user_agent = value
                case b"x-forwarded-host":
                    self.forwarded_host = value
                case b"x-forwarded-proto":
                    self.forwarded_proto = value
                case b"last-event-id":
                    self.last_event_id = value
                case b"x-request-id":
                    request_id = value
                case b"traceparent":
                    traceparent = value
        self.request_id: bytes = (
            request_id
            if request_id is not None and _REQUEST_ID.fullmatch(request_id)
            else b"%s%08x" % (_PROCESS, next(_count))
        )
        self.traceparent: bytes = (
            traceparent
            if traceparent is not None and _TRACEPARENT.fullmatch(traceparent)
            else b"00-%032x-%016x-01" % (_chance.getrandbits(128) or 1, _chance.getrandbits(64) or 1)
        )
