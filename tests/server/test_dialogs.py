"""Dialogs and whatever else a real page may put in front of its visitor: answered, told, and never in the way."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

import httpx
import pytest

from .conftest import act, open_session, value_of
from .local_site import LocalSite, serving

pytestmark = [pytest.mark.server, pytest.mark.browser]

STORM: Final = "for (;;) alert('again')"
# What a click on a button of that name does.
BUTTONS: Final = {
    "alert": "alert('wrong password')",
    "confirm": "window.said = confirm('Delete it?')",
    "prompt": "window.said = prompt('Your name?', 'nobody')",
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


@pytest.fixture(scope="module")
def site() -> Iterator[DialogSite]:
    with serving(DialogSite()) as site:
        yield site


@pytest.fixture
def tab_id(ada: httpx.Client, site: DialogSite) -> str:
    return tab_in(ada, site, "default")


def tab_in(client: httpx.Client, site: DialogSite, pool: str) -> str:
    """A tab of that pool at the page with the buttons."""
    tab_id = str(open_session(client, pool=pool)["tabs"][0]["tabId"])
    go(client, tab_id, site.url("/"))
    return tab_id


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


def test_dialogs_are_answered_as_the_command_wants_it(ada: httpx.Client, tab_id: str) -> None:
    clicked = done(act(ada, tab_id, "click", selector="#confirm", dialogs="accept"))
    assert told(clicked) == [("confirm", "Delete it?", True)]
    assert value_of(ada, tab_id, "window.said") is True
    clicked = done(act(ada, tab_id, "click", selector="#confirm"))
    assert told(clicked) == [("confirm", "Delete it?", False)]
    assert value_of(ada, tab_id, "window.said") is False
    done(act(ada, tab_id, "click", selector="#prompt", promptText="Ada"))
    assert value_of(ada, tab_id, "window.said") == "Ada"


def test_an_alert_of_a_page_that_loads_is_told(ada: httpx.Client, tab_id: str, site: DialogSite) -> None:
    assert told(go(ada, tab_id, site.url("/first"))) == [("alert", "welcome", False)]


def test_no_page_keeps_its_visitor(ada: httpx.Client, tab_id: str, site: DialogSite) -> None:
    go(ada, tab_id, site.url("/stay"))
    done(act(ada, tab_id, "click", selector="#touch"))
    left = go(ada, tab_id, site.url("/blank"))
    assert left["result"]["url"] == site.url("/blank")
    # Chromium itself opens no dialogs for pages that are being left, except to ask whether they may be.
    assert [kind for kind, _, is_accepted in told(left) if is_accepted] == ["beforeunload"]


def test_a_storm_of_dialogs_ends_with_its_command_and_troubles_nobody_else(
    ada: httpx.Client, bob: httpx.Client, tab_id: str
) -> None:
    neighbour = open_session(bob)["tabs"][0]["tabId"]
    with ThreadPoolExecutor(1) as others:
        storm = others.submit(act, ada, tab_id, "evaluate", expression=STORM, timeoutMs=2_000)
        assert [value_of(bob, neighbour, str(number)) for number in range(20)] == [*range(20)]
        ended = storm.result()
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


@pytest.mark.parametrize("pool", ["default", "full"])
def test_what_a_browser_would_ask_a_person_holds_nobody_up(ada: httpx.Client, site: DialogSite, pool: str) -> None:
    tab_id = tab_in(ada, site, pool)
    for button in ("print", "chooser", "picker", "notify", "locate", "listen", "fullscreen", "windows"):
        value_of(ada, tab_id, "void (window.said = '')")
        done(act(ada, tab_id, "click", selector=f"#{button}", timeoutMs=20_000))
        assert value_of(ada, tab_id, "window.said") == "went on", button
        assert done(act(ada, tab_id, "screenshot", timeoutMs=20_000))["result"], button


@pytest.mark.parametrize("pool", ["default", "full"])
def test_a_password_that_nobody_has_keeps_no_tab(ada: httpx.Client, site: DialogSite, pool: str) -> None:
    tab_id = tab_in(ada, site, pool)
    asked = act(ada, tab_id, "navigate", url=site.url("/locked"))
    # The light build shows the page, the full one would ask a person.
    assert asked.status_code in (200, 422), asked.text
    framed = act(ada, tab_id, "navigate", url=site.url("/locked-frame"), timeoutMs=1_500)
    assert framed.status_code in (200, 504), framed.text
    go(ada, tab_id, site.url("/blank"), waitPolicy="wait_with_timeout")
    assert value_of(ada, tab_id, "location.pathname") == "/blank"


def test_an_error_has_a_picture_of_the_page_for_who_asked(ada: httpx.Client, tab_id: str) -> None:
    refused = act(ada, tab_id, "click", selector="#missing", timeoutMs=1_500, screenshotOnError=True)
    assert (refused.status_code, refused.json()["code"]) == (422, "element_not_found")
    assert base64.b64decode(refused.json()["details"]["screenshot"]).startswith(b"\xff\xd8\xff")
    kept = done(ada.get(f"/commands/{refused.json()['details']['commandId']}"))
    assert "screenshot" not in kept["error"]["details"]
