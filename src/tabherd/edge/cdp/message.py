"""CDP messages on the wire: what is read of them, and how those that tabherd itself says are written.

Of a client's message the envelope is read and written anew, so that what was judged is what Chromium gets: two keys of
the same name, escapes in a name, comments or anything else that two parsers could read in two ways does not survive.
Parameters that nobody had to look into keep their very bytes. Of Chromium's messages, whose shape is known, only the
first few bytes and the last are looked at; those that nobody has to change pass as they are.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ...errors import TabherdError
from ..reply import wire_form

# Chromium's ids are 32 bits wide. Those below the lower end are our own, for what we send in a client's connection.
CLIENT_ID_MIN: Final = -1_000_000_000
CLIENT_ID_MAX: Final = 2_147_483_647

# JSON-RPC's and Chromium's codes.
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
SERVER_ERROR: Final = -32000
SESSION_NOT_FOUND: Final = -32001

# How Chromium begins what must not simply pass.
REPLY: Final = b'{"id":'
LOOKED_AT: Final = (b'{"method":"Target.', b'{"method":"Browser.', b'{"method":"Page.downloadWillBegin"')
# That a dialog has opened or closed; and that it is the former.
DIALOG: Final = b'{"method":"Page.javascriptDialog'
DIALOG_OPENING: Final = DIALOG + b'Opening"'
# How it ends a message of a session; those of the connection itself end with two braces.
_SESSION_TAIL: Final = b'"}'
_SESSION_ID_LENGTH: Final = 32


class Request(msgspec.Struct, gc=False):
    """One message of a client."""

    id: int
    method: str
    sessionId: str | None = None  # noqa: N815 - the wire's spelling
    params: msgspec.Raw = msgspec.Raw(b"")


class Event(msgspec.Struct):
    """One event of Chromium's."""

    method: str
    params: dict[str, Any] = {}
    sessionId: str = ""  # noqa: N815 - the wire's spelling


class Answer(msgspec.Struct):
    """One answer of Chromium's."""

    id: int
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


decode_request: Final = msgspec.json.Decoder(Request).decode
decode_event: Final = msgspec.json.Decoder(Event).decode
decode_answer: Final = msgspec.json.Decoder(Answer).decode
decode_params: Final = msgspec.json.Decoder(dict[str, Any]).decode
encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def request(id: int, method: str, session_id: bytes, params: bytes | msgspec.Raw) -> bytes:
    """What Chromium gets. The method is one that was looked up, and the session one that Chromium named."""
    if session_id:
        if params:
            return b'{"id":%d,"method":"%b","sessionId":"%b","params":%b}' % (id, method.encode(), session_id, params)
        return b'{"id":%d,"method":"%b","sessionId":"%b"}' % (id, method.encode(), session_id)
    if params:
        return b'{"id":%d,"method":"%b","params":%b}' % (id, method.encode(), params)
    return b'{"id":%d,"method":"%b"}' % (id, method.encode())


def session_of_reply(payload: bytes) -> bytes:
    """The session that an answer of Chromium's belongs to; empty for the connection itself."""
    if payload.endswith(_SESSION_TAIL):
        return payload[-_SESSION_ID_LENGTH - 2 : -2]
    return b""


def id_of_reply(payload: bytes) -> int:
    return int(payload[len(REPLY) : payload.index(b",", len(REPLY))])


def with_id(payload: bytes, id: int) -> bytes:
    """The same answer under another id."""
    return b"%b%d%b" % (REPLY, id, payload[payload.index(b",", len(REPLY)) :])


def result(id: int, session_id: str, value: dict[str, Any]) -> bytes:
    """An answer of ours."""
    return encode({"id": id, "result": value} | _in(session_id))


def event(method: str, params: dict[str, Any], session_id: str) -> bytes:
    """An event of ours."""
    return encode({"method": method, "params": params} | _in(session_id))


def failure(id: int | None, session_id: str, code: int, message: str, data: TabherdError | None = None) -> bytes:
    """A refusal of ours, with the typed error in `data` where there is one."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = encode(wire_form(data)).decode()
    return encode(({} if id is None else {"id": id}) | {"error": error} | _in(session_id))


def told(error: TabherdError) -> str:
    """A typed error as one line, for clients that show nothing else: code, message, position, when to retry."""
    position = error.details.get("position")
    return "".join(
        (
            f"{error.code}: {error.message}",
            f" Position {position}." if position is not None else "",
            f" Retry after {error.retry_after_ms} ms." if error.retry_after_ms is not None else "",
        )
    )


def _in(session_id: str) -> dict[str, str]:
    return {"sessionId": session_id} if session_id else {}
