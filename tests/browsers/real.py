"""Real Chromiums for tests: started on demand, always ended, with their profiles in a directory of the test's."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tabherd.browsers.chromium import ChromiumBrowser, ChromiumLauncher, ChromiumTab
from tabherd.browsers.process import command_line
from tabherd.config import Pool
from tabherd.core.lifecycle import BrowserState
from tabherd.core.model import Browser

_numbers = itertools.count(1)


def new_row() -> Browser:
    """A browser that is yet to be launched, unlike any other on this machine."""
    node_id = f"nod_test{os.getpid()}"
    return Browser(
        id=f"brw_{os.getpid()}_{next(_numbers)}x", node_id=node_id, pool="default", state=BrowserState.STARTING
    )


def new_launcher(profiles_dir: Path, **settings: object) -> ChromiumLauncher:
    return ChromiumLauncher(profiles_dir, {"default": Pool(**settings)})  # type: ignore[arg-type]


@asynccontextmanager
async def launched(profiles_dir: Path, **settings: object) -> AsyncIterator[ChromiumBrowser]:
    browser = await new_launcher(profiles_dir, **settings).launch(new_row())
    try:
        yield browser
    finally:
        await browser.stop()


async def blank_tab(browser: ChromiumBrowser) -> ChromiumTab:
    """A page in a context of its own."""
    return await browser.new_tab(await browser.new_context())


def processes_of(row: Browser) -> list[int]:
    """Every process whose command line names this browser or its profile."""
    marks = (f"{row.node_id}:{row.id}", f"/{row.id}")
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if any(mark in argument for argument in command_line(pid) for mark in marks)]
