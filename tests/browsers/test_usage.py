"""What a browser costs, and that nobody waits for the answer."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tabherd.browsers import process, usage
from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.port import Usage
from tabherd.browsers.usage import UsageMeter, measure

from .real import blank_tab, launched


async def first_reading(browser: ChromiumBrowser) -> Usage:
    while not (found := await browser.probe()).processes:
        await asyncio.sleep(0.01)
    return found


@pytest.mark.browser
async def test_a_probe_tells_what_all_processes_of_the_browser_cost_unless_it_is_stopped(tmp_path: Path) -> None:
    async with launched(tmp_path) as browser:
        await blank_tab(browser)
        before = set(process.group_members(browser.row.pid))
        found = await first_reading(browser)
        after = set(process.group_members(browser.row.pid))
        # Chromium may begin or end one at any moment.
        assert 2 < len(before & after) <= found.processes <= len(before | after)
        assert 30 << 20 < found.pss_bytes < 4 << 30
        assert found.cpu_ms > 0
        os.kill(browser.row.pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await browser.probe()
        os.kill(browser.row.pid, signal.SIGCONT)
        async with asyncio.timeout(60):
            await browser.probe()


async def test_a_reading_is_kept_until_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter(range(1, 10))
    monkeypatch.setattr(usage, "measure", lambda group: Usage(processes=next(readings)))
    monkeypatch.setattr(usage, "FRESH_S", 3600.0)
    meter = UsageMeter(1)
    assert meter.latest() == Usage()
    while not meter.latest().processes:
        await asyncio.sleep(0.001)
    assert meter.latest() == meter.latest() == Usage(processes=1)
    assert next(readings) == 2


async def test_an_expensive_reading_is_kept_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "_timed", lambda group: (Usage(processes=1), 3.0))
    meter = UsageMeter(1)
    meter.latest()
    while not meter._due_at:
        await asyncio.sleep(0.001)
    assert meter._due_at - asyncio.get_running_loop().time() > 200


async def test_a_reading_that_fails_leaves_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(group: int) -> Usage:
        raise OSError("no /proc here")

    monkeypatch.setattr(usage, "measure", fail)
    meter = UsageMeter(1)
    meter.latest()
    while not meter._due_at:
        await asyncio.sleep(0.001)
    assert meter.latest() == Usage()


def test_memory_that_may_not_be_looked_at_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    read_bytes = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "smaps_rollup":
            raise PermissionError
        return read_bytes(path)

    exact = usage._pss_bytes(os.getpid())
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert 0 < usage._pss_bytes(os.getpid()) <= 2 * exact


def test_a_group_that_does_not_exist_costs_nothing() -> None:
    assert measure(2**22 + 1) == Usage()
    assert usage._pss_bytes(2**22 + 1) == usage._unshared_bytes(2**22 + 1) == 0
