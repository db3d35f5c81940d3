"""A cluster for tests of its faults: real nodes, each with its own Chromium and its own wire to one PostgreSQL.

Whatever a test does to a node, stops it, kills it or cuts its wire, afterwards no process of any of its lives is left.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import psycopg
from bench.rig.postgres import Postgres
from tests.cli.running import Started
from tests.server.conftest import Server, environment_of
from tests.server.effects_site import EffectsSite
from tests.store.conftest import in_schema

from .partition import Wire, wire_to

# Before it something that was expected counts as missing; nothing is asserted to be quicker.
LIMIT_S = 90.0
# What does not come soon is looked for less and less often: each look is a request that somebody has to work for.
POLL_MIN_S = 0.05
POLL_MAX_S = 0.3
POLL_GROWTH = 1.2
# How long a node has to be silent: long enough for a busy machine, and there is time until others distrust it as well.
PAUSE_AFTER_S = 3.0
DEAD_AFTER_S = 7.0
# For nodes of which none is to be missed, whatever the machine does.
CALM = {"CLUSTER__PAUSE_AFTER_S": "60", "CLUSTER__DEAD_AFTER_S": "120"}
# Little enough that several nodes fit on a small machine.
SETTINGS = {
    "CLUSTER__BEAT_S": "0.4",
    "CLUSTER__PAUSE_AFTER_S": str(PAUSE_AFTER_S),
    "CLUSTER__DEAD_AFTER_S": str(DEAD_AFTER_S),
    "POOLS__DEFAULT__BROWSERS_MAX": "1",
    "POOLS__DEFAULT__WARM": "1",
}
# Times in the database's own clock.
NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

T = TypeVar("T")


class ClusterNode(Server):
    """One node: its state directory, the process that serves it now, and its wire to the database."""

    def __init__(self, state: Path, url: str, settings: Mapping[str, str], wire: Wire, env: Mapping[str, str]) -> None:
        self.lives = Started(state)
        super().__init__(state, self.lives)
        self.wire = wire
        # With which its processes are started.
        self.env = environment_of({**SETTINGS, "STORE": url, **settings}) | dict(env)
        self._record: dict[str, Any] = {}

    @property
    def record(self) -> dict[str, Any]:
        """What its process said when it was ready; also while it has taken that back, between two lives."""
        return self._record

    @property
    def id(self) -> str:
        return str(self.record["nodeId"])

    @property
    def url(self) -> str:
        return str(self.record["url"])

    @property
    def log(self) -> str:
        return (self.state / "server.log").read_text()

    def start(self, settings: dict[str, str] | None = None) -> None:
        """Start it, or start it again; returns when it is ready."""
        self.lives.start(self.env | environment_of(settings or {}))
        self._record = until(self._written_record)

    def _written_record(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.state / "server.json").read_text()))
        except FileNotFoundError:
            # A node that loses its database as soon as it is ready takes that back.
            assert self.lives.is_running, self.lives.said + self.log
            return {}

    def freeze(self) -> None:
        """Stop the process in the middle of whatever it is doing; its Chromium runs on."""
        os.kill(self.record["pid"], signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.record["pid"], signal.SIGCONT)

    def end(self) -> None:
        """Also after a test that failed: no process of it is left."""
        with suppress(OSError, ValueError, psutil.NoSuchProcess):
            # One that is stopped hears nothing.
            psutil.Process(int((self.state / "lock").read_bytes())).resume()
        self.wire.mend()
        self.lives.clean_up()
        leftovers = self.browsers()
        for browser in leftovers:
            browser.kill()
        psutil.wait_procs(leftovers)


class Cluster:
    """Nodes on one schema of a PostgreSQL, and what can be seen of them there. Made by `cluster_on`."""

    def __init__(self, postgres: Postgres, schema: str, directory: Path, stack: ExitStack) -> None:
        self.postgres = postgres
        self.schema = schema
        self.nodes: list[ClusterNode] = []
        self._directory = directory
        self._stack = stack
        # The connection for questions, of any thread, one at a time.
        self._shell: psycopg.Connection | None = None
        self._asking = threading.Lock()

    def add(self, settings: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None) -> ClusterNode:
        """One node more, which does not run yet."""
        wire = self._stack.enter_context(wire_to(self.postgres.port))
        url = in_schema(self.postgres.url_through(wire.port), self.schema)
        node = ClusterNode(self._directory / f"node{len(self.nodes)}", url, settings or {}, wire, env or {})
        self._stack.callback(node.end)
        self.nodes.append(node)
        return node

    def start(self, settings: Mapping[str, str], environments: Sequence[Mapping[str, str]] = ({}, {})) -> None:
        """A node more for each environment; returns when each knows all others.

        Those with an environment of their own are started in one moment, as processes of their own. The others are
        forked (see `tests/cli/forked.py`), which is done by one thread at a time.
        """
        added = [self.add(settings, env) for env in environments]
        with ThreadPoolExecutor(len(added) if all(environments) else 1) as starters:
            list(starters.map(lambda node: node.start(), added))
        self.until_whole()

    def until_whole(self) -> None:
        """Until all nodes are up and have a browser, and each of them says so of all."""
        for node in self.nodes:
            until(lambda node=node: self.states_at(node) == {other.id: "up" for other in self.nodes})
            until(lambda node=node: answer_of(node, "/ready"))

    def until_beaten(self, node: ClusterNode) -> None:
        """Until a beat was acknowledged that it has begun after this.

        The next one to land may have been on its way for as long as a cut lasted, and then the node trusts itself for a
        moment only, until it has beaten again.
        """
        version = "SELECT version FROM beats WHERE id = %s"
        enough = self.value(version, node.id) + 2
        until(lambda: self.value(version, node.id) >= enough)

    def clear(self) -> None:
        """End all sessions and free all locks, whoever they belong to."""
        with self.nodes[0].client() as client:
            for (id,) in self.rows("SELECT id FROM sessions WHERE state NOT IN ('closed', 'lost')"):
                client.delete(f"/sessions/{id}")
            for (name,) in self.rows("SELECT id FROM named_locks"):
                client.delete(f"/locks/{name}", params={"force": "true"})

    def states_at(self, node: ClusterNode) -> dict[str, str]:
        """All nodes by their id, as that one sees them; empty while it does not answer."""
        views = answer_of(node, "/nodes").get("nodes", [])
        return {view["nodeId"]: view["state"] for view in views}

    # --- What stands in the database ------------------------------------------------------------------------

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the database says; names of tables without a schema are those of the cluster."""
        with self._asking:
            if self._shell is not None:
                try:
                    return self._shell.execute(sql.encode(), values or None).fetchall()
                except psycopg.OperationalError:
                    # Tests end connections, and the database itself, under whoever is connected.
                    self.disconnect()
            # Kept, because each costs a process of the database, and some questions are asked over and over.
            self._shell = self.postgres.connect()
            self._shell.execute(f"SET search_path = {self.schema}".encode())
            return self._shell.execute(sql.encode(), values or None).fetchall()

    def disconnect(self) -> None:
        """End the connection for questions; the next question makes another."""
        if self._shell is not None:
            self._shell.close()
            self._shell = None

    def value(self, sql: str, *values: Any) -> Any:
        ((value,),) = self.rows(sql, *values)
        return value

    def node_of(self, session_id: str) -> str:
        return str(self.value("SELECT node_id FROM sessions WHERE id = %s", session_id))

    def epoch_of(self, node: ClusterNode) -> int:
        return int(self.value("SELECT epoch FROM nodes WHERE id = %s", node.id))

    def is_active_on(self, session: dict[str, Any], node: ClusterNode) -> bool:
        row = self.rows("SELECT node_id, state FROM sessions WHERE id = %s", session["sessionId"])
        return row == [(node.id, "active")]

    def counters(self) -> dict[str, int]:
        """What counts against caps, as the store has it."""
        return dict(self.rows("SELECT name, value FROM counters WHERE name ~ '^(active|pooled|tabs):'"))

    def recount(self) -> dict[str, int]:
        """The same, counted from the rows."""
        found: Counter[str] = Counter()
        states = {"reserved": "active", "active": "active", "recovering": "active", "closing": "active"}
        states["pooled"] = "pooled"
        pool_of: dict[str, str] = {}
        for id, state, pool, key, agent_id in self.rows("SELECT id, state, pool, key, agent_id FROM sessions"):
            if (kind := states.get(state)) is None:
                continue
            pool_of[id] = pool
            found[f"{kind}:{pool}"] += 1
            if key:
                found[f"{kind}:{pool}:key:{key}"] += 1
            if kind == "active":
                found[f"{kind}:{pool}:agent:{agent_id}"] += 1
        for session_id, state in self.rows("SELECT session_id, state FROM tabs"):
            if session_id in pool_of and state != "closed":
                found[f"tabs:{pool_of[session_id]}"] += 1
        return dict(found)

    def until_counted(self) -> None:
        """Until the counters are what a recount says: between two looks a session may come or go."""
        until(lambda: self.counters() == self.recount())


