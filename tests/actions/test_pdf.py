"""Printing a real page into a PDF."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Mapping
from typing import Any

import pytest

from tabherd.actions import pdf as printing
from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.port import CdpFailure
from tabherd.errors import BodyTooLarge, InvalidRequest, StateConflict
from tabherd.wire import Navigate, Pdf

from .driving import act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

THREE_PAGES = "<h1>One</h1>" + "<p style='break-before:page'>next</p>" * 2


async def printed(tab: Any, action: Pdf) -> bytes:
    content = base64.b64decode(await act(tab, action), validate=True)
    assert content.startswith(b"%PDF-")
    return content


def pages_in(content: bytes) -> int:
    return len(re.findall(rb"/Type /Page\b", content))


def size_of(content: bytes) -> tuple[int, int]:
    found = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", content)
    assert found is not None
    return round(float(found[1])), round(float(found[2]))


async def test_a_page_is_printed_whole(tab: ChromiumTab) -> None:
    await show(tab, THREE_PAGES)
    assert pages_in(await printed(tab, Pdf())) == 3


async def test_only_the_wanted_pages_are_printed(tab: ChromiumTab) -> None:
    await show(tab, THREE_PAGES)
    assert pages_in(await printed(tab, Pdf(pages="1, 3"))) == 2


@pytest.mark.parametrize(
    ("action", "size"),
    [(Pdf(), (595, 842)), (Pdf(format="A5", landscape=True), (595, 420))],
    ids=["A4", "A5 landscape"],
)
async def test_paper_has_the_size_of_its_format(tab: ChromiumTab, action: Pdf, size: tuple[int, int]) -> None:
    await show(tab, "one")
    assert size_of(await printed(tab, action)) == pytest.approx(size, abs=2)


@pytest.mark.parametrize("pages", ["9", "3-1"])
async def test_pages_that_are_not_there_are_refused_by_name(tab: ChromiumTab, pages: str) -> None:
    await show(tab, THREE_PAGES)
    with pytest.raises(InvalidRequest) as caught:
        await act(tab, Pdf(pages=pages))
    assert caught.value.details["field"] == "pages"


async def test_a_pdf_beyond_the_limit_is_refused_and_forgotten(
    tab: ChromiumTab, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await act(tab, Navigate(url=site.origin))
    monkeypatch.setattr(printing, "PDF_MAX_BYTES", 1_000)
    with pytest.raises(BodyTooLarge) as caught:
        await act(tab, Pdf())
    assert caught.value.details["cap"] == 1_000
    assert await ask(tab, "document.title") == "Home"


class Printer:
    """A page of a browser that answers as the test says."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.posted: list[tuple[str, Any]] = []
        self.is_read = asyncio.Event()

    async def call(self, method: str, params: Any = None) -> Any:
        if method == "IO.read":
            self.is_read.set()
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return await answer if asyncio.isfuture(answer) else answer

    def post(self, method: str, params: Any = None) -> None:
        self.posted.append((method, params))


async def test_a_browser_that_cannot_print_says_so() -> None:
    printer = Printer({"Page.printToPDF": CdpFailure("Page.printToPDF", -32000, "PrintToPDF is not implemented")})
    with pytest.raises(StateConflict) as caught:
        await act(printer, Pdf())
    assert "cannot print" in caught.value.message
    assert "headless" in caught.value.action


async def test_what_was_printed_is_dropped_when_the_caller_leaves() -> None:
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    printer = Printer({"Page.printToPDF": {"stream": "7"}, "IO.read": never})
    running = asyncio.ensure_future(act(printer, Pdf()))
    await printer.is_read.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert printer.posted == [("IO.close", {"handle": "7"})]
