"""Opening, using and giving back a session on a real Chromium."""

from __future__ import annotations

import base64

import pytest
from tests.shared_server import unique

from .conftest import Server, act, open_session

pytestmark = [pytest.mark.server, pytest.mark.browser]


def test_an_agent_opens_a_session_drives_it_and_gives_it_back(server: Server, site: str) -> None:
    with server.agent(unique("ada")) as ada:
        session = open_session(ada, key="shop", tier="pro")
        assert session["agentId"].startswith("ada")
        assert session["state"] == "active"
        tab_id = session["tabs"][0]["tabId"]
        went = act(ada, tab_id, "navigate", url=site).json()
        assert went["ok"]
        assert went["outcome"] == "completed"
        assert went["result"]["url"] == site
        assert act(ada, tab_id, "text").json()["result"] == "Hello from the site"
        assert act(ada, tab_id, "evaluate", expression="1 + 1").json()["result"] == 2
        png = base64.b64decode(act(ada, tab_id, "screenshot").json()["result"])
        assert png.startswith(b"\x89PNG")
        assert ada.get(f"/sessions/{session['sessionId']}").json()["tabs"][0]["url"] == site
        gone = ada.delete(f"/sessions/{session['sessionId']}", params={"fence": session["fence"]})
        assert gone.status_code == 204
        assert act(ada, tab_id, "text").json()["code"] == "lease_lost"
        assert ada.get(f"/sessions/{session['sessionId']}").json()["state"] == "closed"


def test_a_session_can_open_on_a_first_page(server: Server, site: str) -> None:
    with server.agent(unique("ada")) as ada:
        session = open_session(ada, url=site)
        assert (session["tabs"][0]["url"], session["tabs"][0]["title"]) == (site, "A page")
        ada.delete(f"/sessions/{session['sessionId']}")


def test_a_first_page_that_does_not_load_leaves_no_session(server: Server) -> None:
    with server.agent(unique("eve")) as eve:
        refused = eve.post("/sessions", json={"url": "http://127.0.0.1:1/"})
        assert (refused.status_code, refused.json()["code"]) == (422, "navigation_failed")
        assert [s["state"] for s in eve.get("/sessions").json()["sessions"]] == ["closed"]


def test_two_agents_share_neither_cookies_nor_storage(server: Server, site: str) -> None:
    with server.agent(unique("ada")) as ada, server.agent(unique("bob")) as bob:
        mine, other = open_session(ada, url=site), open_session(bob, url=site)
        write = "document.cookie = 'who=ada'; localStorage.who = 'ada'; true"
        read = "[document.cookie, localStorage.who ?? null]"
        assert act(ada, mine["tabs"][0]["tabId"], "evaluate", expression=write).json()["result"] is True
        assert act(ada, mine["tabs"][0]["tabId"], "evaluate", expression=read).json()["result"] == ["who=ada", "ada"]
        assert act(bob, other["tabs"][0]["tabId"], "evaluate", expression=read).json()["result"] == ["", None]
        for client, session in ((ada, mine), (bob, other)):
            client.delete(f"/sessions/{session['sessionId']}")


def test_another_agent_finds_nothing_whatever_it_tries(server: Server) -> None:
    with server.agent(unique("ada")) as ada, server.agent(unique("mallory")) as mallory:
        session = open_session(ada)
        session_id, tab_id = session["sessionId"], session["tabs"][0]["tabId"]
        done = act(ada, tab_id, "evaluate", expression="1").json()
        attempts = [
            mallory.get(f"/sessions/{session_id}"),
            mallory.get(f"/sessions/{session_id}/tabs"),
            mallory.delete(f"/sessions/{session_id}", params={"fence": session["fence"]}),
            mallory.post(f"/sessions/{session_id}/heartbeat", json={"fence": session["fence"]}),
            *(act(mallory, tab_id, kind) for kind in ("text", "screenshot")),
            act(mallory, tab_id, "evaluate", expression="1", sessionId=session_id, fence=session["fence"]),
            act(mallory, tab_id, "navigate", url="about:blank"),
            mallory.get(f"/commands/{done['commandId']}"),
        ]
        assert {answer.status_code for answer in attempts} == {404}
        assert mallory.get("/sessions").json()["sessions"] == []
        for forged in (
            mallory.get("/sessions", params={"agentId": session["agentId"]}),
            mallory.post("/sessions", json={"agentId": session["agentId"]}),
            mallory.get("/sessions", headers={"X-Agent-Id": session["agentId"]}),
        ):
            assert (forged.status_code, forged.json()["code"]) == (403, "forbidden")
        assert act(ada, tab_id, "evaluate", expression="2").json()["result"] == 2
        ada.delete(f"/sessions/{session_id}")


def test_a_stale_fence_is_refused_and_touches_nothing(server: Server) -> None:
    with server.agent(unique("ada")) as ada:
        session = open_session(ada)
        session_id, tab_id, fence = session["sessionId"], session["tabs"][0]["tabId"], session["fence"]
        stale = act(ada, tab_id, "evaluate", expression="document.title = 'touched'", fence=fence - 1)
        assert (stale.status_code, stale.json()["code"]) == (409, "lease_lost")
        assert ada.delete(f"/sessions/{session_id}", params={"fence": fence - 1}).status_code == 409
        assert ada.post(f"/sessions/{session_id}/heartbeat", json={"fence": fence - 1}).status_code == 409
        assert act(ada, tab_id, "evaluate", expression="document.title", fence=fence).json()["result"] == ""
        ada.delete(f"/sessions/{session_id}")


def test_evaluate_needs_its_scope(server: Server) -> None:
    with server.agent(unique("reader"), scopes=["browse"]) as reader:
        session = open_session(reader)
        refused = act(reader, session["tabs"][0]["tabId"], "evaluate", expression="1")
        assert (refused.status_code, refused.json()["details"]["scope"]) == (403, "evaluate")
        assert act(reader, session["tabs"][0]["tabId"], "text").status_code == 200
        reader.delete(f"/sessions/{session['sessionId']}")


def test_a_heartbeat_says_when_the_session_ends(server: Server) -> None:
    with server.agent(unique("ada")) as ada:
        session = open_session(ada, deadlineMs=60_000)
        beat = ada.post(
            f"/sessions/{session['sessionId']}/heartbeat", json={"fence": session["fence"], "phase": "poll"}
        )
        assert beat.json() == {"expiresAt": session["expiresAt"], "fence": session["fence"], "cancel": []}
        ada.delete(f"/sessions/{session['sessionId']}")
