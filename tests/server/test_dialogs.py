"""Dialogs and whatever else a real page may put in front of its visitor: answered, told, and never in the way."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

import httpx
import pytest
from tests.browsers.site import BUILDS

from .conftest import Server, act, open_session, release, value_of, with_settings
from .local_site import LocalSite, serving

pytestmark = [pytest.mark.server, pytest.mark.browser]

STORM: Final = "for (;;) alert('again')"
# What a click on a button of that name does.
BUTTONS: Final = {
    "alert": "alert('wrong password')",
    "confirm": "window.said = confirm('Delete it?')",
    "prompt": "window.said = prompt('Your name?', 'nobody')",
    "many": "for (let i = 0; i < 12; i++) alert(i)",
    "popup": "window.popup = window.open(''); popup.alert('from the popup'); window.said = 'went on'",
    "print": "print(); window.said = 'went on'",
    "chooser": "document.querySelector('input').click(); window.said = 'went on'",
    "picker": "showOpenFilePicker().catch(() => 0); window.said = 'went on'",
    "notify": "Notification.requestPermission(); window.said = 'went on'",
    "locate": "navigator.geolocation.getCurrentPosition(() => 0); window.said = 'went on'",
    "listen": "navigator.mediaDevices.getUserMedia({audio: true}).catch(() => 0); window.said = 'went on'",
    "fullscreen": "document.documentElement.requestFullscreen(); window.said = 'went on'",
    "windows": "for (let i = 0; i < 10; i++) window.open('/blank'); window.said = 'went on'",
}
PAGES: Final = {
    "/": "<input type=file>"
    + "".join(f'<button id={name} onclick="{does}">{name}</button>' for name, does in BUTTONS.items()),
    "/stay": "<button id=touch>Touch</button><script>onbeforeunload = () => { alert('no'); return 'stay' }</script>",
    "/unload": "<button id=touch>Touch</button><script>onunload = onpagehide = () => alert('bye')</script>",
    "/first": "<script>alert('welcome')</script>here",
    "/always": "<script>opened = 0; setInterval(() => alert(++opened), 0)</script><p>here",
    "/locked-frame": "<iframe src=/locked></iframe>",
}


class DialogSite(LocalSite):
    """The pages above; `/locked` asks for a password, and all others are blank."""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = PAGES.get(self.path, "").encode()
                self.send_response(401 if self.path == "/locked" else 200)
                if self.path == "/locked":
                    self.send_header("WWW-Authenticate", 'Basic realm="here"')
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        return Handler


@pytest.fixture(scope="module", params=BUILDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"POOLS__DEFAULT__BROWSER": request.param, "POOLS__DEFAULT__BROWSERS_MAX": "1"}
    with with_settings(tmp_path_factory.mktemp("dialogs") / "state", settings) as server:
        yield server


@pytest.fixture(scope="module")
def site() -> Iterator[DialogSite]:
    with serving(DialogSite()) as site:
        yield site


@pytest.fixture
def ada(server: Server) -> Iterator[httpx.Client]:
    with server.agent("ada") as client:
        yield client


@pytest.fixture
def tab_id(ada: httpx.Client, site: DialogSite) -> Iterator[str]:
    session = open_session(ada)
    tab_id = session["tabs"][0]["tabId"]
    go(ada, tab_id, site.url("/"))
    yield tab_id
    release(ada, session)


def test_a_page_whose_dialog_nobody_can_answer_is_rebuilt(ada: httpx.Client, tab_id: str) -> None:
    """Chromium talks to the next document as soon as that is ready; the script of the present one asks then."""
    wait = "const end = Date.now() + 300; while (Date.now() < end);"
    act(ada, tab_id, "evaluate", expression=f"void setTimeout(() => {{ location = '/first'; {wait} alert('lost') }})")
    answer = act(ada, tab_id, "wait", text="here", timeoutMs=120_000)
    assert answer.json().get("code") == "outcome_unknown"
    assert value_of(ada, tab_id, "1 + 1") == 2
    assert ada.get(f"/tabs/{tab_id}").json()["generation"] == 2


def done(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    command: dict[str, Any] = answer.json()
    return command


def go(client: httpx.Client, tab_id: str, url: str, **params: Any) -> dict[str, Any]:
    return done(act(client, tab_id, "navigate", url=url, **params))


def told(command: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Type, message and answer of each dialog."""
    return [(dialog["type"], dialog["message"], dialog["isAccepted"]) for dialog in command["dialogs"]]


def test_a_click_tells_of_the_alert_that_it_caused(ada: httpx.Client, tab_id: str) -> None:
    clicked = done(act(ada, tab_id, "click", selector="#alert"))
    assert told(clicked) == [("alert", "wrong password", False)]
    assert done(ada.get(f"/commands/{clicked['commandId']}"))["dialogs"] == clicked["dialogs"]


@pytest.mark.parametrize(("dialogs", "said"), [("accept", True), ("dismiss", False), (None, False)])
def test_a_confirm_is_answered_as_the_command_wants_it(
    ada: httpx.Client, tab_id: str, dialogs: str | None, said: bool
) -> None:
    clicked = done(act(ada, tab_id, "click", selector="#confirm", **({"dialogs": dialogs} if dialogs else {})))
    assert told(clicked) == [("confirm", "Delete it?", said)]
    assert value_of(ada, tab_id, "window.said") is said


@pytest.mark.parametrize(
    ("wish", "said"),
    [({"dialogs": "accept"}, "nobody"), ({"promptText": "Ada"}, "Ada"), ({"dialogs": "dismiss"}, None)],
    ids=["accepted", "with a text", "dismissed"],
)
def test_a_prompt_gets_a_text_or_what_the_page_suggests(
    ada: httpx.Client, tab_id: str, wish: dict[str, str], said: str | None
) -> None:
    done(act(ada, tab_id, "click", selector="#prompt", **wish))
    assert value_of(ada, tab_id, "window.said") == said


