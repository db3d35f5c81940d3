"""The event stream: nothing is missed silently, nobody sees what is not theirs, and leaving frees the place."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from tabherd.broker.events import EventBus, EventId
from tabherd.edge import auth, sse
from tabherd.edge.http import App
from tabherd.edge.server import Front
from tabherd.errors import InvalidRequest

from .fake_broker import FakeBroker


def frames_of(text: str) -> list[tuple[str, str, dict[str, Any]]]:
    """(id, event, data) of each event in the stream; comments and bare ids left out."""
    frames = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "data" in lines:
            frames.append((lines["id"], lines["event"], json.loads(lines["data"])))
    return frames


async def read_all(
    client: httpx.AsyncClient, events: EventBus, **request: Any
) -> list[tuple[str, str, dict[str, Any]]]:
    """What the stream has until the bus is closed."""
    events.close()
    answer = await client.get("/events", **request)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream"
    return frames_of(answer.text)


async def test_a_stream_resumes_after_the_place_it_names(admin: httpx.AsyncClient, events: EventBus) -> None:
    for number in range(5):
        events.publish("browser.ready", browserId=f"brw_{number}")
    frames = await read_all(admin, events, headers={"Last-Event-ID": "3-2"})
    assert [id for id, _, _ in frames] == ["3-3", "3-4", "3-5"]
    assert frames[0][1] == "browser.ready"
    assert frames[0][2]["browserId"] == "brw_2"


async def test_no_name_breaks_a_message_in_two_for_readers_that_split_lines_as_python_does(
    admin: httpx.AsyncClient, events: EventBus
) -> None:
    name = "a\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029b"
    events.publish("tab.paused", tabId="tab_1", by=name)
    ((_, _, data),) = await read_all(admin, events, headers={"Last-Event-ID": "3-0"})
    assert data["by"] == name


@pytest.mark.parametrize("place", ["2-2", "3-1", "9-9", "nonsense", "0-0", "3-99"])
async def test_a_place_that_cannot_be_resumed_is_answered_with_reset(
    admin: httpx.AsyncClient, events: EventBus, place: str
) -> None:
    for number in range(20):
        events.publish("browser.ready", browserId=f"brw_{number}")
    frames = await read_all(admin, events, headers={"Last-Event-ID": place})
    assert [(id, event) for id, event, _ in frames] == [("3-20", "reset")]


async def test_an_agent_sees_only_its_own_events(
    alice: httpx.AsyncClient, admin: httpx.AsyncClient, events: EventBus
) -> None:
    events.publish("session.opened", sessionId="ses_1", agentId="alice")
    events.publish("session.opened", sessionId="ses_2", agentId="bob")
    events.publish("browser.ready", browserId="brw_1")
    start = {"Last-Event-ID": "3-0"}
    assert [data.get("agentId") for _, _, data in await read_all(alice, events, headers=start)] == ["alice"]
    assert len(await read_all(admin, events, headers=start)) == 3
    assert len(await read_all(admin, events, headers=start, params={"agentId": "bob"})) == 1


async def test_filters_by_type_and_tab_apply(admin: httpx.AsyncClient, events: EventBus) -> None:
    events.publish("session.opened", sessionId="ses_1", agentId="a")
    events.publish("tab.rebuilt", tabId="tab_1", agentId="a")
    events.publish("tab.rebuilt", tabId="tab_2", agentId="a")
    start = {"Last-Event-ID": "3-0"}
    of_kind = await read_all(admin, events, headers=start, params={"types": "tab.*, node.ready"})
    assert [data["tabId"] for _, _, data in of_kind] == ["tab_1", "tab_2"]
    of_tab = await read_all(admin, events, headers=start, params={"tabId": "tab_2"})
    assert [data["tabId"] for _, _, data in of_tab] == ["tab_2"]


async def test_an_unknown_type_is_refused_with_the_nearest(admin: httpx.AsyncClient) -> None:
    answer = await admin.get("/events", params={"types": "session.open"})
    assert answer.status_code == 400
    assert "session.opened" in answer.json()["message"]


@pytest.mark.parametrize("types", ["*", "ses*", ".*"])
def test_a_wildcard_stands_for_a_whole_kind_only(types: str) -> None:
    with pytest.raises(InvalidRequest):
        sse.parse_types(types)


async def test_the_stream_says_at_once_where_it_stands_and_again_with_each_heartbeat(events: EventBus) -> None:
    subscription = events.subscribe(agent_id="alice")
    stream = sse.stream(subscription, heartbeat_s=0.01)
    assert await anext(stream) == b"retry: 1000\nid: 3-0\n\n"
    events.publish("browser.ready", browserId="brw_1")
    assert await anext(stream) == b": heartbeat\nid: 3-1\n\n"
    await stream.aclose()


async def test_a_burst_is_sent_in_few_pieces(events: EventBus) -> None:
    stream = sse.stream(events.subscribe(after=EventId(3, 0)))
    for _ in range(10):
        events.publish("browser.ready", browserId="brw_1")
    await anext(stream)
    assert len(frames_of((await anext(stream)).decode())) == 10
    await stream.aclose()


async def test_head_does_not_keep_a_place(admin: httpx.AsyncClient, events: EventBus) -> None:
    assert (await admin.head("/events")).status_code == 200
    assert events._subscribers == 0


@asynccontextmanager
async def served(make_app: Callable[..., App]) -> AsyncIterator[tuple[str, uvicorn.Server]]:
    """The application behind real sockets, with the settings of the real server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        front = Front(make_app(port=port))
        serving = asyncio.create_task(front.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{port}", front
        finally:
            front.should_exit = True
            await serving


async def until(condition: Callable[[], bool]) -> None:
    """Bounded: a condition that never comes is a failure."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_events_arrive_over_a_socket_and_leaving_frees_the_place(
    make_app: Callable[..., App], events: EventBus, admin_token: str
) -> None:
    async with (
        served(make_app) as (url, _),
        httpx.AsyncClient(headers={"Authorization": f"Bearer {admin_token}"}, timeout=60) as client,
    ):
        async with client.stream("GET", f"{url}/events") as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == "retry: 1000"
            assert events._subscribers == 1
            events.publish("browser.ready", browserId="brw_1")
            async for line in lines:
                if line.startswith("data:"):
                    assert json.loads(line.removeprefix("data:"))["browserId"] == "brw_1"
                    break
        await until(lambda: events._subscribers == 0)


async def test_a_stream_ends_with_its_credential_however_busy_it_is_and_says_why(
    make_app: Callable[..., App], events: EventBus, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "LOOK_EVERY_S", 0.001)
    token, credential = await broker.credentials.create("alice", ["browse"])
    async with (
        served(make_app) as (url, _),
        httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as client,
        client.stream("GET", f"{url}/events") as answer,
    ):
        lines = answer.aiter_lines()
        await anext(lines)
        events.publish("session.opened", sessionId="ses_1", agentId="alice")
        while not (await anext(lines)).startswith("data:"):
            pass
        await broker.credentials.revoke(credential.id)
        said: list[str] = []
        async for line in lines:
            said.append(line)
            events.publish("session.opened", sessionId="ses_2", agentId="alice")
    assert said[-3] == "event: ended"
    assert json.loads(said[-2].removeprefix("data: "))["error"]["code"] == "unauthenticated"
    assert "credential was revoked" in said[-2]
    await until(lambda: events._subscribers == 0)


async def test_closing_the_bus_ends_every_stream_so_that_a_server_can_stop(
    make_app: Callable[..., App], events: EventBus, admin_token: str
) -> None:
    async with (
        served(make_app) as (url, _),
        httpx.AsyncClient(headers={"Authorization": f"Bearer {admin_token}"}, timeout=60) as client,
        client.stream("GET", f"{url}/events") as answer,
    ):
        lines = answer.aiter_lines()
        await anext(lines)
        events.close()
        async with asyncio.timeout(60):
            assert [line async for line in lines if line.startswith("data:")] == []


async def test_a_client_that_hangs_up_while_waiting_is_noticed_on_the_socket(
    make_app: Callable[..., App], broker: Any, alice_token: str
) -> None:
    broker.commands.is_hanging = True
    async with served(make_app) as (url, _):
        host, port = url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        body = b'{"kind": "text"}'
        writer.write(
            b"POST /tabs/tab_1/action HTTP/1.1\r\nHost: %s:%s\r\n"
            b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s"
            % (host.encode(), port.encode(), alice_token.encode(), len(body), body)
        )
        await asyncio.wait_for(broker.commands.began.wait(), 60)
        writer.close()
        await asyncio.wait_for(broker.commands.cancelled.wait(), 60)
