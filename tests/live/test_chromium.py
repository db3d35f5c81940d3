"""The live view of real pages: pictures of what is there, a person's mouse and keys, crashes, hidden pages."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tests.cdp_life.house import House, house
from tests.cdp_life.wire_client import wire_client
from tests.server.local_site import serving

from tabherd.actions.evaluate import is_navigation
from tabherd.browsers.port import CdpFailure

from .site import Site
from .viewer import LIMIT_S, LiveClient, Picture, watching

pytestmark = [pytest.mark.browser, pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]


# For what the builds do differently: pictures, focus and visibility.
each_build = pytest.mark.parametrize("scene", ["headless-shell", "chromium"], indirect=True)


class Scene:
    """A server with a real Chromium, an agent, and what that agent can see of its pages."""

    def __init__(self, here: House, token: str, http: httpx.AsyncClient, site: Site) -> None:
        self.house = here
        self.token = token
        self.http = http
        self.site = site

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.house.port}"

    async def open(self, page: str = "/page", **request: Any) -> str:
        """A session at that page: its tab."""
        answer = await self.http.post("/sessions", json={"url": self.site.url(page), "keepAlive": True, **request})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["tabs"][0]["tabId"])

    async def action(self, tab: str, kind: str, **params: Any) -> httpx.Response:
        return await self.http.post(f"/tabs/{tab}/action", json={"kind": kind, **params})

    async def value(self, tab: str, expression: str) -> Any:
        answer = await self.action(tab, "evaluate", expression=expression, waitPolicy="wait_with_timeout")
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    def watch(self, tab: str, **query: Any) -> Any:
        return watching(self.url, tab, self.token, **query)

    async def inside(self, tab: str, expression: str) -> Any:
        """What the page makes of it, past every gate: for looking at it while a person has it."""
        live = self.house.broker.registry.tab(tab)
        assert live is not None
        assert live.port is not None
        answer = await live.port.call("Runtime.evaluate", {"expression": expression, "returnByValue": True})
        return answer["result"].get("value")

    async def until_inside(self, tab: str, expression: str) -> Any:
        """The same, until it is true. A look that a navigation overtakes has seen nothing yet."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    if found := await self.inside(tab, expression):
                        return found
                except CdpFailure as failure:
                    if not is_navigation(failure):
                        raise
                await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving(Site()) as live:
        yield live


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["headless-shell"])
async def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, site: Site
) -> AsyncIterator[Scene]:
    directory: Path = tmp_path_factory.mktemp(request.param)
    async with house(directory, browser=request.param) as here:
        token = await here.token()
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{here.port}", headers=headers, timeout=LIMIT_S
        ) as http:
            yield Scene(here, token, http, site)


async def colour_of(picture: Picture, scene: Scene, tab: str) -> tuple[int, int, int]:
    """The colour in the middle of a picture; a browser knows how to read a JPEG."""
    source = f"data:image/jpeg;base64,{base64.b64encode(picture.jpeg).decode()}"
    script = f"""(async () => {{ const image = new Image(); image.src = {json.dumps(source)}; await image.decode();
      const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext('2d');
      pen.drawImage(image, 0, 0);
      return [...pen.getImageData(image.width / 2, image.height / 2, 1, 1).data.slice(0, 3)]; }})()"""
    red, green, blue = await scene.value(tab, script)
    return red, green, blue


async def drive(viewer: LiveClient) -> None:
    """Take the tab over, as a person does: who sees the page."""
    await viewer.picture()
    await viewer.take()


def near(colour: tuple[int, int, int], wanted: tuple[int, int, int]) -> bool:
    return all(abs(one - other) < 24 for one, other in zip(colour, wanted, strict=True))


async def until_shown(viewer: LiveClient, wanted: tuple[int, int, int], scene: Scene, reader: str) -> None:
    """Returns when the newest picture has that colour; one that was taken before the page was drawn has none."""
    async with asyncio.timeout(LIMIT_S):
        while not near(await colour_of(viewer.pictures[-1], scene, reader), wanted):
            await asyncio.sleep(0.05)


@each_build
async def test_the_picture_is_of_the_page_and_follows_it(scene: Scene) -> None:
    tab, reader = await scene.open("/red"), await scene.open()
    async with scene.watch(tab) as viewer:
        first = await viewer.picture()
        assert first.jpeg.startswith(b"\xff\xd8")
        width, height = await scene.value(tab, "[innerWidth, innerHeight]")
        assert (first.header["width"], first.header["height"]) == (width, height)
        await until_shown(viewer, (255, 0, 0), scene, reader)
        await scene.action(tab, "navigate", url=scene.site.url("/blue"))
        await viewer.state(lambda state: state["tab"]["url"].endswith("/blue"))
        await until_shown(viewer, (0, 0, 255), scene, reader)


