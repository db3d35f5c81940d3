"""control-channel.md, from the structs of `tabherd.wire.control`: the messages, and a JSON schema of them all."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec

from tabherd import wire
from tabherd.edge.conversation import MALFORMED_MAX
from tabherd.edge.pulse import MISSED_MAX
from tabherd.edge.sockets import UNSENT_MAX_BYTES

from .markdown import row, table
from .structs import default, field_comments, type_and_bounds

REF = "#/$defs/{name}"


# One paragraph or one point of a list per entry; wrapped when written.
INTRODUCTION = (
    "`/ws` is a WebSocket on the server's port: many commands in flight on one connection, locks, and events, "
    "in the same queues as HTTP. Send `Authorization: Bearer TOKEN`, or `?token=TOKEN` where a client cannot set "
    "headers. A refused upgrade is an HTTP answer with [the typed error](errors.md) as its body. Pages of other "
    "origins cannot open it.",
    "Every message is one JSON object in a text frame. The first one is `hello`. A request is answered exactly "
    "once, by the message named below or by `error`, with the same `requestId` and `traceId`; events that belong to "
    "it carry them too. Requests are begun in the order in which they come, and wait for their tab in turn with "
    "everybody else's.",
)
RULES = (
    f"**Replays.** `timestamp` must be within {wire.REPLAY_WINDOW_MS // 1000} s of the server's clock, and a `nonce` "
    "is good for one message per credential, on whichever connection. What is outside, or was here before, is "
    "refused, and nothing is done.",
    "**Mistakes.** An unknown field, type or value is an `error` that names the field. A message that is not a JSON "
    f"object, or is binary, is an `error` without `requestId`; after {MALFORMED_MAX} of them the connection is "
    "closed (1008).",
    "**Controllers.** What a connection queues, runs and locks is counted to its controller: its credential and the "
    "`controllerId` of hello, or its own address. A name is one connection's at a time: a second one is refused "
    "with `conflict` until the first has ended. HTTP requests that give the same `controllerId` belong to the same "
    "controller, and end with the connection.",
    "**The end of a connection**, however it comes, withdraws what its controller queued, cancels what it runs and "
    "releases its tab locks and the named locks that it took. Other connections of the same credential are not "
    "affected. A session that its owner "
    "used over a connection, and that neither beats nor is to be kept alive, ends when the last one has been closed "
    "for as long as its pool's `disconnect_grace_s`.",
    f"**Beats.** The server sends a ping frame every `heartbeatMs`; after {MISSED_MAX} without any sign of life it "
    "ends the connection. Every WebSocket library answers them by itself. The messages `ping` and `pong` are for "
    "clients that want to know more than their library tells them; the server answers the first.",
    "**Slow readers** get every answer. Events wait in the server's ring, and whoever falls behind it gets `reset` "
    f"and then what comes. Who lets {UNSENT_MAX_BYTES >> 20} MiB pile up, or has a backlog and reads nothing of it "
    f"between {MISSED_MAX} pings, is cut off.",
    "**Credentials** are looked at with every message and every beat. One that was revoked or has expired gets "
    "`unauthenticated`, and the end (1008).",
    "**Close codes.** 1001: the server ends, after the event `node.draining`. 1002: not WebSocket. 1008: a rule "
    "above. 1009: a message larger than `messageMaxBytes`. 1011: a bug of the server's.",
)
EVENTS = (
    "All [others](events.md) are told to whoever they concern: those of the caller's agent, and those about its own "
    "locks in shared sessions. An admin that speaks for nobody hears all of them."
)
EXAMPLE = {
    "protocolVersion": wire.PROTOCOL_VERSION,
    "messageType": "command",
    "requestId": "7",
    "timestamp": "2026-01-31T12:00:00Z",
    "nonce": "b1946ac9",
    "payload": {
        "tabSessionId": "tab_...",
        "action": "command.run",
        "payload": {"kind": "click", "selector": "text=Sign in"},
        "waitPolicy": "wait_with_timeout",
        "timeoutMs": 30_000,
    },
}


def write() -> Iterator[str]:
    yield "# Control channel"
    for paragraph in INTRODUCTION:
        yield from ("", *_wrapped(paragraph))
    yield from ("", "```json", *json.dumps(EXAMPLE, indent=2).splitlines(), "```", "", "## Rules", "")
    for rule in RULES:
        yield from _wrapped(f"- {rule}", indent="  ")
    yield from _struct("Envelope of a client", wire.Envelope)
    yield from _struct("Envelope of the server", wire.ServerEnvelope)
    yield from ("", "## Messages of a client", "")
    yield from table("messageType", "payload", "answered by")
    for kind, payload in wire.CLIENT_PAYLOADS.items():
        answer = wire.ANSWERS[kind]
        views = ", ".join(view.__name__ for view in _answers(kind))
        shown = f"`{answer}` {views}".strip() if answer else "nothing"
        yield row(f"`{kind}`", f"[{payload.__name__}](#{payload.__name__.lower()})", shown)
    for payload in dict.fromkeys(wire.CLIENT_PAYLOADS.values()):
        yield from _struct(payload.__name__, payload)
    yield from ("", "## Messages of the server", "")
    yield from table("messageType", "payload")
    for kind, views in wire.SERVER_PAYLOADS.items():
        yield row(f"`{kind}`", ", ".join(view.__name__ for view in views))
    for view in (wire.HelloAck, wire.ControlLimits, wire.TabUnlocked, wire.LockReleased, wire.ControlEvent):
        yield from _struct(view.__name__, view)
    yield from (
        "",
        "`CommandView`, `TabLockView` and `LockView` are what [HTTP](http.md) answers with, `ErrorView` is",
        "[the error](errors.md).",
        "",
        "## Events",
        "",
        "These are told only to the connection whose message they belong to:",
        "",
    )
    yield from table("type", "meaning")
    for kind, meaning in wire.CONTROL_EVENTS.items():
        yield row(f"`{kind}`", meaning)
    yield from ("", *_wrapped(EVENTS), "", "## JSON schema", "")
    yield from ("`client` is what the server accepts, `server` what it sends.", "", "```json", *_lines(schema()), "```")


def schema() -> dict[str, Any]:
    """Every message, in both directions."""
    sent = [wire.Envelope, *wire.CLIENT_PAYLOADS.values(), wire.AnyAction, wire.Steps]
    told = [wire.ServerEnvelope, *(view for views in wire.SERVER_PAYLOADS.values() for view in views)]
    schemas, definitions = msgspec.json.schema_components([*sent, *told], ref_template=REF)
    schema_of = dict(zip(map(repr, [*sent, *told]), schemas, strict=True))
    # What the envelope and the command leave open, because it is read in a second step.
    actions = schema_of[repr(wire.AnyAction)].get("anyOf", [schema_of[repr(wire.AnyAction)]])
    definitions["RunCommand"]["properties"]["payload"] = {"anyOf": [*actions, schema_of[repr(wire.Steps)]]}
    definitions["client"] = {
        "anyOf": [
            _message("Envelope", kind, [schema_of[repr(payload)]]) for kind, payload in wire.CLIENT_PAYLOADS.items()
        ]
    }
    definitions["server"] = {
        "anyOf": [
            _message("ServerEnvelope", kind, [schema_of[repr(view)] for view in views])
            for kind, views in wire.SERVER_PAYLOADS.items()
        ]
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tabherd control channel {wire.PROTOCOL_VERSION}",
        "anyOf": [{"$ref": REF.format(name="client")}, {"$ref": REF.format(name="server")}],
        "$defs": definitions,
    }


def _message(envelope: str, kind: str, payloads: list[dict[str, Any]]) -> dict[str, Any]:
    payload = payloads[0] if len(payloads) == 1 else {"anyOf": payloads}
    return {
        "allOf": [
            {"$ref": REF.format(name=envelope)},
            {"properties": {"messageType": {"const": kind}, "payload": payload}},
        ]
    }


def _answers(kind: str) -> tuple[type[wire.Answer], ...]:
    return {
        "command": (wire.CommandView,),
        "command_cancel": (wire.CommandView,),
        "tab_lock": (wire.TabLockView,),
        "tab_renew": (wire.TabLockView,),
        "tab_unlock": (wire.TabUnlocked,),
        "lock": (wire.LockView,),
        "lock_renew": (wire.LockView,),
        "unlock": (wire.LockReleased,),
    }.get(kind, ())


def _lines(document: dict[str, Any]) -> Iterator[str]:
    """A schema as JSON with one definition per line: to be copied, and to be compared."""
    definitions = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in document["$defs"].items()]
    rest = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in document.items() if name != "$defs"]
    yield from ("{", *rest, ' "$defs": {', *",\n".join(definitions).splitlines(), " }", "}")


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _struct(title: str, struct: type[msgspec.Struct]) -> Iterator[str]:
    fields = msgspec.structs.fields(struct)
    yield from ("", f"### {title}", "")
    if _has_own_doc(struct):
        yield from ((struct.__doc__ or "").strip().splitlines()[0], "")
    if not fields:
        return
    yield from table("field", "type", "default", "bounds", "meaning")
    for field in fields:
        kind, bounds = ("any", "") if field.type is msgspec.Raw else type_and_bounds(field.type)
        shown = "required" if field.required else "`{}`" if field.type is msgspec.Raw else default(field)
        comment = field_comments(sys.modules[struct.__module__]).get((struct.__name__, field.name), "")
        yield row(f"`{field.encode_name}`", kind, shown, bounds, comment)


def _has_own_doc(struct: type[msgspec.Struct]) -> bool:
    return "__doc__" in vars(struct) and bool(struct.__doc__)
