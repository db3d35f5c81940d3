"""A full disk, one that is read-only, no descriptors left, no browser to be started, a clock that jumps: refused by
name, then as before.

Each shortage is made for the running server alone, by limits of its process (prlimit), which needs Linux and no rights
beyond those of whoever started the server. When it is over the same process works as before.
"""

from __future__ import annotations

import fcntl
import os
import resource
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import httpx
import psutil
import pytest
from tests.cli.running import running_server

from .conftest import Server, act, browser_pids, environment_of, kill_browser, open_session, value_of
from .effects_site import EffectsSite
from .local_site import serving
from .tasking import ended, held, submit, until, until_running

pytestmark = [pytest.mark.server, pytest.mark.browser]

JUMPING = Path(__file__).parent / "jumping_clock"
HOUR_S = 3_600
# A browser that could not be started is tried again soon, or the tests would wait for the breaker.
SETTINGS = {"POOLS__DEFAULT__BREAKER_CRASHES": "1000", "POOLS__DEFAULT__WARM": "1"}


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clock") / "off"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, clock: Path) -> Iterator[Server]:
    """One server for all of it: none of these things may need a restart."""
    env = environment_of(SETTINGS) | {"PYTHONPATH": str(JUMPING), "CLOCK_FILE": str(clock)}
    with running_server(tmp_path_factory.mktemp("exhausted") / "state", env) as started:
        yield Server(started.state, started)


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        # Connected before anything runs out.
        assert client.get("/health").status_code == 200
        yield client


@pytest.fixture
def effects() -> Iterator[EffectsSite]:
    with serving(EffectsSite()) as site:
        yield site


@contextmanager
def no_more_than(server: Server, kind: int, soft: int) -> Iterator[None]:
    """Hold the server's process to that limit."""
    pid = server.record["pid"]
    before = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, kind, before)


# Of Linux, for flags of files; `chattr +i` sets this one. It holds for files that are open, and for root.
GET_FLAGS: Final = 0x80086601
SET_FLAGS: Final = 0x40086602
IS_IMMUTABLE: Final = 0x10


@contextmanager
def read_only(server: Server) -> Iterator[None]:
    """Have the disk refuse every write to the store's file and its log, as one does that was mounted anew after an
    error; only root can. A mount cannot be made read-only while the server has files open on it."""
    files = [server.state / name for name in ("tabherd.db", "tabherd.db-wal")]
    try:
        for file in files:
            _set_flag(file, is_on=True)
        yield
    finally:
        for file in files:
            _set_flag(file, is_on=False)


def _set_flag(file: Path, *, is_on: bool) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        (flags,) = struct.unpack("l", fcntl.ioctl(handle, GET_FLAGS, struct.pack("l", 0)))
        flags = flags | IS_IMMUTABLE if is_on else flags & ~IS_IMMUTABLE
        fcntl.ioctl(handle, SET_FLAGS, struct.pack("l", flags))
    finally:
        os.close(handle)


