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

from .conftest import (
    Server,
    act,
    browser_pids,
    events_of,
    kill_browser,
    open_session,
    renderer_of,
    value_of,
    with_settings,
)
from .effects_site import EffectsSite
from .local_site import serving
from .login_site import LoginSite

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Tells the site that it runs, and never ends.
FOREVER = "fetch('%s', {mode: 'no-cors'})"
# The queue of a tab takes them all, half of it being one caller's at the most; and the breaker would, rightly, stop
# starting browsers that die one after the other.
SETTINGS = {"GATE__TICKETS_PER_TAB": "120", "POOLS__DEFAULT__BREAKER_CRASHES": "1000"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("recovery") / "state", SETTINGS) as server:
        yield server


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
        for session in client.get("/sessions", params={"limit": 500}).json()["sessions"]:
            if session["state"] not in ("closed", "lost"):
                client.delete(f"/sessions/{session['sessionId']}")


@pytest.fixture
def witness() -> Iterator[EffectsSite]:
    """Hears of commands that have reached their page."""
    with serving(EffectsSite()) as site:
        yield site


def tab_of(session: dict[str, Any]) -> str:
    return session["tabs"][0]["tabId"]


def generation_of(client: httpx.Client, tab_id: str) -> int:
    return client.get(f"/tabs/{tab_id}").json()["generation"]


def kill_renderer(client: httpx.Client, tab_id: str) -> None:
    os.kill(renderer_of(client, tab_id).pid, signal.SIGKILL)


# --- A whole browser --------------------------------------------------------------------------------------------


def test_twenty_sessions_of_a_killed_browser_are_back_in_another_with_their_logins(
    server: Server, admin: httpx.Client, login_site: LoginSite
) -> None:
    sizes = [{"width": 400 + 10 * n, "height": 300 + n} for n in range(20)]
    sessions = [open_session(admin, agentId=f"a{n}", viewport=sizes[n], keepAlive=True) for n in range(20)]
    for n, session in enumerate(sessions):
        act(admin, tab_of(session), "navigate", url=login_site.url(f"/login/a{n}"))
        assert value_of(admin, tab_of(session), f"localStorage.draft = 'of a{n}'") == f"of a{n}"
    server.wait_kept([session["sessionId"] for session in sessions], "of a")
    (old,) = admin.get("/browsers").json()["browsers"]
    assert old["sessions"] == 20

    with events_of(server, "session_recovered") as events:
        kill_browser(old["pid"])
        told = [next(events) for _ in sessions]

    assert {event["sessionId"] for event in told} == {session["sessionId"] for session in sessions}
    assert {(event["reason"], event["result"]) for event in told} == {("browser_crashed", "new-tab")}
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


def test_every_tab_of_a_session_comes_back_at_its_own_address(
    server: Server, admin: httpx.Client, login_site: LoginSite
) -> None:
    session = open_session(admin, agentId="ada", url=login_site.url("/login/ada"))
    more = [
        admin.post(f"/sessions/{session['sessionId']}/tabs", json={"url": login_site.url(f"/page/{n}")}).json()["tabId"]
        for n in range(2)
    ]
    server.wait_kept([session["sessionId"]], "secret-of-ada")
    with events_of(server, "session_recovered") as events:
        kill_browser(browser_pids(admin)[0])
        next(events)
    now = admin.get(f"/sessions/{session['sessionId']}/tabs").json()["tabs"]
    assert [(tab["tabId"], tab["url"]) for tab in now] == [
        (tab_of(session), login_site.url("/home/ada")),
        (more[0], login_site.url("/page/0")),
        (more[1], login_site.url("/page/1")),
    ]
    assert {value_of(admin, tab["tabId"], "document.body.innerText") for tab in now} == {"Hello, ada"}


def test_of_the_commands_on_a_dying_browser_one_is_unknown_and_those_that_waited_were_not_sent(
    admin: httpx.Client, witness: EffectsSite
) -> None:
    tab_id = tab_of(open_session(admin, agentId="ada"))
    with ThreadPoolExecutor(4) as callers:
        answers = commands_on(admin, tab_id, callers, 4, witness)
        kill_browser(browser_pids(admin)[0])
        codes = Counter(answer.result(timeout=60).json()["code"] for answer in answers)
    assert codes == {"outcome_unknown": 1, "browser_crashed": 3}


