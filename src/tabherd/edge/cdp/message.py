"""CDP messages on the wire: what is read of them, and how those that tabherd itself says are written.

Of a client's message the envelope is read and written anew, so that what was judged is what Chromium gets: two keys of
the same name, escapes in a name, comments or anything else that two parsers could read in two ways does not survive.
Parameters that nobody had to look into keep their very bytes. Of Chromium's messages, whose shape is known, only the
first few bytes and the last are looked at; those that nobody has to change pass as they are.

The event loop is everybody's: what one message may cost it is bounded before the message is read. To make Python
objects of hostile JSON takes up to 340 ms per MB, to go through it without making any up to 3.4 ms, and less than 1 ms
if it is strings. So the parameters that somebody judges are small, or of a known shape, of which nothing else is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NotRequired, TypeAlias, TypedDict

import msgspec

from ...errors import BodyTooLarge, TabherdError
from ..reply import wire_form

# Chromium's ids are 32 bits wide. Those below the lower end are our own, for what we send in a client's connection.
CLIENT_ID_MIN: Final = -1_000_000_000
CLIENT_ID_MAX: Final = 2_147_483_647

# The largest message that is read. A larger one is refused unread.
MESSAGE_MAX_BYTES: Final = 6 << 20
# The largest parameters that are made Python objects of, whatever they are,
JUDGED_MAX_BYTES: Final = 32 << 10
# and the largest of those methods whose shape is known. Chromium takes addresses of 2 MiB.
SHAPED_MAX_BYTES: Final = (2 << 20) + (64 << 10)

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
# Where clients write the id and the session: first, or behind everything else.
_ENDS_BYTES: Final = 200
_ID_AT_START: Final = re.compile(rb'\{\s*"id"\s*:\s*(-?\d{1,10})\s*,')
_ID_AT_END: Final = re.compile(rb'"id"\s*:\s*(-?\d{1,10})[^{}]*\}\s*\Z')
_SESSION: Final = re.compile(rb'"sessionId"\s*:\s*"([0-9A-F]{32})"')

_Scalar: TypeAlias = str | bool | int | float | None


class _Navigation(TypedDict, total=False):
    url: str
    frameId: _Scalar
    referrer: _Scalar
    referrerPolicy: _Scalar
    transitionType: _Scalar


class _NewTarget(TypedDict, total=False):
    url: str
    browserContextId: _Scalar
    left: _Scalar
    top: _Scalar
    width: _Scalar
    height: _Scalar
    windowState: _Scalar
    newWindow: _Scalar
    background: _Scalar
    focus: _Scalar
    forTab: _Scalar
    hidden: _Scalar
    enableBeginFrameControl: _Scalar


class _Continuation(TypedDict, total=False):
    requestId: _Scalar
    url: _Scalar
    method: _Scalar
    interceptResponse: _Scalar
    postData: msgspec.Raw
    headers: msgspec.Raw


class _Cookies(TypedDict, total=False):
    browserContextId: _Scalar
    cookies: msgspec.Raw


class _Files(TypedDict, total=False):
    files: list[str]
    nodeId: _Scalar
    backendNodeId: _Scalar
    objectId: _Scalar


class _DragItem(TypedDict):
    mimeType: str
    data: str
    title: NotRequired[_Scalar]


class _DragData(TypedDict, total=False):
    items: list[_DragItem]
    files: list[str]
    dragOperationsMask: _Scalar


class _Drag(TypedDict, total=False):
    type: _Scalar
    x: _Scalar
    y: _Scalar
    modifiers: _Scalar
    data: _DragData


class _Composition(TypedDict, total=False):
    text: msgspec.Raw
    selectionStart: _Scalar
    selectionEnd: _Scalar
    replacementStart: _Scalar
    replacementEnd: _Scalar


class _Script(TypedDict, total=False):
    source: str
    worldName: _Scalar
    includeCommandLineAPI: _Scalar
    runImmediately: _Scalar


# The shapes of parameters that are rightly large. What nobody judges stays raw, and keeps its very bytes.
SHAPES: Final[Mapping[str, Any]] = {
    "Page.navigate": _Navigation,
    "Target.createTarget": _NewTarget,
    "Fetch.continueRequest": _Continuation,
    "Storage.setCookies": _Cookies,
    "DOM.setFileInputFiles": _Files,
    "Input.dispatchDragEvent": _Drag,
    "Input.imeSetComposition": _Composition,
    "Page.addScriptToEvaluateOnNewDocument": _Script,
}
_decoders: Final = {method: msgspec.json.Decoder(shape) for method, shape in SHAPES.items()}
# Of these the large part is raw: they cost no more than to go through them.
_UNREAD: Final = frozenset({"Fetch.continueRequest", "Storage.setCookies", "Input.imeSetComposition"})


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
_decode_any: Final = msgspec.json.Decoder(dict[str, Any]).decode
encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def decode_params(method: str, params: msgspec.Raw) -> dict[str, Any]:
    """The parameters of that method, for somebody to judge; a value that is `msgspec.Raw` is nobody's to judge.

    Raises `BodyTooLarge` before anything is read, `ValueError` or `RecursionError` for what cannot be read.
    """
    size = len(params)
    if size == 0:
        return {}
    if size <= JUDGED_MAX_BYTES:
        return _decode_any(params)
    limit = MESSAGE_MAX_BYTES if method in _UNREAD else SHAPED_MAX_BYTES if method in SHAPES else JUDGED_MAX_BYTES
    if size > limit:
        raise too_large(f"The parameters of {method} have", size, limit)
    read: dict[str, Any] = _decoders[method].decode(params)
    return read


def too_large(what: str, size: int, limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"{what} {size} bytes; at most {limit} are read.",
        action="Send less at once. Files go to the session by its API.",
        cap=limit,
    )


def ends_of(message: memoryview | bytes) -> tuple[int | None, str]:
    """The id and the session of a message that is not read, where clients write them; None and empty elsewhere."""
    start, end = bytes(message[:_ENDS_BYTES]), bytes(message[-_ENDS_BYTES:])
    found = _ID_AT_START.match(start) or _ID_AT_END.search(end)
    session = _SESSION.search(start) or _SESSION.search(end)
    return (None if found is None else int(found[1])), ("" if session is None else session[1].decode())


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
