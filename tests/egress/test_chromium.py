"""Real browsers of pools with a network policy: nothing in a page reaches what the policy refuses."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.browsers.real import blank_tab, new_row
from tests.browsers.test_attach import hosting

from tabherd.browsers import adopt, attach
from tabherd.browsers.attach import WEBRTC_FLAGS
from tabherd.browsers.chromium import ChromiumBrowser, ChromiumLauncher
from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.port import LaunchFailed, Proxy
from tabherd.browsers.process import is_running
from tabherd.core.model import changed
from tabherd.egress.supervise import running

from .origin import Origin, behind_policy, run, serving, visit, with_pool
from .test_supervise import proxies_of, until

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

POLICY: Mapping[str, Any] = {
    "deny_hosts": ["bad.test"],
    "deny_private_networks": True,
    "pinned_hosts": {"good.test": "127.0.0.1", "bad.test": "127.0.0.1"},
}
# Ways in which this machine can be written, as far as browsers read them differently; the proxy's own tests have more.
ALIASES = ("127.0.0.1", "localhost", "2130706433", "0", "[::1]", "[::ffff:7f00:1]")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that answers late because the machine is busy is not one that does not answer."""
    monkeypatch.setattr(adopt, "ADOPT_LIMIT_S", 60)
    monkeypatch.setattr(attach, "RETURN_LIMIT_S", 60)


class Behind:
    """A tab behind the policy, and the site that it may or may not reach."""

    def __init__(self, tab: ChromiumTab, origin: Origin) -> None:
        self.tab = tab
        self.origin = origin

    def good(self, path: str = "/") -> str:
        return self.origin.url("good.test", path)

    def bad(self, path: str = "/") -> str:
        return self.origin.url("bad.test", path)

    def saw(self, host: str) -> bool:
        return any(asked.startswith(f"{host} ") for asked in self.origin.asked)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ChromiumBrowser]:
    async with behind_policy(tmp_path_factory.mktemp("egress"), **POLICY) as (live, _):
        assert isinstance(live, ChromiumBrowser)
        yield live


@pytest_asyncio.fixture(loop_scope="module")
async def behind(browser: ChromiumBrowser) -> AsyncIterator[Behind]:
    context_id = await browser.new_context()
    async with serving() as origin:
        behind = Behind(await browser.new_tab(context_id), origin)
        assert await visit(behind.tab, behind.good("/start")) == 200
        yield behind
    await browser.dispose_context(context_id)


async def test_a_refused_host_does_not_load_and_the_page_says_why(behind: Behind) -> None:
    # By itself, and by way of an allowed one.
    for url in (behind.bad(), behind.good("/to?" + behind.bad())):
        assert await visit(behind.tab, url) == 403
        assert json.loads(await run(behind.tab, "document.body.innerText"))["code"] == "policy_denied"
    assert not behind.saw("bad.test")


SETTLES = "new Promise(settle => {{ {} }})"
WAYS = {
    "image": "const i = new Image(); i.onload = i.onerror = () => settle(); i.src = '{url}'",
    "frame": "const f = document.createElement('iframe'); f.onload = () => settle(); f.src = '{url}';"
    "document.body.append(f)",
    "script": "const s = document.createElement('script'); s.onload = s.onerror = () => settle(); s.src = '{url}';"
    "document.head.append(s)",
    "fetch": "fetch('{url}', {{mode: 'no-cors'}}).then(settle, settle)",
    "xhr": "const x = new XMLHttpRequest(); x.onloadend = () => settle(); x.open('GET', '{url}'); x.send()",
    "beacon": "navigator.sendBeacon('{url}', 'x'); fetch('/after').then(settle)",
    "events": "const e = new EventSource('{url}'); e.onopen = e.onerror = () => {{ e.close(); settle() }}",
    "websocket": "const w = new WebSocket('{url}'.replace('http', 'ws')); w.onopen = w.onerror = () => settle()",
    "worker": "const w = new Worker('/worker.js?{url}'); w.onmessage = () => settle()",
    "form": "const f = document.createElement('form'); f.method = 'POST'; f.action = '{url}'; f.target = '{url}';"
    "const i = document.createElement('iframe'); i.name = '{url}'; document.body.append(i, f);"
    "i.onload = () => settle(); f.submit()",
    "preload": "const l = document.createElement('link'); l.rel = 'preload'; l.as = 'image'; l.href = '{url}';"
    "l.onload = l.onerror = () => settle(); document.head.append(l)",
}


