"""A client that is cut off: what it had sent has been taken in by Chromium before anybody else may begin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from picows import ws_create_server
from tests.browsers.fake_cdp import FakeBrowser

from tabherd.browsers.port import BrowserGone
from tabherd.edge.cdp.parking import Parking
from tabherd.edge.cdp.plans import Plans
from tabherd.edge.cdp.rules import Kind, Tenancy
from tabherd.edge.cdp.tenant import Tenant
from tabherd.edge.cdp.tree import Node
from tabherd.errors import LeaseLost

LIMIT_S = 60


class Chromium:
    """Answers what it is asked, except while it is busy."""

    def __init__(self) -> None:
        self.is_busy = False
        self.is_dying = False
        self.received: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: list[tuple[FakeBrowser, dict[str, Any]]] = []

    def hear(self, browser: FakeBrowser, message: dict[str, Any]) -> None:
        self.received.put_nowait(message["method"])
        if self.is_dying:
            browser.hang_up()
        elif self.is_busy:
            self._waiting.append((browser, message))
        else:
            browser.say({"id": message["id"], "result": {"targetInfo": {"targetId": "B1"}}})

    def wake(self) -> None:
        self.is_busy = False
        for browser, message in self._waiting:
            self.hear(browser, message)


class House:
    """Everybody else."""

    is_trusted = None

    def __init__(self) -> None:
        self.registry = SimpleNamespace(on_target=lambda target_id: None)
        self.traffic = SimpleNamespace(from_clients=0, from_browsers=0)
        self.left_by: list[Tenant] = []
        self.ended_for: list[Tenant] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def left(self, tenant: Tenant) -> None:
        self.left_by.append(tenant)

    def browser_ended(self, tenant: Tenant) -> None:
        self.ended_for.append(tenant)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@pytest.fixture
async def chromium() -> Chromium:
    return Chromium()


@pytest.fixture
async def url(chromium: Chromium) -> AsyncIterator[str]:
    server = await ws_create_server(lambda _: FakeBrowser(chromium.hear), "127.0.0.1", 0)
    yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    server.close()
    await server.wait_closed()


@pytest.fixture
async def house() -> House:
    return House()


@pytest.fixture
async def tab() -> SimpleNamespace:
    return SimpleNamespace(row=SimpleNamespace(target_id="T1"), is_tainted=False)


@pytest.fixture
async def tenant(house: House, tab: SimpleNamespace) -> Tenant:
    watch = SimpleNamespace(follow=lambda context_id, follower: None, unfollow=lambda context_id, follower: None)
    tenancy = Tenancy(is_shared=False, is_alone=False)
    own = SimpleNamespace(
        live=SimpleNamespace(tabs={"tab_1": tab}), tenancy=tenancy, watch=watch, followed=["C1"], contexts=set()
    )
    return Tenant(
        own=own,  # type: ignore[arg-type]
        parking=Parking(house.registry, "me"),  # type: ignore[arg-type]
        plans=Plans(tenancy, frozenset()),
        house=house,  # type: ignore[arg-type]
        root=Node(Kind.PAGE, "", "", "T1", "T1"),
        may_wait=True,
    )


async def test_the_next_holder_waits_until_chromium_has_taken_in_what_was_sent(
    chromium: Chromium, url: str, tenant: Tenant
) -> None:
    await tenant.connect(url)
    chromium.is_busy = True
    tenant.received(b'{"id":1,"method":"Runtime.evaluate","params":{"expression":"late"}}')
    tenant.detach(LeaseLost("It is somebody else's."))
    # Its client is gone at once, which changes nothing about what is on the way.
    tenant.abandoned()
    detached = asyncio.ensure_future(tenant.wait_detached())
    async with asyncio.timeout(LIMIT_S):
        while await chromium.received.get() != "Browser.getVersion":
            pass
        assert not detached.done()
        chromium.wake()
        await detached


async def test_a_page_with_something_under_way_is_known_to_be_so(
    chromium: Chromium, url: str, tenant: Tenant, tab: SimpleNamespace
) -> None:
    await tenant.connect(url)
    chromium.is_busy = True
    tenant.received(b'{"id":1,"method":"Runtime.evaluate","params":{"expression":"late"}}')
    tenant.detach(LeaseLost("It is somebody else's."))
    assert tab.is_tainted
    chromium.wake()
    await tenant.wait_detached()


async def test_a_page_with_nothing_under_way_is_kept(url: str, tenant: Tenant, tab: SimpleNamespace) -> None:
    await tenant.connect(url)
    tenant.detach(LeaseLost("It is somebody else's."))
    assert not tab.is_tainted
    await tenant.wait_detached()


async def test_what_comes_after_the_end_goes_nowhere(chromium: Chromium, url: str, tenant: Tenant) -> None:
    await tenant.connect(url)
    tenant.detach(LeaseLost("It is somebody else's."))
    tenant.received(b'{"id":1,"method":"Runtime.evaluate","params":{"expression":"late"}}')
    await tenant.wait_detached()
    assert "Runtime.evaluate" not in [chromium.received.get_nowait() for _ in range(chromium.received.qsize())]


async def test_a_browser_that_dies_while_a_client_gets_in_keeps_nobody_waiting(
    chromium: Chromium, url: str, tenant: Tenant
) -> None:
    chromium.is_dying = True
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(BrowserGone):
            await tenant.connect(url)


async def test_a_client_is_told_of_an_end_that_came_before_it_was_let_in(
    url: str, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tenant.connect(url)
    tenant.detach(LeaseLost("It is somebody else's."))
    await tenant.wait_detached()
    closed: list[tuple[int, str]] = []
    monkeypatch.setattr(Tenant, "close", lambda self, code, reason: closed.append((code, reason)))
    tenant.opened()
    tenant.abandoned()
    assert closed == [(4409, "lease_lost: It is somebody else's.")]


async def test_a_client_is_told_that_its_browser_died_before_it_was_let_in(
    chromium: Chromium, url: str, tenant: Tenant, house: House
) -> None:
    await tenant.connect(url)
    chromium.is_dying = True
    tenant.received(b'{"id":1,"method":"Runtime.evaluate","params":{"expression":"last"}}')
    await tenant.wait_detached()
    house.ended_for.clear()
    tenant.opened()
    tenant.abandoned()
    assert house.ended_for == [tenant]
