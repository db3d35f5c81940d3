"""`live`: how quick the live view of a tab is, and what it costs the agents that use the tab.

The page draws the time into itself, as squares of black and white, with every frame; a viewer notes when each frame
arrived, and afterwards the pictures are read again. The age of a frame is from the script that drew it to the socket of
its viewer: Chromium's drawing and packing, the broker, and loopback. All are processes of one machine and share its
cores and its clock. With four viewers the slowest of them counts. Beside it, in turns, is the limit: a viewer directly
on Chromium's own socket, who takes each frame at once.

The clicks are those of an agent on the very tab that is watched, in turns with and without a viewer.

Headless-shell, and in the long run full Chromium, whose figures begin with `full_`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import psutil
import uvloop
from picows.websockets import connect

from bench import Figure, percentile
from bench.rig.caller import Caller, now_ms
from bench.rig.direct import FULL, HEADLESS_SHELL
from bench.rig.server import Server, running
from bench.rig.site import DESK_PATH, small_page
from tabherd.browsers.cdp import CdpConnection
from tabherd.browsers.endpoint import read_page

WATCHED_S: Final = 10.0
# Not counted: whatever is made at first use.
WARM_UP_S: Final = 1.0
MANY: Final = 4
ROUNDS: Final = 40
CLICKS_PER_ROUND: Final = 5
BAR_FRAMES_PER_S: Final = 10
BAR_DELAY_MS: Final = 200
# Pictures that are read again, spread over all: reading one takes longer than drawing it.
READ_MAX: Final = 100
BITS: Final = 42
DIRECT: Final = "direct"
PORT_FLAG: Final = "--remote-debugging-port="
SQUARE_PX: Final = 16
VIEWPORT: Final = {"width": 1280, "height": 720}

# The time in squares along the upper edge, and something that moves below.
CLOCK: Final = f"""data:text/html,<title>Clock</title><body style='margin:0'>
<canvas id=c width=1280 height=720></canvas><script>const pen = c.getContext('2d'); let n = 0;
function draw() {{ const now = Date.now(); n += 1;
  for (let bit = 0; bit < {BITS}; bit++) {{ pen.fillStyle = Math.floor(now / 2 ** bit) % 2 ? 'white' : 'black';
    pen.fillRect(bit * {SQUARE_PX}, 0, {SQUARE_PX}, {SQUARE_PX}); }}
  pen.fillStyle = `hsl(${{n % 360}}, 70%, 60%)`; pen.fillRect(100 + n % 900, 200, 80, 80);
  requestAnimationFrame(draw); }}
