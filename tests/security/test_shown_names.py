"""What pages and agents call things commands nobody's terminal and leads nobody's file anywhere."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest
from tests.browsers.file_site import FileSite, serving_files
from tests.cli.running import call
from tests.cli.terminal import on_terminal
from tests.server.conftest import Server, end_sessions, open_session, value_of
from tests.shared_server import unique

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Colours, a title for the window, the eight-bit way to begin a sequence, a bell, a carriage return, reversed text.
COMMANDS: Final = "\x1b[31m\x1b]0;owned\x07\x9b2J\r\u202egpj"
# What is refused where a name is asked for is left out; the rest of it an agent may say.
ALLOWED: Final = "\x9b2J\u202egpj\x85\u2028\u2066"
MARK: Final = "hostile"
# How often, every twentieth of a second, something is looked for before it is missed.
TRIES: Final = 600

PROPOSED: Final = {
    "a path": "../../x",
    "a path of another system": "..\\..\\x.exe",
    "a line of its own": "a\nb.txt",
    "colours": "\x1b[31mred.txt",
    "an eight-bit sequence": "\x9b2Jgone.txt",
    "markup": "<img src=x onerror=alert(1)>.txt",
    "reversed text": "\u202egpj.exe",
    "300 letters": "x" * 300,
    "300 wide letters": "漢" * 300 + ".txt",
    "a header": 'a"\r\nX-Evil: 1\r\n\r\n.txt',
    "nothing but dots": "..",
}


@pytest.fixture(scope="module")
def files_site() -> Iterator[FileSite]:
    with serving_files() as site:
        yield site


@pytest.fixture(scope="module")
def hostile(server_of_all: Server, files_site: FileSite) -> Iterator[dict[str, Any]]:
    """A session that is called what a terminal would obey, with a page that is, too, paused by somebody who is."""
    with server_of_all.agent("mallory") as mallory:
        session = open_session(mallory, key=MARK + ALLOWED, url=files_site.url(), keepAlive=True)
        tab_id = session["tabs"][0]["tabId"]
        value_of(mallory, tab_id, f"document.title = {_script_text(MARK + COMMANDS)}; 1")
        value_of(mallory, tab_id, f"location.hash = {_script_text(MARK + ALLOWED)}; 1")
        # Chromium itself takes the seven-bit ones out of a title; this one it leaves.
        assert "\x9b2J" in mallory.get(f"/tabs/{tab_id}").json()["title"]
        mallory.post(f"/tabs/{tab_id}/handoff", json={"by": MARK + ALLOWED}).raise_for_status()
    yield session
    with server_of_all.client() as admin:
        end_sessions(admin)


def obeyed(text: str) -> set[str]:
    """What in it a terminal would not show but do."""
    return {each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp") and each != "\n"}


# --- Terminals --------------------------------------------------------------------------------------------------

# And whether something of what was made up must be seen there, so that it is known to have been shown.
SCREENS: Final = {
    "session ls": MARK,
    "status": "mallory",
    "events": MARK,
    "top --once": "mallory",
}


@pytest.mark.parametrize("words", SCREENS)
def test_nothing_that_a_terminal_obeys_comes_out_of_a_pipe_or_is_sent_to_a_terminal(
    server_of_all: Server, hostile: Any, words: str
) -> None:
    told = call(server_of_all.state, *words.split())
    assert told.returncode == 0, told.stderr
    assert SCREENS[words] in told.stdout
    assert not obeyed(told.stdout + told.stderr)
    # Without colours of our own, whatever escapes is somebody else's.
    with on_terminal(server_of_all.state, *words.split(), env={"NO_COLOR": "1", "COLUMNS": "200"}) as terminal:
        assert terminal.wait() == 0
    assert SCREENS[words] in terminal.raw
    assert not obeyed(terminal.raw.replace("\r\n", "\n"))


def test_the_title_of_a_page_is_shown_by_top_without_what_is_in_it(
    server_of_all: Server, hostile: dict[str, Any]
) -> None:
    with on_terminal(server_of_all.state, "top", env={"NO_COLOR": "1"}) as terminal:
        terminal.read_until("q leave")
        terminal.type("t")
        terminal.read_until(f"> {hostile['tabs'][0]['tabId']}")
        terminal.type("\r")
        terminal.read_until("title")
        terminal.read_until(MARK)
        terminal.type("q")
        assert terminal.wait() == 0
    # Its own sequences are left out of the text; what remains is what others wrote.
    assert "\x1b[31m" not in terminal.raw
    assert not obeyed(terminal.text.replace("\r", ""))


# --- Files ------------------------------------------------------------------------------------------------------


def is_harmless(name: str) -> bool:
    return not (obeyed(name) or set(name) & set("/\\\n") or name.startswith(".")) and 0 < len(name.encode()) <= 200


def test_downloads_and_uploads_are_listed_under_harmless_names(server_of_all: Server, files_site: FileSite) -> None:
    with server_of_all.agent(unique("ada")) as ada:
        # Uploads have a session of their own: of two files of one name, one would have a number in its name. Downloads
        # have two pages in turn: Chromium drops the eleventh download of a page within a second.
        pages = [open_session(ada, url=files_site.url()) for _ in range(2)]
        other = open_session(ada)
        known: dict[str, set[str]] = {session["sessionId"]: set() for session in (*pages, other)}
        for number, (kind, proposed) in enumerate(PROPOSED.items()):
            session = pages[number % 2]
            # By the page itself, which can propose what no header could carry.
            link = (
                "(() => { const link = document.createElement('a');"
                f" link.href = 'data:application/octet-stream,hello'; link.download = {_script_text(proposed)};"
                " document.body.append(link); link.click(); return 1; })()"
            )
            value_of(ada, session["tabs"][0]["tabId"], link)
            ada.post(
                f"/sessions/{other['sessionId']}/files", params={"name": proposed}, content=b"hello"
            ).raise_for_status()
            for session_id in (session["sessionId"], other["sessionId"]):
                name = _added(ada, session_id, known[session_id])
                assert is_harmless(name), (kind, name)
                answer = ada.get(f"/sessions/{session_id}/files/{quote(name, safe='')}")
                assert (answer.status_code, answer.content) == (200, b"hello"), kind
                assert "x-evil" not in answer.headers
        for session_id in known:
            ada.delete(f"/sessions/{session_id}").raise_for_status()


def _script_text(text: str) -> str:
    """The text as a string of a script's."""
    return "'" + "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le")).cast("H")) + "'"


def _added(client: httpx.Client, session_id: str, known: set[str]) -> str:
    """The name of the session's one file that is not known yet, as soon as it is whole; it is known from then on."""
    for _ in range(TRIES):
        files = client.get(f"/sessions/{session_id}/files").raise_for_status().json()["files"]
        fresh = [file for file in files if file["name"] not in known]
        if fresh and all(file["state"] == "completed" for file in fresh):
            (name,) = (str(file["name"]) for file in fresh)
            known.add(name)
            return name
        time.sleep(0.05)
    raise AssertionError(f"no file came to be: {files}")
