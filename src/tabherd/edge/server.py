"""One server process, from its state directory to its last closed socket.

`serve` is the one function through which a server is started. The order keeps the promises: the state directory is
owned before anything is read, the port is bound before a browser starts (so a port that is taken costs nothing),
`server.json` is written when sessions can be opened, and on the way out admission ends first, then running work, then
sockets, browsers and the store. The first SIGTERM or SIGINT drains for `[server] drain_s`; a second one ends the wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import uvicorn
import uvloop

from .. import logs
from ..broker.broker import Broker, wall_clock_ms
from ..broker.credentials import ADMIN_TOKEN_FILE, Credentials, ensure_admin_token
from ..broker.events import EventBus
from ..broker.marks import FileMarks
from ..browsers.chromium import ChromiumLauncher
from ..config import Config
from ..config_layers import Layers
from ..core.model import Node
from ..egress.supervise import Egress, running
from ..errors import InvalidRequest, StateConflict
from ..locks.base import marker_of
from ..locks.configured import default_url
from ..locks.open import open_async_backend
from ..metrics import Metrics
from ..store.base import Put, Store
from ..store.open import open_store
from .cdp.tickets import KEY_FILE, ensure_key
from .connection import DEFAULT_LIMITS, Connections, Limits, limits_here
from .http import create_app
from .joining import Joined, joined
from .reload import Reload
from .state import FILES_DIR, PROFILES_DIR, ServerInfo, StateDir, owned
from .sweeping import sweep_forever
from .upgrade import Doors

log = logs.get_logger("server")

STORE_FILE: Final = "tabherd.db"
# Which tabs have a command at work.
MARKS_FILE: Final = "running.marks"
TASK_MARKS_FILE: Final = "tasks.marks"
WEBHOOK_KEY_FILE: Final = "webhook.key"
# How long a thread may keep the interpreter: the store's writer must not wait for a busy event loop.
SWITCH_INTERVAL_S: Final = 0.0001
# Allocations before the youngest objects are looked through, and how often the older ones are.
GC_THRESHOLDS: Final = (50_000, 20, 50)
# Connections that wait to be accepted.
BACKLOG: Final = 2_048
# What clients get to read their last answers, once running work has ended.
CLOSE_GRACE_S: Final = 2
# Longer than the pauses of a client that thinks, so that it does not meet a closed connection.
KEEP_ALIVE_S: Final = 75
# What a container may use; the word `max` when it has no limit of its own.
CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
ReadyCallback = Callable[[ServerInfo], None]
# Of a server that was given its settings by hand.
NO_LAYERS: Final = Layers()


def serve(config: Config, state: Path, *, layers: Layers = NO_LAYERS, ready: ReadyCallback | None = None) -> int:
    """Run a server until it is told to stop; the exit code. A start that is refused raises a typed error.

    `layers` are what the settings were made of; those of a server without them do not change. `ready` is called once,
    when sessions can be opened. Call this from the main thread: signals arrive there.
    """
    # Everything below is private to the user who runs it.
    os.umask(0o077)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    logs.configure(config.server.log_format, config.server.log_level)
    with owned(state) as directory, _bound(config.server.host, config.server.port) as listener:
        return uvloop.run(_run(config, layers, directory, listener, ready))


async def _run(
    config: Config, layers: Layers, directory: StateDir, listener: socket.socket, ready: ReadyCallback | None
) -> int:
    is_told = False

    def tell_once(info: ServerInfo) -> None:
        # Whoever started the server listens for one word, and may be gone when a later life is ready.
        nonlocal is_told
        if ready is not None and not is_told:
            is_told = True
            ready(info)

    async with running(config, directory.path) as egress:
        lives, stopping = 1, _Stopping()
        try:
            while await _live(config, layers, directory, listener, egress, tell_once, stopping, lives):
                # Other nodes have taken over what it had: it goes on as a new one, without anybody's help.
                lives += 1
                log.warning("starting again", life=lives)
        except asyncio.CancelledError:
            if not stopping.is_told:
                raise
            log.info("stopped while it waited for its store")
    return 0


async def _live(
    config: Config,
    layers: Layers,
    directory: StateDir,
    listener: socket.socket,
    egress: Egress,
    ready: ReadyCallback,
    stopping: _Stopping,
    number: int,
) -> bool:
    """One life of the node; whether another has to follow."""
    stopping.begin()
    metrics = Metrics()

    def on_commit(seconds: float, transactions: int) -> None:
        metrics.store_commit_seconds.observe(seconds)
        metrics.store_batch_size.observe(transactions)

    store = open_store(config.store, directory.path / STORE_FILE, on_commit=on_commit)
    try:
        if not config.is_clustered:
            node = await _next_life(store, directory, _url(listener))
            await _run_on(node, store, None, metrics, config, layers, directory, listener, egress, ready, stopping)
            return False
        async with joined(store, config, directory, _address(listener), is_patient=number > 1) as place:
            node = place.cluster.node
            stopping.is_fenced = place.membership.is_fenced
            await _run_on(
                node, place.store, place, metrics, config, layers, directory, listener, egress, ready, stopping
            )
            # A signal that comes while others take over is still a signal.
            return place.membership.is_fenced.is_set() and not stopping.is_told
    finally:
        await store.close()


async def _run_on(
    node: Node,
    store: Store,
    place: Joined | None,
    metrics: Metrics,
    config: Config,
    layers: Layers,
    directory: StateDir,
    listener: socket.socket,
    egress: Egress,
    ready: ReadyCallback,
    stopping: _Stopping,
) -> None:
    stopping.begun()
    logs.bind(nodeId=node.id)
    credentials = Credentials(store)
    if config.auth.enabled:
        await install_admin_token(credentials, directory.path, node.id)
    clock = wall_clock_ms if place is None else place.clock
    events = EventBus(epoch=node.epoch, ring=config.server.events_ring, clock=clock)
    webhook_key = ensure_key(directory.path / WEBHOOK_KEY_FILE) if place is None else place.webhook_key
    broker = Broker(
        config=config,
        node=node,
        store=store,
        launcher=ChromiumLauncher(directory.path / PROFILES_DIR, config.pools, proxies=egress.proxies),
        events=events,
        metrics=metrics,
        credentials=credentials,
        marks=FileMarks(directory.path / MARKS_FILE),
        task_marks=FileMarks(directory.path / TASK_MARKS_FILE),
        # In hex, so that a receiver can be told what it is.
        webhook_secret=webhook_key.hex().encode(),
        files_dir=directory.path / FILES_DIR,
        memory_bytes=memory_bytes(),
        clock=clock,
        cluster=None if place is None else place.cluster,
        # Where programs that use tabherd.locks look, too.
        locks=open_async_backend(
            default_url(config.store, config.locks, directory.path),
            max_connections=config.locks.max_connections,
            keepalive_s=config.locks.keepalive_s,
            marker=marker_of(node.id, node.epoch),
        ),
    )
    reload = Reload(broker.settings, layers, events)
    port = listener.getsockname()[1]
    app = create_app(
        config=config,
        broker=broker,
        events=events,
        metrics=metrics,
        node_id=node.id,
        version=version("tabherd"),
        port=port,
        ticket_key=ensure_key(directory.path / KEY_FILE) if place is None else place.ticket_key,
        reload=reload,
        place=place,
    )
    front = Front(app, app.doors, limits_here())
    serving = asyncio.create_task(_serve_settled(front, broker, listener), name="http")
    starting = asyncio.create_task(broker.start(), name="start")
    try:
        if await stopping.unless_told(starting):
            # Before anybody is told where to send a signal: until then SIGHUP ends a process.
            async with reload.running():
                info = ServerInfo(url=_url(listener), pid=node.pid, node_id=node.id)
                directory.announce(info)
                events.publish("node.ready", nodeId=node.id)
                log.info("ready", url=info.url, pid=node.pid)
                ready(info)
                await stopping.unless_told(serving)
                # What others have taken over already cannot be drained.
                drain_s = broker.settings.current.server.drain_s
                log.info("draining", limit_s=drain_s)
                await stopping.drain(broker, drain_s)
    finally:
        directory.withdraw()
        await app.close()
        # Streams have no end of their own.
        events.close()
        front.should_exit = True
        front.force_exit = stopping.is_urgent
        starting.cancel()
        if not broker.has_settled.is_set():
            serving.cancel()
        try:
            await asyncio.wait((serving, starting))
        finally:
            await broker.stop()
        log.info("stopped")


async def install_admin_token(credentials: Credentials, state: Path, node_id: str) -> None:
    """Make the token in the state directory an admin's; one that was revoked is replaced by a new one."""
    if not await credentials.install_admin(ensure_admin_token(state), node_id):
        log.info("the admin token was revoked; a new one is made")
        (state / ADMIN_TOKEN_FILE).unlink()
        await credentials.install_admin(ensure_admin_token(state), node_id)


