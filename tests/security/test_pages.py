"""Pages of elsewhere reach nothing of the server: not from an agent's tab, nor from the browser of an operator.

The operator's browser is the worse place. All ports of one host are one site to it, so the login's cookie goes along
with whatever a page of another port sends. Each way is also gone from a page of the server's own, where it works as far
as its credential goes; and each is seen to arrive and to be refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page
from tests.dashboard.rig import Dashboards, viewer
from tests.server.conftest import Server, act, end_sessions, open_session
from tests.server.local_site import serving
from tests.shared_server import unique

from .page_ways import WAYS, Lure, Way

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Nobody beats for these sessions.
LASTING = {"keepAlive": True, "deadlineMs": 3_600_000}
# A name of the attacker's, which leads here since a moment ago.
REBOUND = "evil.test"
# What the server says of requests that it lets nobody make.
REFUSALS = re.compile(r'^tabherd_rejected_total\{code="(?:forbidden|unauthenticated)"\} (\S+)', re.MULTILINE)

Run = Callable[[Way], list[object]]


class Scene:
    """The server with something to lose, and who is about to attack it."""

    def __init__(self, server: Server, lure: Lure) -> None:
        self.server = server
        self.url = server.record["url"]
        self.lure = lure.url()
        self.admin = server.client()
        self.attacker = unique("mallory")
        self.mallory = server.agent(self.attacker)
        session = open_session(self.admin, agentId=unique("alice"), url=self.lure, **LASTING)
        # Alice's.
        self.tab_id = session["tabs"][0]["tabId"]
        # The tab in which an agent has opened the attacker's page.
        self.lured = open_session(self.mallory, url=self.lure, **LASTING)["tabs"][0]["tabId"]

    def knowledge(self, word: str) -> dict[str, str]:
        """What the scripts are given."""
        return {
            "url": self.url,
            "tab": self.tab_id,
            "token": self.server.admin_token,
            "mallorys": self.mallory.headers["Authorization"].removeprefix("Bearer "),
            "word": word,
        }

    def state(self) -> dict[str, Any]:
        """All that an attack could change."""
        sessions = self.admin.get("/sessions", params={"limit": 1_000}).json()["sessions"]
        audit = self.admin.get("/audit", params={"limit": 1_000}).json()["entries"]
        return {
            "sessions": [(each["sessionId"], each["agentId"], each["state"], each["fence"]) for each in sessions],
            "tabs": [(tab["tabId"], tab["state"], tab["url"], tab["holder"]) for tab in self._tabs()],
            "draining": self.admin.get("/stats").json()["draining"],
            "config": self.admin.get("/config").json(),
            # The attack itself is one of mallory's commands; nothing else of hers is.
            "audit": [
                entry["id"] for entry in audit if (entry["agentId"], entry["verb"]) != (self.attacker, "evaluate")
            ],
        }

    def refusals(self) -> float:
        """How many requests were forbidden, or came from nobody."""
        return sum(map(float, REFUSALS.findall(self.admin.get("/metrics").text)))

    def put_back(self) -> None:
        """Undo what a script was able to do."""
        if self.admin.get("/stats").json()["draining"]:
            self.admin.delete("/drain").raise_for_status()
        if self.admin.get(f"/tabs/{self.tab_id}").json()["state"] == "paused":
            self.admin.post(f"/tabs/{self.tab_id}/resume").raise_for_status()

    def close(self) -> None:
        self.admin.close()
        self.mallory.close()

    def _tabs(self) -> list[dict[str, Any]]:
        # Whether mallory's command has already given her own tab back is no matter.
        return [tab for tab in self.admin.get("/tabs").json()["tabs"] if tab["tabId"] != self.lured]


@pytest.fixture(scope="module")
def scene(server_of_all: Server) -> Iterator[Scene]:
    with serving(Lure()) as lure:
        scene = Scene(server_of_all, lure)
        try:
            yield scene
        finally:
            end_sessions(scene.admin)
            scene.close()


@pytest.fixture(scope="module")
def viewing() -> Iterator[Browser]:
    # Newer builds themselves keep pages that came from far away from loopback addresses. Others, and proxies, do not.
    flags = (f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1", "--disable-features=LocalNetworkAccessChecks")
    with viewer(*flags) as browser:
        yield browser


@pytest.fixture(scope="module")
def dashboards(server_of_all: Server, viewing: Browser) -> Iterator[Dashboards]:
    opened = Dashboards(viewing, server_of_all)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(scope="module")
def dashboard(dashboards: Dashboards) -> Page:
    """The operator's, logged in as the admin."""
    return dashboards.open()


def word_of(dashboard: Page) -> str:
    return str(dashboard.evaluate("localStorage['tabherd.csrf']"))


@pytest.fixture(scope="module")
def lured(scene: Scene, dashboard: Page) -> Page:
    """The attacker's page in the operator's browser, with all its cookies."""
    page = dashboard.context.new_page()
    page.goto(scene.lure)
    return page


@pytest.fixture(params=["an agent's tab", "the operator's browser"])
def elsewhere(request: pytest.FixtureRequest, scene: Scene, dashboard: Page, lured: Page) -> Run:
    """Runs a script in a page of another origin."""
    knowledge = scene.knowledge(word_of(dashboard))
    if request.param == "the operator's browser":
        return lambda way: lured.evaluate(way.script, knowledge)

    def in_tab(way: Way) -> list[object]:
        answer = act(scene.mallory, scene.lured, "evaluate", expression=f"({way.script})({json.dumps(knowledge)})")
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    return in_tab


