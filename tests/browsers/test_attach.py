"""Guests in a browser that somebody else started: it is never ended, and keeps everything that is its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tabherd.browsers import attach, process
from tabherd.browsers.attach import AttachedBrowser
from tabherd.browsers.cdp import CdpConnection
from tabherd.browsers.chromium import ChromiumLauncher
from tabherd.browsers.find import find_browser
from tabherd.browsers.port import LaunchFailed, Usage

from .real import blank_tab, new_launcher, new_row

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that answers late because the machine is busy is not one that does not answer."""
    monkeypatch.setattr(attach, "RETURN_LIMIT_S", 60)
    monkeypatch.setattr(attach, "LEAVE_LIMIT_S", 60)


class Host(msgspec.Struct):
    """A browser that is not tabherd's."""

    pid: int
    port: int
    path: str

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}{self.path}"


@asynccontextmanager
async def hosting(directory: Path, port: int = 0, flags: Sequence[str] = ()) -> AsyncIterator[Host]:
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    told = directory / "DevToolsActivePort"
    told.unlink(missing_ok=True)
    child = subprocess.Popen(
        [
            find_browser("headless-shell").path,
            *sandbox,
            *flags,
            f"--remote-debugging-port={port}",
            f"--user-data-dir={directory}",
        ],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(60):
            while not told.exists() or not told.read_text().strip():
                await asyncio.sleep(0.01)
        number, path = told.read_text().split()
        yield Host(child.pid, int(number), path)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        await process.wait_vanished(child.pid)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    async with hosting(tmp_path_factory.mktemp("host")) as live:
        yield live


def guest(endpoint: str, directory: Path, **settings: object) -> ChromiumLauncher:
    return new_launcher(directory, source="attach", endpoint=endpoint, browsers_max=1, **settings)


async def attached(launcher: ChromiumLauncher) -> AttachedBrowser:
    browser = await launcher.launch(new_row())
    assert isinstance(browser, AttachedBrowser)
    return browser


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_a_running_browser_is_found_by_its_address_and_can_be_driven(
    host: Host, tmp_path: Path, scheme: str
) -> None:
    browser = await attached(guest(getattr(host, scheme), tmp_path))
    assert (browser.row.pid, browser.row.endpoint) == (0, host.ws)
    assert "Chrome" in browser.row.product
    tab = await blank_tab(browser)
    assert (await tab.call("Runtime.evaluate", {"expression": "1 + 1"}))["result"]["value"] == 2
    assert await browser.probe() == Usage()
    await browser.stop()
    assert await browser.wait_gone() == "The browser was let go."
    assert list(tmp_path.iterdir()) == []


async def test_leaving_closes_what_was_made_here_and_nothing_else(host: Host, tmp_path: Path) -> None:
    owner = await CdpConnection.connect(host.ws)
    own_context = (await owner.call("Target.createBrowserContext"))["browserContextId"]
    for where in ({}, {"browserContextId": own_context}):
        await owner.call("Target.createTarget", {"url": "about:blank", **where})
    before = await owner.call("Target.getTargets")
    browser = await attached(guest(host.http, tmp_path))
    await blank_tab(browser)
    await browser.new_tab("")
    # Contexts of others are not even named, so that nobody takes them for forgotten ones of ours.
    assert own_context not in await browser.context_ids()
    assert len(await browser.context_ids()) == 1
    await asyncio.gather(browser.stop(), browser.stop())
    assert (await owner.call("Target.getBrowserContexts"))["browserContextIds"] == [own_context]
    assert {target["targetId"] for target in (await owner.call("Target.getTargets"))["targetInfos"]} == {
        target["targetId"] for target in before["targetInfos"]
    }
    assert process.is_running(host.pid)
    await owner.close()


async def test_a_browser_that_goes_away_is_told_and_the_next_launch_finds_it_again(tmp_path: Path) -> None:
    async with hosting(tmp_path) as first:
        launcher = guest(first.http, tmp_path / "profiles")
        browser = await attached(launcher)
    async with asyncio.timeout(60):
        assert await browser.wait_gone()
    await browser.stop()
    with pytest.raises(LaunchFailed, match="No browser can be reached at http://127"):
        await launcher.launch(new_row())
    async with hosting(tmp_path, first.port):
        back = await attached(launcher)
        await blank_tab(back)
        await back.stop()


async def test_a_browser_that_hangs_is_left_after_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach, "LEAVE_LIMIT_S", 0.2)
    async with hosting(tmp_path) as host:
        browser = await attached(guest(host.http, tmp_path / "profiles"))
        await blank_tab(browser)
        os.kill(host.pid, signal.SIGSTOP)
        await browser.stop()
        with pytest.raises(LaunchFailed, match="does not answer"):
            await guest(host.http, tmp_path / "profiles", start_limit_ms=300).launch(new_row())
        os.kill(host.pid, signal.SIGCONT)


async def test_an_address_where_something_else_answers_is_refused(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(LaunchFailed, match="something else"):
            await guest(f"http://127.0.0.1:{port}", tmp_path).launch(new_row())
        with pytest.raises(LaunchFailed, match="Cannot connect"):
            await guest(f"ws://127.0.0.1:{port}/devtools/browser/x", tmp_path).launch(new_row())
    finally:
        server.close()
        await server.wait_closed()


# --- After a restart ------------------------------------------------------------------------------------------------


async def test_a_guest_of_an_earlier_life_comes_back_to_its_pages(host: Host, tmp_path: Path) -> None:
    launcher = guest(host.ws, tmp_path)
    first = await attached(launcher)
    context_id = await first.new_context()
    tab = await first.new_tab(context_id)
    await tab.call("Runtime.evaluate", {"expression": "state = 42"})
    # As a killed broker does.
    await first._connection.close()
    second = await launcher.adopt(first.row)
    assert isinstance(second, AttachedBrowser)
    again = await second.attach_tab(tab.target_id)
    assert (await again.call("Runtime.evaluate", {"expression": "state"}))["result"]["value"] == 42
    assert await second.context_ids() == [context_id]
    await second.stop()
    owner = await CdpConnection.connect(host.ws)
    assert context_id not in (await owner.call("Target.getBrowserContexts"))["browserContextIds"]
    await owner.close()


async def test_another_browser_at_the_same_address_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    async with hosting(tmp_path) as first:
        launcher = guest(first.http, tmp_path / "profiles")
        browser = await attached(launcher)
        await browser.stop()
    assert await launcher.adopt(browser.row) is None
    async with hosting(tmp_path, first.port):
        assert await launcher.adopt(browser.row) is None


async def test_a_launched_browser_of_a_pool_that_attaches_now_is_not_adopted(host: Host, tmp_path: Path) -> None:
    row = msgspec.structs.replace(new_row(), pid=host.pid, endpoint=host.ws)
    assert await guest(host.http, tmp_path).adopt(row) is None


async def test_reaping_a_row_of_an_attached_browser_does_not_end_it(host: Host, tmp_path: Path) -> None:
    launcher = guest(host.http, tmp_path)
    browser = await attached(launcher)
    await launcher.reap(browser.row)
    await blank_tab(browser)
    await browser.stop()
