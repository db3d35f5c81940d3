"""A Chromium that is killed, on both event loops: noticed by push, every call settled, nothing left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tabherd.browsers import process
from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.port import BrowserGone

from .fake_cdp import connected, silent
from .real import blank_tab, launched, new_row, processes_of

pytestmark = pytest.mark.browser

# Runs a scenario on one kind of event loop.
Runner = Callable[[Coroutine[Any, Any, None]], None]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_killed_browser_settles_every_call_and_leaves_nothing(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with launched(tmp_path) as browser:
            tab = await blank_tab(browser)
            pending = [
                asyncio.create_task(
                    tab.call("Runtime.evaluate", {"expression": "new Promise(() => {})", "awaitPromise": True})
                )
                for _ in range(5)
            ]
            await tab.call("Runtime.evaluate", {"expression": "1"})
            os.kill(browser.row.pid, signal.SIGKILL)
            assert await browser.wait_gone()
            outcomes = await asyncio.gather(*pending, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [BrowserGone] * 5
            await asyncio.gather(browser.stop(), browser.stop())
            await browser.stop()
            assert process.group_members(browser.row.pid) == []
            assert processes_of(browser.row) == []
            assert list(tmp_path.iterdir()) == []

    run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_the_exit_alone_settles_every_call_when_the_socket_stays_open(run: Runner, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with connected(silent) as (connection, peer):
            child = process.ChildGroup(("/bin/sleep", "1000"), log_path=tmp_path / "log", environ=os.environ)
            try:
                browser = ChromiumBrowser(new_row(), connection, child)
                waiting = asyncio.create_task(browser.new_context())
                await peer.received.get()
                os.kill(child.pid, signal.SIGKILL)
                with pytest.raises(BrowserGone, match="was killed by SIGKILL"):
                    await waiting
                assert "was killed by SIGKILL" in await browser.wait_gone()
            finally:
                await child.end()

    run(scenario())
