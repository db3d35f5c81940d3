"""Named locks of a real server: shared with Python programs, bound to processes, and kept through kill -9."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from tests.cli.running import environment
from tests.shared_server import unique

from .conftest import Server, events_of

pytestmark = [pytest.mark.server, pytest.mark.browser]

NAME = "account:x"
PATH = "/locks/account:x"
# Holds the lock from when it says so until it reads a line; then says what it had.
PROGRAM = """
import sys
from tabherd.locks import advisory_lock

with advisory_lock("account", sys.argv[1], timeout=60.0):
    print("has it", flush=True)
    sys.stdin.readline()
print("gave it back", flush=True)
"""


@contextmanager
def program(server: Server, name: str = "x") -> Iterator[subprocess.Popen[str]]:
    """A program of its own that uses the library; it is gone afterwards."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, name],
        env=environment(server.state),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def said(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def let_go(running: subprocess.Popen[str]) -> None:
    assert running.stdin is not None
    running.stdin.write("\n")
    running.stdin.flush()


def take(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    lock: dict[str, Any] = answer.json()
    return lock


def drop(client: httpx.Client, lock: dict[str, Any]) -> None:
    assert client.delete(PATH, params={"ticket": lock["ticket"]}).status_code == 204


def renew(client: httpx.Client, lock: dict[str, Any]) -> httpx.Response:
    return client.post(f"{PATH}/renew", json={"ticket": lock["ticket"]})


def until_waiting(client: httpx.Client) -> None:
    while not any(lock["waiters"] for lock in client.get("/locks").json()["locks"]):
        pass


# --- One domain with programs -----------------------------------------------------------------------------------


def test_a_program_that_has_the_lock_excludes_callers(server: Server, admin: httpx.Client) -> None:
    with program(server) as running:
        assert said(running) == "has it"
        busy = admin.post(PATH)
        assert (busy.status_code, busy.json()["code"]) == (504, "lock_timed_out")
        (seen,) = [lock for lock in admin.get("/api/advisory-locks").json()["advisory_locks"] if lock["held"]]
        assert (seen["label"], seen["pid"]) == (NAME, running.pid)
        with ThreadPoolExecutor(1) as callers:
            waiting = callers.submit(take, admin, waitMs=60_000)
            with server.client() as other:
                until_waiting(other)
            let_go(running)
            drop(admin, waiting.result(60))


def test_a_caller_that_has_the_lock_excludes_programs(server: Server, admin: httpx.Client) -> None:
    lock = take(admin)
    with program(server) as running, ThreadPoolExecutor(1) as readers:
        first = readers.submit(said, running)
        while not is_waited_for(admin):
            assert not first.done()
        drop(admin, lock)
        assert first.result(60) == "has it"
        let_go(running)


# --- Processes --------------------------------------------------------------------------------------------------


def test_a_lock_is_free_when_its_owner_is_killed(server: Server, admin: httpx.Client) -> None:
    with server.caller(unique("ada")) as owner, events_of(server, "lock.*") as events:
        held = owner.ask("POST", PATH, {"owner": {"pid": owner.pid}, "leaseMs": 3_600_000})
        assert held.status == 200
        owner.kill()
        lock = take(admin, waitMs=60_000)
        assert lock["fence"] > held.body["fence"]
        told = [next(events) for _ in range(3)]
    assert [(event["type"], event.get("reason")) for event in told] == [
        ("lock.acquired", None),
        ("lock.released", "owner_dead"),
        ("lock.acquired", None),
    ]
    drop(admin, lock)


# --- Lives of the server ----------------------------------------------------------------------------------------


def test_through_kill_9_a_holder_keeps_its_lock_unless_a_program_had_it_or_its_lease_ended(own_server: Server) -> None:
    with own_server.agent("ada") as ada:
        token = ada.headers["Authorization"].removeprefix("Bearer ")
        kept = take(ada, leaseMs=600_000)
        lost = ada.post("/locks/account:lost", json={"leaseMs": 600_000}).json()
        over = ada.post("/locks/account:over", json={"leaseMs": 100}).json()
    own_server.kill()
    with program(own_server, "lost") as running:
        assert said(running) == "has it"
        let_go(running)
        assert said(running) == "gave it back"
    # The lease of the third has ended: a program takes longer than that to start.
    own_server.start()
    with own_server.client(token) as ada, own_server.agent("bob") as bob, program(own_server) as running:
        for name, lock in (("lost", lost), ("over", over)):
            gone = ada.post(f"/locks/account:{name}/renew", json={"ticket": lock["ticket"]})
            assert (gone.status_code, gone.json()["code"]) == (409, "lock_lost"), name
        assert bob.post("/locks/account:lost").json()["fence"] > lost["fence"]
        assert bob.post(PATH).status_code == 504
        assert renew(ada, kept).json()["fence"] == kept["fence"]
        with ThreadPoolExecutor(1) as readers:
            first = readers.submit(said, running)
            while not is_waited_for(bob):
                assert not first.done()
            drop(ada, kept)
            assert first.result(60) == "has it"


def is_waited_for(client: httpx.Client) -> bool:
    """Whether a program waits for the lock."""
    locks = client.get("/api/advisory-locks").json()["advisory_locks"]
    return any(lock["waiters"] for lock in locks if lock["label"] == NAME)


# --- An operator ------------------------------------------------------------------------------------------------


def test_an_operator_frees_a_lock_without_its_ticket_and_an_agent_does_not(server: Server, admin: httpx.Client) -> None:
    with server.agent(unique("ada")) as ada, server.agent(unique("bob")) as bob:
        lock = take(ada)
        for agent in (ada, bob):
            refused = agent.delete(PATH, params={"force": "true"})
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        with server.client() as operator:
            assert operator.delete(PATH, params={"force": "true", "fence": lock["fence"]}).status_code == 204
        lost = renew(ada, lock)
        assert (lost.status_code, lost.json()["code"]) == (409, "lock_lost")
