"""The tabs of a session on a real Chromium: opened, opened by pages, handed to a person."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from .conftest import Server, act, events_of, open_session, value_of
from .login_site import LoginSite

pytestmark = [pytest.mark.server, pytest.mark.browser]


@pytest.fixture
def session(ada: httpx.Client, login_site: LoginSite) -> dict[str, Any]:
    return open_session(ada, url=login_site.url("/links"))


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
        mine = (event for event in events if event["sessionId"] == session["sessionId"])
        popup = next(mine)["tabId"]
        value_of(ada, tab_of(session), "popup.close()")
        closed = next(mine)
    assert (closed["tabId"], closed["reason"]) == (popup, "closed_by_page")
    assert [tab["tabId"] for tab in tabs_of(ada, session)] == [tab_of(session)]


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
    assert (waiter["agentId"], waiter["kind"], waiter["position"]) == (session["agentId"], "text", 1)
    assert waiter["controllerId"].endswith("second")
    assert (listed["holder"], listed["waiters"]) == (view["holder"], view["waiters"])
    assert codes == ["lease_lost", "lease_lost"]
