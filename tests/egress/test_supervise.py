"""The proxy's process: there when a pool has a policy, on the same port in every life, gone when its server is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tabherd.browsers.debug_port import RESTRICTED_PORTS
from tabherd.browsers.process import command_line
from tabherd.config import parse
from tabherd.egress.supervise import PORTS_FILE, Egress, running

from .origin import LIMIT_S, Origin, serving, with_pool

POLICY = {"deny_hosts": ["bad.test"], "pinned_hosts": {"good.test": "127.0.0.1"}}

ORPHANING = """
import asyncio, sys
from pathlib import Path
from tests.egress.origin import with_pool
from tabherd.egress.supervise import running
import psutil

async def main():
    async with running(with_pool(deny_hosts=["bad.test"]), Path(sys.argv[1])) as egress:
        while not (children := psutil.Process().children()):
            await asyncio.sleep(0.01)
        print(egress.proxies["default"].server, children[0].pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def proxies_of(pid: int) -> list[psutil.Process]:
    """The proxies that this process has started and that run."""
    return [child for child in psutil.Process(pid).children() if "tabherd.egress" in command_line(child.pid)]


def port_of(egress: Egress, pool: str = "default") -> int:
    return int(egress.proxies[pool].server.rpartition(":")[2])


async def until(is_true: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_true():
            await asyncio.sleep(0.01)


async def status_of(port: int, url: str) -> int:
    """What the proxy on that port answers to a request for this address."""
    async with asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return int((await reader.readline()).split(b" ")[1])
        finally:
            writer.close()


async def test_without_a_policy_there_is_no_process_no_port_and_no_file(tmp_path: Path) -> None:
    async with running(with_pool(), tmp_path) as egress:
        assert egress.proxies == {}
        assert proxies_of(os.getpid()) == []
    assert list(tmp_path.iterdir()) == []


async def test_a_pool_with_a_policy_has_a_proxy_that_keeps_to_it(tmp_path: Path) -> None:
    async with serving() as origin, running(with_pool(**POLICY), tmp_path) as egress:
        assert await status_of(port_of(egress), origin.url("good.test")) == 200
        assert await status_of(port_of(egress), origin.url("bad.test")) == 403
        (child,) = proxies_of(os.getpid())
    assert not child.is_running()


async def test_each_pool_has_its_own_policy(tmp_path: Path) -> None:
    pinned = {"a.test": "127.0.0.1", "b.test": "127.0.0.1"}
    pools = {name: {"pinned_hosts": pinned, "allow_hosts": [f"{name}.test"]} for name in ("a", "b")}
    async with serving() as origin, running(parse({"pools": pools}), tmp_path) as egress:
        assert set(egress.proxies) == {"a", "b"}
        assert await status_of(port_of(egress, "a"), origin.url("a.test")) == 200
        assert await status_of(port_of(egress, "a"), origin.url("b.test")) == 403
        assert await status_of(port_of(egress, "b"), origin.url("b.test")) == 200


async def test_the_port_stays_the_same_and_only_its_owner_may_read_which(tmp_path: Path) -> None:
    async with running(with_pool(**POLICY), tmp_path) as egress:
        first = egress.proxies["default"]
    async with running(with_pool(**POLICY), tmp_path) as egress:
        assert egress.proxies["default"] == first
    assert stat.S_IMODE((tmp_path / PORTS_FILE).stat().st_mode) == 0o600


async def test_a_port_that_another_program_took_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tabherd.egress.supervise.LET_GO_TRIES", 1)
    async with running(with_pool(**POLICY), tmp_path) as egress:
        first = egress.proxies["default"]
    with socket.create_server(("127.0.0.1", int(first.server.rpartition(":")[2]))):
        async with running(with_pool(**POLICY), tmp_path) as egress:
            second = egress.proxies["default"]
    assert second.server != first.server
    assert second.since_ms > first.since_ms


@pytest.mark.parametrize("content", ["[]"])
async def test_a_file_that_makes_no_sense_is_written_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / PORTS_FILE).write_text(content)
    async with running(with_pool(**POLICY), tmp_path) as egress:
        assert json.loads((tmp_path / PORTS_FILE).read_text())["default"]["port"] == port_of(egress)


async def test_a_proxy_that_dies_is_started_again_on_the_same_port(tmp_path: Path) -> None:
    async with serving() as origin, running(with_pool(**POLICY), tmp_path) as egress:
        await until(lambda: proxies_of(os.getpid()))
        (child,) = proxies_of(os.getpid())
        child.kill()
        # Nobody is turned away meanwhile: the connection waits for the next process.
        await until(lambda: child not in proxies_of(os.getpid()))
        assert await status_of(port_of(egress), origin.url("good.test")) == 200


async def test_a_proxy_ends_when_its_server_is_killed_and_the_next_one_has_the_same_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long it takes the first on a busy machine to notice that it is alone.
    monkeypatch.setattr("tabherd.egress.supervise.LET_GO_TRIES", 3_000)
    server = subprocess.Popen([sys.executable, "-c", ORPHANING, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address, pid = server.stdout.readline().split()
        child = psutil.Process(int(pid))
    finally:
        server.kill()
        server.communicate()
    try:
        async with running(with_pool(deny_hosts=["bad.test"]), tmp_path) as egress:
            assert egress.proxies["default"].server == address
        await until(lambda: not child.is_running())
    finally:
        if child.is_running():
            child.kill()


async def test_the_end_does_not_wait_for_a_proxy_that_hangs(tmp_path: Path) -> None:
    async with running(with_pool(**POLICY), tmp_path):
        await until(lambda: proxies_of(os.getpid()))
        (child,) = proxies_of(os.getpid())
        child.send_signal(signal.SIGSTOP)
    assert not child.is_running()


async def test_neither_the_proxies_nor_what_drives_browsers_can_be_reached_through_them(tmp_path: Path) -> None:
    attached = {"source": "attach", "endpoint": "http://127.0.0.1:9222"}
    pools = {"default": {"allow_hosts": ["127.0.0.0/8", "localhost"]}, "other": POLICY, "mine": attached}
    async with running(parse({"pools": pools}), tmp_path) as egress:
        for port in (port_of(egress), port_of(egress, "other"), 9222, *RESTRICTED_PORTS):
            for host in ("127.0.0.1", "localhost", "2130706433"):
                assert await status_of(port_of(egress), f"http://{host}:{port}/json/version") == 403


async def test_many_connections_are_served_at_once(tmp_path: Path) -> None:
    async with serving() as origin, running(with_pool(**POLICY), tmp_path) as egress:
        port = port_of(egress)
        statuses = await asyncio.gather(*(status_of(port, origin.url("good.test", f"/{n}")) for n in range(300)))
        assert set(statuses) == {200}
        assert _paths(origin) == {f"/{n}" for n in range(300)}


def _paths(origin: Origin) -> set[str]:
    return {asked.partition(" ")[2] for asked in origin.asked}
