"""Pages are given files of their session, printed and dragged in, over HTTP: commands, steps and tasks."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest
from tests.browsers.file_site import FileSite, serving_files

from .conftest import act, open_session, value_of
from .tasking import ended
from .test_files import save, states, until, upload

pytestmark = [pytest.mark.server, pytest.mark.browser]

PAGE = """data:text/html,<input id=i type=file multiple><p id=p></p><script>i.onchange = async () => {
  p.textContent = (await Promise.all(Array.from(i.files, async (f) => f.name + '=' + await f.text()))).join();
}</script>"""


@pytest.fixture
def session(ada: httpx.Client) -> dict[str, Any]:
    return open_session(ada, url=PAGE)


def tab_of(session: dict[str, Any]) -> str:
    return session["tabs"][0]["tabId"]


def test_a_page_reads_the_uploads_of_its_session_and_what_it_downloaded(
    ada: httpx.Client, session: dict[str, Any]
) -> None:
    with serving_files() as site:
        gave_and_downloaded(ada, session, site)
    given = act(ada, tab_of(session), "upload", selector="#i", files=["one.txt", "bill.txt"])
    assert given.json()["result"] == ["one.txt", "bill.txt"]
    read = act(ada, tab_of(session), "wait", selector="text=bill.txt")
    assert read.status_code == 200, read.text
    assert value_of(ada, tab_of(session), "p.textContent") == "one.txt=first,bill.txt=hello"


def gave_and_downloaded(client: httpx.Client, session: dict[str, Any], site: FileSite) -> None:
    """The session has an upload and a download."""
    assert upload(client, session, "one.txt", b"first").status_code == 201
    save(client, session, site.url("/file?name=bill.txt"))
    until(client, session, states("completed", "completed"))
    assert act(client, tab_of(session), "navigate", url=PAGE).status_code == 200


def test_a_name_that_the_session_does_not_have_is_refused_with_those_that_it_has(
    ada: httpx.Client, session: dict[str, Any]
) -> None:
    assert upload(ada, session, "one.txt", b"first").status_code == 201
    refused = act(ada, tab_of(session), "upload", selector="#i", files=["/etc/passwd"])
    assert (refused.status_code, refused.json()["code"]) == (404, "file_not_found")
    assert refused.json()["details"]["files"] == ["one.txt"]


def test_steps_and_tasks_give_files_too(ada: httpx.Client, session: dict[str, Any]) -> None:
    assert upload(ada, session, "one.txt", b"first").status_code == 201
    steps = [{"kind": "upload", "selector": "#i", "files": ["one.txt"]}, {"kind": "text", "selector": "body"}]
    done = ada.post(f"/tabs/{tab_of(session)}/actions", json={"steps": steps}).json()
    assert done["result"][0]["result"] == ["one.txt"]
    task = {"action": "upload", "tabId": tab_of(session), "selector": "#i", "params": {"files": ["one.txt"]}}
    answer = ada.post("/tasks", json=task)
    assert answer.status_code == 202, answer.text
    assert ended(ada, answer.json()["taskId"])["result"] == ["one.txt"]


def test_a_page_is_printed_and_a_task_that_prints_keeps_it(ada: httpx.Client, session: dict[str, Any]) -> None:
    printed = act(ada, tab_of(session), "pdf", landscape=True).json()
    assert base64.b64decode(printed["result"]).startswith(b"%PDF-")
    answer = ada.post("/tasks", json={"action": "pdf", "tabId": tab_of(session), "params": {"format": "A5"}})
    assert base64.b64decode(ended(ada, answer.json()["taskId"])["result"]).startswith(b"%PDF-")


def test_the_ends_of_a_drag_are_a_selector_and_a_point(ada: httpx.Client) -> None:
    page = "data:text/html,<body onmouseup='at = [event.clientX, event.clientY]'><b id=a>A</b><br><b id=b>B</b>"
    session = open_session(ada, url=page)
    assert act(ada, tab_of(session), "drag", **{"from": "#a", "to": {"x": 200, "y": 150}}).status_code == 200
    assert value_of(ada, tab_of(session), "at") == [200, 150]
