"""Ending workers: those that run, those that are on their way, and those that do not want to end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tabherd.browsers import workers
from tabherd.browsers.cdp import CdpSession
from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.port import BrowserGone, CdpFailure

from .fake_cdp import FakeBrowser, connected
from .real import blank_tab, launched
from .site import answering, load, run

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

WAITING = "oninstall = event => event.waitUntil(new Promise(() => 0))"


class Scripts:
    """A site whose pages are blank, and whose scripts come when they may."""

    def __init__(self) -> None:
        self.origin = ""
        self.script = WAITING
        self.may_send = asyncio.Event()
        self.is_asked = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
            is_script = path.endswith(b".js")
            if is_script:
                self.is_asked.set()
                await self.may_send.wait()
            kind, body = (b"text/javascript", self.script.encode()) if is_script else (b"text/html", b"here")
            head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            writer.write(head % (kind, len(body)) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@pytest_asyncio.fixture(loop_scope="session")
async def site() -> AsyncIterator[Scripts]:
    scripts = Scripts()
    async with answering(scripts.answer) as port:
        scripts.origin = f"http://127.0.0.1:{port}"
        yield scripts
        scripts.may_send.set()


async def left_behind(browser: ChromiumBrowser, site: Scripts, script: str) -> tuple[str, str]:
    """A page that ran this and was closed: its context, and a page that is there instead."""
    context_id = await browser.new_context()
    tab = await browser.new_tab(context_id)
    await load(tab, site.origin)
    await run(tab, f"{script}; 0")
    await site.is_asked.wait()
    new = await browser.new_tab(context_id)
    await browser.close_tab(tab.target_id)
    return context_id, new.target_id


async def alive(browser: ChromiumBrowser, context_id: str) -> list[str]:
    kinds = [{"type": "service_worker"}, {"type": "shared_worker"}]
    targets = (await browser._connection.call("Target.getTargets", {"filter": kinds}))["targetInfos"]
    return [target["type"] for target in targets if target.get("browserContextId") == context_id]


REGISTER = "navigator.serviceWorker.register('/service.js')"


@pytest.mark.parametrize("script", [REGISTER, "window.shared = new SharedWorker('/shared.js')"])
async def test_no_worker_is_left(browser: ChromiumBrowser, site: Scripts, script: str) -> None:
    site.may_send.set()
    for _ in range(3):
        # Whatever it is doing at that moment.
        context_id, target_id = await left_behind(browser, site, script)
        await browser.end_workers(context_id, target_id)
        assert await alive(browser, context_id) == []
        await browser.dispose_context(context_id)


async def test_a_worker_that_is_on_its_way_is_waited_for(browser: ChromiumBrowser, site: Scripts) -> None:
    context_id, target_id = await left_behind(browser, site, REGISTER)
    ending = asyncio.create_task(browser.end_workers(context_id, target_id))
    # As long as it takes to ask and to be answered.
    await alive(browser, context_id)
    assert not ending.done()
    site.may_send.set()
    await ending
    assert await alive(browser, context_id) == []


async def test_a_script_that_never_comes_is_not_waited_for_for_good(
    browser: ChromiumBrowser, site: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "SCRIPT_LIMIT_S", 0.2)
    context_id, target_id = await left_behind(browser, site, REGISTER)
    await browser.end_workers(context_id, target_id)
    await browser.dispose_context(context_id)


async def test_a_worker_that_spins_while_it_starts_is_reported_and_harms_nobody(
    browser: ChromiumBrowser, site: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "END_LIMIT_S", 0.5)
    site.script = "for (;;);"
    site.may_send.set()
    context_id, target_id = await left_behind(browser, site, REGISTER)
    with pytest.raises(CdpFailure, match="still there"):
        await browser.end_workers(context_id, target_id)
    await browser.dispose_context(context_id)
    await blank_tab(browser)


async def test_a_browser_that_dies_meanwhile_is_told_at_once(
    site: Scripts, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with launched(tmp_path_factory.mktemp("profiles")) as browser:
        context_id, target_id = await left_behind(browser, site, REGISTER)
        ending = asyncio.create_task(browser.end_workers(context_id, target_id))
        await alive(browser, context_id)
        os.kill(browser.row.pid, signal.SIGKILL)
        with pytest.raises(BrowserGone):
            await ending


async def test_a_worker_is_not_stopped_while_it_starts() -> None:
    def tell(peer: FakeBrowser, running_status: str, status: str = "new") -> None:
        version = {"versionId": "1", "runningStatus": running_status, "status": status}
        peer.emit("ServiceWorker.workerVersionUpdated", "S", versions=[version])

    def answer(peer: FakeBrowser, message: dict[str, object]) -> None:
        peer.say({"id": message["id"], "result": {"targetInfos": []}})
        if message["method"] == "ServiceWorker.enable":
            for running_status in ("stopped", "starting", "running"):
                tell(peer, running_status)
        elif message["method"] == "ServiceWorker.stopWorker":
            tell(peer, "stopping")
            tell(peer, "stopped", "redundant")

    async with connected(answer) as (connection, peer):
        await workers.end_workers(connection, "C", CdpSession(connection, "S"))
        sent = [peer.received.get_nowait()["method"] for _ in range(peer.received.qsize())]
    assert sent.count("ServiceWorker.stopWorker") == 1