draw()</script>""".replace("%", "%25").replace("\n", " ")
# What the squares of a picture say.
READ: Final = """(async () => {{ const image = new Image(); image.src = 'data:image/jpeg;base64,{data}';
  await image.decode(); const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext('2d');
  pen.drawImage(image, 0, 0); const side = image.width / {width} * {side}; let time = 0;
  for (let bit = 0; bit < {bits}; bit++)
    time += (pen.getImageData((bit + .5) * side, side / 2, 1, 1).data[0] > 127) * 2 ** bit;
  return time; }})()"""


class Arrival(msgspec.Struct, frozen=True):
    """A frame as it came."""

    at_ms: float
    jpeg: bytes


def run() -> dict[str, Figure]:
    return uvloop.run(_measure(HEADLESS_SHELL, ""))


def run_long() -> dict[str, Figure]:
    return uvloop.run(_measure(FULL, "full_"))


async def _measure(kind: str, prefix: str) -> dict[str, Figure]:
    settings = {"pools__default__browser": kind, "pools__default__browsers_max": 1}
    figures: dict[str, Figure] = {}
    with small_page() as url, running(**settings) as server, server.caller() as caller:
        clock = caller.open(keepAlive=True, url=CLOCK, viewport=VIEWPORT).tab_id
        reader = caller.open(keepAlive=True).tab_id
        direct = await _watch_directly(caller)
        direct_ages = _ages_ms(caller, reader, direct)
        for viewers, suffix in ((1, ""), (MANY, f"_{MANY}_viewers")):
            seen = await asyncio.gather(*(_watch(server, clock) for _ in range(viewers)))
            ages = [age for arrivals in seen for age in _ages_ms(caller, reader, arrivals)]
            figures |= {
                f"frames_per_s{suffix}": Figure(
                    ours=min(map(len, seen)) / WATCHED_S,
                    unit="/s",
                    others={DIRECT: len(direct) / WATCHED_S},
                    at_least=BAR_FRAMES_PER_S,
                ),
                f"delay_p50{suffix}": Figure.median_of(ages, "ms", others={DIRECT: direct_ages}, at_most=BAR_DELAY_MS),
                f"delay_p95{suffix}": Figure(
                    ours=percentile(ages, 95),
                    unit="ms",
                    others={DIRECT: percentile(direct_ages, 95)},
                    at_most=BAR_DELAY_MS,
                ),
            }
        figures["click_p50_while_watched"] = await _clicks(server, caller, f"{url}{DESK_PATH}")
    return {f"{prefix}{name}": figure for name, figure in figures.items()}


def _ages_ms(caller: Caller, reader: str, arrivals: list[Arrival]) -> list[float]:
    """How old each frame was when it arrived, by the time that it shows."""
    ages: list[float] = []
    for arrival in arrivals[:: max(1, len(arrivals) // READ_MAX)]:
        data = base64.b64encode(arrival.jpeg).decode()
        script = READ.format(data=data, width=VIEWPORT["width"], side=SQUARE_PX, bits=BITS)
        ages.append(arrival.at_ms - caller.evaluate(reader, script))
    return ages


# --- Viewers ------------------------------------------------------------------------------------------------------


async def _watch(server: Server, tab_id: str) -> list[Arrival]:
    """What one viewer gets to see in the time that is measured."""
    arrivals: list[Arrival] = []
    async with _viewer(server, tab_id, arrivals):
        await asyncio.sleep(WARM_UP_S)
        arrivals.clear()
        await asyncio.sleep(WATCHED_S)
        return list(arrivals)


async def _watch_directly(caller: Caller) -> list[Arrival]:
    """The same for who is connected to Chromium itself."""
    (pid,) = caller.browser_pids()
    port = next(int(word.partition("=")[2]) for word in psutil.Process(pid).cmdline() if word.startswith(PORT_FLAG))
    pages = msgspec.json.decode(await read_page("127.0.0.1", port, "/json/list"))
    address = next(page["webSocketDebuggerUrl"] for page in pages if page["title"] == "Clock")
    connection = await CdpConnection.connect(address)
    arrivals: list[Arrival] = []

    def take(event: Mapping[str, Any]) -> None:
        arrivals.append(Arrival(time.time() * 1000, base64.b64decode(event["data"])))
        connection.post("Page.screencastFrameAck", {"sessionId": event["sessionId"]})

    connection.listen(None, "Page.screencastFrame", take)
    try:
        look = {"format": "jpeg", "quality": 60, "maxWidth": VIEWPORT["width"], "maxHeight": VIEWPORT["height"]}
        await connection.call("Page.startScreencast", look)
        await asyncio.sleep(WARM_UP_S)
        arrivals.clear()
        await asyncio.sleep(WATCHED_S)
        return list(arrivals)
    finally:
        await connection.close()


@asynccontextmanager
async def _viewer(server: Server, tab_id: str, arrivals: list[Arrival]) -> AsyncIterator[None]:
    """Somebody who watches that tab, and takes each frame at once."""
    address = f"ws{server.url.removeprefix('http')}/live/{tab_id}?token={server.token}&width=1280&height=720"
    async with connect(address, max_size=None, compression=None) as connection:

        async def take() -> None:
            while True:
                message = await connection.recv()
                if isinstance(message, str):
                    continue
                at_ms = time.time() * 1000
                size = int.from_bytes(message[:4], "big")
                header = json.loads(bytes(message[4 : 4 + size]))
                arrivals.append(Arrival(at_ms, bytes(message[4 + size :])))
                await connection.send(json.dumps({"type": "ack", "seq": header["seq"]}))

        taking = asyncio.create_task(take())
        try:
            yield
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)


# --- Agents -------------------------------------------------------------------------------------------------------


async def _clicks(server: Server, caller: Caller, url: str) -> Figure:
    """What a click takes on a tab that somebody watches, beside the same without."""
    tab = caller.open(keepAlive=True, url=url, viewport=VIEWPORT).tab_id
    watched: list[float] = []
    alone: list[float] = []
    for _ in range(ROUNDS):
        alone.extend(await asyncio.to_thread(_click, caller, tab))
        async with _viewer(server, tab, []):
            await asyncio.sleep(0.1)
            watched.extend(await asyncio.to_thread(_click, caller, tab))
    return Figure.median_of(watched, "ms", others={"nobody watches": alone})


def _click(caller: Caller, tab_id: str) -> list[float]:
    took: list[float] = []
    for _ in range(CLICKS_PER_ROUND):
        began = now_ms()
        caller.act(tab_id, "click", selector="#go")
        took.append(now_ms() - began)
    return took