@contextmanager
def cluster_on(postgres: Postgres, schema: str, directory: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        cluster = Cluster(postgres, schema, directory, stack)
        stack.callback(cluster.disconnect)
        yield cluster


def until(is_so: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """Look again and again, since what happens in a node tells nobody here; what was seen at last."""
    give_up_at = time.monotonic() + limit_s
    pause_s = POLL_MIN_S
    while not (seen := is_so()):
        assert time.monotonic() < give_up_at, "it never was"
        time.sleep(pause_s)
        pause_s = min(pause_s * POLL_GROWTH, POLL_MAX_S)
    return seen


def answer_of(node: ClusterNode, path: str) -> dict[str, Any]:
    """What it answers there; empty while it does not, or refuses."""
    try:
        with node.client() as client:
            answer = client.get(path)
    except httpx.HTTPError:
        return {}
    return dict(answer.json()) if answer.status_code == 200 else {}


def tab_of(session: dict[str, Any]) -> str:
    """Its first tab."""
    return str(session["tabs"][0]["tabId"])


def code_of(answer: httpx.Response) -> tuple[int, str | None]:
    """Status and error code."""
    return answer.status_code, answer.json().get("code") if answer.content else None


def is_silent(effects: EffectsSite, who: str) -> bool:
    """Whether it has done nothing for a while, in which it would have done something ten times over."""
    seen = effects.count(who)
    time.sleep(0.5)
    return effects.count(who) == seen
