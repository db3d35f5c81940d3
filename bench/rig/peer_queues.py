"""Job queues that keep their jobs in PostgreSQL, as tasks do: PgQueuer and Procrastinate, set up to be quick.

Each has a database of its own, a worker in a process of its own, and is submitted to from another, by its own library:
no HTTP is between them. Their settings are the best of those that were tried here. A job does nothing. Whoever started
a worker ends it by leaving the `with`.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Final, TypeAlias

import asyncpg
import msgspec
import procrastinate
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from .postgres import Postgres
from .submitter import LIMIT_S, Submitted

STOP_LIMIT_S: Final = 20.0
# Jobs that PgQueuer's worker takes at once, and whose ends it writes at once; of 10 (its default), 50, 200 and 1000 the
# last was the quickest.
PGQUEUER_BATCH: Final = 1_000
# Jobs that Procrastinate's worker has at once, each on a connection of its own; its default is 1, and it takes them one
# by one, so more gained nothing.
PROCRASTINATE_CONCURRENCY: Final = 10
READY: Final = b"ready\n"

# Imported, not run as the main module, which Procrastinate warns of.
_THIS: Final = (sys.executable, "-c", f"from {__name__} import main; main()")

# Submits so many jobs.
Submit: TypeAlias = Callable[[int], Awaitable[object]]


class Peer(msgspec.Struct, frozen=True):
    """What is to be known of one."""

    # As it is written by those who made it.
    name: str
    # Whether there is a job that is not over.
    unfinished: str
    # How many are over and went well.
    done: str

    @property
    def database(self) -> str:
        return self.name.lower()


PGQUEUER: Final = Peer(
    "PgQueuer",
    unfinished="SELECT EXISTS (SELECT FROM pgqueuer)",
    done="SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'",
)
PROCRASTINATE: Final = Peer(
    "Procrastinate",
    unfinished="SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))",
    done="SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
)
PEERS: Final = (PGQUEUER, PROCRASTINATE)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be submitted, and to whom."""

    peer: str
    url: str
    requests: int
    # Jobs in each request.
    batch: int
    connections: int


@contextmanager
def working(peer: Peer, postgres: Postgres) -> Iterator[int]:
    """A worker on fresh tables, ready for jobs; its process id."""
    with postgres.connect() as connection:
        connection.execute(f"CREATE DATABASE {peer.database}".encode())
    command = [*_THIS, "work", peer.name, postgres.url_of(peer.database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline() != READY:
                raise RuntimeError(f"the worker of {peer.name} did not start")
            yield process.pid
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def submit(peer: Peer, postgres: Postgres, *, requests: int, batch: int, connections: int) -> Submitted:
    """Submit so many batches, from a process that ends with it."""
    url = postgres.url_of(peer.database)
    order = Order(peer=peer.name, url=url, requests=requests, batch=batch, connections=connections)
    done = subprocess.run(
        [*_THIS, "submit"],
        input=msgspec.json.encode(order),
        stdout=subprocess.PIPE,
        timeout=2 * LIMIT_S,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Submitted)


# --- The worker's process -----------------------------------------------------------------------------------------


async def _work(name: str, url: str) -> None:
    """Run jobs until there is no more input."""
    ends = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    await (_work_pgqueuer if name == PGQUEUER.name else _work_procrastinate)(url, ends)


async def _work_pgqueuer(url: str, ends: asyncio.Task[str]) -> None:
    connection = await asyncpg.connect(url)
    try:
        await Queries(AsyncpgDriver(connection)).install()
        queue = PgQueuer.from_asyncpg_connection(connection)

        @queue.entrypoint("noop")
        async def noop(job: object) -> None:
            """Nothing."""

        ends.add_done_callback(lambda _: queue.shutdown.set())
        _say_ready()
        # What it would do every 30 s, to count what was done, is left out.
        await queue.qm.run(batch_size=PGQUEUER_BATCH, log_aggregation_interval=timedelta(0))
    finally:
        await connection.close()


async def _work_procrastinate(url: str, ends: asyncio.Task[str]) -> None:
    # One connection is for hearing of new jobs.
    app, _ = _procrastinate(url, PROCRASTINATE_CONCURRENCY + 1)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        worker = asyncio.create_task(
            app.run_worker_async(concurrency=PROCRASTINATE_CONCURRENCY, install_signal_handlers=False)
        )
        _say_ready()
        await asyncio.wait((worker, ends), return_when=asyncio.FIRST_COMPLETED)
        worker.cancel()
        await asyncio.wait((worker,))


def _procrastinate(url: str, connections: int) -> tuple[procrastinate.App, Any]:
    """The application, and its one task."""
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=connections, max_size=connections)
    app = procrastinate.App(connector=connector)

    @app.task(name="noop")
    async def noop() -> None:
        """Nothing."""

    return app, noop


def _say_ready() -> None:
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()


# --- The submitter's process --------------------------------------------------------------------------------------


async def _submit(order: Order) -> Submitted:
    """As many at once as there are connections, each the next when the one before is written."""
    answers_ms: list[float] = []
    tickets = itertools.repeat(None, order.requests)

    async def go_on(submit: Submit) -> None:
        for _ in tickets:
            began_s = time.perf_counter()
            await submit(order.batch)
            answers_ms.append((time.perf_counter() - began_s) * 1000)

    opened = _pgqueuer_connections if order.peer == PGQUEUER.name else _procrastinate_connections
    async with opened(order.url, order.connections) as connections, asyncio.timeout(LIMIT_S):
        began_s, cpu_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*map(go_on, connections))
        return Submitted(
            began_s=began_s,
            ended_s=time.perf_counter(),
            cpu_s=time.process_time() - cpu_s,
            answers_ms=answers_ms,
        )


@asynccontextmanager
async def _pgqueuer_connections(url: str, count: int) -> AsyncIterator[list[Submit]]:
    async with AsyncExitStack() as stack:
        made: list[Submit] = []
        for _ in range(count):
            connection = await asyncpg.connect(url)
            stack.push_async_callback(connection.close)
            made.append(_pgqueuer_submit(Queries(AsyncpgDriver(connection))))
        yield made


def _pgqueuer_submit(queries: Queries) -> Submit:
    async def submit(jobs: int) -> object:
        if jobs == 1:
            return await queries.enqueue("noop", None)
        return await queries.enqueue(["noop"] * jobs, [None] * jobs, [0] * jobs)

    return submit


@asynccontextmanager
async def _procrastinate_connections(url: str, count: int) -> AsyncIterator[list[Submit]]:
    app, noop = _procrastinate(url, count)

    async def submit(jobs: int) -> object:
        if jobs == 1:
            return await noop.defer_async()
        return await noop.batch_defer_async(*({} for _ in range(jobs)))

    async with app.open_async():
        yield [submit] * count


def main() -> None:
    """A worker, or a submitter, as the arguments say."""
    match sys.argv[1:]:
        case ["work", name, url]:
            uvloop.run(_work(name, url))
        case ["submit"]:
            submitted = uvloop.run(_submit(msgspec.json.decode(sys.stdin.buffer.read(), type=Order)))
            sys.stdout.buffer.write(msgspec.json.encode(submitted))
        case words:
            raise AssertionError(f"{words} is neither a worker nor a submitter")
