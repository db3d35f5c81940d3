"""The crowd in the pictures: agents that do believable work, wait for each other, get stuck and are helped.

They are real: each has a token of its own and calls the server through the client. One of each thing that an operator
should know at a glance is kept going: a tab with a queue, one under a lock, one that a person has, one whose page hangs
again and again, a full pool with callers in line, named locks, tasks that are done, fail, or wait. Runs in a thread
with a loop of its own; leaving the `with` ends everybody.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import msgspec
from screenshots_server import Server
from screenshots_site import Sites

from tabherd.client.aio import AsyncSession, AsyncTabherd
from tabherd.errors import TabherdError

# How long the crowd works before it is looked at, so that the curves of the last minutes have a shape.
WARM_UP_S: Final = 40.0
READY_LIMIT_S: Final = 150.0
END_LIMIT_S: Final = 30.0
LONG_MS: Final = 1_800_000
SCOPES: Final = ["browse", "evaluate", "tasks", "locks"]
# What somebody does for a moment who shares a tab with others.
MOMENT: Final = "new Promise((done) => setTimeout(done, 900))"
HANG: Final = "for (;;) ;"


class Cast(msgspec.Struct, kw_only=True):
    """What pictures are taken of."""

    # A tab that nobody needs at the moment, for a person to drive.
    tab_to_drive: str = ""
    # One that several share.
    tab_in_demand: str = ""
    task_done: str = ""
    task_failed: str = ""
    # An agent's token, for what agents are not shown.
    agent_token: str = ""


class _Crowd:
    def __init__(self, server: Server, sites: Sites) -> None:
        self._server = server
        self._sites = sites
        self.cast = Cast()
        self.is_ready = threading.Event()
        self._herds: list[AsyncTabherd] = []

    async def live(self) -> None:
        """Until it is cancelled."""
        async with AsyncTabherd(self._server.url, self._server.token, patience_s=0) as self._admin:
            try:
                async with asyncio.TaskGroup() as group:
                    for part in (
                        self._shop_scout,
                        self._claims_clerk,
                        self._support_triage,
                        self._price_watch,
                        self._qa_nightly,
                        self._invoice_reader,
                        self._travel_planner,
                        self._report_builder,
                        self._market_desk,
                        self._research,
                        self._batch_import,
                        self._locks,
                    ):
                        group.create_task(part())
                    await asyncio.sleep(WARM_UP_S)
                    self.is_ready.set()
            finally:
                for herd in self._herds:
                    with suppress(TabherdError):
                        await herd.close()

    # --- What they need -----------------------------------------------------------------------------------------

    async def _herd(self, agent: str) -> AsyncTabherd:
        token = (await self._admin.new_token(agent, SCOPES)).token
        self.cast.agent_token = token
        herd = AsyncTabherd(self._server.url, token, patience_s=0)
        self._herds.append(herd)
        return herd

    async def _session(
        self, agent: str, site: str, path: str = "", **options: Any
    ) -> tuple[AsyncTabherd, AsyncSession]:
        herd = await self._herd(agent)
        session = herd.session(url=self._sites.url(site, path), deadline_ms=LONG_MS, **options)
        return herd, await session.open()

    async def _again(self, work: Callable[[], Awaitable[object]], pause_s: float) -> None:
        """Forever; what goes wrong is part of the picture."""
        while True:
            with suppress(TabherdError):
                await work()
            await asyncio.sleep(pause_s)

    # --- At work ------------------------------------------------------------------------------------------------

    async def _shop_scout(self) -> None:
        _, session = await self._session("shop-scout", "shop", "new")

        async def look() -> None:
            await session.tab.click(".card:nth-child(3) .add")
            await session.tab.text("#cart")
            await session.tab.snapshot(interactive=True)

        await self._again(look, 0.4)

    async def _claims_clerk(self) -> None:
        _, session = await self._session("claims-clerk", "claims", key="claims")

        async def fill() -> None:
            await session.tab.fill("#who", "Maya Lindqvist")
            await session.tab.type("#what", "Train to the fair")
            await session.tab.fill("#sum", "86.40")
            await session.tab.click("#send")
            await session.tab.text("#state")

        await self._again(fill, 0.7)

    async def _support_triage(self) -> None:
        _, session = await self._session("support-triage", "support", "inbox")

        async def read() -> None:
            await session.tab.text("#tickets")
            await session.tab.scroll(y=200)

        await self._again(read, 0.5)

    async def _price_watch(self) -> None:
        _, session = await self._session("price-watch", "insights", "week", viewport={"width": 1200, "height": 620})
        self.cast.tab_to_drive = session.tab.id

    async def _qa_nightly(self) -> None:
        """One short session after the other."""
        herd = await self._herd("qa-nightly")

        async def visit() -> None:
            async with herd.session(url=self._sites.url("shop", "checkout")) as session:
                await session.tab.click(".add")
                await session.tab.screenshot()

        await self._again(visit, 1.0)

    # --- In each other's way ------------------------------------------------------------------------------------

    async def _invoice_reader(self) -> None:
        """Locks its tab for several steps; another controller of its own must wait."""
        herd, session = await self._session("invoice-reader", "support", "invoices")
        async with session.tab.lock(lease_ms=LONG_MS):
            await self._again(lambda: self._wait_for(herd, session.tab.id, "backup"), 0.5)

    async def _travel_planner(self) -> None:
        """A person has its tab, and its tasks wait for that."""
        herd, session = await self._session("travel-planner", "claims", "trip")
        await session.tab.handoff(by="dana")
        for step in ("Book the ferry", "Reserve seats", "Send the itinerary", "File the receipt"):
            await herd.submit(action="fill", tab=session.tab.id, selector="#what", params={"value": step})
        await self._again(lambda: self._wait_for(herd, session.tab.id, "planner"), 0.5)

    async def _report_builder(self) -> None:
        """Its page hangs, is put in quarantine and replaced, and hangs again."""
        _, session = await self._session("report-builder", "insights", "report")

        async def hang() -> None:
            await session.tab.goto(self._sites.url("insights", "report"))
            await session.tab.evaluate(HANG, timeout_ms=1_500)

        await self._again(hang, 1.0)

    async def _market_desk(self) -> None:
        """Three that share one tab, in turns."""
        _, session = await self._session("market-desk", "insights", "live", access="shared", keep_alive=True)
        self.cast.tab_in_demand = session.tab.id
        async with asyncio.TaskGroup() as group:
            for name in ("trader", "analyst", "auditor"):
                turn = partial(self._wait_for, await self._herd(name), session.tab.id, name)
                group.create_task(self._again(turn, 0.05))

    async def _research(self) -> None:
        """More callers than its pool has places."""
        _, session = await self._session("deep-reader", "support", "archive", pool="research")

        async def queue(agent: str) -> None:
            herd = await self._herd(agent)
            await self._again(lambda: herd.session(pool="research", wait_ms=120_000).open(), 0.2)

        async with asyncio.TaskGroup() as group:
            for agent in ("paper-scout", "trend-miner", "fact-checker"):
                group.create_task(queue(agent))
            group.create_task(self._again(lambda: session.tab.text("#tickets"), 1.5))

    @staticmethod
    async def _wait_for(herd: AsyncTabherd, tab_id: str, controller: str) -> object:
        wait = {"wait_policy": "wait_with_timeout", "timeout_ms": 25_000, "controller_id": controller}
        return await herd.act(tab_id, "evaluate", expression=MOMENT, **wait)

    # --- Tasks and locks ----------------------------------------------------------------------------------------

    async def _batch_import(self) -> None:
        herd = await self._herd("batch-import")
        stock = self._sites.url("shop", "stock")
        steps = [{"kind": "navigate", "url": stock}, {"kind": "text", "selector": "h1"}]
        check = {"kind": "evaluate", "expression": "(() => { throw new Error('row 14 has no price') })()"}

        async def import_some() -> None:
            done = await herd.submit(steps=steps, priority=5)
            failed = await herd.submit(steps=[*steps, check], priority=3)
            await done.status(wait_s=20)
            await failed.status(wait_s=20)
            self.cast.task_done, self.cast.task_failed = done.id, failed.id
            for _ in range(4):
                await herd.submit(steps=steps)

        await self._again(import_some, 3.0)

    async def _locks(self) -> None:
        stock, export, nobody = [await self._herd(name) for name in ("stock-keeper", "crm-sync", "label-printer")]
        async with asyncio.TaskGroup() as group:
            await stock.lock("warehouse/stock-count").acquire()
            await export.lock("crm/export").acquire()
            for herd in (export, nobody):
                group.create_task(self._again(partial(self._have_counted, herd), 0.2))

    @staticmethod
    async def _have_counted(herd: AsyncTabherd) -> None:
        await herd.lock("warehouse/stock-count", timeout=100).acquire()


@contextmanager
def working(server: Server, sites: Sites) -> Iterator[Cast]:
    """The crowd at work, from when there is something to see."""
    crowd = _Crowd(server, sites)
    loop = asyncio.new_event_loop()
    living: list[asyncio.Task[None]] = []
    failures: list[BaseException] = []

    def run() -> None:
        living.append(loop.create_task(crowd.live()))
        try:
            loop.run_until_complete(living[0])
        except asyncio.CancelledError:
            # The pictures are taken.
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised where the crowd was wanted
            failures.append(error)
        finally:
            crowd.is_ready.set()

    thread = threading.Thread(target=run, name="crowd")
    thread.start()
    try:
        if not crowd.is_ready.wait(READY_LIMIT_S):
            raise RuntimeError("The crowd did not get to work.")
        if failures:
            raise RuntimeError("The crowd did not get to work.") from failures[0]
        yield crowd.cast
    finally:
        if living:
            loop.call_soon_threadsafe(living[0].cancel)
        thread.join(END_LIMIT_S)
        if not thread.is_alive():
            loop.close()
