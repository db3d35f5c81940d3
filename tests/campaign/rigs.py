"""What a crash campaign is done to: one server on SQLite, or two nodes on one PostgreSQL, and how each part is killed.

Whatever was killed is started again at once. Logs of every life are kept, and no process outlives the block.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import psutil
import psycopg
from bench.rig.postgres import Postgres, running_postgres
from tests.cli.running import Started
from tests.cluster.rig import Cluster, ClusterNode, cluster_on, until
from tests.server.conftest import Server, environment_of, kill_browser

from .inside.points import ARMED

INSIDE: Final = Path(__file__).parent / "inside"
# What a server that is started in the middle of a campaign may fail with: it was killed, again, as it started.
STARTS_MAX: Final = 5
# How long a named point is waited for before its server is killed wherever it is.
POINT_LIMIT_S: Final = 4.0
SETTINGS: Final = {
    # The breaker would, rightly, stop starting browsers that die every second.
    "POOLS__DEFAULT__BREAKER_CRASHES": "1000",
    "POOLS__DEFAULT__WARM": "1",
    "POOLS__DEFAULT__SESSIONS_PER_BROWSER": "20",
    "POOLS__DEFAULT__BROWSERS_MAX": "2",
    # A session whose acknowledgement was lost has nobody who knows of it: only its silence ends it.
    "POOLS__DEFAULT__IDLE_TTL_S": "20",
    "POOLS__DEFAULT__HEARTBEAT_S": "5",
    "POOLS__DEFAULT__STALE_AFTER_S": "30",
    # Tasks leave the queue for the archive while the campaign goes on.
    "SCHEDULER__RESULT_TTL_S": "20",
}


class Rig(Protocol):
    """Servers, what they keep, and what can be killed."""

    servers: list[Server]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What the store says; SQL that both kinds of store understand."""
        ...

    def end_backend(self, chance: Any) -> bool:
        """SIGKILL for one process of the database; whether there is such a thing."""
        ...


class Life:
    """How one server is killed and started again, whichever store it is on."""

    def __init__(self, server: Server, env: Mapping[str, str], logs: Path) -> None:
        self.server = server
        self._env = env
        self._logs = logs
        self._lives = 0

    @property
    def pid(self) -> int:
        return int((self.server.state / "lock").read_bytes())

    def kill(self) -> None:
        self._wait_killed(psutil.Process(self.pid), at_once=True)

    def kill_at(self, point: str) -> bool:
        """Let it die there; False if it did not come by, and was killed where it was."""
        process = psutil.Process(self.pid)
        armed = self.server.state / ARMED
        armed.write_text(point)
        try:
            process.wait(POINT_LIMIT_S)
            return True
        except psutil.TimeoutExpired:
            self._wait_killed(process, at_once=True)
            return False
        finally:
            armed.unlink(missing_ok=True)

    def arm(self, point: str) -> None:
        """For the next life."""
        (self.server.state / ARMED).write_text(point)

    def start(self) -> int:
        """Start it again; how often that took, since it may have been told to die on the way."""
        for attempt in range(1, STARTS_MAX + 1):
            self._keep_log()
            try:
                self._start()
                return attempt
            except AssertionError:
                # It said nothing before it died. If it was not told to, the next attempt says why.
                if attempt == STARTS_MAX:
                    raise
            finally:
                (self.server.state / ARMED).unlink(missing_ok=True)
        raise AssertionError("not reached")

    def kill_a_browser(self, chance: Any) -> bool:
        """One with all its processes; whether there was one."""
        mine = [browser.pid for browser in self.server.browsers() if _is_root(browser)]
        if not mine:
            return False
        kill_browser(chance.choice(mine))
        return True

    def _start(self) -> None:
        if isinstance(self.server, ClusterNode):
            self.server.start()
        else:
            self.server._started.start(self._env)

    def _wait_killed(self, process: psutil.Process, *, at_once: bool) -> None:
        with suppress(psutil.NoSuchProcess):
            if at_once:
                process.kill()
            process.wait()

    def _keep_log(self) -> None:
        log = self.server.state / "server.log"
        if log.exists():
            self._lives += 1
            shutil.copy(log, self._logs / f"{self.server.state.name}-{self._lives:03}.log")


def inside(state: Path) -> dict[str, str]:
    """With which a server lets a campaign look into it."""
    return {"PYTHONPATH": python_path(), "CAMPAIGN_DIR": str(state), "CAMPAIGN_POINTS": "1"}


def python_path() -> str:
    """What is ours before what was there."""
    return os.pathsep.join(filter(None, (str(INSIDE), os.environ.get("PYTHONPATH", ""))))


class SqliteRig:
    """One server on its own file."""

    def __init__(self, state: Path, started: Started) -> None:
        self.servers = [Server(state, started)]
        self._store = state / "tabherd.db"

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self._store}?mode=ro", uri=True)) as connection:
            return connection.execute(sql).fetchall()

    def end_backend(self, chance: Any) -> bool:
        return False


class PostgresRig:
    """Two nodes on one database."""

    def __init__(self, cluster: Cluster, postgres: Postgres) -> None:
        self.servers: list[Server] = list(cluster.nodes)
        self._cluster = cluster
        self._postgres = postgres

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._cluster.rows(sql)

    def end_backend(self, chance: Any) -> bool:
        """The whole database goes down with it and comes up again by itself: that is what PostgreSQL does."""
        backends = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        try:
            pids = [row[0] for row in self._cluster.rows(backends)]
        except psycopg.Error:
            # It is just coming up from the last time.
            return False
        if not pids:
            return False
        with suppress(ProcessLookupError):
            os.kill(chance.choice(pids), signal.SIGKILL)
        until(self._is_up)
        return True

    def _is_up(self) -> bool:
        try:
            return bool(self._cluster.rows("SELECT 1"))
        except psycopg.Error:
            return False


@contextmanager
def sqlite_rig(place: Path) -> Iterator[tuple[SqliteRig, list[Life]]]:
    state = place / "state"
    started = Started(state)
    env = environment_of(SETTINGS) | inside(state)
    rig = SqliteRig(state, started)
    lives = [Life(rig.servers[0], env, _logs(place))]
    try:
        lives[0].start()
        yield rig, lives
    finally:
        started.clean_up()


@contextmanager
def postgres_rig(place: Path) -> Iterator[tuple[PostgresRig, list[Life]]]:
    with running_postgres() as postgres, cluster_on(postgres, "campaign", place) as cluster:
        for number in range(2):
            cluster.add(SETTINGS, inside(place / f"node{number}"))
        rig = PostgresRig(cluster, postgres)
        logs = _logs(place)
        lives = [Life(node, {}, logs) for node in cluster.nodes]
        for life in lives:
            life.start()
        cluster.until_whole()
        yield rig, lives


def _logs(place: Path) -> Path:
    logs = place / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    return logs


def _is_root(process: psutil.Process) -> bool:
    """The browser itself, and none of its renderers."""
    try:
        return not any(word.startswith("--type=") for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False
