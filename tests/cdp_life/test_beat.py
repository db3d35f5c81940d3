"""What a connection is looked at for from time to time: whether its client reads, is there, and is still welcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
import uvloop

from tabherd.edge.cdp import refusal, tenant
from tabherd.edge.sockets import UNSENT_MAX_BYTES

from .conftest import until_async
from .house import House, house
from .raw_socket import PING, TEXT, raw_socket
from .wire_client import wire_client

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

# More than anybody keeps for a client, as fast as it goes.
FLOOD = "setInterval(() => { for (let n = 0; n < 4; n++) console.log('x'.repeat(1 << 20)) }, 10); 1"


@pytest.fixture(scope="module")
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """The loop that the server has; its transports are not those of asyncio."""
    return uvloop.EventLoopPolicy()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(tmp_path_factory.mktemp("house")) as running:
        yield running


@pytest.fixture
def is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that are opened from now on are looked at often."""
    monkeypatch.setattr(tenant, "BEAT_S", 0.2)


async def is_empty(here: House) -> bool:
    return len(here.broker.registry) == 0


@pytest.mark.usefixtures("is_quick")
async def test_a_client_that_answers_pings_stays(here: House) -> None:
    async with wire_client(here.url, await here.token()) as client:
        # Silent for many beats, but for the pongs.
        waiting = "new Promise(done => setTimeout(done, 900, 'there'))"
        assert await client.value(waiting, await client.page()) == "there"


@pytest.mark.usefixtures("is_quick")
async def test_a_client_that_does_not_answer_pings_is_let_go(here: House) -> None:
    async with raw_socket(here.url, await here.token()) as mute:
        while (await mute.read()).kind == PING:
            # Seen, and not answered.
            pass
        await until_async(lambda: is_empty(here))


@pytest.mark.usefixtures("is_quick")
async def test_a_client_that_stops_reading_is_let_go_although_it_talks(here: House) -> None:
    async with raw_socket(here.url, await here.token(), receive_bytes=1 << 16) as client:
        page = await client.page()
        await client.ask(3, "Runtime.enable", page)
        client.say(4, "Runtime.evaluate", page, expression=FLOOD)

        async def talk() -> bool:
            # It may hear that it was let go a moment before the broker has cleared up behind it.
            if not client.is_closed:
                client.say(5, "Browser.getVersion")
            return await is_empty(here)

        await until_async(talk)


async def test_a_client_that_does_not_read_does_not_slow_its_neighbour(here: House) -> None:
    await until_async(lambda: is_empty(here))
    async with raw_socket(here.url, await here.token(), receive_bytes=1 << 16) as stuck, AsyncExitStack() as others:
        (behind,) = tenants(here)
        neighbour = await others.enter_async_context(wire_client(here.url, await here.token("bob")))
        theirs, page = await neighbour.page(), await stuck.page()
        await stuck.ask(3, "Runtime.enable", page)
        stuck.say(4, "Runtime.evaluate", page, expression=FLOOD)
        await until_async(lambda: is_behind(behind))
        for number in range(200):
            assert await neighbour.value(f"{number} + 1", theirs) == number + 1
        assert behind.is_paused
        assert not behind.is_closed
        assert behind.unsent_bytes < 16 << 20


async def test_what_comes_behind_a_large_message_does_not_cut_its_reader_off(here: House) -> None:
    await until_async(lambda: is_empty(here))
    async with raw_socket(here.url, await here.token(), receive_bytes=1 << 16) as slow:
        page = await slow.page()
        (one,) = tenants(here)
        slow.say(3, "Runtime.evaluate", page, expression=f"'x'.repeat({40 << 20})", returnByValue=True)
        await until_async(lambda: is_behind(one))
        assert one.unsent_bytes > UNSENT_MAX_BYTES
        one.send(b'{"id":4,"result":{}}')
        assert len((await slow.hear(3))["result"]["result"]["value"]) == 40 << 20
        assert (await slow.hear(4))["result"] == {}


def tenants(here: House) -> list[tenant.Tenant]:
    found = [one for live in here.broker.registry for one in live.connections.values()]
    assert all(isinstance(one, tenant.Tenant) for one in found)
    return found  # type: ignore[return-value]


async def is_behind(one: tenant.Tenant) -> bool:
    return one.is_paused


@pytest.mark.usefixtures("is_quick")
async def test_the_socket_of_a_revoked_credential_is_closed(here: House) -> None:
    token, credential = await here.credentials.create("ada", ("browse", "evaluate"))
    async with wire_client(here.url, token) as client:
        await here.credentials.revoke(credential.id)
        code, reason = await client.closed()
        assert (code, reason) == (4401, "unauthenticated: The credential was revoked.")


async def test_a_refused_client_that_says_nothing_is_let_go(here: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal, "WAIT_LIMIT_S", 0.1)
    headers = {"User-Agent": "Puppeteer 25.16.0"}
    async with wire_client(here.url, headers=headers, user_agent_header=None) as blind:
        assert (await blind.closed())[0] == 4401


async def test_messages_cost_no_tasks(here: House) -> None:
    async with raw_socket(here.url, await here.token()) as client:
        page = await client.page()
        before = asyncio.all_tasks()
        for id in range(10, 510):
            client.say(id, "Runtime.evaluate", page, expression="1")
        most = 0
        heard = 0
        while heard < 500:
            heard += (await client.read()).kind == TEXT
            most = max(most, len(asyncio.all_tasks() - before))
        # A few belong to the broker's own probes and services; one per message would be hundreds.
        assert most < 50


async def test_answers_come_back_under_the_ids_they_were_asked_under(here: House) -> None:
    """Also where the endpoint does something with the answer, and the client uses one id for several commands."""
    async with raw_socket(here.url, await here.token()) as client:
        for _ in range(3):
            client.say(7, "Target.createBrowserContext")
        client.say(7, "Browser.getVersion")
        answers = []
        while len(answers) < 4:
            frame = await client.read()
            if frame.kind == TEXT:
                answers.append(json.loads(frame.payload))
        assert [answer["id"] for answer in answers] == [7] * 4
        made = {answer["result"]["browserContextId"] for answer in answers if "browserContextId" in answer["result"]}
        listed = await client.ask(8, "Target.getBrowserContexts")
        assert set(listed["result"]["browserContextIds"]) == made
        assert len(made) == 3
