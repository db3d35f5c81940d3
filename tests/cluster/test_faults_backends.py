"""Connections to the database are ended at random under load: what was acknowledged is there afterwards, and once.

`FAULTS_S` makes it longer. Callers log what the nodes
acknowledged, and that is compared with what there is when all is calm again.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest
from tests.server.conftest import open_session
from tests.server.effects_site import EffectsSite
from tests.server.tasking import ended, reporting

from .rig import CALM, LIMIT_S, Cluster, ClusterNode, tab_of, until

# A sample is in the short crash campaign, and in `tests/store/test_postgres_outage.py`.
pytestmark = [pytest.mark.server, pytest.mark.browser, pytest.mark.soak]

# Whose beats are lost with the connections is not taken for dead: that is another test's.
SETTINGS = CALM
# How long; the soak goes on for a minute.
FAULTS_S = float(os.environ.get("FAULTS_S", "20"))
CALLERS = 4
# How often a caller that was refused comes again with the same request before it gives that up.
TRIES_MAX = 50
# Between two ends of all connections.
PAUSE_S = (0.05, 0.2)
END_ALL = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


class Log(msgspec.Struct, kw_only=True):
    """What callers were told for sure, by the name of what they reported."""

    # Callers that have begun.
    at_home: list[str] = []
    opened: list[str] = []
    released: list[str] = []
    # Of commands that answered, and of tasks by their id.
    commands: list[str] = []
    tasks: dict[str, str] = {}
    # Answers that nobody should get.
    surprises: list[str] = []
    # How many connections were ended.
    ended: int = 0

    @property
    def is_enough(self) -> bool:
        return self.ended > 10 and len(self.commands) > CALLERS


class Caller:
    """One client of one node: does a bit of everything, over and over."""

    def __init__(self, name: str, node: ClusterNode, effects: EffectsSite, log: Log) -> None:
        self._name = name
        self._node = node
        self._effects = effects
        self._log = log
        self._number = 0

    def run(self, is_over: threading.Event) -> None:
        with self._node.client() as client:
            # Kept for all commands, so that what they report is seen.
            home = open_session(client, agentId=self._name, url=self._effects.url(), keepAlive=True)
            self._log.opened.append(home["sessionId"])
            self._log.at_home.append(self._name)
            while not is_over.is_set():
                self._number += 1
                self._command(client, tab_of(home))
                self._task(client, tab_of(home))
                self._session(client)

    def _command(self, client: httpx.Client, tab_id: str) -> None:
        who = f"{self._name}-command-{self._number}"
        body = {"kind": "evaluate", "expression": reporting(who), "waitPolicy": "wait_with_timeout"}
        answer = self._ask(client, "POST", f"/tabs/{tab_id}/action", {**body, "idempotencyKey": who})
        if answer is not None and answer.status_code == 200:
            self._log.commands.append(who)

    def _task(self, client: httpx.Client, tab_id: str) -> None:
        who = f"{self._name}-task-{self._number}"
        body = {"agentId": self._name, "action": "evaluate", "params": {"expression": reporting(who)}, "tabId": tab_id}
        answer = self._ask(client, "POST", "/tasks", {**body, "idempotencyKey": who})
        if answer is not None and answer.status_code == 202:
            self._log.tasks[answer.json()["taskId"]] = who

    def _session(self, client: httpx.Client) -> None:
        answer = self._ask(client, "POST", "/sessions", {"agentId": self._name, "keepAlive": True})
        if answer is None or answer.status_code != 201:
            return
        session = answer.json()
        self._log.opened.append(session["sessionId"])
        answer = self._ask(client, "DELETE", f"/sessions/{session['sessionId']}", None)
        # Told that it is over already, the caller knows that an earlier try has done it.
        if answer is not None and answer.status_code in (204, 404, 409):
            self._log.released.append(session["sessionId"])

    def _ask(self, client: httpx.Client, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response | None:
        """The first answer that is not a refusal for the moment; None if there was none, or nobody can tell."""
        for _ in range(TRIES_MAX):
            answer = client.request(method, path, json=body)
            if answer.status_code not in (503, 502):
                if answer.status_code >= 500:
                    self._log.surprises.append(f"{method} {path}: {answer.text}")
                return answer
            if "idempotencyKey" not in (body or {}) and method == "POST":
                # It may have happened: to ask again would be to ask for another.
                return None
            time.sleep(0.02)
        return None


def play(pair: Cluster, effects: EffectsSite) -> Log:
    log, is_over = Log(), threading.Event()
    chance = random.Random(7)
    callers = [Caller(f"c{n}", pair.nodes[n % 2], effects, log) for n in range(CALLERS)]
    with ThreadPoolExecutor(CALLERS) as threads, pair.postgres.connect() as operator:
        running = [threads.submit(caller.run, is_over) for caller in callers]
        try:
            until(lambda: len(log.at_home) == CALLERS and len(log.tasks) >= CALLERS)
            over_at = time.monotonic() + FAULTS_S
            # On a busy machine it takes as long as it takes until there is something to tell.
            while time.monotonic() < over_at or (not log.is_enough and time.monotonic() < over_at + LIMIT_S):
                time.sleep(chance.uniform(*PAUSE_S))
                log.ended += operator.execute(END_ALL.encode()).fetchall()[0][0]
        finally:
            is_over.set()
        for each in running:
            each.result(120)
    pair.until_whole()
    return log


def test_what_was_acknowledged_while_connections_were_ended_is_there_and_was_done_once(
    pair: Cluster, effects: EffectsSite
) -> None:
    log = play(pair, effects)
    assert log.ended > 10
    # Nobody hears anything but answers and refusals.
    assert log.surprises == []
    states = dict(pair.rows("SELECT id, state FROM sessions"))
    kept = set(log.opened) - set(log.released)
    assert {session_id: states.get(session_id) for session_id in kept} == dict.fromkeys(kept, "active")
    ends = "SELECT DISTINCT state FROM sessions WHERE id = ANY(%s)"
    until(lambda: pair.rows(ends, log.released) == [("closed",)])
    with pair.nodes[0].client() as client:
        tasks = {who: ended(client, task_id) for task_id, who in log.tasks.items()}
    assert [end for end in tasks.values() if end["state"] != "done"] == []
    done = Counter(effect.who for effect in effects.effects)
    assert len(log.commands) > CALLERS
    assert [who for who in (*log.commands, *tasks) if done[who] != 1] == []
    assert [who for who, times in done.items() if times > 1] == []
    # Nothing is left half opened or half ended.
    half = "SELECT count(*) FROM sessions WHERE state IN ('reserved', 'closing', 'recovering')"
    until(lambda: pair.value(half) == 0)
    pair.until_counted()
