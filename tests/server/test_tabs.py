"""The tabs of a session on a real Chromium: opened, opened by pages, borrowed from a person, handed to one."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from .conftest import Server, act, events_of, open_session, release, value_of, with_settings
from .login_site import LoginSite
from .test_isolation import foreign_browser, pages

pytestmark = [pytest.mark.server, pytest.mark.browser]


@pytest.fixture
def ada(server: Server) -> Iterator[httpx.Client]:
    with server.agent("ada") as client:
        yield client


@pytest.fixture
def session(ada: httpx.Client, login_site: LoginSite) -> Iterator[dict[str, Any]]:
    session = open_session(ada, url=login_site.url("/links"))
    yield session
    ada.delete(f"/sessions/{session['sessionId']}")


def tab_of(session: dict[str, Any]) -> str:
    return session["tabs"][0]["tabId"]


def tabs_of(client: httpx.Client, session: dict[str, Any]) -> list[dict[str, Any]]:
    """Every tab of the session, in full."""
    brief = client.get(f"/sessions/{session['sessionId']}/tabs").json()["tabs"]
    return [client.get(f"/tabs/{tab['tabId']}").json() for tab in brief]


# --- More than one ----------------------------------------------------------------------------------------------


def test_a_second_tab_shares_the_sessions_cookies_and_closes_without_it(
    ada: httpx.Client, session: dict[str, Any], login_site: LoginSite
) -> None:
    act(ada, tab_of(session), "navigate", url=login_site.url("/login/ada"))
    opened = ada.post(f"/sessions/{session['sessionId']}/tabs", json={"url": login_site.url("/second")})
    assert (opened.status_code, opened.json()["provenance"]) == (201, "created")
    second = opened.json()["tabId"]
    assert value_of(ada, second, "document.body.innerText") == "Hello, ada"
    assert ada.delete(f"/tabs/{second}").status_code == 204
    gone = act(ada, second, "text")
    assert (gone.status_code, gone.json()["code"]) == (404, "tab_not_found")
    assert [tab["tabId"] for tab in tabs_of(ada, session)] == [tab_of(session)]
    assert value_of(ada, tab_of(session), "document.body.innerText") == "Hello, ada"


def test_a_tab_whose_first_page_does_not_load_is_not_left_open(ada: httpx.Client, session: dict[str, Any]) -> None:
    refused = ada.post(f"/sessions/{session['sessionId']}/tabs", json={"url": "http://127.0.0.1:1/"})
    assert (refused.status_code, refused.json()["code"]) == (422, "navigation_failed")
    assert len(tabs_of(ada, session)) == 1


# --- Popups -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["script", "link"])
def test_a_page_that_a_page_opens_belongs_to_its_session_and_can_be_driven(
    server: Server, ada: httpx.Client, session: dict[str, Any], login_site: LoginSite, how: str
) -> None:
    with events_of(server, "tab.opened") as events:
        if how == "script":
            value_of(ada, tab_of(session), "void window.open('/opened/by-script')")
        else:
            assert act(ada, tab_of(session), "click", selector="#blank").status_code == 200
        told = next(event for event in events if event["sessionId"] == session["sessionId"])
    assert (told["provenance"], told["openerTabId"]) == ("popup", tab_of(session))
    first, popup = tabs_of(ada, session)
    assert (first["provenance"], first["openerTabId"]) == ("created", None)
    assert (popup["provenance"], popup["openerTabId"]) == ("popup", tab_of(session))
    act(ada, popup["tabId"], "navigate", url=login_site.url("/driven"), waitPolicy="wait_with_timeout")
    assert value_of(ada, popup["tabId"], "location.pathname") == "/driven"


def test_a_page_that_closes_itself_is_no_tab_any_more(
    server: Server, ada: httpx.Client, session: dict[str, Any]
) -> None:
    with events_of(server, "tab.opened,tab.closed") as events:
        value_of(ada, tab_of(session), "void (window.popup = window.open('/opened/by-script'))")
        popup = next(events)["tabId"]
        value_of(ada, tab_of(session), "popup.close()")
        closed = next(events)
    assert (closed["tabId"], closed["reason"]) == (popup, "closed_by_page")
    assert [tab["tabId"] for tab in tabs_of(ada, session)] == [tab_of(session)]


def test_popups_close_with_their_session(tmp_path: Path, login_site: LoginSite) -> None:
    with foreign_browser(tmp_path / "foreign") as (_, port):
        before = pages(port)
        attach = {"POOLS__DEFAULT__SOURCE": "attach", "POOLS__DEFAULT__ENDPOINT": f"http://127.0.0.1:{port}"}
        with (
            with_settings(tmp_path / "state", attach | {"POOLS__DEFAULT__WARM": "0"}) as server,
            server.client() as admin,
            events_of(server, "tab.opened") as events,
        ):
            session = open_session(admin, agentId="ada", url=login_site.url("/links"))
            value_of(admin, tab_of(session), "void window.open('/opened/by-script')")
            next(events)
            assert len(pages(port)) == len(before) + 2
            release(admin, session)
            assert pages(port) == before


# --- A person's own tabs ----------------------------------------------------------------------------------------


def test_a_borrowed_tab_is_driven_and_given_back_unharmed(tmp_path: Path) -> None:
    with foreign_browser(tmp_path / "foreign") as (process, port):
        settings = {
            "POOLS__DEFAULT__SOURCE": "attach",
            "POOLS__DEFAULT__ENDPOINT": f"http://127.0.0.1:{port}",
            "POOLS__DEFAULT__ISOLATION": "shared",
            "POOLS__DEFAULT__WARM": "0",
        }
        theirs = pages(port)
        with with_settings(tmp_path / "state", settings) as server, server.client() as admin:
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


def test_a_name_that_several_tabs_have_is_answered_with_their_list(tmp_path: Path) -> None:
    with foreign_browser(tmp_path / "foreign") as (_, port):
        settings = {
            "POOLS__DEFAULT__SOURCE": "attach",
            "POOLS__DEFAULT__ENDPOINT": f"http://127.0.0.1:{port}",
            "POOLS__DEFAULT__ISOLATION": "shared",
            "POOLS__DEFAULT__WARM": "0",
        }
        with with_settings(tmp_path / "state", settings) as server, server.client() as admin:
            new_page = urllib.request.Request(
                f"http://127.0.0.1:{port}/json/new?data:text/html,theirs-too", method="PUT"
            )
            urllib.request.urlopen(new_page, timeout=30).close()
            session = open_session(admin, agentId="ada")
            path = f"/sessions/{session['sessionId']}/tabs"
            refused = admin.post(path, json={"borrow": "theirs"})
            assert (refused.status_code, refused.json()["code"]) == (409, "ambiguous_target")
            candidates = {candidate["url"] for candidate in refused.json()["details"]["candidates"]}
            assert candidates == {"data:text/html,theirs", "data:text/html,theirs-too"}
            assert admin.post(path, json={"borrow": "theirs-too"}).status_code == 201


def test_there_is_nothing_to_borrow_where_contexts_are_private(ada: httpx.Client, session: dict[str, Any]) -> None:
    refused = ada.post(f"/sessions/{session['sessionId']}/tabs", json={"borrow": "anything"})
    assert (refused.status_code, refused.json()["details"]["field"]) == (400, "borrow")


# --- A person at the wheel --------------------------------------------------------------------------------------


def test_a_tab_that_a_person_has_refuses_agents_until_it_is_given_back(
    server: Server, ada: httpx.Client, session: dict[str, Any]
) -> None:
    tab_id = tab_of(session)
    with events_of(server, "tab.paused,tab.resumed") as events:
        paused = ada.post(f"/tabs/{tab_id}/handoff", json={"by": "Grace"})
        assert (paused.json()["state"], paused.json()["holder"]["reason"]) == ("paused", "handoff")
        for kind in ("text", "screenshot", "close"):
            refused = act(ada, tab_id, kind)
            assert (refused.status_code, refused.json()["code"]) == (409, "tab_paused_handoff")
        assert ada.get(f"/tabs/{tab_id}").json()["holder"]["controllerId"] == "Grace"
        resumed = ada.post(f"/tabs/{tab_id}/resume")
        assert (resumed.json()["state"], resumed.json()["holder"]) == ("ready", None)
        told = [next(events) for _ in range(2)]
    assert [event["type"] for event in told] == ["tab.paused", "tab.resumed"]
    assert act(ada, tab_id, "text").status_code == 200
    assert ada.post(f"/tabs/{tab_id}/resume").json()["code"] == "conflict"


def test_a_handed_off_tab_stays_so_when_the_broker_is_killed(own_server: Server) -> None:
    with own_server.client() as admin:
        tab_id = tab_of(open_session(admin, agentId="ada"))
        admin.post(f"/tabs/{tab_id}/handoff", json={}).raise_for_status()
    own_server.kill()
    own_server.start()
    with own_server.client() as admin:
        assert act(admin, tab_id, "text").json()["code"] == "tab_paused_handoff"
        admin.post(f"/tabs/{tab_id}/resume").raise_for_status()
        assert act(admin, tab_id, "text").status_code == 200


# --- Who has it, and who waits ----------------------------------------------------------------------------------


def test_a_tab_shows_who_has_it_and_who_waits_for_it(ada: httpx.Client, session: dict[str, Any]) -> None:
    tab_id = tab_of(session)
    assert (ada.get(f"/tabs/{tab_id}").json()["holder"], ada.get(f"/tabs/{tab_id}").json()["waiters"]) == (None, [])
    patient = {"waitPolicy": "wait_with_timeout", "timeoutMs": 60_000}
    with ThreadPoolExecutor(2) as callers:
        going = "new Promise(done => { window.finish = done; })"
        running = callers.submit(act, ada, tab_id, "evaluate", expression=going, controllerId="first", **patient)
        while (view := ada.get(f"/tabs/{tab_id}").json())["holder"] is None:
            pass
        waiting = callers.submit(act, ada, tab_id, "text", controllerId="second", **patient)
        while not (view := ada.get(f"/tabs/{tab_id}").json())["waiters"]:
            pass
        listed = next(tab for tab in ada.get("/tabs").json()["tabs"] if tab["tabId"] == tab_id)
        # Ends the one that runs, so that nobody waits for its time to be over.
        ada.delete(f"/sessions/{session['sessionId']}")
        codes = [running.result(timeout=30).json()["code"], waiting.result(timeout=30).json()["code"]]
    assert (view["holder"]["reason"], view["holder"]["kind"]) == ("command", "evaluate")
    assert view["holder"]["controllerId"].endswith("first")
    assert view["holder"]["commandId"].startswith("cmd_")
    (waiter,) = view["waiters"]
    assert (waiter["agentId"], waiter["kind"], waiter["position"]) == ("ada", "text", 1)
    assert waiter["controllerId"].endswith("second")
    assert (listed["holder"], listed["waiters"]) == (view["holder"], view["waiters"])
    assert codes == ["lease_lost", "lease_lost"]


def test_tabs_of_other_agents_are_not_listed(server: Server, ada: httpx.Client, session: dict[str, Any]) -> None:
    with server.agent("bob") as bob:
        assert bob.get("/tabs").json()["tabs"] == []
        assert bob.get(f"/tabs/{tab_of(session)}").status_code == 404
    assert tab_of(session) in {tab["tabId"] for tab in ada.get("/tabs").json()["tabs"]}