HINTS_AND_CALLS = """
    for (const rel of ['preconnect', 'dns-prefetch', 'prefetch', 'modulepreload']) {{
        const link = document.createElement('link');
        link.rel = rel; link.href = 'http://127.0.0.1:{tcp}/'; document.head.append(link);
    }}
    const call = new RTCPeerConnection({{iceServers: [
        {{urls: 'stun:127.0.0.1:{udp}'}},
        {{urls: ['turn:127.0.0.1:{udp}', 'turn:127.0.0.1:{tcp}?transport=tcp'], username: 'u', credential: 'c'}},
    ]}});
    call.createDataChannel('x');
    call.onicegatheringstatechange = () => call.iceGatheringState === 'complete' && settle();
    call.createOffer().then(offer => call.setLocalDescription(offer));
"""


async def test_what_a_page_asks_for_reaches_allowed_hosts_and_no_others(behind: Behind) -> None:
    for way, script in WAYS.items():
        for url in (behind.bad(f"/{way}"), behind.good(f"/{way}")):
            await run(behind.tab, SETTLES.format(script.format(url=url)))
        # The one that is allowed arrived, so the other would have arrived as well by now.
        await until(lambda way=way: f"good.test /{way}" in behind.origin.asked)
    assert not behind.saw("bad.test")


async def test_a_websocket_to_an_allowed_host_opens(behind: Behind) -> None:
    opens = "const w = new WebSocket('{}'); w.onopen = () => settle('open'); w.onerror = () => settle('error')"
    url = behind.good().replace("http", "ws")
    assert await run(behind.tab, SETTLES.format(opens.format(url))) == "open"


async def test_this_machine_is_out_of_reach_under_every_name(behind: Behind) -> None:
    asked = len(behind.origin.asked)
    for alias in ALIASES:
        await run(behind.tab, SETTLES.format(WAYS["fetch"].format(url=behind.origin.url(alias))))
    for alias in ALIASES:
        assert await visit(behind.tab, behind.origin.url(alias)) in (403, None), alias
    assert [each for each in behind.origin.asked[asked:] if "favicon" not in each] == []


async def test_a_page_without_our_context_is_behind_the_policy_too(browser: ChromiumBrowser, behind: Behind) -> None:
    made = await browser._connection.call("Target.createBrowserContext", {"disposeOnDetach": True})
    for context_id in (made["browserContextId"], ""):
        tab = await browser.new_tab(context_id)
        assert await visit(tab, behind.bad()) == 403
        assert await visit(tab, behind.origin.url("127.0.0.1")) == 403
        await browser.close_tab(tab.target_id)


async def test_nothing_is_sent_around_the_proxy_to_be_faster_or_to_call_somebody(behind: Behind) -> None:
    assert await sent_around(behind.tab) == 0


async def sent_around(tab: ChromiumTab) -> int:
    """How many packets and connections reach us past the proxy, while the page hints and calls as much as it can."""
    reached: list[object] = []

    class Ear(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            reached.append(data)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(writer)
        writer.close()

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Ear, local_addr=("127.0.0.1", 0))
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    udp, tcp = transport.get_extra_info("sockname")[1], server.sockets[0].getsockname()[1]
    try:
        await run(tab, SETTLES.format(HINTS_AND_CALLS.format(udp=udp, tcp=tcp)))
    finally:
        transport.close()
        server.close()
    return len(reached)


# --- The full build -------------------------------------------------------------------------------------------------


async def test_the_full_build_keeps_to_the_policy_in_every_way(tmp_path: Path) -> None:
    async with serving() as origin, behind_policy(tmp_path, browser="chromium", **POLICY) as (browser, _):
        for tab in (await blank_tab(browser), await browser.new_tab("")):
            assert await visit(tab, origin.url("127.0.0.1")) == 403
            assert await visit(tab, origin.url("good.test", "/to?" + origin.url("bad.test"))) == 403
        assert await visit(tab, origin.url("good.test")) == 200
        for way in WAYS.values():
            await run(tab, SETTLES.format(way.format(url=origin.url("bad.test"))))
        assert {asked.partition(" ")[0] for asked in origin.asked} == {"good.test"}
        assert await sent_around(tab) == 0


# --- Names ----------------------------------------------------------------------------------------------------------


async def test_the_browser_itself_asks_nobody_where_names_lead(tmp_path: Path) -> None:
    noted = tmp_path / "net.json"
    flags = [f"--log-net-log={noted}"]
    async with serving() as origin, behind_policy(tmp_path, flags=flags, **POLICY) as (browser, _):
        tab = await blank_tab(browser)
        assert await visit(tab, origin.url("good.test")) == 200
        assert await visit(tab, origin.url("bad.test")) == 403
        # It writes the end of its notes only when it closes by itself.
        await asyncio.gather(browser._connection.call("Browser.close"), return_exceptions=True)
        await until(lambda: not is_running(browser.row.pid))
    log = json.loads(noted.read_text())
    kinds = {number: name for name, number in log["constants"]["logEventTypes"].items()}
    lookups = [event for event in log["events"] if kinds[event["type"]].startswith("HOST_RESOLVER_MANAGER")]
    assert [event for event in lookups if ".test" in json.dumps(event.get("params"))] == []


