"""Who is not let in, and what each kind of client learns about why: status, typed error, position, when to retry."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Error, Playwright
from tests.server.conftest import Server, open_session, release, with_settings

from tabherd.edge.cdp.tickets import KEY_FILE, Tickets, ensure_key
from tabherd.edge.cdp.wish import Wish

from .conftest import ON_PLAYWRIGHTS_LOOP, SETTINGS, host_of, sessions_of, until, ws_of
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


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with room for one session."""
    settings = SETTINGS | {"POOLS__DEFAULT__MAX_ACTIVE": "1", "POOLS__DEFAULT__DISCONNECT_GRACE_S": "0"}
    with with_settings(tmp_path_factory.mktemp("small") / "state", settings) as server:
        yield server


@asynccontextmanager
async def all_taken(server: Server, token: str) -> AsyncIterator[WireClient]:
    """While somebody has the only place."""
    async with wire_client(ws_of(server), token) as client:
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


@pytest.mark.parametrize("path", ["/", "/devtools/browser", "/devtools/page/tab_x"])
async def test_nobody_gets_in_without_a_credential(path: str, server: Server) -> None:
    status, error = await refused(f"ws://{host_of(server)}{path}")
    assert (status, error["code"]) == (401, "unauthenticated")


async def test_a_wrong_token_is_refused(server: Server) -> None:
    status, error = await refused(ws_of(server, "token=th_wrong"))
    assert (status, error["code"]) == (401, "unauthenticated")


async def test_only_an_admin_acts_for_others(server: Server, token: str) -> None:
    status, error = await refused(ws_of(server, f"token={token}&agent=bob"))
    assert (status, error["code"], error["details"]["field"]) == (403, "forbidden", "agent")


@pytest.mark.parametrize("scopes", [["browse"], ["evaluate"]])
async def test_a_credential_that_may_not_run_scripts_may_not_connect(scopes: list[str], server: Server) -> None:
    with server.agent("limited", scopes) as limited:
        (missing,) = {"browse", "evaluate"} - set(scopes)
        status, error = await refused(ws_of(server), str(limited.headers["Authorization"]).removeprefix("Bearer "))
        assert (status, error["code"], error["details"]["scope"]) == (403, "forbidden", missing)


# --- Tickets ----------------------------------------------------------------------------------------------------


def forged(server: Server) -> str:
    return Tickets(b"x" * 32).sign("crd_x", "ada", Wish())


def expired(server: Server) -> str:
    return tickets_of(server).sign(credential_of(server, "ada"), "ada", Wish(), expires_at=1)


def altered(server: Server) -> str:
    """A good one, for somebody else."""
    good = tickets_of(server).sign(credential_of(server, "ada"), "ada", Wish())
    raw = base64.urlsafe_b64decode(good + "=" * (-len(good) % 4))
    return base64.urlsafe_b64encode(raw.replace(b'"ada"', b'"bob"')).rstrip(b"=").decode()


def of_no_credential(server: Server) -> str:
    return tickets_of(server).sign("crd_nobody", "ada", Wish())


def not_one(server: Server) -> str:
    return "th_" + "a" * 60


@pytest.mark.parametrize("make", [forged, expired, altered, of_no_credential, not_one])
async def test_a_ticket_that_is_not_good_is_refused_everywhere(make: Any, server: Server) -> None:
    ticket = make(server)
    for url in (f"ws://{host_of(server)}/devtools/browser/{ticket}", ws_of(server, f"ticket={ticket}")):
        status, error = await refused(url)
        assert (status, error["code"]) == (401, "unauthenticated")
    with httpx.Client(base_url=server.record["url"]) as anybody:
        assert anybody.get("/json/version", params={"ticket": ticket}).status_code == 401


async def test_a_ticket_that_an_agent_signed_for_another_is_worth_nothing(server: Server) -> None:
    ticket = tickets_of(server).sign(credential_of(server, "ada"), "bob", Wish())
    status, error = await refused(ws_of(server, f"ticket={ticket}"))
    assert (status, error["code"]) == (403, "forbidden")