async def test_a_page_that_does_not_change_sends_nothing(scene: Scene) -> None:
    tab = await scene.open()
    async with scene.watch(tab) as viewer:
        await viewer.picture()
        # A few settle the page. A second is long enough for many, if they went on.
        async with asyncio.timeout(LIMIT_S):
            count = 0
            while count != len(viewer.pictures):
                count = len(viewer.pictures)
                await asyncio.sleep(1)


async def test_the_last_change_is_shown_also_to_a_viewer_that_slept_through_it(scene: Scene) -> None:
    tab, reader = await scene.open(), await scene.open()
    async with scene.watch(tab, acks=False) as viewer:
        await viewer.picture()
        # More changes than Chromium tells of to somebody who does not listen.
        for step in range(8):
            await scene.value(tab, f"document.body.style.background = 'rgb({step * 30}, 0, 0)'; 1")
            await asyncio.sleep(0.05)
        await scene.value(tab, "document.body.style.background = 'rgb(0, 255, 0)'; 1")
        viewer.acks = True
        await viewer.say("ack", seq=viewer.pictures[-1].header["seq"])
        await until_shown(viewer, (0, 255, 0), scene, reader)


@each_build
async def test_watching_changes_nothing_that_a_page_could_notice(scene: Scene) -> None:
    tab = await scene.open()
    look = "[innerWidth, innerHeight, document.hasFocus(), document.visibilityState]"
    # Its window may have got its first focus only after the page's script ran, watched or not.
    before = await scene.value(tab, f"seen.length = 0; {look}")
    async with scene.watch(tab, width=100, height=100) as viewer:
        await viewer.picture()
        assert await scene.value(tab, look) == before
    assert await scene.value(tab, "seen") == []


@each_build
async def test_a_page_in_the_background_is_shown_and_does_not_notice(scene: Scene) -> None:
    tab = await scene.open("/red")
    reader = await scene.open()
    session = (await scene.http.get(f"/tabs/{tab}")).json()["sessionId"]
    front = (await scene.http.post(f"/sessions/{session}/tabs", json={"url": scene.site.url("/page")})).json()["tabId"]
    await scene.action(tab, "evaluate", expression="seen.length = 0")
    hidden = await scene.value(tab, "document.visibilityState")
    async with scene.watch(tab) as viewer:
        await viewer.picture()
        await until_shown(viewer, (255, 0, 0), scene, reader)
        await scene.value(tab, "document.body.style.background = 'blue'; 1")
        await until_shown(viewer, (0, 0, 255), scene, reader)
        assert await scene.value(tab, "document.visibilityState") == hidden
        assert await scene.value(tab, "seen") == []
        # Whoever drives it has it as if it were in front.
        await drive(viewer)
        await scene.until_inside(tab, "document.visibilityState === 'visible' && document.hasFocus()")
        await viewer.click(60, 40)
        await viewer.press("a", "KeyA")
        await scene.until_inside(tab, "field.value === 'a'")
        await viewer.say("give")
        await viewer.state(lambda state: state["tab"]["state"] == "ready")
    assert await scene.value(front, "seen.filter(([kind]) => kind !== 'focus').length") == 0


async def test_a_person_uses_the_mouse_and_the_keyboard(scene: Scene) -> None:
    tab = await scene.open()
    async with scene.watch(tab) as viewer:
        await drive(viewer)
        await viewer.click(60, 40)
        for letter in "Hi":
            await viewer.press(letter, f"Key{letter.upper()}", modifiers=8 if letter == "H" else 0)
        await viewer.say("text", text=" wörld 👋")
        await scene.until_inside(tab, "field.value === 'Hi wörld 👋'")
        await viewer.press("a", "KeyA", modifiers=2)
        await viewer.press("Backspace", "Backspace")
        await scene.until_inside(tab, "field.value === ''")
        await viewer.click(90, 95)
        await viewer.click(300, 300, "right")
        await viewer.click(310, 300, "middle")
        await scene.until_inside(tab, "seen.some(([kind]) => kind === 'contextmenu')")
        await scene.until_inside(tab, "seen.some(([kind, , button]) => kind === 'auxclick' && button === 1)")
        clicks = await scene.inside(tab, "JSON.stringify(seen.filter(([kind]) => kind === 'click'))")
        assert json.loads(clicks) == [["click", "field", 0, 60, 40, True], ["click", "go", 0, 90, 95, True]]
        for count in (1, 2):
            at = {"x": 300, "y": 300, "button": "left", "clickCount": count}
            await viewer.say("mouse", event="down", **at, buttons=1)
            await viewer.say("mouse", event="up", **at)
        await scene.until_inside(tab, "seen.some(([kind]) => kind === 'dblclick')")
        await scene.inside(tab, "document.body.style.height = '5000px'")
        await viewer.say("mouse", event="wheel", x=200, y=200, deltaY=400)
        await scene.until_inside(tab, "scrollY === 400")
        await viewer.until(lambda: viewer.pictures[-1].header["scrollY"] == 400)