# --- One page ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [3, 50])
def test_concurrent_callers_on_a_dying_page_cause_one_rebuild(
    server: Server, admin: httpx.Client, login_site: LoginSite, witness: EffectsSite, number: int
) -> None:
    session = open_session(admin, agentId="ada", url=login_site.url("/login/ada"))
    tab_id = tab_of(session)
    value_of(admin, tab_id, "localStorage.draft = 'kept'")
    renderer = renderer_of(admin, tab_id)
    with ThreadPoolExecutor(number) as callers, events_of(server, "tab.rebuilt") as events:
        answers = commands_on(admin, tab_id, callers, number, witness)
        os.kill(renderer.pid, signal.SIGKILL)
        codes = Counter(answer.result(timeout=60).json()["code"] for answer in answers)
        # They all come again at once, as callers do.
        again = list(callers.map(lambda _: value_of(admin, tab_id, "document.body.innerText"), range(number)))
        told = next(events)
    assert codes == {"outcome_unknown": 1, "browser_crashed": number - 1}
    assert again == ["Hello, ada"] * number
    assert (told["tabId"], told["generation"], told["result"]) == (tab_id, 2, "new-tab")
    assert generation_of(admin, tab_id) == 2
    assert value_of(admin, tab_id, "[location.pathname, localStorage.draft]") == ["/home/ada", "kept"]
    assert login_site.visitors("/home/ada") == ["ada", "ada"]


def test_the_death_of_a_page_leaves_its_neighbours_alone(
    admin: httpx.Client, login_site: LoginSite, witness: EffectsSite
) -> None:
    mine = tab_of(open_session(admin, agentId="ada", url=login_site.url("/login/ada")))
    other = tab_of(open_session(admin, agentId="bob", url=login_site.url("/login/bob")))
    value_of(admin, other, "window.mark = 'untouched'")
    with ThreadPoolExecutor(1) as callers:
        renderer = renderer_of(admin, mine)
        answers = commands_on(admin, mine, callers, 1, witness)
        os.kill(renderer.pid, signal.SIGKILL)
        assert answers[0].result(timeout=60).json()["code"] == "outcome_unknown"
    assert value_of(admin, mine, "document.body.innerText") == "Hello, ada"
    assert value_of(admin, other, "[window.mark, document.body.innerText]") == ["untouched", "Hello, bob"]
    assert generation_of(admin, other) == 1


def test_a_page_that_keeps_crashing_is_left_blank(server: Server, admin: httpx.Client, login_site: LoginSite) -> None:
    tab_id = tab_of(open_session(admin, agentId="ada", url=login_site.url("/crashing")))
    with events_of(server, "tab.rebuilt") as events:
        addresses = []
        for _ in range(4):
            kill_renderer(admin, tab_id)
            addresses.append(next(events)["url"])
    assert addresses == [login_site.url("/crashing")] * 3 + ["about:blank"]
    assert value_of(admin, tab_id, "location.href") == "about:blank"


# --- Sessions whose pages must not be opened again -----------------------------------------------------------------


@pytest.mark.parametrize("death", ["page", "browser"])
def test_a_page_that_must_not_be_opened_again_is_reported_dead_with_its_last_address(
    server: Server, admin: httpx.Client, login_site: LoginSite, death: str
) -> None:
    session = open_session(admin, agentId="ada", url=login_site.url("/once-only"), allowNavigate=False)
    tab_id, types = tab_of(session), "tab.dead" if death == "page" else "session_recovered"
    with events_of(server, types) as events:
        if death == "page":
            kill_renderer(admin, tab_id)
        else:
            kill_browser(browser_pids(admin)[0])
        next(events)
    refused = act(admin, tab_id, "text")
    assert (refused.status_code, refused.json()["code"]) == (502, "tab_dead")
    assert refused.json()["details"]["lastUrl"] == login_site.url("/once-only")
    assert login_site.visitors("/once-only") == ["stranger"]
    # The session goes on: the dead tab can be closed and another one opened.
    assert admin.delete(f"/tabs/{tab_id}").status_code == 204
    fresh = admin.post(f"/sessions/{session['sessionId']}/tabs", json={"url": login_site.url("/another")})
    assert value_of(admin, fresh.json()["tabId"], "location.pathname") == "/another"


# --- Giving up: last, because a browser that keeps dying is started ever later ----------------------------------------


def test_a_session_whose_browsers_keep_dying_is_given_up(server: Server, admin: httpx.Client) -> None:
    session = open_session(admin, agentId="ada")
    with events_of(server, "session_recovered,session_lost") as events:
        told = []
        for _ in range(4):
            kill_browser(browser_pids(admin)[0])
            told.append(next(events))
    assert [event["type"] for event in told] == ["session_recovered"] * 3 + ["session_lost"]
    assert told[-1]["reason"] == "keeps_crashing"
    assert admin.get(f"/sessions/{session['sessionId']}").json()["endReason"] == "keeps_crashing"
    late = act(admin, tab_of(session), "text")
    assert (late.status_code, late.json()["details"]["reason"]) == (409, "keeps_crashing")


def commands_on(
    client: httpx.Client, tab_id: str, callers: ThreadPoolExecutor, number: int, witness: EffectsSite
) -> list[Any]:
    """One command that is at work on the page and never ends, and all the others waiting behind it."""
    action = {"expression": FOREVER % witness.url("/hold"), "waitPolicy": "wait_with_timeout", "timeoutMs": 60_000}
    answers = [callers.submit(act, client, tab_id, "evaluate", **action) for _ in range(number)]
    assert witness.is_held.wait(60)
    while len(client.get(f"/tabs/{tab_id}").json()["waiters"]) < number - 1:
        pass
    return answers