async def _serve_settled(front: Front, broker: Broker, listener: socket.socket) -> None:
    """Answer nobody before the broker knows the sessions of its earlier life: their owners would be told that they are
    over. Whoever comes meanwhile waits in the backlog.
    """
    await broker.has_settled.wait()
    # It closes what it is given, and a later life needs the same.
    await front.serve(sockets=[listener.dup()])


class Front(uvicorn.Server):
    """uvicorn without its own idea of signals, and with a garbage collector that leaves the request path alone."""

    def __init__(self, app: object, doors: Doors | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self.connections = Connections(limits)
        # Modules, tables and compiled decoders are never garbage, and requests make no cycles worth hurrying for:
        # scanning all of it every few hundred allocations was a fifth of the cost of a small request.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]
                loop="none",
                http=self.connections.protocol,  # type: ignore[arg-type]
                ws="none" if doors is None else doors.protocol,  # type: ignore[arg-type]
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=CLOSE_GRACE_S,
            )
        )

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        sweeping = asyncio.create_task(sweep_forever(), name="sweep")
        try:
            await super().serve(sockets)
        finally:
            sweeping.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Stopping:
    """The signals that end a server: the first asks, the second insists."""

    def __init__(self) -> None:
        self._told = asyncio.Event()
        self._insisted = asyncio.Event()
        # Set when the present life is over, whoever is told.
        self.is_fenced = asyncio.Event()
        # What waits for the store, while there is nothing yet that would have to be ended in order.
        self._beginning: asyncio.Task[Any] | None = None
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._signalled)

    def begin(self) -> None:
        """A life begins with waiting for the store: a signal ends that at once."""
        self._beginning = asyncio.current_task()
        if self.is_told and self._beginning is not None:
            self._beginning.cancel()

    def begun(self) -> None:
        """From here on it ends in order."""
        self._beginning = None

    @property
    def is_told(self) -> bool:
        return self._told.is_set()

    @property
    def is_urgent(self) -> bool:
        return self._insisted.is_set()

    async def unless_told(self, work: asyncio.Task[None]) -> bool:
        """Whether the work ended before a signal came; it goes on when not. Its failure is raised here."""
        told = asyncio.create_task(self._told.wait())
        fenced = asyncio.create_task(self.is_fenced.wait())
        try:
            await asyncio.wait((work, told, fenced), return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            fenced.cancel()
        if work.done():
            await work
            return True
        return False

    async def drain(self, broker: Broker, limit_s: float) -> None:
        """Let running work finish, until the limit or the second signal."""
        if self.is_fenced.is_set():
            return
        draining = asyncio.create_task(broker.drain(), name="drain")
        insisted = asyncio.create_task(self._insisted.wait())
        await asyncio.wait((draining, insisted), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        insisted.cancel()
        if draining.done():
            await draining
            return
        log.warning("work was still running at the end of the drain")
        draining.cancel()
        await asyncio.wait((draining,))

    def _signalled(self) -> None:
        if self._told.is_set():
            self._insisted.set()
        self._told.set()
        if self._beginning is not None:
            self._beginning.cancel()


async def _next_life(store: Store, directory: StateDir, url: str) -> Node:
    """Write down that this node starts again. Its epoch is above all that the store or the directory remember."""
    identity = directory.next_identity()
    known = await store.get(Node, identity.node_id)
    if known is not None and known.epoch >= identity.epoch:
        identity = directory.next_identity(epoch_floor=known.epoch)
    node = Node(
        id=identity.node_id,
        epoch=identity.epoch,
        url=url,
        pid=os.getpid(),
        started_at=time.time_ns() // 1_000_000,
    )
    await store.apply(Put(node))
    return node


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket; whoever connects before the server is up waits in its backlog."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InvalidRequest(f"server.host: '{host}' is no address: {error.strerror}.", field="server.host") from None
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise StateConflict(
                    f"Port {port} on {host} is in use by another program.",
                    action="Stop that program, or choose another port with --port (0 picks a free one).",
                    port=port,
                ) from None
            raise InvalidRequest(
                f"Cannot listen on {host} port {port}: {error.strerror}.",
                action="Choose another address with --host or --port.",
                field="server.host",
            ) from None
        yield listener


def _url(listener: socket.socket) -> str:
    """The address under which clients on this machine reach the socket."""
    host, port = listener.getsockname()[:2]
    return _written({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)


def _address(listener: socket.socket) -> str:
    """The address that the socket has, which may stand for all of the machine's."""
    return _written(*listener.getsockname()[:2])


def _written(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def memory_bytes() -> int:
    """The memory that this process may use: the machine's, or its container's if that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine
