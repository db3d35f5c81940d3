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

from .conftest import events_of, is_alive, open_session, release, value_of, with_settings
from .login_site import LoginSite
from .tasking import until

pytestmark = [pytest.mark.server, pytest.mark.browser]

THEIRS = "data:text/html,theirs"
COOKIE = "document.cookie = 'who=ada; max-age=999'; document.cookie"


def test_a_browser_per_session_ends_with_it(tmp_path: Path) -> None:
    apart = {"ISOLATION": "browser", "SESSIONS_PER_BROWSER": "1", "WARM": "0", "BROWSERS_MIN": "0"}
    settings = {f"POOLS__DEFAULT__{name}": value for name, value in apart.items()}
    with with_settings(tmp_path / "state", settings) as server, server.client() as admin:
        sessions = [open_session(admin, agentId=agent) for agent in ("ada", "bob")]
        used = [browser for browser in admin.get("/browsers").json()["browsers"] if browser["sessions"]]
        assert [browser["sessions"] for browser in used] == [1, 1]
        processes = [psutil.Process(browser["pid"]) for browser in used]
        for session in sessions:
            admin.delete(f"/sessions/{session['sessionId']}")
        until(lambda: not any(is_alive(process) for process in processes))


def test_a_shared_profile_shares_cookies_and_closes_only_the_tabs_of_the_session(
    admin: httpx.Client, site: str
) -> None:
    mine, other = (open_session(admin, agentId=agent, pool="shared", url=site) for agent in ("ada", "bob"))
    assert value_of(admin, mine["tabs"][0]["tabId"], COOKIE) == "who=ada"
    release(admin, mine, "close")
    assert value_of(admin, other["tabs"][0]["tabId"], "document.cookie") == "who=ada"


def test_an_attached_browser_keeps_its_own_pages_and_is_used_again_when_it_comes_back(
    tmp_path: Path, login_site: LoginSite
) -> None:
    with foreign_browser(tmp_path / "one") as (process, port):
        before = pages(port)
        with with_settings(tmp_path / "state", attached(port)) as server, server.client() as admin:
            session = open_session(admin, agentId="ada", url=login_site.url("/links"))
            tab_id = session["tabs"][0]["tabId"]
            with events_of(server, "tab.opened") as events:
                value_of(admin, tab_id, "void window.open('/opened/by-script')")
                next(events)
            assert len(pages(port)) == len(before) + 2
            # Popups close with their session.
            release(admin, session)
            assert pages(port) == before
            session = open_session(admin, agentId="ada")
            process.kill()
            process.wait()
            until(lambda: not any(b["state"] == "ready" for b in admin.get("/browsers").json()["browsers"]))
            refused = admin.post("/sessions", json={"agentId": "ada", "waitMs": 0})
            assert refused.json()["code"] in ("no_browser", "browser_crashed")
            with foreign_browser(tmp_path / "two", port) as (second, _):
                assert open_session(admin, agentId="ada", waitMs=60_000)["state"] == "active"
                # What was open in the old one goes on in the new one.
                assert value_of(admin, session["tabs"][0]["tabId"], "1 + 1") == 2
                # The end of the server is not that of the browser.
                server.stop()
                assert second.poll() is None
                assert pages(port) == before


def test_a_borrowed_tab_is_driven_and_given_back_unharmed(tmp_path: Path) -> None:
    settings = {"POOLS__DEFAULT__ISOLATION": "shared"}
    with foreign_browser(tmp_path / "foreign") as (process, port):
        theirs = pages(port)
        with with_settings(tmp_path / "state", attached(port) | settings) as server, server.client() as admin:
            session = open_session(admin, agentId="ada")
            path = f"/sessions/{session['sessionId']}/tabs"
            borrowed = admin.post(path, json={"borrow": "theirs"})
            assert (borrowed.status_code, borrowed.json()["provenance"]) == (201, "borrowed")
            tab_id = borrowed.json()["tabId"]
            assert value_of(admin, tab_id, "window.mark = 'driven'; document.body.innerText") == "theirs"
            twice = admin.post(path, json={"borrow": "theirs"})
            assert (twice.status_code, twice.json()["code"]) == (404, "tab_not_found")
            release(admin, session, "close")
            assert pages(port) == theirs

            again = open_session(admin, agentId="bob")
            tab_id = admin.post(f"/sessions/{again['sessionId']}/tabs", json={"borrow": "theirs"}).json()["tabId"]
            assert value_of(admin, tab_id, "window.mark") == "driven"
            # Closing it is giving it back.
            assert admin.delete(f"/tabs/{tab_id}").status_code == 204
            assert pages(port).count(theirs[0]) == 1
            admin.post(f"/sessions/{again['sessionId']}/tabs", json={"borrow": "theirs"}).raise_for_status()
            # Stopping the server, with the session still open, is giving it back as well.
            server.stop()
            assert process.poll() is None
            assert pages(port) == theirs


def attached(port: int) -> dict[str, str]:
    """Settings of a server whose browser is somebody else's."""
    endpoint = f"http://127.0.0.1:{port}"
    # While it is away, every attempt to reach it counts as a crash, and the breaker would make the test wait.
    pool = {"SOURCE": "attach", "ENDPOINT": endpoint, "WARM": "0", "BREAKER_CRASHES": "1000"}
    return {f"POOLS__DEFAULT__{name}": value for name, value in pool.items()}


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
