"""Pages and the ports of this machine that rule over all pages: the browsers' debug ports, and tabherd's own."""

from __future__ import annotations

import json
from urllib.parse import quote, urlsplit

import pytest

from .conftest import Scene, debug_port
from .hostile import Shot

pytestmark = [pytest.mark.server, pytest.mark.browser]

ALIASES = (
    *("127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[::]", "2130706433", "0x7f.1", "127.1"),
    *("x.test", "127.0.0.2", "LOCALHOST.", "a.localhost"),
)
# Every way of a page to an address; told is what came of each.
BY_SCRIPT = """(async (urls) => {
  const first = promises => Promise.race([...promises, new Promise(done => setTimeout(done, 2000, 'nothing'))]);
  const frame = url => new Promise(done => {
    const frame = document.createElement('iframe');
    frame.onload = () => { try { done(frame.contentDocument.body.innerText) } catch (error) { done('closed') } };
    frame.src = url; document.body.append(frame);
  });
  const socket = url => new Promise(done => {
    let socket;
    try { socket = new WebSocket(url.replace('http', 'ws')) } catch (error) { return done('closed') }
    socket.onopen = () => done('open'); socket.onerror = () => done('closed');
  });
  const source = `onmessage = async told => {
    try { postMessage(await (await fetch(told.data)).text()) } catch (error) { postMessage('closed') } }`;
  const worker = url => new Promise(done => {
    const worker = new Worker(URL.createObjectURL(new Blob([source])));
    worker.onmessage = told => done(told.data); worker.postMessage(url);
  });
  const fetched = url => fetch(url).then(answer => answer.text()).catch(() => 'closed');
  const ways = {fetched, frame, socket, worker};
  return await Promise.all(urls.flatMap(url => Object.entries(ways).map(
    async ([name, way]) => [name, url, await first([way(url)])])));
})(%s)"""
SAME_ORIGIN = """(async () => [
  (await fetch('/sessions')).status,
  (await fetch('/audit')).status,
  await new Promise(done => {
    const socket = new WebSocket('/devtools/browser');
    socket.onopen = () => done('open'); socket.onerror = () => done('closed');
  }),
])()"""
# In every answer of a debug port, and in none of the site's.
OF_A_DEBUG_PORT = ("webSocketDebuggerUrl", "devtoolsFrontendUrl", "Protocol-Version")


async def test_no_page_reaches_the_debug_port_of_a_browser(scene: Scene) -> None:
    attacker = scene.attacker
    port = debug_port(scene.server)
    urls = [f"http://{alias}:{port}/json/list" for alias in ALIASES]
    told = await attacker.value(BY_SCRIPT % json.dumps(urls), scene.page)
    assert {what for _, _, what in told} <= {"closed", "nothing", ""}
    _, page = await attacker.open_page()
    for url in urls:
        redirect = scene.site.url("attackers", f"redirect?to={quote(url)}")
        answered = await attacker.volley([Shot("Page.navigate", {"url": one}, page) for one in (url, redirect)])
        assert all("errorText" in answer["result"] for _, answer in answered if answer), url
    assert [text for text in attacker.heard if any(word in text for word in OF_A_DEBUG_PORT)] == []
    assert attacker.leaks(scene.victim.secrets[:1]) == []


# What a page says once it is whole; the answer to a navigation comes before.
WHEN_LOADED = """new Promise(done => {
    const text = () => document.documentElement.innerText;
    const look = () => document.readyState === "complete" ? done(text()) : setTimeout(look, 10);
    look();
})"""


async def test_the_debug_port_is_no_proxy(scene: Scene) -> None:
    attacker, port = scene.attacker, debug_port(scene.server)
    for scheme in ("http", "socks5", "socks4", "https"):
        proxy = {"proxyServer": f"{scheme}://127.0.0.1:{port}", "proxyBypassList": "<-loopback>"}
        context = await attacker.call("Target.createBrowserContext", proxy)
        target = await attacker.call("Target.createTarget", {"url": "about:blank", **context})
        page = await attacker.attach(target["targetId"])
        for url in (f"http://127.0.0.1:{port}/json/list", "http://127.0.0.1/json/list"):
            await attacker.volley([Shot("Page.navigate", {"url": url}, page)])
            assert OF_A_DEBUG_PORT[0] not in await attacker.value(WHEN_LOADED, page)
        await attacker.call("Target.disposeBrowserContext", context)


async def test_no_page_calls_tabherd_not_even_one_at_its_own_address(scene: Scene) -> None:
    attacker, base = scene.attacker, scene.server.record["url"]
    token, port = scene.server.token_of("attacker"), urlsplit(base).port
    paths = ("/sessions", f"/?token={token}", f"/devtools/browser?token={token}")
    urls = [f"http://{alias}:{port}{path}" for alias in ALIASES[:4] for path in paths]
    told = await attacker.value(BY_SCRIPT % json.dumps(urls), scene.page)
    assert {what for _, _, what in told} <= {"closed", "nothing", ""}
    _, page = await attacker.open_page()
    await attacker.call("Page.navigate", {"url": f"{base}/json/version"}, page)
    assert await attacker.value(SAME_ORIGIN, page) == [401, 401, "closed"]
