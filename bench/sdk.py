"""`sdk`: what a call costs through the SDK, over a bare httpx call of the same route with a prepared body, in turns.

One server, one page. Per round and flavour: `health` (the way there and back) and `evaluate` (a command of a tab that
waits for its turn), each by the SDK and by a bare `httpx` client whose body and headers were made beforehand and whose
answer is only decoded from JSON. What the SDK adds, which is the bar's, is the median of the differences of pairs of
calls that came right after each other, in either order.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import httpx
import msgspec
import uvloop

from bench import Figure
from bench.rig.caller import now_ms
from bench.rig.server import Server, running
from tabherd import AsyncTabherd, Tabherd

ROUNDS: Final = 600
# Not counted: whatever is made at first use.
WARM_UP: Final = 30
BAR_MS: Final = 0.3
EXPRESSION: Final = "1"

# One call, by the SDK or bare.
Act: TypeAlias = Callable[[], Awaitable[Any]]
# By verb, first the SDK's and then the bare one.
Verbs: TypeAlias = Mapping[str, tuple[Act, Act]]


class Samples(msgspec.Struct):
    """Milliseconds per call: first the SDK's, then the bare ones."""

    wall: tuple[list[float], list[float]]
    # Of this process, which other load on the machine disturbs less.
    cpu: tuple[list[float], list[float]]


def run() -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    with running() as server:
        for flavour, measure in (("sync", _measure_sync), ("async", _measure_async)):
            for verb, samples in uvloop.run(measure(server)).items():
                ours, bare = samples.wall
                figures[f"{flavour}_{verb}"] = Figure.median_of(ours, "ms", others={"bare httpx": bare})
                figures[f"{flavour}_{verb}_added"] = Figure(ours=_added(samples.wall), unit="ms", at_most=BAR_MS)
                figures[f"{flavour}_{verb}_added_cpu"] = Figure(ours=_added(samples.cpu), unit="CPU ms")
    return figures


def _added(samples: tuple[list[float], list[float]]) -> float:
    return statistics.median(ours - bare for ours, bare in zip(*samples, strict=True))


async def _measure_sync(server: Server) -> dict[str, Samples]:
    with (
        Tabherd(server.url, server.token) as herd,
        herd.session(agent="bench") as session,
        httpx.Client(headers=_headers(server), trust_env=False, timeout=60) as bare,
    ):
        tab, body = session.tab, _body(session.id, session.fence)

        async def evaluate() -> None:
            tab.evaluate(EXPRESSION)

        async def evaluate_bare() -> None:
            json.loads(bare.post(f"{server.url}/tabs/{tab.id}/action", content=body).content)

        async def health() -> None:
            herd.health()

        async def health_bare() -> None:
            json.loads(bare.get(f"{server.url}/health").content)

        return await _in_turns({"evaluate": (evaluate, evaluate_bare), "health": (health, health_bare)})


async def _measure_async(server: Server) -> dict[str, Samples]:
    async with (
        AsyncTabherd(server.url, server.token) as herd,
        herd.session(agent="bench") as session,
        httpx.AsyncClient(headers=_headers(server), trust_env=False, timeout=60) as bare,
    ):
        tab, body = session.tab, _body(session.id, session.fence)

        async def evaluate() -> None:
            await tab.evaluate(EXPRESSION)

        async def evaluate_bare() -> None:
            json.loads((await bare.post(f"{server.url}/tabs/{tab.id}/action", content=body)).content)

        async def health_bare() -> None:
            json.loads((await bare.get(f"{server.url}/health")).content)

        return await _in_turns({"evaluate": (evaluate, evaluate_bare), "health": (herd.health, health_bare)})


async def _in_turns(verbs: Verbs) -> dict[str, Samples]:
    samples = {verb: Samples(wall=([], []), cpu=([], [])) for verb in verbs}
    for turn in range(WARM_UP + ROUNDS):
        for verb, acts in verbs.items():
            # In either order, so that nobody always comes after the same one.
            for which in (0, 1) if turn % 2 else (1, 0):
                began, began_cpu = now_ms(), time.thread_time()
                await acts[which]()
                if turn >= WARM_UP:
                    samples[verb].wall[which].append(now_ms() - began)
                    samples[verb].cpu[which].append((time.thread_time() - began_cpu) * 1000)
    return samples


def _headers(server: Server) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}


def _body(session_id: str, fence: int) -> bytes:
    """What the SDK sends for the same command, but for the name of its handle."""
    command = {
        "kind": "evaluate",
        "expression": EXPRESSION,
        "waitPolicy": "wait_with_timeout",
        "sessionId": session_id,
        "fence": fence,
        "controllerId": "bare",
    }
    return json.dumps(command).encode()