# --- Lives ----------------------------------------------------------------------------------------------------------


async def test_without_its_proxy_a_page_has_no_network_and_with_the_next_it_has(tmp_path: Path) -> None:
    config = with_pool(**POLICY)
    async with serving() as origin:
        async with running(config, tmp_path) as egress:
            launcher = ChromiumLauncher(tmp_path / "profiles", config.pools, proxies=egress.proxies)
            browser = await launcher.launch(new_row())
        try:
            tab = await blank_tab(browser)
            assert await visit(tab, origin.url("good.test")) is None
            assert origin.asked == []
            async with running(config, tmp_path):
                assert await visit(tab, origin.url("good.test")) == 200
        finally:
            await browser.stop()


async def test_a_killed_proxy_is_back_before_the_page_notices_more_than_a_pause(tmp_path: Path) -> None:
    others = proxies_of(os.getpid())
    async with serving() as origin, behind_policy(tmp_path, **POLICY) as (browser, _):
        tab = await blank_tab(browser)
        assert await visit(tab, origin.url("good.test")) == 200
        (child,) = (each for each in proxies_of(os.getpid()) if each not in others)
        child.kill()
        await until(lambda: child not in proxies_of(os.getpid()))
        assert await visit(tab, origin.url("good.test", "/again")) == 200


async def test_a_browser_is_only_taken_over_with_the_proxy_that_it_was_started_with(tmp_path: Path) -> None:
    pools = with_pool(**POLICY).pools
    mine, other = Proxy(server="127.0.0.1:29999"), Proxy(server="127.0.0.1:29998")

    def launcher(proxy: Proxy | None) -> ChromiumLauncher:
        return ChromiumLauncher(tmp_path, pools, proxies={} if proxy is None else {"default": proxy})

    browser = await launcher(mine).launch(new_row())
    try:
        assert await launcher(other).adopt(browser.row) is None
        assert await launcher(None).adopt(browser.row) is None
        adopted = await launcher(mine).adopt(browser.row)
        assert adopted is not None
        assert adopted.proxy == mine.context_params
        await adopted.stop()
    finally:
        await browser.stop()


async def test_a_browser_from_before_the_policy_is_not_taken_over(tmp_path: Path) -> None:
    browser = await ChromiumLauncher(tmp_path, with_pool().pools).launch(new_row())
    try:
        proxies = {"default": Proxy(server="127.0.0.1:29999")}
        assert await ChromiumLauncher(tmp_path, with_pool(**POLICY).pools, proxies=proxies).adopt(browser.row) is None
    finally:
        await browser.stop()


# --- Attached browsers ----------------------------------------------------------------------------------------------


async def test_contexts_in_an_attached_browser_are_behind_the_policy(tmp_path: Path) -> None:
    profile = tmp_path / "host"
    profile.mkdir()
    async with (
        serving() as origin,
        hosting(profile, flags=WEBRTC_FLAGS) as host,
        behind_policy(tmp_path, source="attach", endpoint=host.http, **POLICY) as (browser, _),
    ):
        tab = await blank_tab(browser)
        assert await visit(tab, origin.url("good.test")) == 200
        assert await visit(tab, origin.url("bad.test")) == 403
        assert await visit(tab, origin.url("127.0.0.1")) == 403


async def test_an_attached_browser_that_calls_around_a_proxy_is_not_used(tmp_path: Path) -> None:
    profile = tmp_path / "host"
    profile.mkdir()
    proxies = {"default": Proxy(server="127.0.0.1:29999")}
    async with hosting(profile) as host:
        pools = with_pool(source="attach", endpoint=host.http, **POLICY).pools
        with pytest.raises(LaunchFailed, match="--webrtc-ip"):
            await ChromiumLauncher(tmp_path, pools, proxies=proxies).launch(new_row())


async def test_what_was_made_in_an_attached_browser_before_the_policy_is_not_taken_over(tmp_path: Path) -> None:
    profile = tmp_path / "host"
    profile.mkdir()
    async with hosting(profile, flags=WEBRTC_FLAGS) as host:
        pools = with_pool(source="attach", endpoint=host.http, **POLICY).pools
        launcher = ChromiumLauncher(tmp_path, pools, proxies={"default": Proxy(server="127.0.0.1:2", since_ms=1_000)})
        row = changed(new_row(), started_at=999)
        browser = await launcher.launch(row)
        try:
            assert await launcher.adopt(browser.row) is None
            adopted = await launcher.adopt(changed(browser.row, started_at=1_000))
            assert adopted is not None
            await adopted.stop()
        finally:
            await browser.stop()