def test_of_many_dialogs_all_are_answered_and_the_rest_is_counted(ada: httpx.Client, tab_id: str) -> None:
    clicked = done(act(ada, tab_id, "click", selector="#many"))
    assert [message for _, message, _ in told(clicked)] == [str(number) for number in range(10)]
    assert clicked["moreDialogs"] == 2


def test_an_alert_of_a_page_that_loads_is_told(ada: httpx.Client, tab_id: str, site: DialogSite) -> None:
    assert told(go(ada, tab_id, site.url("/first"))) == [("alert", "welcome", False)]


@pytest.mark.parametrize("page", ["/stay", "/unload"])
def test_no_page_keeps_its_visitor(ada: httpx.Client, tab_id: str, site: DialogSite, page: str) -> None:
    go(ada, tab_id, site.url(page))
    done(act(ada, tab_id, "click", selector="#touch"))
    left = go(ada, tab_id, site.url("/blank"))
    assert left["result"]["url"] == site.url("/blank")
    # Chromium itself opens no dialogs for pages that are being left, except to ask whether they may be.
    assert [kind for kind, _, is_accepted in told(left) if is_accepted] == (["beforeunload"] if page == "/stay" else [])


def test_an_error_tells_what_the_page_said(ada: httpx.Client, tab_id: str) -> None:
    refused = act(ada, tab_id, "evaluate", expression="alert('wrong password'); missing()")
    assert refused.json()["code"] == "javascript_error"
    assert told(refused.json()["details"]) == [("alert", "wrong password", False)]


def test_a_storm_of_dialogs_ends_with_its_command_and_troubles_nobody_else(
    server: Server, ada: httpx.Client, tab_id: str, site: DialogSite
) -> None:
    with server.agent("bob") as bob, ThreadPoolExecutor(1) as others:
        session = open_session(bob)
        neighbour = session["tabs"][0]["tabId"]
        storm = others.submit(act, ada, tab_id, "evaluate", expression=STORM, timeoutMs=4_000)
        assert [value_of(bob, neighbour, str(number)) for number in range(20)] == [*range(20)]
        ended = storm.result()
        release(bob, session)
    assert (ended.status_code, ended.json()["code"]) == (504, "command_timed_out")
    assert {message for _, message, _ in told(ended.json()["details"])} == {"again"}
    assert value_of(ada, tab_id, "1") == 1


def test_a_page_that_never_stops_opening_dialogs_can_be_used_and_left(
    ada: httpx.Client, tab_id: str, site: DialogSite
) -> None:
    go(ada, tab_id, site.url("/always"), waitUntil="commit")
    done(act(ada, tab_id, "wait", selector="p"))
    assert done(act(ada, tab_id, "text", selector="p"))["result"] == "here"
    # Until it has opened so many that it counts as one that does not stop.
    done(act(ada, tab_id, "wait", function="window.opened > 20"))
    go(ada, tab_id, site.url("/blank"))
    ran = "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(document.visibilityState))))"
    assert value_of(ada, tab_id, ran) == "visible"


def test_a_dialog_of_a_popup_that_nobody_could_attach_to_yet_holds_nobody_up_for_good(
    ada: httpx.Client, tab_id: str
) -> None:
    done(act(ada, tab_id, "click", selector="#popup", timeoutMs=20_000))
    assert value_of(ada, tab_id, "window.said") == "went on"


@pytest.mark.parametrize(
    "button", ["print", "chooser", "picker", "notify", "locate", "listen", "fullscreen", "windows"]
)
def test_what_a_browser_would_ask_a_person_holds_nobody_up(ada: httpx.Client, tab_id: str, button: str) -> None:
    done(act(ada, tab_id, "click", selector=f"#{button}", timeoutMs=20_000))
    assert value_of(ada, tab_id, "window.said") == "went on"
    assert done(act(ada, tab_id, "screenshot", timeoutMs=20_000))["result"]


def test_a_password_that_nobody_has_keeps_no_tab(ada: httpx.Client, tab_id: str, site: DialogSite) -> None:
    asked = act(ada, tab_id, "navigate", url=site.url("/locked"))
    # The light build shows the page, the full one would ask a person.
    assert asked.status_code in (200, 422), asked.text
    framed = act(ada, tab_id, "navigate", url=site.url("/locked-frame"), timeoutMs=1_500)
    assert framed.status_code in (200, 504), framed.text
    go(ada, tab_id, site.url("/blank"), waitPolicy="wait_with_timeout")
    assert value_of(ada, tab_id, "location.pathname") == "/blank"


def test_an_error_has_a_picture_of_the_page_for_who_asked(ada: httpx.Client, tab_id: str) -> None:
    refused = act(ada, tab_id, "click", selector="#missing", timeoutMs=4_000, screenshotOnError=True)
    assert (refused.status_code, refused.json()["code"]) == (422, "element_not_found")
    assert base64.b64decode(refused.json()["details"]["screenshot"]).startswith(b"\xff\xd8\xff")
    kept = done(ada.get(f"/commands/{refused.json()['details']['commandId']}"))
    assert "screenshot" not in kept["error"]["details"]


def test_a_page_that_could_not_be_reached_is_photographed_as_well(ada: httpx.Client, tab_id: str) -> None:
    refused = act(ada, tab_id, "navigate", url="http://127.0.0.1:9/", screenshotOnError=True)
    assert (refused.status_code, refused.json()["code"]) == (422, "navigation_failed")
    assert base64.b64decode(refused.json()["details"]["screenshot"]).startswith(b"\xff\xd8\xff")
