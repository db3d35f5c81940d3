"""`forward`: what it adds when a caller is not at the node that has its tab.

Two nodes on one PostgreSQL, and a session on one of them. The same commands, over HTTP on kept connections, and the
same CDP messages, on kept sockets, are sent to the node that has it and to the other one, in turns, to the same page.
All processes share this machine's cores; the way over a real network would come on top.
"""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from bench import Figure, percentile
from bench.rig.caller import Caller, Opened, now_ms
from bench.rig.channel import Channel
from bench.rig.nodes import node_id, running_nodes
from bench.rig.postgres import running_postgres
from bench.rig.server import Server
from bench.rig.site import small_page

ROUNDS: Final = 20
# The first are not counted: connections between nodes are made at first use.
WARM_UP: Final = 2
COMMANDS: Final = 20
TRIPS: Final = 100
PIPELINED: Final = 1_000
IN_FLIGHT: Final = 50
BAR_ADDED_MS: Final = 1.0
DIRECT: Final = "at the node that has it"


class Way(msgspec.Struct, frozen=True):
    """One way to the page, and what was measured on it, round by round."""

    caller: Caller
    channel: Channel
    # The process of the node that is called.
    pid: int
    # One round is one command: those of both ways follow each other.
    commands_ms: list[list[float]] = []
    trips_ms: list[list[float]] = []
    per_s: list[float] = []
    # Its processor time for each round trip: proof that it was in between, and the price of it.
    cpu_us: list[float] = []

    def measure_command(self, tab_id: str, *, is_counted: bool) -> None:
        began = now_ms()
        self.caller.evaluate(tab_id)
        took_ms = now_ms() - began
        if is_counted:
            self.commands_ms.append([took_ms])

    async def measure_messages(self, *, is_counted: bool) -> None:
        before_us = _on_cpu_us(self.pid)
        trips_us = await self.channel.round_trips_us(TRIPS)
        cpu_us = (_on_cpu_us(self.pid) - before_us) / TRIPS
        per_s = await self.channel.per_second(PIPELINED, IN_FLIGHT)
        if is_counted:
            self.trips_ms.append([trip_us / 1000 for trip_us in trips_us])
            self.cpu_us.append(cpu_us)
            self.per_s.append(per_s)


def run() -> dict[str, Figure]:
    with (
        running_postgres() as postgres,
        small_page() as page,
        running_nodes(2, postgres.tcp_url, pools__default__browsers_max=1) as nodes,
        nodes[0].caller() as caller,
    ):
        opened = caller.call("POST", "/sessions", {"keepAlive": True, "url": page})
        session = Opened(opened["sessionId"], opened["tabs"][0]["tabId"])
        # Which of them has it is theirs to decide.
        owner, other = sorted(nodes, key=lambda node: node_id(node) != opened["node"])
        assert node_id(owner) == opened["node"], f"the session is on {opened['node']}, which is none of the nodes"
        direct, forwarded = uvloop.run(_measured(owner, other, session))
    return _figures(direct, forwarded)


async def _measured(owner: Server, other: Server, session: Opened) -> tuple[Way, Way]:
    async with _way(owner, session) as direct, _way(other, session) as forwarded:
        for turn in range(WARM_UP + ROUNDS):
            is_counted = turn >= WARM_UP
            # In either order, so that nobody always comes after the same one.
            ways = (direct, forwarded)[:: 1 if turn % 2 else -1]
            for way in ways * COMMANDS:
                way.measure_command(session.tab_id, is_counted=is_counted)
            for way in ways:
                await way.measure_messages(is_counted=is_counted)
        return direct, forwarded


@asynccontextmanager
async def _way(node: Server, session: Opened) -> AsyncIterator[Way]:
    with node.caller() as caller:
        address = f"ws{node.url.removeprefix('http')}/?token={node.token}&session={session.session_id}"
        channel = await Channel.connect(address)
        with closing(channel):
            (target,) = (await channel.call("Target.getTargets"))["targetInfos"]
            await channel.attach(target["targetId"])
            yield Way(caller, channel, node.pid)


def _on_cpu_us(pid: int) -> float:
    """Time that the main thread of that process has had a processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1000


def _figures(direct: Way, forwarded: Way) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for name, ours, theirs in (
        ("command", forwarded.commands_ms, direct.commands_ms),
        ("cdp_round_trip", forwarded.trips_ms, direct.trips_ms),
    ):
        all_ours, all_theirs = list(chain(*ours)), list(chain(*theirs))
        figures[f"{name}_p50"] = Figure.median_of(all_ours, "ms", others={DIRECT: all_theirs})
        figures[f"{name}_p99"] = Figure(
            ours=percentile(all_ours, 99), unit="ms", others={DIRECT: percentile(all_theirs, 99)}
        )
        # Of each round by itself: what else the machine does changes from one to the next.
        added = [statistics.median(mine) - statistics.median(its) for mine, its in zip(ours, theirs, strict=True)]
        figures[f"{name}_added_p50"] = Figure.median_of(added, "ms", at_most=BAR_ADDED_MS)
    figures["cdp_cpu_per_round_trip"] = Figure.median_of(forwarded.cpu_us, "us", others={DIRECT: direct.cpu_us})
    figures[f"cdp_per_s_{IN_FLIGHT}_in_flight"] = Figure.median_of(forwarded.per_s, "/s", others={DIRECT: direct.per_s})
    return figures
