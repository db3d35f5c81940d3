"""Many client processes want a session of one pool at once: the caps hold, and whoever is refused learns enough."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from tests.shared_server import unique

from .callers import CallerProcess, Heard
from .conftest import Server, open_session, release

pytestmark = [pytest.mark.server, pytest.mark.browser]

# What a pool of tabs in one profile has if nothing is said about it.
ACTIVE_PER_KEY = 5
CROWD = 8


@pytest.fixture
def crowd(server: Server, admin: httpx.Client) -> Iterator[list[CallerProcess]]:
    """Agents, each a process of its own that has connected already."""
    # The pool's browser is there before they ask: who does not wait would hear that there is none.
    release(admin, open_session(admin, agentId="first", pool="shared"), "close")
    with ExitStack() as running:
        callers = [running.enter_context(server.caller(f"agent-{n}")) for n in range(CROWD)]
        for caller in callers:
            assert caller.ask("GET", "/health").status == 200
        yield callers


def hammer(crowd: list[CallerProcess], **body: object) -> tuple[list[Heard], list[Heard]]:
    """All of them ask for such a session at once; those who got one, and those who did not."""
    for caller in crowd:
        caller.send("POST", "/sessions", {"pool": "shared", "waitMs": 0, **body})
    heard = [caller.hear() for caller in crowd]
    return [one for one in heard if one.status == 201], [one for one in heard if one.status != 201]


def test_exactly_as_many_processes_win_as_the_key_has_places(admin: httpx.Client, crowd: list[CallerProcess]) -> None:
    won, refused = hammer(crowd, key=unique("chatgpt"))
    assert (len(won), len(refused)) == (ACTIVE_PER_KEY, CROWD - ACTIVE_PER_KEY)
    assert len({one.body["fence"] for one in won}) == ACTIVE_PER_KEY
    assert len({one.body["tabs"][0]["tabId"] for one in won}) == ACTIVE_PER_KEY
    for one in refused:
        assert (one.status, one.body["code"], one.body["retryable"]) == (429, "capacity", True)
        assert one.body["details"]["reason"] == "key_cap"
        assert (one.body["details"]["count"], one.body["details"]["cap"]) == (ACTIVE_PER_KEY, ACTIVE_PER_KEY)
        assert 1 <= one.body["details"]["position"] <= CROWD
        assert one.body["retryAfterMs"] > 0
        assert one.retry_after is not None
        assert int(one.retry_after) * 1000 >= one.body["retryAfterMs"]
    # A key at its cap keeps nobody from another, and what was refused left nothing behind.
    others, _ = hammer(crowd[:1], key=unique("gemini"))
    assert len(others) == 1
    assert admin.get("/stats").json()["pools"]["shared"]["active"] == ACTIVE_PER_KEY + 1


def test_who_waits_is_served_as_places_are_given_back(admin: httpx.Client, crowd: list[CallerProcess]) -> None:
    """They share the five places of a key: each gets one, uses it and gives it back."""

    key = unique("chatgpt")

    def use(caller: CallerProcess) -> int:
        opened = caller.ask("POST", "/sessions", {"pool": "shared", "key": key, "waitMs": 60_000})
        assert opened.status == 201, opened.body
        assert admin.get("/stats").json()["pools"]["shared"]["active"] <= ACTIVE_PER_KEY
        path = f"/sessions/{opened.body['sessionId']}?fence={opened.body['fence']}"
        assert caller.ask("DELETE", path).status == 204
        return opened.body["fence"]

    with ThreadPoolExecutor(CROWD) as users:
        assert len(set(users.map(use, crowd))) == CROWD
