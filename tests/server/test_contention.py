"""Many client processes want a session of one pool at once: the caps hold, and whoever is refused learns enough."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from .callers import CallerProcess, Heard
from .conftest import Server, open_session, release, with_settings

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Tabs in one logged-in profile, with nothing said about its caps.
VENDORS = {"POOLS__VENDORS__ISOLATION": "shared", "POOLS__VENDORS__WARM": "1"}
# Contexts, some of which one agent cannot have.
DEFAULT = {"POOLS__DEFAULT__MAX_ACTIVE": "4", "POOLS__DEFAULT__MAX_ACTIVE_PER_AGENT": "2", "POOLS__DEFAULT__WARM": "1"}
ACTIVE_PER_KEY = 5
ACTIVE = 16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("contention") / "state", VENDORS | DEFAULT) as server:
        yield server


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
        for session in client.get("/sessions", params={"state": "active"}).json()["sessions"]:
            client.delete(f"/sessions/{session['sessionId']}", params={"disposition": "close"})


@pytest.fixture(scope="module")
def crowd(server: Server) -> Iterator[list[CallerProcess]]:
    """Twelve agents, each a process of its own that has connected already."""
    with ExitStack() as running:
        callers = [running.enter_context(server.caller(f"agent-{n}")) for n in range(12)]
        for caller in callers:
            assert caller.ask("GET", "/health").status == 200
        yield callers


def hammer(crowd: list[CallerProcess], **body: object) -> tuple[list[Heard], list[Heard]]:
    """All of them ask for such a session at once; those who got one, and those who did not."""
    for caller in crowd:
        caller.send("POST", "/sessions", {"pool": "vendors", **body})
    heard = [caller.hear() for caller in crowd]
    return [one for one in heard if one.status == 201], [one for one in heard if one.status != 201]


def test_exactly_as_many_processes_win_as_the_key_has_places(admin: httpx.Client, crowd: list[CallerProcess]) -> None:
    won, refused = hammer(crowd, key="chatgpt")
    assert (len(won), len(refused)) == (ACTIVE_PER_KEY, 12 - ACTIVE_PER_KEY)
    assert len({one.body["fence"] for one in won}) == ACTIVE_PER_KEY
    assert len({one.body["tabs"][0]["tabId"] for one in won}) == ACTIVE_PER_KEY
    for one in refused:
        assert (one.status, one.body["code"], one.body["retryable"]) == (429, "capacity", True)
        assert one.body["details"]["reason"] == "key_cap"
        assert (one.body["details"]["count"], one.body["details"]["cap"]) == (ACTIVE_PER_KEY, ACTIVE_PER_KEY)
        assert 1 <= one.body["details"]["position"] <= 12
        assert one.body["retryAfterMs"] > 0
        assert one.retry_after is not None
        assert int(one.retry_after) * 1000 >= one.body["retryAfterMs"]
    # What was refused left nothing behind.
    assert admin.get("/stats").json()["pools"]["vendors"]["active"] == ACTIVE_PER_KEY
    assert admin.get("/stats").json()["pools"]["vendors"]["tabs"] == ACTIVE_PER_KEY


def test_a_key_at_its_cap_does_not_keep_another_key_out(admin: httpx.Client, crowd: list[CallerProcess]) -> None:
    won, _ = hammer(crowd, key="chatgpt")
    others, _ = hammer(crowd, key="gemini")
    assert (len(won), len(others)) == (ACTIVE_PER_KEY, ACTIVE_PER_KEY)


def test_the_pool_as_a_whole_has_sixteen_places(admin: httpx.Client, crowd: list[CallerProcess]) -> None:
    won = [one for key in ("a", "b", "c") for one in hammer(crowd, key=key)[0]]
    assert len(won) == 3 * ACTIVE_PER_KEY
    last, refused = hammer(crowd, key="d")
    assert len(last) == ACTIVE - 3 * ACTIVE_PER_KEY
    reasons = {(one.body["details"]["reason"], one.body["details"]["count"]) for one in refused}
    assert reasons == {("pool_cap", ACTIVE)}


def test_who_waits_is_served_as_places_are_given_back(admin: httpx.Client, crowd: list[CallerProcess]) -> None:
    """Twelve processes share the five places of a key: each gets one, uses it and gives it back."""

    def use(caller: CallerProcess) -> int:
        opened = caller.ask("POST", "/sessions", {"pool": "vendors", "key": "chatgpt", "waitMs": 60_000})
        assert opened.status == 201, opened.body
        assert admin.get("/stats").json()["pools"]["vendors"]["active"] <= ACTIVE_PER_KEY
        path = f"/sessions/{opened.body['sessionId']}?fence={opened.body['fence']}"
        assert caller.ask("DELETE", path).status == 204
        return opened.body["fence"]

    with ThreadPoolExecutor(12) as users:
        assert len(set(users.map(use, crowd))) == 12


def test_one_agent_cannot_take_what_an_agent_cap_leaves_to_others(admin: httpx.Client) -> None:
    mine = [open_session(admin, agentId="ada") for _ in range(2)]
    refused = admin.post("/sessions", json={"agentId": "ada", "waitMs": 0})
    assert (refused.status_code, refused.json()["details"]["reason"]) == (429, "agent_cap")
    open_session(admin, agentId="bob", waitMs=0)
    release(admin, mine[0])
    open_session(admin, agentId="ada", waitMs=0)
