"""The load balancers of deploy/ do what a cluster needs of them, shown by the real programs."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .balancing import LIMIT_S, WEBSOCKET_KEY, Balanced, balanced, command

pytestmark = pytest.mark.release

KINDS = ("haproxy", "nginx")


@pytest.fixture(params=KINDS)
async def balancer(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Balanced]:
    async with balanced(request.param, tmp_path) as started:
        yield started


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_is_accepted_by_the_program_that_reads_it(kind: str, tmp_path: Path) -> None:
    words = command(kind, tmp_path, 7722, (7723, 7724), is_check=True)
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "[WARNING]" not in done.stderr.upper()
    assert "[WARN]" not in done.stderr.upper()


async def test_callers_are_spread_over_the_nodes(balancer: Balanced) -> None:
    assert {(await balancer.call("GET", "/who"))[1] for _ in range(10)} == {"node-1", "node-2"}


async def test_a_socket_is_passed_on_both_ways(balancer: Balanced) -> None:
    upgrade = (
        f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {WEBSOCKET_KEY}"
    )
    async with balancer.connected() as (reader, writer):
        writer.write(f"GET /socket HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"ping"


async def test_an_event_arrives_while_its_stream_goes_on(balancer: Balanced) -> None:
    async with balancer.connected() as (reader, writer):
        writer.write(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await reader.readuntil(b"data: 1\n\n")


async def test_the_host_that_the_client_named_is_the_one_that_the_node_hears(balancer: Balanced) -> None:
    assert await balancer.call("GET", "/host") == (200, "a.example:1")


async def test_a_command_that_reached_a_node_is_not_sent_to_another(balancer: Balanced) -> None:
    status, _ = await balancer.call("POST", "/dies")
    assert status == 502
    assert sum(node.seen["/dies"] for node in balancer.nodes) == 1


async def test_what_cannot_reach_a_node_goes_to_another(balancer: Balanced) -> None:
    await balancer.nodes[0].stop()
    assert {await balancer.call("POST", "/who") for _ in range(6)} == {(200, "node-2")}


async def test_a_node_that_is_not_ready_gets_nothing_new(tmp_path: Path) -> None:
    async with balanced("haproxy", tmp_path) as balancer:
        draining = balancer.nodes[0]
        draining.is_ready = False
        # Two that fail, and one more to be sure that the second was heard.
        await draining.wait_asked("/ready", times=4)
        assert {(await balancer.call("GET", "/who"))[1] for _ in range(10)} == {"node-2"}