async def test_a_ticket_for_one_session_does_not_open_the_pages_of_another(server: Server, ada: httpx.Client) -> None:
    one, other = open_session(ada), open_session(ada)
    ticket = one["webSocketDebuggerUrl"].rpartition("/")[2]
    tab_id = other["tabs"][0]["tabId"]
    status, error = await refused(f"ws://{host_of(server)}/devtools/page/{tab_id}?ticket={ticket}")
    assert (status, error["code"]) == (404, "tab_not_found")
    for session in (one, other):
        release(ada, session)


async def test_the_address_of_a_session_is_worth_nothing_after_a_takeover(server: Server, admin: httpx.Client) -> None:
    session = open_session(admin, agentId="ada")
    assert admin.post(f"/sessions/{session['sessionId']}/takeover", json={"agentId": "ada"}).status_code == 200
    status, error = await refused(session["webSocketDebuggerUrl"])
    assert (status, error["code"]) == (409, "lease_lost")
    again = admin.get(f"/sessions/{session['sessionId']}").json()
    async with wire_client(again["webSocketDebuggerUrl"]) as client:
        assert len(await client.pages()) == 1
    release(admin, again)


async def test_the_address_of_a_session_is_worth_nothing_after_its_end(server: Server, ada: httpx.Client) -> None:
    session = open_session(ada)
    release(ada, session)
    status, error = await refused(session["webSocketDebuggerUrl"])
    assert (status, error["code"]) == (409, "lease_lost")


async def test_the_session_of_another_agent_does_not_exist(
    server: Server, ada: httpx.Client, bob: httpx.Client
) -> None:
    session = open_session(bob)
    token = str(ada.headers["Authorization"]).removeprefix("Bearer ")
    for query in (f"session={session['sessionId']}", "session=ses_none"):
        status, error = await refused(ws_of(server, query), token)
        assert (status, error["code"]) == (404, "session_not_found")
    release(bob, session)


@pytest.mark.parametrize(
    ("query", "field"),
    [("deadlineMs=10", "deadlineMs"), ("waitMs=-1", "waitMs"), ("tier=none", "tier"), ("pool=none", "pool")],
)
async def test_a_wish_that_cannot_be_granted_is_refused_by_name(
    query: str, field: str, server: Server, token: str
) -> None:
    status, error = await refused(ws_of(server, query), token)
    assert (status, error["code"], error["details"]["field"]) == (400, "invalid_request", field)


async def test_a_misspelt_wish_is_refused_with_the_known_one(server: Server, token: str) -> None:
    status, error = await refused(ws_of(server, "keepAlife=true"), token)
    assert (status, error["code"]) == (400, "unknown_field")
    assert "keepAlive" in json.dumps(error)


# --- No room ----------------------------------------------------------------------------------------------------


@ON_PLAYWRIGHTS_LOOP
async def test_playwright_says_why_it_was_refused(playwright: Playwright, small: Server) -> None:
    token = small.token_of("ada")
    async with all_taken(small, token):
        with pytest.raises(Error) as caught:
            await playwright.chromium.connect_over_cdp(f"http://{host_of(small)}?token={token}&waitMs=0")
    said = str(caught.value)
    assert "429" in said
    for word in ("capacity", "retryAfterMs", "position", "pool_cap"):
        assert word in said, said


async def test_puppeteer_says_why_it_was_refused(small: Server) -> None:
    token = small.token_of("ada")
    script = "import('puppeteer-core').then(p => p.default.connect({browserWSEndpoint: process.argv[1]}))"
    async with all_taken(small, token):
        words = ["node", "-e", script, ws_of(small, f"token={token}&waitMs=0")]
        node = await asyncio.create_subprocess_exec(*words, cwd=PUPPETEER_DIR, stderr=asyncio.subprocess.PIPE)
        _, said = await node.communicate()
    assert node.returncode
    for word in (b"capacity: ", b"Position", b"Retry after"):
        assert word in said, said


