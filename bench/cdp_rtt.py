"""`cdp_rtt`: what the CDP endpoint costs per message and per client, beside the same Chromium without it, in turns.

Three clients have a session on the very same page: one through the broker, one directly on Chromium's own socket, which
is the limit, and one through a proxy that looks at nothing, which is the floor for any proxy in Python. They take
turns, each alone while it is measured: round trips of `Runtime.evaluate` one after the other, then with many on their
way at once. The client, the broker (or that proxy) and Chromium are processes of their own and share the machine's
cores, whoever is measured; so processor time per round trip is counted too, which depends less on who else is there.

browserless takes turns with them, where it is installed: it has a Chromium of its own, of the same build, for each
client, and passes messages on from there. Its page shows the same as ours, and nobody else is attached to it.

Clients that are connected and say nothing are measured apart: what the broker needs more with a hundred of them in a
session than with one. Each has a connection of its own to Chromium, as any client has.

Headless-shell, and in the long run full Chromium, whose figures begin with `full_`.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import psutil
import uvloop

from bench import Figure, percentile
from bench.rig.caller import Caller, Opened
from bench.rig.channel import Channel
from bench.rig.direct import FULL, HEADLESS_SHELL
from bench.rig.memory import weight
from bench.rig.passthrough import passing_through
from bench.rig.peer_browsers import BROWSERLESS, Absent, running_peer
from bench.rig.plot import Plot, distribution
from bench.rig.server import Server, running
from bench.rig.site import small_page
from tabherd.browsers.endpoint import ask_version

ROUNDS: Final = 60
# Not counted: whatever is made at first use.
WARM_UP: Final = 5
TRIPS: Final = 100
PIPELINED: Final = 1_000
IN_FLIGHT: Final = 50
BAR_ROUND_TRIP: Final = 1.35
BAR_THROUGHPUT: Final = 0.85
OURS: Final = "ours"
DIRECT: Final = "direct"
FLOOR: Final = "proxy that does nothing"
# Its Chromium is headless-shell whatever ours is, so it is measured beside that.
PEER: Final = BROWSERLESS.name

CLIENTS: Final = 100
IDLE_S: Final = 20.0
# Until what connecting leaves behind is done.
SETTLE_S: Final = 3.0
BAR_CPU_PERCENT: Final = 1.0
BAR_CLIENT_MB: Final = 1.0
# What clients ask for first: to be told of their pages.
ATTACH: Final = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}


class Way(msgspec.Struct, frozen=True):
    """One way to the page, and what was measured on it."""

    channel: Channel
    # The process in between; 0 where there is none.
    pid: int
    trips_us: list[float] = []
    per_s: list[float] = []
    # Processor time of the process in between, per round trip: one after the other, and with many on their way.
    cpu_us: list[float] = []
    cpu_us_in_flight: list[float] = []

    async def measure(self, *, is_counted: bool) -> None:
        began = _on_cpu_us(self.pid)
        trips_us = await self.channel.round_trips_us(TRIPS)
        between = _on_cpu_us(self.pid)
        per_s = await self.channel.per_second(PIPELINED, IN_FLIGHT)
        ended = _on_cpu_us(self.pid)
        if is_counted:
            self.trips_us.extend(trips_us)
            self.per_s.append(per_s)
            self.cpu_us.append((between - began) / TRIPS)
            self.cpu_us_in_flight.append((ended - between) / PIPELINED)


def run() -> dict[str, Figure | Plot]:
    return {**uvloop.run(_message_figures(HEADLESS_SHELL, "")), **uvloop.run(_client_figures())}


def run_long() -> dict[str, Figure | Plot]:
    return uvloop.run(_message_figures(FULL, "full_"))


# --- Messages -----------------------------------------------------------------------------------------------------


async def _message_figures(kind: str, prefix: str) -> dict[str, Figure | Plot]:
    settings = {"pools__default__browser": kind, "pools__default__browsers_max": 1}
    absent: dict[str, str] = {}
    with small_page() as url, running(**settings) as server, server.caller() as caller:
        async with AsyncExitStack() as stack:
            ways = await stack.enter_async_context(_ways(server, caller, url))
            if kind == HEADLESS_SHELL:
                try:
                    ways[PEER] = await stack.enter_async_context(_peer_way(url))
                except Absent as why:
                    absent[PEER] = str(why)
            for turn in range(WARM_UP + ROUNDS):
                # In either order, so that nobody always comes after the same one.
                for way in list(ways.values())[:: 1 if turn % 2 else -1]:
                    await way.measure(is_counted=turn >= WARM_UP)
    figures: dict[str, Figure | Plot] = {
        f"{prefix}{name}": figure for name, figure in _figures_of(ways, absent).items()
    }
    figures[f"{prefix}cdp_rtt_latency"] = Plot(
        title=f"One Runtime.evaluate at a time ({'full Chromium' if kind == FULL else 'headless-shell'})",
        x="us, there and back",
        y="% of round trips that were over",
        series={"tabherd" if who == OURS else who: distribution(way.trips_us) for who, way in ways.items()},
        is_log_x=True,
    )
    return figures


def _figures_of(ways: dict[str, Way], absent: dict[str, str]) -> dict[str, Figure]:
    ours, direct = ways[OURS], ways[DIRECT]
    peers = [who for who in (FLOOR, PEER) if who in ways]

    def p50(samples: Callable[[Way], list[float]], unit: str, *others: str) -> Figure:
        return Figure.median_of(samples(ours), unit, others={who: samples(ways[who]) for who in others}, absent=absent)

    def to_direct(
        samples: Callable[[Way], list[float]], *, at_most: float | None = None, at_least: float | None = None
    ) -> Figure:
        limit = statistics.median(samples(direct))
        return Figure(
            ours=statistics.median(samples(ours)) / limit,
            unit="ratio",
            others={who: statistics.median(samples(ways[who])) / limit for who in peers},
            absent=absent,
            at_most=at_most,
            at_least=at_least,
        )

    return {
        "round_trip_p50": p50(lambda way: way.trips_us, "us", DIRECT, *peers),
        "round_trip_p99": Figure(
            ours=percentile(ours.trips_us, 99),
            unit="us",
            others={who: percentile(ways[who].trips_us, 99) for who in (DIRECT, *peers)},
        ),
        "round_trip_to_direct": to_direct(lambda way: way.trips_us, at_most=BAR_ROUND_TRIP),
        f"per_s_{IN_FLIGHT}_in_flight": p50(lambda way: way.per_s, "/s", DIRECT, *peers),
        "throughput_to_direct": to_direct(lambda way: way.per_s, at_least=BAR_THROUGHPUT),
        "cpu_per_round_trip": p50(lambda way: way.cpu_us, "us", *peers),
        f"cpu_per_round_trip_{IN_FLIGHT}_in_flight": p50(lambda way: way.cpu_us_in_flight, "us", *peers),
    }


@asynccontextmanager
async def _peer_way(url: str) -> AsyncIterator[Way]:
    """A client of browserless on a page that shows this address; raises `Absent`."""
    with running_peer(BROWSERLESS, places=1) as peer:
        channel = await Channel.connect(peer.cdp_url)
        try:
            made = await channel.call("Target.createTarget", {"url": url})
            await channel.attach(made["targetId"])
            yield Way(channel, peer.pid)
        finally:
            channel.close()


@asynccontextmanager
async def _ways(server: Server, caller: Caller, url: str) -> AsyncIterator[dict[str, Way]]:
    """The three ways to one page that shows this address."""
    session = caller.open(keepAlive=True, url=url)
    (pid,) = caller.browser_pids()
    endpoint = (await ask_version("127.0.0.1", _debug_port(pid))).endpoint
    async with AsyncExitStack() as stack:
        proxy = stack.enter_context(passing_through(endpoint))
        ways: dict[str, Way] = {}
        target_id = ""
        for who, address, between in (
            (OURS, _address(server, session), server.pid),
            (DIRECT, endpoint, 0),
            (FLOOR, proxy.url, proxy.pid),
        ):
            channel = await Channel.connect(address)
            stack.callback(channel.close)
            ways[who] = Way(channel, between)
            if who == OURS:
                # The only page that this client can see.
                (target,) = (await channel.call("Target.getTargets"))["targetInfos"]
                target_id = target["targetId"]
            await channel.attach(target_id)
        yield ways


def _debug_port(pid: int) -> int:
    (port,) = (
        int(word.partition("=")[2])
        for word in psutil.Process(pid).cmdline()
        if word.startswith("--remote-debugging-port=")
    )
    return port


def _on_cpu_us(pid: int) -> float:
    """Time that the main thread of that process has had a processor; 0 for no process."""
    if not pid:
        return 0.0
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1000


# --- Clients ------------------------------------------------------------------------------------------------------


async def _client_figures() -> dict[str, Figure]:
    with running(pools__default__browsers_max=1) as server, server.caller() as caller:
        async with AsyncExitStack() as stack:
            address = _address(server, caller.open(keepAlive=True))

            async def connect(count: int) -> None:
                for _ in range(count):
                    channel = await Channel.connect(address)
                    stack.callback(channel.close)
                    await channel.call("Target.setAutoAttach", ATTACH)
                await asyncio.sleep(SETTLE_S)

            # Whatever is made at first use is no client's.
            await connect(1)
            without_mb, without_percent = weight(server.pid).pss_mb, await _cpu_percent(server.pid)
            await connect(CLIENTS)
            with_mb, with_percent = weight(server.pid).pss_mb, await _cpu_percent(server.pid)
    return {
        f"cpu_of_{CLIENTS}_idle_clients": Figure(
            ours=max(0.0, with_percent - without_percent),
            unit="% of a core",
            others={"the broker with them": with_percent, "without": without_percent},
            at_most=BAR_CPU_PERCENT,
        ),
        "memory_of_a_client": Figure(ours=(with_mb - without_mb) / CLIENTS, unit="MB", at_most=BAR_CLIENT_MB),
    }


async def _cpu_percent(pid: int) -> float:
    """Processor time of that process, of all its threads, while nobody asks it for anything."""
    process = psutil.Process(pid)
    before = process.cpu_times()
    await asyncio.sleep(IDLE_S)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / IDLE_S * 100


def _address(server: Server, session: Opened) -> str:
    """Where a client joins that session."""
    return f"ws{server.url.removeprefix('http')}/?token={server.token}&session={session.session_id}"
