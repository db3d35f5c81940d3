"""Named locks over real sockets: those of `/ws` live by their connection, those of HTTP by their lease, in one line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from urllib.parse import quote

import httpx
import pytest
import uvloop

from .control_house import Client, House, client, house, until

NAME = "account:x"
PATH = "/locks/account%3Ax"


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """The loop that the server has; its transports are not those of asyncio."""
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def here() -> AsyncIterator[House]:
    async with house() as running:
        yield running


@pytest.fixture
async def ada(here: House) -> AsyncIterator[Client]:
    async with client(here, await here.token("ada")) as connected:
        yield connected


@pytest.fixture
async def bob(here: House) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {await here.token('bob')}"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}", headers=headers, timeout=60) as over_http:
        yield over_http


async def waiting(here: House, count: int) -> None:
    await until(lambda: here.broker.named_locks._queue.waiting == count)


async def test_a_lock_is_taken_renewed_and_given_back_over_the_channel(here: House, ada: Client) -> None:
    taken = await ada.ask("lock", {"name": NAME, "leaseMs": 50_000})
    assert taken["messageType"] == "result"
    lock = taken["payload"]
    assert (lock["name"], lock["acquired"], lock["leaseMs"]) == (NAME, True, 50_000)
    held = {"name": NAME, "ticket": lock["ticket"]}
    assert (await ada.ask("lock_renew", {**held, "leaseMs": 90_000}))["payload"]["leaseMs"] == 90_000
    assert (await ada.ask("unlock", held))["payload"] == held
    assert (await ada.ask("unlock", held))["payload"]["code"] == "lock_not_found"


async def test_a_connection_that_closes_frees_what_it_held(here: House, ada: Client, bob: httpx.AsyncClient) -> None:
    assert (await ada.ask("lock", {"name": NAME}))["payload"]["expiresAt"] is None
    asking = asyncio.create_task(bob.post(PATH, json={"waitMs": 600_000}))
    await waiting(here, 1)
    await ada.connection.close()
    assert (await asking).json()["acquired"]


async def test_a_connection_that_breaks_off_while_it_waits_is_never_granted(
    here: House, ada: Client, bob: httpx.AsyncClient
) -> None:
    lock = (await bob.post(PATH)).json()
    await ada.send("lock", {"name": NAME, "waitMs": 600_000})
    await waiting(here, 1)
    ada.drop()
    await waiting(here, 0)
    assert (await bob.delete(PATH, params={"ticket": lock["ticket"]})).status_code == 204
    assert (await bob.post(PATH)).json()["acquired"]


async def test_a_request_whose_connection_breaks_while_it_waits_leaves_the_line(
    here: House, ada: Client, bob: httpx.AsyncClient
) -> None:
    held = (await ada.ask("lock", {"name": NAME}))["payload"]
    asking = asyncio.create_task(bob.post(PATH, json={"waitMs": 600_000}))
    await waiting(here, 1)
    asking.cancel()
    await waiting(here, 0)
    await ada.ask("unlock", {"name": NAME, "ticket": held["ticket"]})
    assert (await bob.get("/locks")).json()["locks"] == []


async def test_a_lock_of_http_is_not_freed_by_a_connection_under_the_same_name(here: House) -> None:
    token = await here.token("ada")
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}", headers=headers, timeout=60) as over_http,
        AsyncExitStack() as connections,
    ):
        hand = await connections.enter_async_context(client(here, token, is_greeting=False))
        await hand.ask("hello", {"controllerId": "hand"})
        await over_http.post(PATH, json={"controllerId": "hand"})
        again = await hand.ask("lock", {"name": NAME, "waitMs": 1_000})
        assert again["payload"]["code"] == "lock_reentered"
        await connections.aclose()
        await until(lambda: not here.broker.named_locks._queue.waiting)
        assert [lock["name"] for lock in (await over_http.get("/locks")).json()["locks"]] == [NAME]


async def test_one_connection_that_asks_twice_waits_for_itself(ada: Client) -> None:
    await ada.ask("lock", {"name": NAME})
    assert (await ada.ask("lock", {"name": NAME, "waitMs": 1_000}))["payload"]["code"] == "lock_reentered"


async def test_who_skips_over_the_channel_gets_a_result(here: House, ada: Client, bob: httpx.AsyncClient) -> None:
    await bob.post(PATH)
    skipped = await ada.ask("lock", {"name": NAME, "skip": True})
    assert (skipped["messageType"], skipped["payload"]["acquired"]) == ("result", False)


async def test_the_holder_hears_of_its_lock_as_an_event(ada: Client) -> None:
    lock = (await ada.ask("lock", {"name": NAME, "leaseMs": 100}))["payload"]
    told = await ada.event("lock.expired")
    assert (told["name"], told["fence"], told["reason"]) == (NAME, lock["fence"], "expired")


async def test_another_node_is_refused_by_name(ada: Client) -> None:
    refused = await ada.ask("lock", {"name": NAME, "targetNodeId": "nod_2"})
    assert refused["payload"]["details"]["node"] == "nod_1"


async def test_a_name_that_cannot_be_is_refused_over_both(ada: Client, bob: httpx.AsyncClient) -> None:
    assert (await ada.ask("lock", {"name": "a\nb"}))["payload"]["code"] == "invalid_request"
    answer = await bob.post("/locks/a%0Ab")
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "name")


@pytest.mark.parametrize("name", ["a/b", "Schlüssel 🐑", "100%", "a+b", "?x=1#y"])
async def test_any_printable_name_is_its_own_lock(bob: httpx.AsyncClient, name: str) -> None:
    lock = (await bob.post(f"/locks/{quote(name, safe='')}")).json()
    assert lock["name"] == name


async def test_monitoring_has_the_shape_that_is_expected(bob: httpx.AsyncClient) -> None:
    await bob.post(PATH)
    answer = (await bob.get("/api/advisory-locks")).json()
    assert answer["count"] == 1
    (lock,) = answer["advisory_locks"]
    assert (lock["label"], lock["held"], lock["holder"], lock["waiters"]) == (NAME, True, "bob", 0)
    assert lock["heldMs"] >= 0


async def test_an_agent_cannot_take_locks_for_another(bob: httpx.AsyncClient) -> None:
    assert (await bob.post(PATH, json={"agentId": "ada"})).status_code == 403


async def test_a_busy_lock_is_a_timeout_that_may_be_retried(ada: Client, bob: httpx.AsyncClient) -> None:
    await ada.ask("lock", {"name": NAME})
    answer = await bob.post(PATH, json={"waitMs": 20})
    assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (504, "lock_timed_out", True)
    assert answer.json()["details"]["holder"].startswith("ada/")
