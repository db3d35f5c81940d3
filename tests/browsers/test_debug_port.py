"""The debug port is out of reach of every page, and never somebody else's."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tabherd.browsers import debug_port
from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.debug_port import RESTRICTED_PORTS, Holder
from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.port import LaunchFailed

from .real import blank_tab, launched

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

# Every way to write this machine's own address that a browser understands.
ALIASES = ("127.0.0.1", "localhost", "0.0.0.0", "[::1]", "2130706433")

# Everything a page may try, from within.
ATTEMPTS = """async (url, socketUrl, redirect) => {
  if (document.readyState !== "complete") await new Promise((done) => addEventListener("load", done));
  const refused = (promise) => promise.then(() => "REACHED", () => "refused");
  const worker = new Worker(URL.createObjectURL(new Blob([`
    fetch("${url}", {mode: "no-cors"}).then(() => postMessage("REACHED"), () => postMessage("refused"));
  `])));
  const worked = new Promise((done) => worker.onmessage = (event) => done(event.data));
  const socket = new WebSocket(socketUrl);
  const connected = new Promise((done) => {
    socket.onopen = () => done("REACHED");
    socket.onerror = socket.onclose = () => done("refused");
  });
  const frame = document.createElement("iframe");
  frame.src = url;
  const framed = new Promise((done) => frame.onload = done);
  document.body.append(frame);
  await framed;
  return {
    fetch: await refused(fetch(url, {mode: "no-cors"})),
    put: await refused(fetch(url.replace("list", "new"), {method: "PUT", mode: "no-cors"})),
    redirect: await refused(fetch(redirect, {mode: "no-cors"})),
    worker: await worked,
    socket: await connected,
  };
}"""


@pytest.fixture(autouse=True)
def _reservations() -> Iterator[None]:
    before = set(debug_port._reserved)
    yield
    assert debug_port._reserved == before


@asynccontextmanager
async def site() -> AsyncIterator[str]:
    """A web server on an ordinary port: `/` is an empty page, `/to?URL` redirects there."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
        if target.startswith(b"/to?"):
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: " + target[4:] + b"\r\nContent-Length: 0\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


async def evaluate(tab: ChromiumTab, expression: str) -> Any:
    async with asyncio.timeout(60):
        answer = await tab.call(
            "Runtime.evaluate", {"expression": expression, "awaitPromise": True, "returnByValue": True}
        )
    assert "exceptionDetails" not in answer, answer
    return answer["result"].get("value")


async def navigation_error(tab: ChromiumTab, url: str) -> str | None:
    error: str | None = (await tab.call("Page.navigate", {"url": url})).get("errorText")
    return error


async def test_chromium_refuses_every_port_of_the_list_and_no_ordinary_one(browser: ChromiumBrowser) -> None:
    tab = await blank_tab(browser)
    errors = {port: await navigation_error(tab, f"http://127.0.0.1:{port}/") for port in RESTRICTED_PORTS}
    assert errors == dict.fromkeys(RESTRICTED_PORTS, "net::ERR_UNSAFE_PORT")
    with socket.socket() as nobody:
        # Bound and not listening: nobody else can take it, and connections are refused.
        nobody.bind(("127.0.0.1", 0))
        ordinary = nobody.getsockname()[1]
        assert await navigation_error(tab, f"http://127.0.0.1:{ordinary}/") == "net::ERR_CONNECTION_REFUSED"


@pytest.mark.parametrize("alias", ALIASES)
async def test_a_page_cannot_reach_the_debug_port_by_any_way_under_any_name(
    browser: ChromiumBrowser, alias: str
) -> None:
    address = f"{alias}:{browser.row.port}"
    url = f"http://{address}/json/list"
    async with site() as origin:
        tab = await blank_tab(browser)
        assert await navigation_error(tab, url) == "net::ERR_UNSAFE_PORT"
        assert await navigation_error(tab, f"{origin}/to?{url}") == "net::ERR_UNSAFE_PORT"
        assert await navigation_error(tab, f"{origin}/") is None
        socket_url = browser.row.endpoint.replace(f"127.0.0.1:{browser.row.port}", address)
        refusals = await evaluate(tab, f"({ATTEMPTS})({url!r}, {socket_url!r}, {f'/to?{url}'!r})")
        assert set(refusals.values()) == {"refused"}, refusals
        frame = (await tab.call("Page.getFrameTree"))["frameTree"]["childFrames"][0]["frame"]
        assert frame["url"].startswith("chrome-error:")


async def test_a_pools_flags_cannot_open_the_debug_port_to_pages(tmp_path: Path) -> None:
    ports = ",".join(str(port) for port in RESTRICTED_PORTS)
    async with launched(tmp_path, flags=(f"--explicitly-allowed-ports={ports}",)) as opened:
        tab = await blank_tab(opened)
        assert await navigation_error(tab, f"http://127.0.0.1:{opened.row.port}/json") == "net::ERR_UNSAFE_PORT"


async def test_the_browser_we_started_is_recognised_as_the_holder_of_its_port(browser: ChromiumBrowser) -> None:
    assert debug_port.holder(browser.row.port, browser.row.pid) is Holder.OURS
    assert debug_port.holder(browser.row.port, os.getpid()) is Holder.STRANGER


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
async def test_a_listener_of_another_process_is_a_stranger(family: int, host: str) -> None:
    with socket.create_server((host, 0), family=family) as stranger:
        assert debug_port.holder(stranger.getsockname()[1], os.getppid()) is Holder.STRANGER


async def test_a_browser_that_fell_back_to_the_other_loopback_is_not_taken_for_ours() -> None:
    # Chromium listens on ::1 when 127.0.0.1 is taken; whoever took it would get our calls.
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as own:
        assert debug_port.holder(own.getsockname()[1], os.getpid()) is Holder.STRANGER


async def test_a_port_nobody_listens_on_has_no_holder() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert debug_port.holder(bound.getsockname()[1], os.getpid()) is Holder.NOBODY


async def test_who_waits_for_a_browser_to_listen_does_not_read_the_books_of_the_whole_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    monkeypatch.setattr(debug_port, "_listening_inodes", lambda _, port: read.append(port) or set())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert debug_port.holder(port, os.getpid()) is Holder.NOBODY
    assert read == []


def _reserve_all(tried: Collection[int] = ()) -> tuple[list[int], str]:
    """Every port there is to have, and the words of the refusal that ended it; none of them is kept."""
    given: list[int] = []
    try:
        while len(given) <= len(RESTRICTED_PORTS):
            given.append(debug_port.reserve(tried))
    except LaunchFailed as refusal:
        return given, str(refusal)
    finally:
        for port in given:
            debug_port.release(port)
    raise AssertionError("more ports than there are")


async def test_no_port_is_given_out_twice_and_the_last_refusal_says_what_to_do() -> None:
    given, refusal = _reserve_all()
    assert len(set(given)) == len(given) > 0
    assert set(given) <= set(RESTRICTED_PORTS)
    assert "run fewer browsers" in refusal


async def test_a_port_that_is_in_use_or_was_tried_is_not_given_out(browser: ChromiumBrowser) -> None:
    tried = _reserve_all()[0][0]
    given, _ = _reserve_all({tried})
    assert browser.row.port not in given
    assert tried not in given