async def test_a_press_lands_exactly_where_it_was_aimed_at_however_small_the_picture_is(scene: Scene) -> None:
    tab = await scene.open(viewport={"width": 1111, "height": 777, "deviceScaleFactor": 2})
    async with scene.watch(tab, width=300, height=300) as viewer:
        header = (await viewer.picture()).header
        assert (header["width"], header["height"]) == (1111, 777)
        await drive(viewer)
        for x, y in ((0, 0), (1110, 776), (555, 388)):
            await viewer.click(x, y)
            await scene.until_inside(
                tab, f"seen.some(([kind,,, x, y]) => kind === 'mousedown' && x === {x} && y === {y})"
            )


async def test_address_history_and_reload(scene: Scene) -> None:
    tab = await scene.open("/page")
    async with scene.watch(tab) as viewer:
        await drive(viewer)
        await viewer.say("navigate", url=scene.site.url("/blue"))
        await viewer.state(lambda state: state["tab"]["title"] == "blue")
        await viewer.say("history", by=-1)
        await viewer.state(lambda state: state["tab"]["title"] == "page")
        await scene.inside(tab, "mark = 1")
        await viewer.say("reload")
        await scene.until_inside(tab, "typeof mark === 'undefined' && document.readyState === 'complete'")
        await viewer.say("navigate", url="chrome://settings")
        assert (await viewer.next("error"))["code"] == "policy_denied"
        await viewer.say("navigate", url="http://127.0.0.1:9/")
        assert (await viewer.next("error"))["code"] == "navigation_failed"


async def test_a_button_that_is_held_when_a_person_leaves_is_not_clicked(scene: Scene) -> None:
    tab = await scene.open()
    async with scene.watch(tab) as viewer:
        await drive(viewer)
        await viewer.say("mouse", event="down", x=90, y=95, button="left", buttons=1, clickCount=1)
        await scene.until_inside(tab, "seen.some(([kind, id]) => kind === 'mousedown' && id === 'go')")
    await scene.until_inside(tab, "seen.some(([kind]) => kind === 'mouseup')")
    assert await scene.inside(tab, "seen.some(([kind, id]) => kind === 'click' && id === 'go')") is False
    assert (await scene.http.get(f"/tabs/{tab}")).json()["state"] == "paused"


async def test_what_a_cdp_client_sends_waits_while_a_person_drives(scene: Scene) -> None:
    tab = await scene.open()
    session = (await scene.http.get(f"/tabs/{tab}")).json()["sessionId"]
    address = f"ws://127.0.0.1:{scene.house.port}/?session={session}"
    async with wire_client(address, scene.token) as client, scene.watch(tab) as viewer:
        page = await client.page()
        await drive(viewer)
        sent = await client.send("Runtime.evaluate", {"expression": "document.title = 'agent'"}, page)
        await viewer.click(60, 40)
        await viewer.press("p", "KeyP")
        await scene.until_inside(tab, "field.value === 'p'")
        assert await scene.inside(tab, "document.title") == "page"
        await viewer.say("give")
        await client.result(sent)
        assert await scene.inside(tab, "document.title") == "agent"


async def test_the_view_goes_on_by_itself_after_a_crash_and_the_page_is_still_theirs(scene: Scene) -> None:
    tab = await scene.open("/red")
    async with scene.watch(tab) as viewer:
        await drive(viewer)
        before = (await viewer.picture()).header["seq"]
        live = scene.house.broker.registry.tab(tab)
        assert live is not None
        assert live.port is not None
        live.port.post("Page.crash")
        state = await viewer.state(lambda state: state["tab"]["generation"] == 2 and state["tab"]["state"] == "paused")
        assert state["driver"]["isYou"]
        await viewer.picture(after=before)
        await viewer.click(60, 40)
        await viewer.press("y", "KeyY")
        await scene.until_inside(tab, "field.value === 'y'")


async def test_a_page_cannot_open_the_live_view(scene: Scene) -> None:
    tab = await scene.open()
    address = f"ws://127.0.0.1:{scene.house.port}/live/{tab}?token={scene.token}"
    script = f"""new Promise(done => {{ const socket = new WebSocket({json.dumps(address)});
      socket.onopen = () => done('open'); socket.onclose = () => done('refused'); }})"""
    assert await scene.value(tab, script) == "refused"