async def test_a_client_that_shows_no_bodies_hears_it_as_the_answer_to_its_first_command(small: Server) -> None:
    token = small.token_of("ada")
    url = ws_of(small, f"token={token}&waitMs=0")
    async with all_taken(small, token), wire_client(url, headers=PUPPETEER, user_agent_header=None) as blind:
        with pytest.raises(CdpError) as caught:
            await blind.call("Browser.getVersion")
        assert caught.value.message.startswith("capacity: ")
        assert "Retry after" in caught.value.message
        assert "Position" in caught.value.message
        assert caught.value.data["code"] == "capacity"
        code, reason = await blind.closed()
        assert code == 4429
        assert reason.startswith("capacity: ")


async def test_a_blind_client_that_speaks_no_protocol_is_told_all_the_same(server: Server) -> None:
    async with wire_client(ws_of(server), headers=PUPPETEER, user_agent_header=None) as blind:
        await blind.connection.send("what?")
        code, reason = await blind.closed()
        assert (code, reason.partition(":")[0]) == (4401, "unauthenticated")


async def test_a_refusal_that_nobody_may_wait_for_comes_at_once(small: Server) -> None:
    token = small.token_of("ada")
    async with all_taken(small, token):
        status, error = await refused(ws_of(small, "waitMs=0"), token)
    assert (status, error["code"], error["retryable"]) == (429, "capacity", True)
    assert error["details"]["reason"] == "pool_cap"
    assert error["retryAfterMs"] > 0


async def test_a_wait_that_is_over_is_a_refusal(small: Server) -> None:
    token = small.token_of("ada")
    async with all_taken(small, token):
        began = time.monotonic()
        status, error = await refused(ws_of(small, "waitMs=300"), token)
        assert time.monotonic() - began >= 0.3
    assert (status, error["code"]) == (429, "capacity")


async def test_those_who_wait_are_served_when_places_become_free(small: Server) -> None:
    tokens = [small.token_of(agent) for agent in ("bob", "cyd")]
    served: list[str] = []

    async def wait(token: str) -> None:
        async with wire_client(ws_of(small, "waitMs=60000"), token) as client:
            assert len(await client.pages()) == 1
            served.append(token)

    with small.client() as admin:
        async with asyncio.TaskGroup() as waiting, all_taken(small, small.token_of("ada")):
            for token in tokens:
                waiting.create_task(wait(token))
            await until(lambda: 'acquire_waiters{pool="default"} 2.0' in admin.get("/metrics").text)
            assert served == []
    assert sorted(served) == sorted(tokens)


async def test_a_client_that_leaves_while_it_waits_leaves_nothing(small: Server) -> None:
    token = small.token_of("ada")
    with small.client() as admin:
        known = {one["sessionId"] for one in admin.get("/sessions", params={"limit": 500}).json()["sessions"]}
        async with all_taken(small, token):
            _, writer = await asyncio.open_connection(*host_of(small).split(":"))
            lines = [f"GET /?token={small.token_of('bob')} HTTP/1.1", f"Host: {host_of(small)}"]
            lines += [f"{name}: {value}" for name, value in HANDSHAKE.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            await until(lambda: 'acquire_waiters{pool="default"} 1.0' in admin.get("/metrics").text)
            writer.close()
            await writer.wait_closed()
            await until(lambda: 'acquire_waiters{pool="default"} 0.0' in admin.get("/metrics").text)
        await until(lambda: not sessions_of(admin))
        rows = admin.get("/sessions", params={"limit": 500}).json()["sessions"]
        assert [one["agentId"] for one in rows if one["sessionId"] not in known] == ["ada"]


async def test_a_draining_server_lets_nobody_in(server: Server, admin: httpx.Client) -> None:
    assert admin.post("/drain").status_code in (200, 202)
    try:
        status, error = await refused(ws_of(server), server.admin_token)
        assert (status, error["code"]) == (503, "draining")
        assert error["retryAfterMs"] > 0
    finally:
        admin.delete("/drain").raise_for_status()
