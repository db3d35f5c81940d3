"""The protocol of the control channel without its sockets: from bytes to messages, from answers to bytes.

Pure: time is an argument. Whatever a caller sends becomes a `Message`, or a `Rejected` with a typed error that names
the field, and with the ids of the message as far as they could be read, so that the caller can tell what was refused.
"""

from __future__ import annotations

import json
import secrets
from datetime import datetime
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from .. import wire
from ..errors import InvalidRequest, RateLimited, StateConflict, TabherdError
from .decode import BodyDecoder
from .lock_messages import LockWork

# How many nonces of one credential are remembered; at its rate an agent stays well below.
NONCES_MAX: Final = 100_000
# Generations of nonces that are kept: a message can be played back until two windows after it came.
GENERATIONS: Final = 3


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command as the broker takes it."""

    tab_id: str
    target_node_id: str | None
    request: wire.AnyAction | wire.Steps


Payload: TypeAlias = (
    wire.Hello
    | Command
    | wire.CancelCommand
    | wire.TakeTabLock
    | wire.RenewTabLock
    | wire.ReleaseTabLock
    | LockWork
    | wire.Beat
)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller said, decoded."""

    type: str
    request_id: str
    trace_id: str | None
    nonce: str
    timestamp_ms: int
    payload: Payload


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller said and nobody can act upon."""

    error: TabherdError
    # As far as they could be read.
    request_id: str | None = None
    trace_id: str | None = None
    # It is not even a JSON object.
    is_malformed: bool = False


class _Ids(msgspec.Struct, rename="camel"):
    """The ids of a message, whatever else is wrong with it."""

    request_id: Any = None
    trace_id: Any = None


class _Shape(msgspec.Struct):
    """Whether a command is one action or several."""

    steps: msgspec.Raw = msgspec.Raw()


_envelope: Final = BodyDecoder(wire.Envelope)
_payloads: Final = {kind: BodyDecoder(payload) for kind, payload in wire.CLIENT_PAYLOADS.items()}
_action: Final = BodyDecoder(wire.AnyAction)
_steps: Final = BodyDecoder(wire.Steps)
_ids: Final = msgspec.json.Decoder(_Ids)
_shape: Final = msgspec.json.Decoder(_Shape)
# What a command says beside its action, and must not say a second time inside it: with the value that says nothing.
# That is what several steps say once for all of them; how dialogs are answered, say, is a matter of each action.
_BESIDE: Final = {
    field.name: (field.encode_name, field.default)
    for field in msgspec.structs.fields(wire.Action)
    if field.name in wire.Steps.__struct_fields__
}
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def decode(data: bytes) -> Message | Rejected:
    """What was said."""
    try:
        envelope: wire.Envelope = _envelope.decode(data or b" ")
    except TabherdError as error:
        if error.details["field"] == "body":
            error.details["field"] = "message"
            return Rejected(error=error, is_malformed=True)
        ids = _readable_ids(data)
        return Rejected(error=error, request_id=ids[0], trace_id=ids[1])
    try:
        timestamp_ms = _milliseconds(envelope.timestamp)
        payload = _payload(envelope)
    except TabherdError as error:
        return Rejected(error=error, request_id=envelope.request_id, trace_id=envelope.trace_id)
    return Message(
        type=envelope.message_type,
        request_id=envelope.request_id,
        trace_id=envelope.trace_id,
        nonce=envelope.nonce,
        timestamp_ms=timestamp_ms,
        payload=payload,
    )


def encode(
    message_type: wire.ServerMessage,
    payload: Any,
    *,
    nonce: str,
    timestamp_ms: int,
    request_id: str | None = None,
    trace_id: str | None = None,
) -> bytes:
    """One message of the server."""
    envelope = wire.ServerEnvelope(
        message_type=message_type,
        request_id=msgspec.UNSET if request_id is None else request_id,
        timestamp=timestamp_ms,
        nonce=nonce,
        trace_id=msgspec.UNSET if trace_id is None else trace_id,
        payload=payload,
    )
    try:
        return _encode(envelope)
    except UnicodeEncodeError:
        # A page may hand out half of a surrogate pair: JSON can carry it escaped, UTF-8 cannot.
        return json.dumps(msgspec.to_builtins(envelope, enc_hook=wire.plain)).encode()


def greeting(hello: wire.Hello, timestamp_ms: int) -> bytes:
    """The same hello, to another node."""
    said = wire.Envelope(
        protocol_version=wire.PROTOCOL_VERSION,
        message_type="hello",
        request_id=secrets.token_hex(8),
        timestamp=timestamp_ms,
        nonce=secrets.token_hex(16),
        payload=msgspec.Raw(_encode(hello)),
    )
    return _encode(said)


class ReplayWindow:
    """The messages of one credential that could still be played back: each nonce is good for one of them.

    Bounded: when it is full, more messages are refused until the oldest have become too old to be accepted anyway.
    """

    def __init__(self, nonces_max: int = NONCES_MAX) -> None:
        self._nonces_max = nonces_max
        # By the window in which they came, newest first; each is as long as a timestamp may be off.
        self._generations: list[set[str]] = [set() for _ in range(GENERATIONS)]
        self._newest = 0

    def admit(self, nonce: str, timestamp_ms: int, now_ms: int) -> None:
        """Remember the message, or raise: it is too old, too far ahead, or was here before."""
        if abs(now_ms - timestamp_ms) > wire.REPLAY_WINDOW_MS:
            raise InvalidRequest(
                "timestamp: the message is too old or comes from the future.",
                action="Set the clock right, and stamp a message when it is sent.",
                field="timestamp",
                serverTime=now_ms,
                windowMs=wire.REPLAY_WINDOW_MS,
            )
        self._turn(now_ms)
        if any(nonce in generation for generation in self._generations):
            raise StateConflict(
                "nonce: a message with this nonce was here before.",
                action="Give every message a nonce of its own, also one that is repeated.",
                field="nonce",
            )
        if len(self) >= self._nonces_max:
            left_ms = wire.REPLAY_WINDOW_MS - now_ms % wire.REPLAY_WINDOW_MS
            raise RateLimited(
                "More messages came than can be told from replayed ones.", retry_after_ms=left_ms, cap=self._nonces_max
            )
        self._generations[0].add(nonce)

    def is_empty(self, now_ms: int) -> bool:
        """Whether there is nothing that could be played back."""
        self._turn(now_ms)
        return len(self) == 0

    def __len__(self) -> int:
        return sum(map(len, self._generations))

    def _turn(self, now_ms: int) -> None:
        """Forget what has become too old to be accepted. A clock that goes back forgets nothing."""
        turns = now_ms // wire.REPLAY_WINDOW_MS - self._newest
        if turns > 0:
            self._newest += turns
            fresh: list[set[str]] = [set() for _ in range(min(turns, GENERATIONS))]
            self._generations = (fresh + self._generations)[:GENERATIONS]


# --- Parts ------------------------------------------------------------------------------------------------------


def _payload(envelope: wire.Envelope) -> Payload:
    try:
        payload = _payloads[envelope.message_type].decode(bytes(envelope.payload))
    except TabherdError as error:
        _raise_inside(error, "payload")
    return _command(payload) if isinstance(payload, wire.RunCommand) else payload


def _command(payload: wire.RunCommand) -> Command:
    """The action with what was said beside it."""
    body = bytes(payload.payload)
    try:
        request: wire.AnyAction | wire.Steps = (_steps if _has_steps(body) else _action).decode(body)
    except TabherdError as error:
        _raise_inside(error, "payload.payload")
    for name, (spelled, default) in _BESIDE.items():
        if getattr(request, name) != default:
            raise InvalidRequest(
                f"'{spelled}' stands beside the action, not in it.",
                action=f"Move it to payload.{spelled}; the controllerId is said once, in hello.",
                field=f"payload.payload.{spelled}",
            )
    return Command(
        tab_id=payload.tab_session_id,
        target_node_id=payload.target_node_id,
        request=msgspec.structs.replace(
            request,
            session_id=payload.session_id,
            fence=payload.fence,
            wait_policy=payload.wait_policy,
            timeout_ms=payload.timeout_ms,
            idempotency_key=payload.idempotency_key,
            on_timeout=payload.on_timeout,
        ),
    )


def _has_steps(body: bytes) -> bool:
    try:
        return bool(_shape.decode(body).steps)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Neither; the decoder of actions says what is wrong with it.
        return False


def _raise_inside(error: TabherdError, where: str) -> NoReturn:
    """Raise the error, with the field as it is seen from the envelope."""
    field = error.details["field"]
    error.details["field"] = where if field == "body" else f"{where}.{field}"
    raise error


def _readable_ids(data: bytes) -> tuple[str | None, str | None]:
    try:
        ids = _ids.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # The first complaint stands; there is nothing to add to it.
        return None, None
    return _readable(ids.request_id), _readable(ids.trace_id)


def _readable(value: object) -> str | None:
    return value if isinstance(value, str) and 1 <= len(value) <= 100 else None


def _milliseconds(timestamp: int | str) -> int:
    if isinstance(timestamp, int):
        return timestamp
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidRequest(
            "timestamp: not RFC 3339 with a zone, nor milliseconds since 1970.", field="timestamp"
        ) from None
    return int(moment.timestamp() * 1000)
