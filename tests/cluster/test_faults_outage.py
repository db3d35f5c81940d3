"""The database goes away for everybody, for longer than a node may be silent, and then crashes and recovers.

Everybody pauses, nobody is declared dead, and work goes on where it was. Each is played once, looked at by each test.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import ExitStack
from typing import Any

import httpx
import msgspec
import psycopg
import pytest
from tests.cdp_life.wire_client import wire_client
from tests.server.conftest import act, open_session, value_of
from tests.server.effects_site import REPORT, EffectsSite
from tests.server.tasking import ended, held, reporting, submit, until_running

from .reporting import PAUSED, until_distrust
from .rig import DEAD_AFTER_S, Cluster, ClusterNode, answer_of, code_of, tab_of, until

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Longer than others need to declare a node dead, with room for their beats.
OUTAGE_S = DEAD_AFTER_S + 2.0


class Before(msgspec.Struct, kw_only=True):
    """What there was."""

    epochs: list[int]
    browser_pids: list[set[int]]
    # One on each node, with a mark in its page.
    sessions: list[dict[str, Any]]
    # Acknowledged: one that runs, and one that waits behind it.
    running_task: str
    waiting_task: str
    command_id: str


class Outage(msgspec.Struct, kw_only=True):
    """What came of it."""

    cluster: Cluster
    before: Before
    # What the nodes answered meanwhile to each kind of request.
    refusals: list[tuple[int, str | None]]
    # What a CDP client had sent meanwhile on its old socket, and what it read there afterwards.
    held_reports: int
    mark_on_old_socket: str


@pytest.fixture(scope="module")
def outage(pair: Cluster, effects: EffectsSite) -> Outage:
    return asyncio.run(play(pair, effects))


async def play(pair: Cluster, effects: EffectsSite) -> Outage:
    with ExitStack() as stack:
        clients = [stack.enter_context(node.client()) for node in pair.nodes]
        before = set_up(pair, effects, clients)
        async with wire_client(before.sessions[0]["webSocketDebuggerUrl"]) as socket:
            page = await socket.page()
            for node in pair.nodes:
                node.wire.refuse()
            began = time.monotonic()
            refusals: list[tuple[int, str | None]] = []
            try:
                for client, session in zip(clients, before.sessions, strict=True):
                    await asyncio.to_thread(until, lambda c=client, s=session: code_of(look(c, s)) == PAUSED)
                    refusals += refused(client, session)
                await until_distrust(began)
                late = await socket.send("Runtime.evaluate", {"expression": REPORT % "held"}, page)
                # There is nothing to wait for but the time at which somebody could be declared dead.
                await asyncio.sleep(max(0.0, began + OUTAGE_S - time.monotonic()))
                held_reports = effects.count("held")
            finally:
                for node in pair.nodes:
                    node.wire.mend()
            await socket.result(late)
            mark = await socket.value("window.mark", page)
        for client, session in zip(clients, before.sessions, strict=True):
            await asyncio.to_thread(until, lambda c=client, s=session: look(c, s).status_code == 200)
    effects.is_open.set()
    return Outage(cluster=pair, before=before, refusals=refusals, held_reports=held_reports, mark_on_old_socket=mark)


def set_up(pair: Cluster, effects: EffectsSite, clients: list[httpx.Client]) -> Before:
    sessions = []
    for number, client in enumerate(clients):
        session = open_session(client, agentId=f"a{number}", url=effects.url(), keepAlive=True)
        assert session["node"] == pair.nodes[number].id
        value_of(client, tab_of(session), f"window.mark = 'page {number}'")
        sessions.append(session)
    at_work = open_session(clients[1], agentId="tasks", url=effects.url(), keepAlive=True)
    # They last until the site lets them, which is after the outage.
    limit_s = {"deadline": deadline_in(120)}
    running_task = submit(clients[0], held("running"), tabId=tab_of(at_work), agentId="tasks", **limit_s)
    until_running(clients[0], running_task)
    waiting_task = submit(clients[0], reporting("waiting"), tabId=tab_of(at_work), agentId="tasks", **limit_s)
    command = act(clients[0], tab_of(sessions[0]), "evaluate", expression="1", idempotencyKey="before")
    return Before(
        epochs=[pair.epoch_of(node) for node in pair.nodes],
        browser_pids=[pids_of(node) for node in pair.nodes],
        sessions=sessions,
        running_task=running_task,
        waiting_task=waiting_task,
        command_id=command.json()["commandId"],
    )


def look(client: httpx.Client, session: dict[str, Any]) -> httpx.Response:
    return act(client, tab_of(session), "evaluate", expression="window.mark")


def refused(client: httpx.Client, session: dict[str, Any]) -> list[tuple[int, str | None]]:
    """What a node that does not trust itself answers."""
    lock = f"/tabs/{tab_of(session)}/lock"
    return [
        code_of(client.post("/sessions", json={"agentId": "late"})),
        code_of(client.post("/tasks", json={"action": "evaluate", "params": {"expression": "1"}, "agentId": "late"})),
        code_of(client.post(lock, json={"controllerId": "late"})),
        code_of(client.delete(f"/sessions/{session['sessionId']}", params={"fence": session["fence"]})),
    ]


def pids_of(node: ClusterNode) -> set[int]:
    return {view["pid"] for view in answer_of(node, "/browsers")["browsers"] if view["node"] == node.id}


def deadline_in(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def test_everybody_refuses_work_meanwhile(outage: Outage) -> None:
    assert set(outage.refusals) == {PAUSED}


def test_nobody_is_declared_dead(outage: Outage) -> None:
    assert [outage.cluster.epoch_of(node) for node in outage.cluster.nodes] == outage.before.epochs


def test_browsers_and_pages_stay(outage: Outage) -> None:
    for number, (node, session) in enumerate(zip(outage.cluster.nodes, outage.before.sessions, strict=True)):
        with node.client() as client:
            assert value_of(client, tab_of(session), "window.mark") == f"page {number}"
            assert client.get(f"/tabs/{tab_of(session)}").json()["generation"] == 1
        assert pids_of(node) == outage.before.browser_pids[number]


def test_a_cdp_socket_stays_and_what_was_sent_on_it_meanwhile_is_done_afterwards(
    outage: Outage, effects: EffectsSite
) -> None:
    assert (outage.held_reports, effects.count("held")) == (0, 1)
    assert outage.mark_on_old_socket == "page 0"


def test_acknowledged_tasks_are_done_once_each(outage: Outage, effects: EffectsSite) -> None:
    with outage.cluster.nodes[0].client() as client:
        states = [ended(client, task)["state"] for task in (outage.before.running_task, outage.before.waiting_task)]
    assert states == ["done", "done"]
    assert (effects.count("running"), effects.count("waiting")) == (1, 1)


def test_what_a_command_had_answered_before_is_still_known(outage: Outage) -> None:
    with outage.cluster.nodes[1].client() as client:
        assert client.get(f"/commands/{outage.before.command_id}").json()["outcome"] == "completed"


def test_counters_are_what_a_recount_says(outage: Outage) -> None:
    outage.cluster.until_counted()


# --- The database crashes ---------------------------------------------------------------------------------------


async def test_a_crash_of_the_database_ends_nothing_and_work_goes_on_without_a_restart(
    pair: Cluster, effects: EffectsSite
) -> None:
    pair.until_whole()
    epochs = [pair.epoch_of(node) for node in pair.nodes]
    with pair.nodes[0].client() as client:
        session = open_session(client, agentId="crash", url=effects.url(), keepAlive=True)
        value_of(client, tab_of(session), "window.mark = 'kept'")
        async with wire_client(session["webSocketDebuggerUrl"]) as socket:
            page = await socket.page()
            await asyncio.to_thread(crash, pair)
            opened = await asyncio.to_thread(until, lambda: answered_201(client))
            assert await socket.value("window.mark", page) == "kept"
        assert value_of(client, tab_of(session), "window.mark") == "kept"
        assert value_of(client, tab_of(opened), "1") == 1
    assert [pair.epoch_of(node) for node in pair.nodes] == epochs
    pair.until_counted()


def crash(pair: Cluster) -> None:
    """Kill a process of the server, which then ends all others, recovers from its log and starts anew."""
    with pair.postgres.connect() as victim:
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            victim.execute("SELECT 1")
    until(lambda: is_back(pair))


def is_back(pair: Cluster) -> bool:
    try:
        return bool(pair.value("SELECT true"))
    except psycopg.OperationalError:
        return False


def answered_201(client: httpx.Client) -> dict[str, Any] | None:
    answer = client.post("/sessions", json={"agentId": "after"})
    assert code_of(answer) in ((201, None), PAUSED), answer.text
    return dict(answer.json()) if answer.status_code == 201 else None
