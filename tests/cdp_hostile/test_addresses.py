"""Addresses outside the web, in every spelling and by every way: no local file is read and the browser survives."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from .conftest import Scene
from .hostile import Shot

pytestmark = [pytest.mark.server, pytest.mark.browser]

FILE = "file:///etc/passwd"
# What is in that file on every machine, and on no page of the site.
IN_FILE = "root:"
OUTSIDE = (
    *(FILE, "FILE:///etc/passwd", "  file:///etc/passwd", "\x01file:///etc/passwd", "fi\tle:///etc/passwd"),
    *("file:\n///etc/passwd", "file:/etc/passwd", "file:etc/passwd", "file://localhost/etc/passwd"),
    *("file:\\\\\\etc\\passwd", "view-source:file:///etc/passwd", "View-Source:view-source:http://localhost/"),
    *("view-source:http://localhost/", "chrome://version", "CHROME://settings", "chrome:version", "chrome://crash"),
    *("chrome://kill", "chrome-untrusted://terminal", "about:version", "about:settings", "about:crash"),
    *("devtools://devtools/bundled/inspector.html", "filesystem:http://localhost/temporary/x", "javascript:alert(1)"),
    *(
        "chrome-extension://mhjfbmdgcfjbbpaeojofohoefgiehjai/index.html",
        "chrome-search://local-ntp",
        "ftp://localhost/",
    ),
    *("content://x/y", "isolated-app://x/", "externalfile:x", "intent://x#Intent;end"),
)
# What a page can try by itself with an address.
BY_SCRIPT = """(async url => {
  const tried = [];
  const attempt = async (name, what) => {
    try { tried.push([name, String(await what())]) } catch (error) { tried.push([name, String(error)]) }
  };
  await attempt('fetch', async () => (await fetch(url)).text());
  await attempt('xhr', () => {
    const request = new XMLHttpRequest(); request.open('GET', url, false); request.send(); return request.response;
  });
  await attempt('frame', () => new Promise(done => {
    const frame = document.createElement('iframe');
    frame.onload = () => { try { done(frame.contentDocument.body.innerText) } catch (error) { done(String(error)) } };
    setTimeout(done, 300, 'nothing'); frame.src = url; document.body.append(frame);
  }));
  await attempt('worker', () => { new Worker(url); return '' });
  await attempt('import', () => import(url));
  await attempt('open', () => { const opened = window.open(url); return opened && opened.document.body.innerText });
  await attempt('object', () => { const o = document.createElement('object'); o.data = url; document.body.append(o) });
  await attempt('link', () => {
    const link = document.createElement('a'); link.href = url; document.body.append(link); link.click();
  });
  await attempt('location', () => { location.href = url });
  return tried;
})(%s)"""


async def at_the_site(scene: Scene) -> str:
    """A session of the attacker's with a new page, which has loaded."""
    _, page = await scene.attacker.open_page()
    await scene.attacker.call("Page.enable", {}, page)
    await scene.attacker.call("Page.navigate", {"url": scene.site.url("attackers")}, page)
    await scene.attacker.next(lambda one: one.get("method") == "Page.loadEventFired" and one["sessionId"] == page)
    return page


async def pages_end_on_the_web(scene: Scene) -> None:
    """What the attacker's pages show now is none of the browser's own, nor of the machine's."""
    attacker = scene.attacker
    own = scene.sessions.ids["targetId"]
    for one in await attacker.pages():
        assert one["url"].partition(":")[0] in ("http", "about", "data", "chrome-error", ""), one
        if one["targetId"] != own:
            await attacker.call("Target.closeTarget", {"targetId": one["targetId"]})
    assert [text for text in attacker.heard if IN_FILE in text] == []


def by_command(scene: Scene, url: str) -> list[Shot]:
    by_kind = scene.sessions.by_kind
    resource = {"url": url, "frameId": scene.sessions.ids["targetId"], "options": {}}
    return [
        Shot("Page.navigate", {"url": url}, by_kind["page"]),
        Shot("Page.navigate", {"url": url}, by_kind["iframe"]),
        *(Shot("Target.createTarget", {"url": url}, session_id) for session_id in by_kind.values()),
        Shot("Network.loadNetworkResource", resource, by_kind["page"]),
        Shot("Network.loadNetworkResource", resource, by_kind["worker"]),
        Shot("Fetch.continueRequest", {"requestId": "x", "url": url}, by_kind["page"]),
        Shot("Fetch.continueRequest", {"requestId": "x", "url": url}, by_kind["service_worker"]),
    ]


async def test_no_command_sends_a_page_outside_the_web(scene: Scene) -> None:
    shots = [shot for url in OUTSIDE for shot in by_command(scene, url)]
    answered = await scene.attacker.volley(shots)
    assert [one for one in answered if one[1] is None or "error" not in one[1]] == []
    await pages_end_on_the_web(scene)


async def test_no_script_sends_a_page_outside_the_web_and_none_in_a_world_that_may_read_every_site(
    scene: Scene,
) -> None:
    attacker = scene.attacker
    for url in (FILE, "chrome://version/", "devtools://devtools/"):
        page = await at_the_site(scene)
        tried = await attacker.value(BY_SCRIPT % json.dumps(url), page, userGesture=True)
        assert len(tried) == 9
        assert await attacker.value("location.protocol", page) == "http:"
    page = await at_the_site(scene)
    frame_id = (await attacker.call("Target.getTargetInfo", {}, page))["targetInfo"]["targetId"]
    told = {"frameId": frame_id, "grantUniveralAccess": True, "worldName": "all"}
    world = (await attacker.call("Page.createIsolatedWorld", told, page))["executionContextId"]
    await attacker.value(BY_SCRIPT % json.dumps(FILE), page, contextId=world, userGesture=True)
    await pages_end_on_the_web(scene)


async def test_no_redirect_and_no_made_up_answer_leads_outside_the_web(scene: Scene) -> None:
    attacker = scene.attacker
    _, page = await attacker.open_page("about:blank")
    for url in (FILE, "chrome://version/"):
        redirect = scene.site.url("attackers", f"redirect?to={quote(url)}")
        told = await attacker.call("Page.navigate", {"url": redirect}, page)
        assert told["errorText"] == "net::ERR_UNSAFE_REDIRECT"
    await attacker.call("Fetch.enable", {"patterns": [{"urlPattern": "*"}]}, page)
    navigating = await attacker.send("Page.navigate", {"url": scene.site.url("attackers", "text")}, page)
    paused = await attacker.event("Fetch.requestPaused")
    answer: dict[str, Any] = {"requestId": paused["requestId"], "responseCode": 302}
    answer["responseHeaders"] = [{"name": "Location", "value": FILE}]
    await attacker.call("Fetch.fulfillRequest", answer, page)
    assert (await attacker.result(navigating))["errorText"] == "net::ERR_UNSAFE_REDIRECT"
    await pages_end_on_the_web(scene)