def test_a_page_of_another_origin_gets_nothing_and_changes_nothing(
    scene: Scene, dashboard: Page, elsewhere: Run
) -> None:
    before, cookies = scene.state(), dashboard.context.cookies()
    wrong = {}
    try:
        for name, way in WAYS.items():
            refused = scene.refusals()
            got = elsewhere(way)
            if got or scene.refusals() - refused < way.refused_min:
                wrong[name] = got or "it never came as far as the server"
        assert not wrong
        assert scene.state() == before
        assert dashboard.context.cookies() == cookies
    finally:
        scene.put_back()


def test_the_cookie_of_a_login_does_go_along_with_what_a_page_sends_to_another_port(lured: Page) -> None:
    with serving(Lure()) as other:
        lured.evaluate("url => fetch(url, {mode: 'no-cors', credentials: 'include'})", other.url())
    (cookies,) = other.cookies
    assert cookies.startswith("tabherd_")


# --- Looking at the dashboard -----------------------------------------------------------------------------------


def test_the_dashboard_shows_in_no_frame(scene: Scene, lured: Page) -> None:
    shown = []
    for url in (f"{scene.url}/", f"{scene.url}/docs", scene.lure):
        lured.evaluate(
            """async (url) => {
                const frame = document.createElement("iframe");
                frame.src = url;
                const loaded = new Promise((done) => { frame.onload = done; });
                document.body.append(frame);
                await loaded;
            }""",
            url,
        )
        shown.append(lured.frames[-1].url)
    assert shown == ["chrome-error://chromewebdata/", "chrome-error://chromewebdata/", scene.lure]


def test_a_window_of_the_dashboard_cannot_be_read_by_who_opened_it(scene: Scene, lured: Page) -> None:
    with lured.expect_popup() as popup:
        lured.evaluate("url => { window.opened = open(url); }", scene.url)
    popup.value.locator(".connection.live").wait_for()
    for secret in ("document", "localStorage", "location.href", "fetch", "name"):
        with pytest.raises(Exception, match="SecurityError"):
            lured.evaluate(f"opened.{secret}")


# --- A name that leads here -------------------------------------------------------------------------------------

AS_SAME_ORIGIN = """async ([path, token]) => {
    const answer = await fetch(path, {headers: token ? {Authorization: `Bearer ${token}`} : {}});
    return [answer.status, await answer.text()];
}"""


def lured_to(name: str, scene: Scene, dashboard: Page) -> Page:
    """The attacker's page at that name and the server's port: it was loaded before the name came to lead here."""
    origin = f"http://{name}:{httpx.URL(scene.url).port}"
    page = dashboard.context.new_page()
    page.route(f"{origin}/lure", lambda route: route.fulfill(body="<h1>Free kittens</h1>", content_type="text/html"))
    page.goto(f"{origin}/lure")
    return page


@pytest.fixture(scope="module")
def rebound(scene: Scene, dashboard: Page) -> Page:
    return lured_to(REBOUND, scene, dashboard)


def test_a_page_whose_name_has_come_to_lead_here_is_told_nothing(scene: Scene, rebound: Page) -> None:
    before = scene.state()
    for path in ("/", "/docs", "/sessions", "/login", "/health", "/json/version", "/ui/app.js"):
        for token in ("", scene.server.admin_token):
            status, text = rebound.evaluate(AS_SAME_ORIGIN, [path, token])
            told = json.loads(text)
            assert (status, told["code"], told["details"]) == (403, "forbidden", {"field": "Host"}), path
    assert scene.state() == before


def test_no_socket_opens_under_such_a_name(scene: Scene, dashboard: Page, rebound: Page) -> None:
    knowledge = scene.knowledge(word_of(dashboard)) | {"url": f"http://{REBOUND}:{httpx.URL(scene.url).port}"}
    before = scene.state()
    for name, way in WAYS.items():
        if way.at_home and isinstance(way.at_home[0], str):
            refused = scene.refusals()
            assert rebound.evaluate(way.script, knowledge) == [], name
            assert scene.refusals() - refused >= way.refused_min, f"{name} never came as far as the server"
    assert scene.state() == before


# --- The same where it is allowed: what is refused above would have been seen -----------------------------------

CHANGING = ("opening a session with a token", "pausing a tab with a token")


def test_the_same_from_a_page_of_the_servers_own_goes_as_far_as_its_credential(scene: Scene, dashboard: Page) -> None:
    knowledge = scene.knowledge(word_of(dashboard))
    try:
        for name, way in WAYS.items():
            if way.at_home is not None:
                before = scene.state() if name in CHANGING else None
                assert dashboard.evaluate(way.script, knowledge) == way.at_home, name
                assert before is None or scene.state() != before, f"{name} is not seen"
                scene.put_back()
    finally:
        scene.put_back()


def test_under_a_name_that_is_the_servers_the_same_page_would_be_told(scene: Scene, dashboard: Page) -> None:
    page = lured_to("localhost", scene, dashboard)
    assert page.evaluate(AS_SAME_ORIGIN, ["/sessions", ""])[0] == 401
    assert page.evaluate(AS_SAME_ORIGIN, ["/sessions", scene.server.admin_token])[0] == 200
