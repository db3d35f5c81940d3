"""MCP over HTTP as its official client speaks it, against a real server with a real browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from tests.server.conftest import Server, open_session, release
from tests.shared_server import unique

from .clients import error, over_http, ref_of, sessions, text
from .page import shop

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Pessimistic: pieces of words, single marks and line breaks; no tokenizer in use makes more of a text.
TOKEN = re.compile(r"[^\W\d]{1,6}|\d{1,3}|[^\w\s]|\n *")


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    with shop() as url:
        yield url


def titled(name: str) -> str:
    return "data:text/html," + quote(f"<title>{name}</title><h1>{name}</h1>")


async def test_a_page_is_read_and_driven_by_its_refs(shared_server: Server, page: str) -> None:
    async with over_http(shared_server) as client:
        assert "Duetto 58" in await text(client, "browser_navigate", url=page)
        seen = await text(client, "browser_snapshot")
        # An ordinary page is read in a thousand tokens.
        assert max(len(TOKEN.findall(seen)), len(seen) / 3.5) <= 1_000
        assert "truncated" not in seen
        await text(client, "browser_fill", ref=ref_of(seen, "Your name"), value="Ada")
        await text(client, "browser_type", ref=ref_of(seen, "Your name"), text=" L.")
        selected = await text(client, "browser_select", ref=ref_of(seen, "Topic"), values=["Repair"])
        assert selected == 'Selected: "Repair".'
        await text(client, "browser_click", ref=ref_of(seen, "Send me the newsletter"))
        form = "Object.fromEntries(new FormData(document.forms[1]))"
        said = '{"name":"Ada L.","mail":"","topic":"Repair","message":"","news":"on"}'
        assert await text(client, "browser_evaluate", expression=form) == said
        await text(client, "browser_press", selector="text=Imprint", key="Enter")
        await text(client, "browser_wait", url="*/30")
        assert page in await text(client, "browser_navigate", url="back")
        result = await client.call_tool("browser_screenshot", {"selector": "h1"})
        assert (result.content[0].type, result.content[0].mime_type) == ("image", "image/png")
        assert result.content[0].data.startswith("iVBORw0KGgo")


async def test_clients_at_once_see_only_their_own_and_give_back_what_they_leased(shared_server: Server) -> None:
    names = ["page-one", "page-two"]
    async with over_http(shared_server) as one, over_http(shared_server) as two:
        for name, client in zip(names, (one, two), strict=True):
            await text(client, "browser_navigate", url=titled(name))
        assert len(sessions(shared_server)) == 2
        for name, client in zip(names, (one, two), strict=True):
            assert await text(client, "browser_snapshot") == f'heading "{name}" [level=1]'
            tabs = await text(client, "browser_tabs")
            assert [other for other in names if other in tabs] == [name]
    assert sessions(shared_server) == []


async def test_who_waits_for_a_session_is_refused_with_its_place_or_hears_of_it_and_keeps_it(
    shared_server: Server,
) -> None:
    wanted = {"pool": "keyed", "key": unique("key")}
    told: asyncio.Queue[str | None] = asyncio.Queue()

    async def progress(waited: float, total: float | None, message: str | None) -> None:
        told.put_nowait(message)

    with shared_server.client() as admin:
        held = open_session(admin, **wanted)
        async with over_http(shared_server) as client, asyncio.timeout(60):
            refused, said = await error(client, "browser_lease", waitMs=0, **wanted)
            assert (refused["code"], refused["details"]["position"]) == ("capacity", 1)
            assert re.search(r"^Position in the queue: 1\. Retry after [\d.]+ s\.$", said, re.MULTILINE)
            waiting = asyncio.ensure_future(
                client.call_tool("browser_lease", {"waitMs": 60_000, **wanted}, progress_callback=progress)
            )
            place = await told.get()
            release(admin, held)
            assert not (await waiting).is_error
    assert re.fullmatch(r"Waiting for a session: place 1 of 1, about [\d.]+ s to go\.", place or "")


async def test_who_waits_for_a_tab_hears_who_has_it(shared_server: Server) -> None:
    told: asyncio.Queue[str | None] = asyncio.Queue()

    async def progress(waited: float, total: float | None, message: str | None) -> None:
        told.put_nowait(message)

    async with over_http(shared_server) as client, asyncio.timeout(60):
        await text(client, "browser_navigate", url=titled("A"))
        await text(client, "browser_handoff", by="Eva")
        waiting = asyncio.ensure_future(client.call_tool("browser_snapshot", {}, progress_callback=progress))
        said = await told.get()
        assert "handoff" in await text(client, "browser_who_holds")
        await text(client, "browser_handoff", resume=True)
        assert not (await waiting).is_error
    assert 'handoff of "Eva"' in (said or "")


async def test_a_cancelled_call_frees_the_tab(shared_server: Server) -> None:
    async with over_http(shared_server) as client, asyncio.timeout(60):
        await text(client, "browser_navigate", url=titled("A"))
        forever = asyncio.ensure_future(text(client, "browser_evaluate", expression="new Promise(() => {})"))
        while "command evaluate" not in await text(client, "browser_who_holds"):
            pass
        forever.cancel()
        while "nobody" not in await text(client, "browser_who_holds"):
            pass
