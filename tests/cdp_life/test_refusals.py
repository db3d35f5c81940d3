"""Who is not let in, and what each kind of client learns about why: status, typed error, position, when to retry."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Error, Playwright
from tests.server.conftest import Server, open_session, release

from tabherd.edge.cdp.tickets import KEY_FILE, Tickets, ensure_key
from tabherd.edge.cdp.wish import Wish

from .conftest import ON_PLAYWRIGHTS_LOOP, host_of, until, ws_of
from .wire_client import LIMIT_S, CdpError, WireClient, wire_client

pytestmark = [pytest.mark.server, pytest.mark.browser]

HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": base64.b64encode(b"0123456789abcdef").decode(),
}
PUPPETEER = {"User-Agent": "Puppeteer 25.16.0"}
# Where the real one is installed.
PUPPETEER_DIR = Path(__file__).parents[1] / "cdp" / "puppeteer"


# Where there is room for one session.
SOLO = "pool=solo"


@asynccontextmanager
async def all_taken(server: Server) -> AsyncIterator[WireClient]:
    """While somebody has the only place."""
    async with wire_client(ws_of(server, SOLO), server.token_of("first")) as client:
        yield client


async def refused(url: str, token: str | None = None) -> tuple[int, dict[str, Any]]:
    """The status and the typed error, as any HTTP client sees them."""
    headers = HANDSHAKE | ({} if token is None else {"Authorization": f"Bearer {token}"})
    async with httpx.AsyncClient(timeout=LIMIT_S) as client:
        answer = await client.get(url.replace("ws://", "http://", 1), headers=headers)
    assert answer.status_code != 101, "it was let in"
    if answer.status_code in (429, 503):
        assert int(answer.headers["Retry-After"]) >= 1
    return answer.status_code, answer.json()


def tickets_of(server: Server) -> Tickets:
    return Tickets(ensure_key(server.state / KEY_FILE))


def credential_of(server: Server, agent_id: str) -> str:
    """The id of a fresh credential of that agent."""
    with server.agent(agent_id) as client:
        url: str = client.get("/json/version").json()["webSocketDebuggerUrl"]
    return tickets_of(server).read(url.rpartition("/")[2]).credential_id


# --- Credentials ------------------------------------------------------------------------------------------------


async def test_nobody_gets_in_without_a_good_credential(server: Server) -> None:
    for address in ("/", "/devtools/browser", "/devtools/page/tab_x", "/?token=th_wrong"):
        status, error = await refused(f"ws://{host_of(server)}{address}")
        assert (status, error["code"]) == (401, "unauthenticated"), address
    async with wire_client(ws_of(server), headers=PUPPETEER, user_agent_header=None) as blind:
        # It speaks no protocol, and is told all the same.
        await blind.connection.send("what?")
        code, reason = await blind.closed()
        assert (code, reason.partition(":")[0]) == (4401, "unauthenticated")


async def test_nobody_gets_in_with_too_narrow_a_credential(server: Server, token: str) -> None:
    status, error = await refused(ws_of(server, f"token={token}&agent=bob"))
    assert (status, error["code"], error["details"]["field"]) == (403, "forbidden", "agent")
    for scope, missing in (("browse", "evaluate"), ("evaluate", "browse")):
        with server.agent("limited", [scope]) as limited:
            status, error = await refused(ws_of(server), str(limited.headers["Authorization"]).removeprefix("Bearer "))
            assert (status, error["code"], error["details"]["scope"]) == (403, "forbidden", missing)


# --- Tickets ----------------------------------------------------------------------------------------------------


async def test_a_ticket_that_is_not_good_is_refused_everywhere(server: Server) -> None:
    tickets, credential_id = tickets_of(server), credential_of(server, "ada")
    good = tickets.sign(credential_id, "ada", Wish())
    raw = base64.urlsafe_b64decode(good + "=" * (-len(good) % 4))
    bad = {
        "of another key": Tickets(b"x" * 32).sign("crd_x", "ada", Wish()),
        "expired": tickets.sign(credential_id, "ada", Wish(), expires_at=1),
        "altered": base64.urlsafe_b64encode(raw.replace(b'"ada"', b'"bob"')).rstrip(b"=").decode(),
        "of no credential": tickets.sign("crd_nobody", "ada", Wish()),
        "no ticket": "th_" + "a" * 60,
    }
    for what, ticket in bad.items():
        for url in (f"ws://{host_of(server)}/devtools/browser/{ticket}", ws_of(server, f"ticket={ticket}")):
            status, error = await refused(url)
            assert (status, error["code"]) == (401, "unauthenticated"), what
        assert httpx.get(f"{server.record['url']}/json/version", params={"ticket": ticket}).status_code == 401, what
    # One agent's credential is not good for another agent, whoever signed that.
    status, error = await refused(ws_of(server, f"ticket={tickets.sign(credential_id, 'bob', Wish())}"))
    assert (status, error["code"]) == (403, "forbidden")


async def test_sessions_of_others_do_not_exist_and_a_ticket_opens_no_other_session(
    server: Server, ada: httpx.Client, bob: httpx.Client, token: str
) -> None:
    one, other, theirs = open_session(ada), open_session(ada), open_session(bob)
    ticket, tab_id = one["webSocketDebuggerUrl"].rpartition("/")[2], other["tabs"][0]["tabId"]
    status, error = await refused(f"ws://{host_of(server)}/devtools/page/{tab_id}?ticket={ticket}")
    assert (status, error["code"]) == (404, "tab_not_found")
    for session_id in (theirs["sessionId"], "ses_none"):
        status, error = await refused(ws_of(server, f"session={session_id}"), token)
        assert (status, error["code"]) == (404, "session_not_found")


async def test_the_address_of_a_session_is_worth_nothing_after_a_takeover_and_after_its_end(
    server: Server, admin: httpx.Client
) -> None:
    session = open_session(admin, agentId="ada")
    assert admin.post(f"/sessions/{session['sessionId']}/takeover", json={"agentId": "ada"}).status_code == 200
    again = admin.get(f"/sessions/{session['sessionId']}").json()
    async with wire_client(again["webSocketDebuggerUrl"]) as client:
        assert len(await client.pages()) == 1
    release(admin, again)
    for view in (session, again):
        status, error = await refused(view["webSocketDebuggerUrl"])
        assert (status, error["code"]) == (409, "lease_lost")


async def test_a_wish_that_cannot_be_granted_is_refused_by_name(server: Server, token: str) -> None:
    for query in ("deadlineMs=10", "waitMs=-1", "tier=none", "pool=none"):
        status, error = await refused(ws_of(server, query), token)
        assert (status, error["code"]) == (400, "invalid_request")
        assert error["details"]["field"] == query.partition("=")[0]
    status, error = await refused(ws_of(server, "keepAlife=true"), token)
    assert (status, error["code"]) == (400, "unknown_field")
    assert "keepAlive" in json.dumps(error)


# --- No room ----------------------------------------------------------------------------------------------------


@ON_PLAYWRIGHTS_LOOP
async def test_every_kind_of_client_hears_why_there_is_no_place_for_it(
    playwright: Playwright, server: Server, token: str
) -> None:
    query = f"token={token}&{SOLO}&waitMs=0"
    async with all_taken(server):
        with pytest.raises(Error) as caught:
            await playwright.chromium.connect_over_cdp(f"http://{host_of(server)}?{query}")
        for word in ("429", "capacity", "retryAfterMs", "position", "pool_cap"):
            assert word in str(caught.value)
        script = "import('puppeteer-core').then(p => p.default.connect({browserWSEndpoint: process.argv[1]}))"
        words = ["node", "-e", script, ws_of(server, query)]
        node = await asyncio.create_subprocess_exec(*words, cwd=PUPPETEER_DIR, stderr=asyncio.subprocess.PIPE)
        _, said = await node.communicate()
        assert node.returncode
        for word in (b"capacity: ", b"Position", b"Retry after"):
            assert word in said, said
        # A client that shows no bodies hears it as the answer to its first command.
        async with wire_client(ws_of(server, query), headers=PUPPETEER, user_agent_header=None) as blind:
            with pytest.raises(CdpError) as told:
                await blind.call("Browser.getVersion")
            assert told.value.message.startswith("capacity: ")
            assert told.value.data["code"] == "capacity"
            code, reason = await blind.closed()
            assert code == 4429
            assert reason.startswith("capacity: ")


async def test_a_refusal_comes_when_the_wait_is_over(server: Server, token: str) -> None:
    async with all_taken(server):
        began = time.monotonic()
        status, error = await refused(ws_of(server, f"{SOLO}&waitMs=300"), token)
        assert time.monotonic() - began >= 0.3
    assert (status, error["code"], error["retryable"]) == (429, "capacity", True)
    assert error["details"]["reason"] == "pool_cap"
    assert error["retryAfterMs"] > 0


async def test_those_who_wait_are_served_when_places_become_free(server: Server, admin: httpx.Client) -> None:
    served: list[str] = []

    async def wait(agent: str) -> None:
        async with wire_client(ws_of(server, f"{SOLO}&waitMs=60000"), server.token_of(agent)) as client:
            assert len(await client.pages()) == 1
            served.append(agent)

    async with asyncio.TaskGroup() as waiting, all_taken(server):
        for agent in ("bob", "cyd"):
            waiting.create_task(wait(agent))
        await until(lambda: waiters(admin) == 2)
        assert served == []
    assert sorted(served) == ["bob", "cyd"]


async def test_a_client_that_leaves_while_it_waits_leaves_nothing(server: Server, admin: httpx.Client) -> None:
    async with all_taken(server):
        _, writer = await asyncio.open_connection(*host_of(server).split(":"))
        lines = [f"GET /?{SOLO}&token={server.token_of('leaver')} HTTP/1.1", f"Host: {host_of(server)}"]
        lines += [f"{name}: {value}" for name, value in HANDSHAKE.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await until(lambda: waiters(admin) == 1)
        writer.close()
        await writer.wait_closed()
        await until(lambda: waiters(admin) == 0)
    assert admin.get("/sessions", params={"agentId": "leaver"}).json()["sessions"] == []


def waiters(admin: httpx.Client) -> float:
    """How many wait for a place of that pool."""
    (line,) = [line for line in admin.get("/metrics").text.splitlines() if 'acquire_waiters{pool="solo"}' in line]
    return float(line.rpartition(" ")[2])


async def test_a_draining_server_lets_nobody_in(server: Server, admin: httpx.Client) -> None:
    assert admin.post("/drain").status_code in (200, 202)
    try:
        status, error = await refused(ws_of(server), server.admin_token)
        assert (status, error["code"]) == (503, "draining")
        assert error["retryAfterMs"] > 0
    finally:
        admin.delete("/drain").raise_for_status()
