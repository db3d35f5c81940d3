"""The JSON schema in the reference page is what travels: real messages of both directions fit it, others do not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tabherd import wire
from tabherd.broker.events import EVENT_TYPES

from .control_house import Client, client, command, envelope, house

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "control-channel.md"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)[-1])
    return document


def side(schema: dict[str, Any], name: str) -> Any:
    """A validator of what one side sends."""
    return jsonschema_rs.validator_for({"$defs": schema["$defs"], "$ref": f"#/$defs/{name}"})


def test_messages_that_the_server_takes_fit(schema: dict[str, Any]) -> None:
    accepted = side(schema, "client")
    lock = {"tabSessionId": "t", "ticket": "lck_1"}
    payloads: dict[str, dict[str, Any]] = {
        "hello": {"controllerId": "hand", "heartbeatMs": 1_000},
        "command": command("t", "1", timeoutMs=500, onTimeout="keep"),
        "command_cancel": {"commandId": "cmd_1"},
        "tab_lock": {"tabSessionId": "t", "lockLeaseMs": 500, "waitPolicy": "fail_fast"},
        "tab_renew": lock,
        "tab_unlock": lock,
        "lock": {"name": "account:x", "waitMs": 500, "leaseMs": 1_000, "owner": {"pid": 1}},
        "lock_renew": {"name": "account:x", "ticket": "lck_1"},
        "unlock": {"name": "account:x", "ticket": "lck_1"},
        "ping": {},
        "pong": {},
    }
    assert set(payloads) == set(wire.CLIENT_PAYLOADS)
    for kind, payload in payloads.items():
        accepted.validate(envelope(kind, payload, traceId="t"))
    accepted.validate(envelope("command", {"tabSessionId": "t", "payload": {"steps": [{"kind": "back"}]}}))


@pytest.mark.parametrize(
    "message",
    [
        envelope("dance"),
        envelope("ping", {"x": 1}),
        envelope("hello", {"heartbeatMs": 1}),
        envelope("command", {"tabSessionId": "t", "payload": {"kind": "nonsense"}}),
        envelope("tab_unlock", {"tabSessionId": "t"}),
        envelope("ping", surprise=1),
    ],
    ids=["type", "payload", "bounds", "action", "missing", "unknown"],
)
def test_messages_that_it_refuses_do_not_fit(schema: dict[str, Any], message: dict[str, Any]) -> None:
    assert not side(schema, "client").is_valid(message)


async def test_everything_that_the_server_says_fits(schema: dict[str, Any]) -> None:
    async with house() as here:
        tab_id = await here.open_tab("ada")
        async with client(here, await here.token("ada"), is_greeting=False) as ada:
            said = await conversation(ada, tab_id)
    assert {message["messageType"] for message in said} == set(wire.SERVER_PAYLOADS)
    told = side(schema, "server")
    for message in said:
        told.validate(message)


async def conversation(ada: Client, tab_id: str) -> list[dict[str, Any]]:
    """A bit of everything; all that was answered."""
    said = [await ada.ask("hello", {}), await ada.ask("ping", traceId="t")]
    said.append(await ada.ask("command", command(tab_id, "1")))
    said.append(lock := await ada.ask("tab_lock", {"tabSessionId": tab_id}))
    held = {"tabSessionId": tab_id, "ticket": lock["payload"]["ticket"]}
    said += [await ada.ask(kind, held) for kind in ("tab_renew", "tab_unlock", "tab_unlock")]
    said.append(lock := await ada.ask("lock", {"name": "account:x"}))
    held = {"name": "account:x", "ticket": lock["payload"]["ticket"]}
    said += [await ada.ask(kind, held) for kind in ("lock_renew", "unlock", "unlock")]
    said.append({**await ada.next(lambda message: message["messageType"] == "event")})
    await ada.connection.send("{")
    said.append(await ada.next(lambda message: "requestId" not in message and message["messageType"] == "error"))
    return said + ada.inbox


def test_every_message_and_event_of_the_channel_is_documented() -> None:
    page = PAGE.read_text()
    for name in [*wire.CLIENT_PAYLOADS, *wire.SERVER_PAYLOADS, *wire.CONTROL_EVENTS]:
        assert f"| `{name}` |" in page
    assert not set(wire.CONTROL_EVENTS) & set(EVENT_TYPES)