@contextmanager
def locked(server: Server) -> Iterator[None]:
    """Another program writes to the store and does not come to an end, which anybody's can."""
    with closing(sqlite3.connect(server.state / "tabherd.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def can_be_made_read_only() -> bool:
    """Whether this user and this file system have such flags: root of a container may not."""
    with tempfile.NamedTemporaryFile() as file:
        try:
            _set_flag(Path(file.name), is_on=True)
            _set_flag(Path(file.name), is_on=False)
        except OSError:
            return False
        return True


# A way in which a store that can be read takes no writes: the rarer and quicker one where it can be had.
UNWRITABLE: Final = {"read_only": read_only} if can_be_made_read_only() else {"locked": locked}


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def is_at_work(admin: httpx.Client) -> None:
    """A session, a command and a task, as if nothing had been."""
    session = open_session(admin, agentId="after")
    assert value_of(admin, session["tabs"][0]["tabId"], "6 * 7") == 42
    assert ended(admin, submit(admin, "1", agentId="after"))["state"] == "done"
    assert admin.delete(f"/sessions/{session['sessionId']}").status_code == 204


def test_a_full_disk_refuses_what_would_have_to_be_kept_and_nothing_else(server: Server, admin: httpx.Client) -> None:
    session = open_session(admin, agentId="ada", keepAlive=True)
    task_id = submit(admin, "1", agentId="ada")
    assert ended(admin, task_id)["state"] == "done"
    with no_more_than(server, resource.RLIMIT_FSIZE, 0):
        for _ in range(3):
            assert code_of(admin.post("/sessions", json={"agentId": "ada"})) == (503, "store_unavailable")
            task = {"agentId": "ada", "action": "evaluate", "params": {"expression": "1"}}
            assert code_of(admin.post("/tasks", json=task)) == (503, "store_unavailable")
            keyed = act(admin, session["tabs"][0]["tabId"], "evaluate", expression="1", idempotencyKey="k")
            assert code_of(keyed) == (503, "store_unavailable")
            # What needs nothing on disk goes on.
            assert value_of(admin, session["tabs"][0]["tabId"], "1 + 1") == 2
            assert admin.get(f"/tasks/{task_id}").json()["state"] == "done"
    assert act(admin, session["tabs"][0]["tabId"], "evaluate", expression="1", idempotencyKey="k").status_code == 200
    is_at_work(admin)
    assert admin.delete(f"/sessions/{session['sessionId']}").status_code == 204


def test_a_task_that_was_accepted_before_the_disk_was_full_is_done_when_there_is_room(
    server: Server, admin: httpx.Client, effects: EffectsSite
) -> None:
    session = open_session(admin, agentId="ada", keepAlive=True, url=effects.url())
    tab_id = session["tabs"][0]["tabId"]
    # It runs when the disk fills up, and ends before there is room for its end.
    task_id = submit(admin, held("late"), agentId="ada", tabId=tab_id)
    until_running(admin, task_id)
    with no_more_than(server, resource.RLIMIT_FSIZE, 0):
        effects.is_open.set()
        seen = admin.get(f"/tasks/{task_id}", params={"waitMs": 1_000})
        # Nothing is told that is not on disk.
        assert (seen.status_code, seen.json()["state"]) == (200, "running")
    view = ended(admin, task_id)
    assert (view["state"], view["result"], view["attempts"]) == ("done", "late", 1)
    admin.delete(f"/sessions/{session['sessionId']}")


@pytest.mark.parametrize("cause", UNWRITABLE)
def test_a_store_that_takes_no_writes_is_read_on_and_the_server_says_that_it_is_not_ready(
    server: Server, admin: httpx.Client, cause: str
) -> None:
    session = open_session(admin, agentId="ada", keepAlive=True)
    tab_id = session["tabs"][0]["tabId"]
    task_id = submit(admin, "1", agentId="ada")
    assert ended(admin, task_id)["state"] == "done"
    assert admin.get("/ready").status_code == 200
    with UNWRITABLE[cause](server):
        task = {"agentId": "ada", "action": "evaluate", "params": {"expression": "1"}}
        for answer in (
            admin.post("/sessions", json={"agentId": "ada"}),
            admin.post("/tasks", json=task),
            admin.post("/agents", json={"agentId": "eve"}),
            act(admin, tab_id, "evaluate", expression="1", idempotencyKey=f"k-{cause}"),
        ):
            assert (code_of(answer), answer.json()["details"]["cause"]) == ((503, "store_unavailable"), cause)
        # Told without being asked to write anything, and without a credential: by an answer of at most a second ago.
        until(lambda: admin.get("/ready").status_code == 503)
        unready = admin.get("/ready")
        assert code_of(unready) == (503, "store_unavailable")
        # A file that is locked is waited for, by one after the other.
        assert unready.json()["details"]["cause"] in (cause, "slow" if cause == "locked" else cause)
        assert int(unready.headers["Retry-After"]) > 0
        # It lives, and what needs nothing to be kept goes on.
        assert admin.get("/health").json()["status"] == "ok"
        assert value_of(admin, tab_id, "1 + 1") == 2
        assert admin.get(f"/tasks/{task_id}").json()["state"] == "done"
        assert admin.get(f"/sessions/{session['sessionId']}").status_code == 200
        assert task_id in admin.get("/tasks").text
        assert session["sessionId"] in admin.get("/sessions").text
    until(lambda: admin.get("/ready").status_code == 200)
    is_at_work(admin)
    assert admin.delete(f"/sessions/{session['sessionId']}").status_code == 204


def test_without_descriptors_those_who_are_connected_are_served_and_others_can_come_later(
    server: Server, admin: httpx.Client
) -> None:
    session = open_session(admin, agentId="ada", keepAlive=True)
    used = max(int(path.name) for path in Path(f"/proc/{server.record['pid']}/fd").iterdir())
    with no_more_than(server, resource.RLIMIT_NOFILE, used + 1):
        strangers = [server.client() for _ in range(3)]
        for stranger in strangers:
            stranger.timeout = 2
            try:
                # Served with the last descriptor, or turned away: never an answer that means something else.
                assert stranger.get("/health").status_code == 200
            except httpx.HTTPError:
                continue
        assert value_of(admin, session["tabs"][0]["tabId"], "1 + 1") == 2
        opened = admin.post("/sessions", json={"agentId": "bob", "waitMs": 1_000})
        assert opened.status_code in (201, 429, 503), opened.text
        for stranger in strangers:
            stranger.close()
    with server.client() as newcomer:
        is_at_work(newcomer)
    admin.delete(f"/sessions/{session['sessionId']}")


def test_a_browser_that_cannot_be_started_is_said_to_be_missing_and_is_there_when_it_can_be(
    server: Server, admin: httpx.Client
) -> None:
    broker = psutil.Process(server.record["pid"])
    (pid,) = browser_pids(admin)
    # Not one more than the process has: it can neither fork nor open a log for what it would start.
    with no_more_than(server, resource.RLIMIT_NOFILE, 3):
        kill_browser(pid)
        until(lambda: browser_pids(admin) == [])
        refused = admin.post("/sessions", json={"agentId": "ada", "waitMs": 1_000})
        assert code_of(refused) in ((503, "no_browser"), (429, "capacity"))
        assert admin.get("/health").status_code == 200
    until(lambda: browser_pids(admin))
    assert broker.is_running()
    is_at_work(admin)


def put(clock: Path, off_s: int) -> None:
    """Have the server's clock off by that, and return when it is."""
    seen = clock.with_suffix(".seen")
    clock.write_text(str(off_s))
    until(lambda: seen.exists() and seen.read_text() == str(off_s))


def test_a_clock_that_jumps_ends_no_work_and_stops_none(admin: httpx.Client, clock: Path) -> None:
    session = open_session(admin, agentId="ada", keepAlive=True, deadlineMs=6 * HOUR_S * 1_000)
    try:
        for off_s in (HOUR_S, -HOUR_S):
            put(clock, off_s)
            assert value_of(admin, session["tabs"][0]["tabId"], "1 + 1") == 2
            is_at_work(admin)
    finally:
        put(clock, 0)
    assert value_of(admin, session["tabs"][0]["tabId"], "1 + 1") == 2
    is_at_work(admin)
    admin.delete(f"/sessions/{session['sessionId']}")
