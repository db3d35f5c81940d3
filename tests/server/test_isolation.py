"""The three isolations and the attached browser, as sessions see them."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tabherd.browsers import debug_port
from tabherd.browsers.find import find_browser

from .conftest import Server, act, end_sessions, is_alive, open_session, value_of, with_settings
from .tasking import until

pytestmark = [pytest.mark.server, pytest.mark.browser]

# A pool for each isolation but the usual one, and one with a single place.
SETTINGS = {
    "POOLS__DEFAULT__ISOLATION": "shared",
    "POOLS__DEFAULT__WARM": "1",
    "POOLS__SINGLE__ISOLATION": "shared",
    "POOLS__SINGLE__MAX_ACTIVE": "1",
    "POOLS__SINGLE__WARM": "1",
    "POOLS__APART__ISOLATION": "browser",
    "POOLS__APART__SESSIONS_PER_BROWSER": "1",
    "POOLS__APART__WARM": "1",
    "POOLS__APART__PROBE_LIMIT_MS": "30000",
    "POOLS__SINGLE__PROBE_LIMIT_MS": "30000",
}
THEIRS = "data:text/html,theirs"
COOKIE = "document.cookie = 'who=ada; max-age=999'; document.cookie"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("isolation") / "state", SETTINGS) as server:
        yield server


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
        end_sessions(client)


def test_a_browser_per_session_ends_with_it(admin: httpx.Client) -> None:
    first, second = (open_session(admin, agentId=agent, pool="apart") for agent in ("ada", "bob"))
    used = [b for b in admin.get("/browsers").json()["browsers"] if b["sessions"]]
    assert sorted(browser["sessions"] for browser in used) == [1, 1]
    processes = [psutil.Process(browser["pid"]) for browser in used]
    for session in (first, second):
        admin.delete(f"/sessions/{session['sessionId']}")
    while any(is_alive(process) for process in processes):
        time.sleep(0.02)


def test_a_shared_profile_shares_cookies_and_closes_only_the_tabs_of_the_session(
    admin: httpx.Client, site: str
) -> None:
    mine, other = open_session(admin, agentId="ada", url=site), open_session(admin, agentId="bob", url=site)
    assert act(admin, mine["tabs"][0]["tabId"], "evaluate", expression=COOKIE).json()["result"] == "who=ada"
    assert admin.delete(f"/sessions/{mine['sessionId']}").status_code == 204
    seen = act(admin, other["tabs"][0]["tabId"], "evaluate", expression="document.cookie")
    assert seen.json()["result"] == "who=ada"


def test_a_shared_pool_refuses_at_once_unless_told_to_wait(admin: httpx.Client) -> None:
    open_session(admin, agentId="ada", pool="single")
    refused = admin.post("/sessions", json={"agentId": "bob", "pool": "single"})
    assert (refused.status_code, refused.json()["details"]["reason"]) == (429, "pool_cap")


def test_an_attached_browser_is_used_but_never_ended_and_keeps_its_own_pages(tmp_path: Path) -> None:
    with foreign_browser(tmp_path / "foreign") as (process, port):
        settings = {"POOLS__DEFAULT__SOURCE": "attach", "POOLS__DEFAULT__ENDPOINT": f"http://127.0.0.1:{port}"}
        before = pages(port)
        with with_settings(tmp_path / "state", settings) as server, server.client() as admin:
            session = open_session(admin, agentId="ada", url="data:text/html,ours")
            assert act(admin, session["tabs"][0]["tabId"], "text").json()["result"] == "ours"
            assert len(pages(port)) > len(before)
        assert is_alive(psutil.Process(process.pid))
        assert pages(port) == before


def test_an_attached_browser_that_comes_back_is_used_again(tmp_path: Path) -> None:
    with foreign_browser(tmp_path / "one") as (process, port):
        settings = {"POOLS__DEFAULT__SOURCE": "attach", "POOLS__DEFAULT__ENDPOINT": f"http://127.0.0.1:{port}"}
        with with_settings(tmp_path / "state", settings) as server, server.client() as admin:
            session = open_session(admin, agentId="ada")
            process.kill()
            process.wait()
            until(lambda: not any(b["state"] == "ready" for b in admin.get("/browsers").json()["browsers"]))
            refused = admin.post("/sessions", json={"agentId": "ada", "waitMs": 0})
            assert refused.json()["code"] in ("no_browser", "browser_crashed")
            with foreign_browser(tmp_path / "two", port):
                assert open_session(admin, agentId="ada", waitMs=60_000)["state"] == "active"
                # What was open in the old one goes on in the new one.
                assert value_of(admin, session["tabs"][0]["tabId"], "1 + 1") == 2


@contextmanager
def foreign_browser(profile: Path, port: int | None = None) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A browser that somebody else started, with one page of theirs."""
    process, port = _start_foreign(profile, port)
    try:
        # It listens before it has opened it; a server that was waiting for it may have opened its own by then.
        until(lambda: THEIRS in pages(port))
        yield process, port
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        for child in children:
            if child.is_running():
                child.kill()


def _start_foreign(profile: Path, port: int | None) -> tuple[subprocess.Popen[bytes], int]:
    """Until it listens itself: tests that run beside this one may take a port that was free a moment ago."""
    command = [str(find_browser().path), "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
    taken: list[int] = []
    for _ in range(10):
        chosen = debug_port.reserve(taken) if port is None else port
        words = [*command, f"--user-data-dir={profile}", f"--remote-debugging-port={chosen}", THEIRS]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not _answers(chosen):
            assert process.poll() is None
            time.sleep(0.02)
        if any(each.laddr.port == chosen for each in psutil.Process(process.pid).net_connections("tcp")):
            return process, chosen
        process.kill()
        process.wait()
        taken.append(chosen)
    raise AssertionError("no port stays free")


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/version", timeout=30):
            return True
    except OSError:
        return False


def pages(port: int) -> list[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=30) as answer:
        return sorted(page["url"] for page in json.load(answer) if page["type"] == "page")
