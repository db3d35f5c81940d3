"""Pages and browsers die under their sessions: each comes back once, as the session knew it, under the same ids."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.shared_server import unique

from .conftest import Server, act, browser_pids, events_of, kill_browser, open_session, renderer_of, value_of
from .effects_site import EffectsSite
from .local_site import serving
from .login_site import LoginSite

pytestmark = [pytest.mark.server, pytest.mark.browser]

# The pool whose browsers are killed.
POOL = "mortal"
SESSIONS = 6
# The queue of a tab takes as many of one caller.
CALLERS_OF_ONE = 10
# Tells the site that it runs, and never ends.
FOREVER = "fetch('%s', {mode: 'no-cors'})"


@pytest.fixture
def witness() -> Iterator[EffectsSite]:
    """Hears of commands that have reached their page."""
    with serving(EffectsSite()) as site:
        yield site


def tab_of(session: dict[str, Any]) -> str:
    return session["tabs"][0]["tabId"]


def generation_of(client: httpx.Client, tab_id: str) -> int:
    return client.get(f"/tabs/{tab_id}").json()["generation"]


def test_the_sessions_of_a_killed_browser_are_back_in_another_with_their_logins(
    server: Server, admin: httpx.Client, login_site: LoginSite, witness: EffectsSite
) -> None:
    sizes = [{"width": 400 + 10 * n, "height": 300 + n} for n in range(SESSIONS)]
    sessions = [open_session(admin, agentId=f"a{n}", pool=POOL, viewport=sizes[n]) for n in range(SESSIONS)]
    for n, session in enumerate(sessions):
        act(admin, tab_of(session), "navigate", url=login_site.url(f"/login/a{n}"))
        assert value_of(admin, tab_of(session), f"localStorage.draft = 'of a{n}'") == f"of a{n}"
    # One session has a second tab, one has a page that must not be opened again, and one is at work.
    second = {"url": login_site.url("/second")}
    second_id = admin.post(f"/sessions/{sessions[0]['sessionId']}/tabs", json=second).json()["tabId"]
    once = open_session(admin, agentId="once", pool=POOL, url=login_site.url("/once-only"), allowNavigate=False)
    busy = open_session(admin, agentId="busy", pool=POOL)
    everyone = [*sessions, once, busy]
    server.wait_kept([session["sessionId"] for session in sessions], "of a")
    (old,) = [browser for browser in admin.get("/browsers").json()["browsers"] if browser["pool"] == POOL]
    assert old["sessions"] == len(everyone)

    with events_of(server, "session_recovered") as events, ThreadPoolExecutor(4) as callers:
        answers = commands_on([admin] * 4, tab_of(busy), callers, witness)
        kill_browser(old["pid"])
        codes = Counter(answer.result(timeout=60).json()["code"] for answer in answers)
        told = [next(events) for _ in everyone]

    assert codes == {"outcome_unknown": 1, "browser_crashed": 3}
    assert {event["sessionId"] for event in told} == {session["sessionId"] for session in everyone}
    assert {event["reason"] for event in told} == {"browser_crashed"}
    assert old["browserId"] not in {browser["browserId"] for browser in admin.get("/browsers").json()["browsers"]}
    for n, session in enumerate(sessions):
        now = admin.get(f"/sessions/{session['sessionId']}").json()
        assert (now["state"], now["fence"]) == ("active", session["fence"])
        assert (now["tabs"][0]["tabId"], now["tabs"][0]["url"]) == (tab_of(session), login_site.url(f"/home/a{n}"))
        assert generation_of(admin, tab_of(session)) == 2
        found = value_of(
            admin, tab_of(session), "[document.body.innerText, localStorage.draft, innerWidth, innerHeight]"
        )
        assert found == [f"Hello, a{n}", f"of a{n}", sizes[n]["width"], sizes[n]["height"]]
        # The site itself saw the login twice: before, and when the page was opened again.
        assert login_site.visitors(f"/home/a{n}") == [f"a{n}", f"a{n}"]
    assert value_of(admin, second_id, "[location.pathname, document.body.innerText]") == ["/second", "Hello, a0"]

    refused = act(admin, tab_of(once), "text")
    assert (refused.status_code, refused.json()["code"]) == (502, "tab_dead")
    assert refused.json()["details"]["lastUrl"] == login_site.url("/once-only")
    assert login_site.visitors("/once-only") == ["stranger"]
    # The session goes on: the dead tab can be closed and another one opened.
    assert admin.delete(f"/tabs/{tab_of(once)}").status_code == 204
    fresh = admin.post(f"/sessions/{once['sessionId']}/tabs", json={"url": login_site.url("/another")})
    assert value_of(admin, fresh.json()["tabId"], "location.pathname") == "/another"


def test_concurrent_callers_on_a_dying_page_cause_one_rebuild_and_its_neighbours_are_left_alone(
    server: Server, admin: httpx.Client, login_site: LoginSite, witness: EffectsSite
) -> None:
    ada, bob = unique("ada"), unique("bob")
    session = open_session(admin, agentId=ada, pool=POOL, url=login_site.url("/login/ada"), access="shared")
    tab_id = tab_of(session)
    value_of(admin, tab_id, "localStorage.draft = 'kept'")
    other = tab_of(open_session(admin, agentId=bob, pool=POOL, url=login_site.url("/login/bob")))
    value_of(admin, other, "window.mark = 'untouched'")
    renderer = renderer_of(admin, tab_id, POOL)
    with (
        server.agent(ada) as first,
        server.agent(bob) as second,
        ThreadPoolExecutor(2 * CALLERS_OF_ONE) as callers,
        events_of(server, "tab.rebuilt") as events,
    ):
        senders = [first, second] * (CALLERS_OF_ONE - 1)
        answers = commands_on(senders, tab_id, callers, witness)
        os.kill(renderer.pid, signal.SIGKILL)
        codes = Counter(answer.result(timeout=60).json()["code"] for answer in answers)
        # They all come again at once, as callers do.
        again = list(callers.map(lambda client: value_of(client, tab_id, "document.body.innerText"), senders))
        told = next(events)
    assert codes == {"outcome_unknown": 1, "browser_crashed": len(senders) - 1}
    assert again == ["Hello, ada"] * len(senders)
    assert (told["tabId"], told["generation"], told["result"]) == (tab_id, 2, "new-tab")
    assert generation_of(admin, tab_id) == 2
    assert value_of(admin, tab_id, "[location.pathname, localStorage.draft]") == ["/home/ada", "kept"]
    assert login_site.visitors("/home/ada") == ["ada", "ada"]
    assert value_of(admin, other, "[window.mark, document.body.innerText]") == ["untouched", "Hello, bob"]
    assert generation_of(admin, other) == 1


def test_a_request_that_meets_no_browser_waits_for_one(server: Server, admin: httpx.Client) -> None:
    open_session(admin, agentId="ada", pool=POOL)
    with events_of(server, "browser.crashed") as events:
        kill_browser(*browser_pids(admin, POOL))
        next(events)
        # No retry and no error.
        fresh = open_session(admin, agentId="bob", pool=POOL)
    assert value_of(admin, tab_of(fresh), "1") == 1


def commands_on(
    clients: list[httpx.Client], tab_id: str, callers: ThreadPoolExecutor, witness: EffectsSite
) -> list[Any]:
    """One command that is at work on the page and never ends, and those of all the others waiting behind it."""
    action = {"expression": FOREVER % witness.url("/hold"), "waitPolicy": "wait_with_timeout", "timeoutMs": 60_000}
    answers = [callers.submit(act, client, tab_id, "evaluate", **action) for client in clients]
    assert witness.is_held.wait(60)
    while len(clients[0].get(f"/tabs/{tab_id}").json()["waiters"]) < len(clients) - 1:
        pass
    return answers
