"""The tools that give pages files, print them and drag in them, over an application with a fake broker."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from tests.edge.fake_broker import AT, FakeBroker
from tests.server.conftest import Server

from tabherd import wire
from tabherd.edge.http import App
from tabherd.errors import Forbidden
from tabherd.mcp.tools import FILE_READ_MAX_BYTES

from .clients import over_http, text
from .speaker import Speaker


@pytest.fixture
async def ada(alice: Speaker) -> Speaker:
    """An open MCP session with a leased tab."""
    await alice.open()
    await alice.text("browser_lease")
    return alice


async def test_a_page_is_given_files_by_name(ada: Speaker, broker: FakeBroker) -> None:
    broker.commands.result = ["a.txt", "b.txt"]
    assert await ada.text("browser_upload", selector="#a", files=["a.txt", "b.txt"]) == 'Given: "a.txt", "b.txt".'
    broker.commands.result = []
    assert await ada.text("browser_upload", selector="#a", files=[]) == "Given: nothing."


async def test_an_element_is_dragged_onto_another(ada: Speaker, broker: FakeBroker) -> None:
    assert await ada.text("browser_drag", **{"from": "#a", "to": "ref=abc1"}) == "Dragged."
    (action,) = broker.commands.actions
    assert isinstance(action, wire.Drag)
    assert (action.from_, action.to) == ("#a", "ref=abc1")


async def test_a_printed_page_becomes_a_file_of_the_session(root: Speaker, broker: FakeBroker) -> None:
    await root.open()
    await root.text("browser_lease")
    broker.commands.result = base64.b64encode(b"%PDF-1.4").decode()
    assert await root.text("browser_pdf", pages="1-2") == 'Printed as "page.pdf", 8 bytes, a file of ses_1.'
    assert broker.files.contents == {"page.pdf": b"%PDF-1.4"}


def downloading(broker: FakeBroker, **changes: Any) -> None:
    """The session has a download, as it is now."""
    view = wire.FileView(
        name="report.csv", size_bytes=3, source="download", state="in_progress", created_at=AT, url="http://a.test/"
    )

    async def files(*_: Any) -> wire.FilePage:
        return wire.FilePage(files=[msgspec.structs.replace(view, **changes)])

    broker.files.list = files  # type: ignore[method-assign]


async def test_a_download_is_told_of_when_it_has_begun_and_when_it_has_ended(root: Speaker, broker: FakeBroker) -> None:
    await root.open()
    await root.text("browser_lease")
    downloading(broker)
    assert await root.text("browser_click", selector="a") == (
        'Clicked.\nDownload: "report.csv", download in_progress, 3 bytes, from "http://a.test/". See browser_files.'
    )
    assert await root.text("browser_click", selector="a") == "Clicked."
    downloading(broker, state="completed", size_bytes=9)
    assert '"report.csv", download completed, 9 bytes' in await root.text("browser_press", key="a")


async def test_what_a_session_that_is_taken_up_has_downloaded_before_is_no_news(
    root: Speaker, broker: FakeBroker, app: App, admin_token: str
) -> None:
    await root.open()
    await root.text("browser_lease")
    downloading(broker)
    later = Speaker(app, admin_token, **{"X-Agent-Id": broker.sessions.views["ses_1"].agent_id})
    await later.open()
    await later.text("browser_lease", sessionId="ses_1")
    assert await later.text("browser_click", selector="a") == "Clicked."


async def test_an_agent_that_may_not_see_files_acts_all_the_same(ada: Speaker, broker: FakeBroker) -> None:
    async def files(*_: Any) -> wire.FilePage:
        raise Forbidden("No.")

    broker.files.list = files  # type: ignore[method-assign]
    assert await ada.text("browser_click", selector="a") == "Clicked."


async def test_files_are_listed_and_a_text_is_read(root: Speaker, broker: FakeBroker) -> None:
    await root.open()
    await root.text("browser_lease")
    assert await root.text("browser_files") == "ses_1 has no files."
    broker.files.contents = {"a.csv": b"1\n2", "b.bin": b"\xff\xfe", "c.txt": b"x" * (FILE_READ_MAX_BYTES + 1)}
    assert (await root.text("browser_files")).splitlines()[0] == '"a.csv", upload completed, 3 bytes'
    assert await root.text("browser_files", name="a.csv") == r'"1\n2"'
    assert (await root.text("browser_files", name="b.bin")).startswith("It is no text, but 2 bytes")
    assert "are the most that is read here" in await root.text("browser_files", name="c.txt")
    assert (await root.error("browser_files", name="d"))["code"] == "file_not_found"


@pytest.mark.server
@pytest.mark.browser
async def test_what_a_real_page_downloads_is_told_of_and_can_be_read(shared_server: Server) -> None:
    async with over_http(shared_server) as client:
        await text(client, "browser_navigate", url="data:text/html,<a download=r.csv href='data:text/csv,1'>Get</a>")
        told = await text(client, "browser_click", selector="a")
        while '"r.csv", download completed, 1 bytes' not in told:
            told = await text(client, "browser_wait", ms=50)
        assert await text(client, "browser_files", name="r.csv") == '"1"'
