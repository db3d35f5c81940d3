"""The Node process that runs the Puppeteer cases: one start for a whole test run, many cases at once.

Orders go in and outcomes come out as JSON lines, in any order, told apart by their number. When the process ends, every
case that still waits fails; what it printed to standard error is among the output of the test.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from .endpoint import CASE_LIMIT_S, Endpoint
from .site import Site

DIRECTORY = Path(__file__).parent / "puppeteer"
# An outcome is a short line; a stack trace in it is not much longer.
LINE_MAX_BYTES = 1 << 20


def case_names() -> list[str]:
    """Every case that is Puppeteer's own, in a lasting order."""
    return _exported_by("cases_*.mjs")


def twin_names() -> list[str]:
    """Every case that says what one of Playwright's says, by the same commands."""
    return _exported_by("twins_*.mjs")


def _exported_by(modules: str) -> list[str]:
    text = "".join(file.read_text() for file in sorted(DIRECTORY.glob(modules)))
    return re.findall(r"^export async function (\w+)", text, re.MULTILINE)


class Node:
    """A running process."""

    def __init__(self, process: Process, site: Site) -> None:
        self._process = process
        self._site = site
        self._numbers = itertools.count(1)
        # Cases that have not ended, by number.
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def run(self, cases: Sequence[str], who: str, endpoint: Endpoint, files: Path, *, takes_first: bool) -> None:
        """Raises when one of the cases fails, or when their client saw anything of another."""
        async with asyncio.timeout(CASE_LIMIT_S), endpoint.door(who) as door:
            address = {"browserWSEndpoint": door.ws}
            ended = await self.order(cases=cases, who=who, address=address, files=str(files), takesFirst=takes_first)
        assert ended["errors"] == {}, "Puppeteer: " + "\n".join(
            f"{case}: {ended['errors'][case]}" for case in ended["errors"]
        )
        assert ended["strangers"] == [], f"Puppeteer, {cases}: saw {ended['strangers']}"

    async def order(self, **words: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        if self._process.stdout is None or self._process.stdout.at_eof():
            raise RuntimeError("the Node process has ended")
        number = next(self._numbers)
        ended = self._waiting[number] = asyncio.get_running_loop().create_future()
        order = {"number": number, "port": self._site.port, **words}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        return await ended

    async def listen(self) -> None:
        """Until the process ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            outcome = json.loads(line)
            ended = self._waiting.pop(outcome["number"])
            # Nobody waits any more when another client of the same test has failed.
            if not ended.done():
                ended.set_result(outcome)
        for ended in self._waiting.values():
            ended.set_exception(RuntimeError("the Node process ended"))


@asynccontextmanager
async def node_process(site: Site) -> AsyncIterator[Node]:
    process = await asyncio.create_subprocess_exec(
        "node", str(DIRECTORY / "runner.mjs"), stdin=PIPE, stdout=PIPE, limit=LINE_MAX_BYTES
    )
    node = Node(process, site)
    listening = asyncio.ensure_future(node.listen())
    try:
        yield node
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await listening
        await process.wait()
