"""Runs the proxy process for those pools that have a network policy, and gives each the same port in every life.

Invariants:
- Without such a pool there is no process and no port.
- The listening sockets are ours, the process only has copies: while it is started anew connections wait, and nobody
  else can take the port. Pages never get around it: without a proxy they have no network.
- The process ends with us, also when we are killed: its standard input ends.
- The port of a pool is remembered, because contexts of browsers that outlive us keep sending their requests there. A
  pool whose port is lost to another program gets a new one, and its browsers are not taken over.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

import msgspec
import structlog

from ..browsers.debug_port import LOOPBACK, RESTRICTED_PORTS
from ..browsers.port import Proxy
from ..browsers.process import ExitWatch
from ..config import ENV_PREFIX, Config, Pool
from ..errors import StateConflict
from .policy import Policy
from .proxy import Orders

log = structlog.get_logger(__name__)

# What is remembered, in the state directory.
PORTS_FILE: Final = "egress.json"
# Below the range from which the kernel picks ports for outgoing connections: one of them could hold ours after a crash.
PORTS: Final = range(20_000, 32_768)
PORT_TRIES: Final = 100
# How long the proxy of an earlier life may take to let go of its port, and how often we look.
LET_GO_TRIES: Final = 100
LET_GO_PAUSE_S: Final = 0.02
BACKLOG: Final = 1_024
# How long is waited before a proxy that died young is started again: doubles each time, up to the limit.
RESTART_PAUSE_S: Final = 0.05
RESTART_PAUSE_MAX_S: Final = 5.0
# One that lived this long did not die young.
STEADY_S: Final = 10.0


class Place(msgspec.Struct, frozen=True):
    """What is remembered of a pool."""

    port: int
    # When the pool got it.
    since_ms: int


class Egress:
    """The proxies of this node's pools; made by `running`."""

    def __init__(self, config: Config, places: Mapping[str, Place], listeners: Mapping[str, socket.socket]) -> None:
        # By pool, for those that have a policy.
        self.proxies: Mapping[str, Proxy] = {
            name: Proxy(server=f"{LOOPBACK}:{place.port}", since_ms=place.since_ms) for name, place in places.items()
        }
        closed_ports = _closed_ports(config.pools, places.values())
        self._orders = Orders(
            pools={
                name: (listener.fileno(), policy_of(config.pools[name], closed_ports))
                for name, listener in listeners.items()
            },
            log_format=config.server.log_format,
            log_level=config.server.log_level,
        )

    async def keep(self) -> None:
        """Run the process, and start it again whenever it ends, until cancelled."""
        pause_s = RESTART_PAUSE_S
        while True:
            started = time.monotonic()
            try:
                reason = await self._run()
            except OSError as error:
                reason = f"cannot be started: {error}"
            pause_s = RESTART_PAUSE_S if time.monotonic() - started > STEADY_S else pause_s
            log.error("the egress proxy ended and is started again", reason=reason, pause_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RESTART_PAUSE_MAX_S)

    async def _run(self) -> str:
        """One life of the process; why it ended."""
        child = self._spawn()
        assert child.stdin is not None
        exited = asyncio.Event()
        watch = ExitWatch(child.pid, exited.set)
        try:
            # In a thread: long lists do not fit into the pipe before the child reads.
            await asyncio.to_thread(_write, child.stdin, msgspec.json.encode(self._orders) + b"\n")
            await exited.wait()
            return f"exited with status {child.wait()}"
        finally:
            watch.stop()
            # It has nothing to finish, and dies at once.
            child.kill()
            child.wait()
            child.stdin.close()

    def _spawn(self) -> subprocess.Popen[bytes]:
        # Not by way of the event loop, whose own kind of child would inherit what we were given ourselves.
        return subprocess.Popen(
            # -P: not what happens to lie in the directory we were started in.
            [sys.executable, "-P", "-m", "tabherd.egress"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            bufsize=0,
            env={name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)},
            pass_fds=[descriptor for descriptor, _ in self._orders.pools.values()],
            # A terminal's Ctrl-C is for us: what drains still needs the network.
            start_new_session=True,
        )


@contextlib.asynccontextmanager
async def running(config: Config, state: Path) -> AsyncIterator[Egress]:
    """The proxies of the pools that need one, from now on until the end of the block."""
    with contextlib.ExitStack() as sockets:
        remembered = _remembered(state / PORTS_FILE)
        places: dict[str, Place] = {}
        listeners: dict[str, socket.socket] = {}
        for name, pool in config.pools.items():
            if pool.has_network_policy:
                listener, places[name] = await _listen(remembered.get(name))
                listeners[name] = sockets.enter_context(listener)
        _remember(state / PORTS_FILE, places)
        egress = Egress(config, places, listeners)
        if not listeners:
            yield egress
            return
        keeping = asyncio.create_task(egress.keep(), name="egress")
        try:
            yield egress
        finally:
            keeping.cancel()
            await asyncio.wait((keeping,))


def policy_of(pool: Pool, closed_ports: tuple[int, ...]) -> Policy:
    """What the pool says about the network."""
    return Policy(
        allow_hosts=pool.allow_hosts,
        deny_hosts=pool.deny_hosts,
        deny_private_networks=pool.deny_private_networks,
        pinned_hosts=pool.pinned_hosts,
        closed_ports=closed_ports,
    )


def _closed_ports(pools: Mapping[str, Pool], places: Iterable[Place]) -> tuple[int, ...]:
    """The proxies' own ports, and those that drive browsers: whoever reaches one owns every session there."""
    attached = (urlsplit(pool.endpoint).port or 80 for pool in pools.values() if pool.source == "attach")
    return tuple({*(place.port for place in places), *RESTRICTED_PORTS, *attached})


async def _listen(place: Place | None) -> tuple[socket.socket, Place]:
    """A listening socket on the port that is remembered, or on a new one."""
    if place is not None:
        for _ in range(LET_GO_TRIES):
            if (listener := _bound(place.port)) is not None:
                return listener, place
            await asyncio.sleep(LET_GO_PAUSE_S)
        log.warning("another program has the port of a pool's proxy, the pool gets a new one", port=place.port)
    for port in random.sample(PORTS, PORT_TRIES):
        if (listener := _bound(port)) is not None:
            return listener, Place(port, time.time_ns() // 1_000_000)
    raise StateConflict(
        f"None of {PORT_TRIES} ports from {PORTS.start} to {PORTS.stop - 1} is free for the proxy of a network policy.",
        action="End what listens on them, or remove the policies.",
    )


def _bound(port: int) -> socket.socket | None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Connections of the earlier life that are being forgotten do not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES, errno.EPERM):
            return None
        raise
    return listener


def _remembered(path: Path) -> dict[str, Place]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Place])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        log.warning(
            "the ports of the egress proxy are forgotten, its pools get new ones", path=str(path), error=str(error)
        )
        return {}


def _remember(path: Path, places: Mapping[str, Place]) -> None:
    if not places:
        path.unlink(missing_ok=True)
        return
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(places))
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _write(pipe: IO[bytes], data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[pipe.write(left) :]
