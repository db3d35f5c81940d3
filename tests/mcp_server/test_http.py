"""MCP over HTTP as its official client speaks it, against a real server with a real browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from tests.server.conftest import Server, open_session, release, with_settings

from .clients import FEW_WARM, error, over_http, ref_of, released, sessions, text
from .page import shop

pytestmark = [pytest.mark.server, pytest.mark.browser]

PLACES = 3
SETTINGS = FEW_WARM | {"POOLS__DEFAULT__MAX_ACTIVE": str(PLACES)}
# Pessimistic: pieces of words, single marks and line breaks; no tokenizer in use makes more of a text.
TOKEN = re.compile(r"[^\W\d]{1,6}|\d{1,3}|[^\w\s]|\n *")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("mcp") / "state", SETTINGS) as server:
        yield server


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    with shop() as url:
        yield url


@pytest.fixture(autouse=True)
def room(server: Server) -> Iterator[None]:
    yield from released(server)


def titled(name: str) -> str:
    return "data:text/html," + quote(f"<title>{name}</title><h1>{name}</h1>")


async def test_a_page_is_read_and_driven_by_its_refs(server: Server, page: str) -> None:
    async with over_http(server) as client:
        assert "Duetto 58" in await text(client, "browser_navigate", url=page)
        seen = await text(client, "browser_snapshot")
        await text(client, "browser_fill", ref=ref_of(seen, "Your name"), value="Ada")
        await text(client, "browser_type", ref=ref_of(seen, "Your name"), text=" L.")
        assert await text(client, "browser_select", ref=ref_of(seen, "Topic"), values=["Repair"]) == "Selected: Repair."
        await text(client, "browser_click", ref=ref_of(seen, "Send me the newsletter"))
        form = "Object.fromEntries(new FormData(document.forms[1]))"
        said = '{"name":"Ada L.","mail":"","topic":"Repair","message":"","news":"on"}'
        assert await text(client, "browser_evaluate", expression=form) == said
        await text(client, "browser_press", selector="text=Imprint", key="Enter")
        await text(client, "browser_wait", url="*/30")
        assert page in await text(client, "browser_navigate", url="back")


async def test_a_picture_is_an_image(server: Server) -> None:
    async with over_http(server) as client:
        await text(client, "browser_navigate", url=titled("A"))
        result = await client.call_tool("browser_screenshot", {"selector": "h1"})
        assert (result.content[0].type, result.content[0].mime_type) == ("image", "image/png")
        assert result.content[0].data.startswith("iVBORw0KGgo")


async def test_an_ordinary_page_is_read_in_a_thousand_tokens(server: Server, page: str) -> None:
    async with over_http(server) as client:
        await text(client, "browser_navigate", url=page)
        seen = await text(client, "browser_snapshot")
    assert max(len(TOKEN.findall(seen)), len(seen) / 3.5) <= 1_000
    assert "truncated" not in seen


async def test_clients_at_once_see_only_their_own(server: Server) -> None:
    names = [f"page-{number}" for number in range(PLACES)]

    async def drive(name: str) -> tuple[str, str]:
        async with over_http(server) as client:
            await text(client, "browser_navigate", url=titled(name))
            everybody.count += 1
            await everybody.wait()
            return await text(client, "browser_snapshot"), await text(client, "browser_tabs")

    everybody = _Barrier(PLACES)
    for name, (seen, tabs) in zip(names, await asyncio.gather(*map(drive, names)), strict=True):
        assert seen == f'heading "{name}" [level=1]'
        assert [other for other in names if other in tabs] == [name]


async def test_a_client_that_leaves_gives_back_what_it_leased(server: Server) -> None:
    async with over_http(server) as client:
        await text(client, "browser_lease")
        assert len(sessions(server)) == 1
    assert sessions(server) == []


async def test_a_refusal_says_position_and_time(server: Server) -> None:
    with server.client() as admin:
        for _ in range(PLACES):
            open_session(admin)
    async with over_http(server) as client:
        refused, said = await error(client, "browser_lease", waitMs=0)
    assert (refused["code"], refused["details"]["reason"], refused["details"]["position"]) == (
        "capacity",
        "pool_cap",
        1,
    )
    assert re.search(r"^Position in the queue: 1\. Retry after [\d.]+ s\.$", said, re.MULTILINE)


async def test_who_waits_for_a_session_hears_of_its_place_and_keeps_it(server: Server) -> None:
    with server.client() as admin:
        held = [open_session(admin) for _ in range(PLACES)]
        told: asyncio.Queue[str | None] = asyncio.Queue()

        async def progress(waited: float, total: float | None, message: str | None) -> None:
            told.put_nowait(message)

        async with over_http(server) as client, asyncio.timeout(60):
            waiting = asyncio.ensure_future(
                client.call_tool("browser_lease", {"waitMs": 60_000}, progress_callback=progress)
            )
            said = await told.get()
            release(admin, held[0])
            assert not (await waiting).is_error
    assert re.fullmatch(r"Waiting for a session: place 1 of 1, about [\d.]+ s to go\.", said or "")


async def test_who_waits_for_a_tab_hears_who_has_it(server: Server) -> None:
    told: asyncio.Queue[str | None] = asyncio.Queue()

    async def progress(waited: float, total: float | None, message: str | None) -> None:
        told.put_nowait(message)

    async with over_http(server) as client, asyncio.timeout(60):
        await text(client, "browser_navigate", url=titled("A"))
        await text(client, "browser_handoff", by="Eva")
        waiting = asyncio.ensure_future(client.call_tool("browser_snapshot", {}, progress_callback=progress))
        said = await told.get()
        assert "handoff" in await text(client, "browser_who_holds")
        await text(client, "browser_handoff", resume=True)
        assert not (await waiting).is_error
    assert "handoff of Eva" in (said or "")


async def test_a_cancelled_call_frees_the_tab(server: Server) -> None:
    async with over_http(server) as client, asyncio.timeout(60):
        await text(client, "browser_navigate", url=titled("A"))
        forever = asyncio.ensure_future(text(client, "browser_evaluate", expression="new Promise(() => {})"))
        while "command evaluate" not in await text(client, "browser_who_holds"):
            pass
        forever.cancel()
        while "nobody" not in await text(client, "browser_who_holds"):
            pass


async def test_a_server_that_stops_ends_mcp_sessions_and_their_leases(server: Server) -> None:
    async with over_http(server) as client:
        await text(client, "browser_lease")
        await asyncio.to_thread(server.stop)
    # Of all that was asked of it in this module.
    log = (server.state / "server.log").read_text()
    assert "stopped" in log
    assert "exception" not in log
    await asyncio.to_thread(server.start, SETTINGS)
    assert sessions(server) == []


class _Barrier:
    """Waits until so many have come."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self.count = 0

    async def wait(self) -> None:
        while self.count < self._parties:
            await asyncio.sleep(0.01)
