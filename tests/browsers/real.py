"""Real Chromiums for tests: started on demand, always ended, with their profiles in a directory of the test's."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from tabherd.browsers.chromium import ChromiumBrowser, ChromiumLauncher
from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.process import command_line, group_members
from tabherd.config import Pool
from tabherd.core.lifecycle import BrowserState
from tabherd.core.model import Browser

# Without a renderer in store for the next page, which is a fifth of the work of tests that open a page each.
NO_SPARE_RENDERER = "--disable-features=SpareRendererForSitePerProcess"
_numbers = itertools.count(1)


def new_row() -> Browser:
    """A browser that is yet to be launched, unlike any other on this machine."""
    node_id = f"nod_test{os.getpid()}"
    return Browser(
        id=f"brw_{os.getpid()}_{next(_numbers)}x", node_id=node_id, pool="default", state=BrowserState.STARTING
    )


def new_launcher(profiles_dir: Path, **settings: object) -> ChromiumLauncher:
    settings.setdefault("flags", (NO_SPARE_RENDERER,))
    return ChromiumLauncher(profiles_dir, {"default": Pool(**settings)})  # type: ignore[arg-type]


@asynccontextmanager
async def launched(profiles_dir: Path, **settings: object) -> AsyncIterator[ChromiumBrowser]:
    browser = await new_launcher(profiles_dir, **settings).launch(new_row())
    try:
        yield browser
    finally:
        await browser.stop()


ORPHANING = """
import asyncio, os, sys
from pathlib import Path
from tests.browsers.real import new_launcher, new_row
import msgspec

async def main():
    browser = await new_launcher(Path(sys.argv[1]), **msgspec.json.decode(sys.argv[2])).launch(new_row())
    tab = await browser.new_tab(await browser.new_context())
    await tab.call("Network.setCookie", {"name": "who", "value": "me", "url": "http://example.test/"})
    await tab.call("Runtime.evaluate", {"expression": "state = 42"})
    sys.stdout.buffer.write(msgspec.json.encode((browser.row, tab.target_id)) + b"\\n")
    sys.stdout.flush()
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


@contextmanager
def orphaned(profiles_dir: Path, **settings: object) -> Iterator[tuple[Browser, str]]:
    """The row of a Chromium whose broker has been killed with SIGKILL, and its one page, which has state."""
    killed = subprocess.run(
        [sys.executable, "-c", ORPHANING, str(profiles_dir), msgspec.json.encode(settings).decode()],
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    # The last line: what the launcher logs, a debug port that was taken say, comes before it.
    row, target_id = msgspec.json.decode(killed.stdout.splitlines()[-1], type=tuple[Browser, str])
    try:
        yield row, target_id
    finally:
        for pid in group_members(row.pid):
            os.kill(pid, signal.SIGKILL)


async def blank_tab(browser: ChromiumBrowser) -> ChromiumTab:
    """A page in a context of its own."""
    return await browser.new_tab(await browser.new_context())


def processes_of(row: Browser) -> list[int]:
    """Every process whose command line names this browser or its profile."""
    marks = (f"{row.node_id}:{row.id}", f"/{row.id}")
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if any(mark in argument for argument in command_line(pid) for mark in marks)]
