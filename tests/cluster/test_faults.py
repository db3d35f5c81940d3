"""Two real nodes whose clocks are five minutes fast and slow, and everything that can befall them.

A node is killed, stopped past its time and woken, cut off from the database, and the database goes away for everybody:
nothing is done twice, nothing that was on its way lands late, and work goes on. Scripts report in which page they run,
the one of before, which has a mark, or the one that another node has made.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from tests.cdp_life.wire_client import wire_client
from tests.server.conftest import act, open_session, value_of
from tests.server.effects_site import LOOP, EffectsSite
from tests.server.local_site import serving
from tests.server.login_site import LoginSite
from tests.server.tasking import ended, held, reporting, submit, until_running

from .rig import (
    DEAD_AFTER_S,
    LIMIT_S,
    NOW_MS,
    PAUSE_AFTER_S,
    Cluster,
    ClusterNode,
    answer_of,
    code_of,
    is_silent,
    tab_of,
    until,
)

pytestmark = [pytest.mark.server, pytest.mark.browser]

PATCHED = str(Path(__file__).parent / "wrong_clock")
ENVIRONMENTS = [{"PYTHONPATH": PATCHED, "CLOCK_OFF_S": off_s} for off_s in ("300", "-300")]
# Far less than the clocks are off, and far more than anything here takes.
ROOM_S = 100
# Longer than others need to declare a node dead, with room for their beats.
OUTAGE_S = DEAD_AFTER_S + 1.5
# What a node says that does not trust itself.
PAUSED = (503, "store_unavailable")
UNKNOWN = (502, "outcome_unknown")
# What a CDP client is told when the life of its node is over.
OVER = (1001, "The server ends.")
PATIENT = {"waitPolicy": "wait_with_timeout", "timeoutMs": 120_000}
# The command that runs when its node dies.
ONCE = {"kind": "evaluate", "expression": held("once"), "idempotencyKey": "only-once", **PATIENT}
# Tells the site in which page it runs.
REPORT = "fetch('/effect?who=' + (window.mark ?? 'new') + '-%s&at=' + Date.now()).then(() => 1)"


@pytest.fixture
def logins() -> Iterator[LoginSite]:
    with serving(LoginSite()) as site:
        yield site


# --- Clocks -----------------------------------------------------------------------------------------------------


async def test_nodes_whose_clocks_are_wrong_agree_as_the_database_rules(pair: Cluster, effects: EffectsSite) -> None:
    fast, slow = pair.nodes
    # They started at once on an empty database, and have their keys together.
    assert sorted(name for (name,) in pair.rows("SELECT id FROM secrets")) == ["nodes", "tickets", "webhooks"]
    epochs = [pair.epoch_of(node) for node in pair.nodes]
    assert len(set(epochs)) == 2
    with fast.client() as at_fast, slow.client() as at_slow:
        clients = (at_fast, at_slow)
        views = at_fast.get("/nodes").json()["nodes"]
        assert max(view["beatAgeMs"] for view in views) < ROOM_S * 1000
        # Leases last until their deadline and no longer, and tasks end at the one that their callers gave.
        leases = [open_session(client, agentId="short", deadlineMs=1_500) for client in clients]
        begun = [datetime.fromisoformat(lease["createdAt"]).timestamp() for lease in leases]
        assert max(abs(at - now_s(pair)) for at in begun) < ROOM_S
        due_s = now_s(pair) + 2
        late = [open_session(client, agentId="late", url=effects.url()) for client in clients]
        deadline = datetime.fromtimestamp(due_s).astimezone().isoformat()
        tasks = [
            submit(client, "new Promise(() => {})", tabId=tab_of(session), agentId="late", deadline=deadline)
            for client, session in zip(clients, late, strict=True)
        ]
        for lease, other in zip(leases, reversed(clients), strict=True):
            until(lambda it=lease, at=other: code_of(look(at, it)) == (409, "lease_lost"))
            assert now_s(pair) >= datetime.fromisoformat(lease["expiresAt"]).timestamp()
        for task_id in tasks:
            view = ended(at_fast, task_id)
            assert (view["state"], view["code"]) == ("failed", "deadline_exceeded")
            assert 0 <= datetime.fromisoformat(view["completedAt"]).timestamp() - due_s + 0.1 < ROOM_S
        # Ids sort by when they were made, wherever that was, and hops from either are believed by the other.
        made = [open_session(clients[number], agentId="ids", keepAlive=True) for number in (0, 1, 1, 0)]
        assert [one["sessionId"] for one in made] == sorted(one["sessionId"] for one in made)
        assert [value_of(at_slow, tab_of(made[0]), "1"), value_of(at_fast, tab_of(made[1]), "2")] == [1, 2]
        # An address of a socket is good for as long as its session, which is shorter than that node's clock is fast.
        session = open_session(at_slow, agentId="socket", deadlineMs=120_000, keepAlive=True)
        address = at_fast.get(f"/sessions/{session['sessionId']}").json()["webSocketDebuggerUrl"]
    async with wire_client(address) as client:
        assert await client.value("6 * 7", await client.page()) == 42
    assert [pair.epoch_of(node) for node in pair.nodes] == epochs


def now_s(cluster: Cluster) -> float:
    return float(cluster.value(f"SELECT {NOW_MS}")) / 1000


# --- Death ------------------------------------------------------------------------------------------------------


def test_the_sessions_of_a_node_that_is_killed_go_on_elsewhere_and_nothing_is_done_twice(
    pair: Cluster, effects: EffectsSite, logins: LoginSite
) -> None:
    # The one with the larger epoch dies: what it accepted is not in the survivor's future.
    survivor, killed = sorted(pair.nodes, key=pair.epoch_of)
    with killed.client() as there, survivor.client() as here, ThreadPoolExecutor(2) as callers:
        quiet = open_session(there, agentId="ada", url=logins.url("/login/ada"))
        busy = open_session(there, agentId="busy", key="vendor", url=effects.url())
        kept = "SELECT count(*) FROM checkpoints WHERE id = %s AND strpos(cookies, 'secret-of-ada') > 0"
        until(lambda: pair.value(kept, quiet["sessionId"]))
        value_of(there, tab_of(busy), f"{LOOP % 'old-page'}; 1")
        running: Future[httpx.Response] = callers.submit(act, here, tab_of(busy), **ONCE)
        assert effects.is_held.wait(LIMIT_S)
        waiting = callers.submit(act, here, tab_of(busy), "evaluate", expression=reporting("late"), **PATIENT)
        command_id = until(lambda: at_work(there, tab_of(busy)))
        killed.kill()
        # Its callers hear that nobody knows how it ended, and what waited never runs.
        assert [code_of(call.result(LIMIT_S)) for call in (running, waiting)] == [UNKNOWN, UNKNOWN]
        last_beat_ms = pair.value("SELECT at FROM beats WHERE id = %s", killed.id)
        for session in (quiet, busy):
            until(lambda session=session: pair.is_active_on(session, survivor))
        # Nobody acts before it must have stopped trusting itself.
        assert pair.value(f"SELECT {NOW_MS}") - last_beat_ms >= DEAD_AFTER_S * 1000

        # With its login, address, id and fence.
        found = value_of(here, tab_of(quiet), "[document.body.innerText, location.pathname]")
        assert found == ["Hello, ada", "/home/ada"]
        now = here.get(f"/sessions/{quiet['sessionId']}").json()
        assert (now["state"], now["fence"], now["node"]) == ("active", quiet["fence"], survivor.id)
        assert here.get(f"/tabs/{tab_of(quiet)}").json()["generation"] == 2
        # The command that ran has that outcome for good and is never run again.
        assert here.get(f"/commands/{command_id}").json()["outcome"] == "outcome_unknown"
        assert code_of(act(here, tab_of(busy), **ONCE)) == UNKNOWN
        assert (effects.count("once"), effects.count("late")) == (1, 0)
    pair.until_counted()
    assert pair.counters()["active:default:key:vendor"] == 1
    until(lambda: killed.id not in pair.states_at(survivor))
    for table in ("sessions", "tabs"):
        left = f"SELECT count(*) FROM {table} WHERE node_id = %s AND state NOT IN ('closed', 'lost')"
        assert pair.value(left, killed.id) == 0

    # Its browser has run on all the while, with the page that others have recovered; started again, it ends that.
    seen = effects.count("old-page")
    until(lambda: effects.count("old-page") > seen)
    killed.start()
    pair.until_whole()
    with killed.client() as client:
        (itself,) = [view for view in client.get("/nodes").json()["nodes"] if view["isSelf"]]
        assert itself["sessions"] == 0
        until(lambda: is_silent(effects, "old-page"))
        assert pair.node_of(busy["sessionId"]) == survivor.id
        mine = [view for view in client.get("/browsers").json()["browsers"] if view["node"] == killed.id]
    assert [view["browserId"] for view in mine] == killed.profiles()
    assert [process.pid for process in killed.browsers()] == [mine[0]["pid"]]


def at_work(client: httpx.Client, tab_id: str) -> str | None:
    """The command that has the tab, once somebody waits behind it."""
    view = client.get(f"/tabs/{tab_id}").json()
    return view["holder"]["commandId"] if view["waiters"] else None


# --- Stopped ----------------------------------------------------------------------------------------------------


async def test_nothing_that_waited_in_a_node_which_was_stopped_past_its_time_does_anything(
    pair: Cluster, effects: EffectsSite
) -> None:
    stopped, other = pair.nodes
    epoch = pair.epoch_of(stopped)
    with stopped.client() as here, stopped.client() as here_too, other.client() as there:
        session, given_back = (
            open_session(here, agentId=name, url=effects.url(), keepAlive=True) for name in ("ada", "bob")
        )
        value_of(here, tab_of(session), f"window.mark = 'old'; {LOOP % 'old-page'}; 1")
        # Connected already: what they send waits in sockets that the node has accepted.
        here_too.get("/health")
        lock = here.post("/locks/frozen", json={"leaseMs": 600_000}).json()
        granting = asyncio.create_task(
            asyncio.to_thread(there.post, "/locks/frozen", json={"waitMs": 120_000, "leaseMs": 600_000})
        )
        with other.client() as monitor:
            await asyncio.to_thread(until, lambda: waiters(monitor).get("frozen") == 1)
            through = monitor.get(f"/sessions/{session['sessionId']}").json()["webSocketDebuggerUrl"]
        async with wire_client(session["webSocketDebuggerUrl"]) as client, wire_client(through) as client_through:
            pages = [await client.page(), await client_through.page()]
            stopped.freeze()
            try:
                command = asyncio.create_task(
                    asyncio.to_thread(act, here, tab_of(session), "evaluate", expression=REPORT % "http")
                )
                path = f"/sessions/{given_back['sessionId']}?fence={given_back['fence']}"
                release = asyncio.create_task(asyncio.to_thread(here_too.delete, path))
                for socket, page in zip((client, client_through), pages, strict=True):
                    await socket.send("Runtime.evaluate", {"expression": REPORT % "cdp"}, page)
                for one in (session, given_back):
                    await asyncio.to_thread(until, lambda one=one: pair.is_active_on(one, other))
                granted = (await granting).json()
            finally:
                stopped.thaw()
            # A command, a release and CDP frames that waited in its sockets.
            assert code_of(await command) == code_of(await release) == PAUSED
            assert await client.closed() == OVER
            await client_through.closed()
        await asyncio.to_thread(pair.until_whole)
        assert [effects.count(f"{page}-{way}") for page in ("old", "new") for way in ("http", "cdp")] == [0, 0, 0, 0]
        assert pair.is_active_on(given_back, other)
        # What it held is another's, and never its own again.
        assert granted["fence"] > lock["fence"]
        assert code_of(here.post("/locks/frozen/renew", json={"ticket": lock["ticket"]})) == (409, "lock_lost")
        there.delete("/locks/frozen", params={"ticket": granted["ticket"]})
        # It is back by itself as a new life of the same process, and passes on what was its own before.
        assert pair.epoch_of(stopped) > epoch
        assert_serves(stopped)
        assert value_of(here, tab_of(session), "window.mark ?? 'new'") == "new"
        now = here.get(f"/sessions/{session['sessionId']}").json()
        assert (now["node"], now["fence"]) == (other.id, session["fence"])
    await asyncio.to_thread(until, lambda: is_silent(effects, "old-page"))
    pair.until_counted()


def waiters(client: httpx.Client) -> dict[str, int]:
    """How many wait for each lock, as monitoring has it."""
    return {each["label"]: each["waiters"] for each in client.get("/api/advisory-locks").json()["advisory_locks"]}


def assert_serves(node: ClusterNode) -> None:
    with node.client() as client:
        session = open_session(client, agentId="new")
        assert session["node"] == node.id
        assert value_of(client, tab_of(session), "6 * 7") == 42


# --- Cut off ----------------------------------------------------------------------------------------------------


async def test_a_node_that_is_cut_off_for_long_distrusts_itself_before_others_act_and_no_write_of_it_lands_late(
    pair: Cluster, effects: EffectsSite
) -> None:
    node, other = pair.nodes
    epoch = pair.epoch_of(node)
    with node.client() as here, node.client() as releaser, node.client() as operator:
        session, given_back = (
            open_session(here, agentId=name, url=effects.url(), keepAlive=True) for name in ("ada", "bob")
        )
        value_of(here, tab_of(session), "window.mark = 'old'")
        async with wire_client(session["webSocketDebuggerUrl"]) as client:
            page = await client.page()
            node.wire.swallow()
            try:
                # The first is on its way then, and the second waits behind it.
                wish = asyncio.create_task(
                    asyncio.to_thread(late, operator, "POST", "/agents", json={"agentId": "too-late"})
                )
                path = f"/sessions/{given_back['sessionId']}?fence={given_back['fence']}"
                release = asyncio.create_task(asyncio.to_thread(late, releaser, "DELETE", path))
                await asyncio.to_thread(until, lambda: is_paused(here, session, "http"))
                await client.send("Runtime.evaluate", {"expression": REPORT % "cdp"}, page)
                for one in (session, given_back):
                    await asyncio.to_thread(until, lambda one=one: pair.is_active_on(one, other))
                last_beat_ms = pair.value("SELECT at FROM beats WHERE id = %s", node.id)
                assert is_paused(here, session, "http")
            finally:
                node.wire.mend()
            assert await client.closed() == OVER
            for answer in (await release, await wish):
                assert answer is None or code_of(answer) == PAUSED
        await asyncio.to_thread(pair.until_whole)
    # Nothing that it was sent reaches the page once others may act.
    done = [effect.at for effect in effects.effects if effect.who == "old-http"]
    assert max(done, default=0) < last_beat_ms + DEAD_AFTER_S * 1000
    assert effects.count("old-cdp") == effects.count("new-cdp") == 0
    # Not even a write lands late that rests on no row of others.
    assert pair.value("SELECT count(*) FROM credentials WHERE agent_id = 'too-late'") == 0
    assert pair.is_active_on(given_back, other)
    with other.client() as client:
        assert value_of(client, tab_of(given_back), "1") == 1
        assert value_of(client, tab_of(session), "window.mark ?? 'new'") == "new"
    assert pair.epoch_of(node) > epoch
    assert_serves(node)
    pair.until_counted()


def is_paused(client: httpx.Client, session: dict[str, Any], who: str) -> bool:
    """Whether it refuses a command; one that it takes is told to the site."""
    answer = act(client, tab_of(session), "evaluate", expression=REPORT % who)
    assert code_of(answer) in ((200, None), PAUSED), answer.text
    return answer.status_code != 200


def late(client: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response | None:
    """What the node answers; None when it ends the connection instead."""
    try:
        return client.request(method, path, **options)
    except httpx.HTTPError:
        return None


# --- Outages ----------------------------------------------------------------------------------------------------


async def test_while_the_database_is_away_everybody_pauses_and_then_work_goes_on_where_it_was(
    pair: Cluster, effects: EffectsSite
) -> None:
    node, other = pair.nodes
    epochs = [pair.epoch_of(each) for each in pair.nodes]
    pids = [pids_of(each) for each in pair.nodes]
    with ExitStack() as stack:
        # With one token, which both know by then: they cannot ask the database about another.
        clients = [stack.enter_context(each.client(node.admin_token)) for each in pair.nodes]
        here, there = clients
        sessions = [
            open_session(client, agentId=f"a{number}", url=effects.url(), keepAlive=True)
            for number, client in enumerate(clients)
        ]
        for client, session in zip(clients, sessions, strict=True):
            value_of(client, tab_of(session), "window.mark = 'kept'")
        # Acknowledged: a task that lasts until the site lets it, one that waits behind it, and a command.
        at_work_in = open_session(there, agentId="tasks", url=effects.url(), keepAlive=True)
        fields = {"tabId": tab_of(at_work_in), "agentId": "tasks", "deadline": deadline_in(120)}
        tasks = [submit(here, held("running"), **fields)]
        until_running(here, tasks[0])
        tasks.append(submit(here, reporting("waiting"), **fields))
        command = act(here, tab_of(sessions[0]), "evaluate", expression="1", idempotencyKey="before").json()
        value_of(there, tab_of(sessions[0]), "1")
        async with wire_client(sessions[0]["webSocketDebuggerUrl"]) as socket:
            page = await socket.page()
            # The network of one says nothing, and that of the other that there is no database.
            node.wire.swallow()
            other.wire.refuse()
            began_s = time.monotonic()
            try:
                for client, session in zip(clients, sessions, strict=True):
                    await asyncio.to_thread(until, lambda c=client, s=session: code_of(look(c, s)) == PAUSED)
                # What they answer does not tell: they refuse whoever they would have to ask the database about.
                await asyncio.sleep(max(0.0, began_s + PAUSE_AFTER_S - time.monotonic()))
                for client, session in zip(clients, sessions, strict=True):
                    assert set(refused(client, session)) == {PAUSED}
                held_frame = await socket.send("Runtime.evaluate", {"expression": REPORT % "held"}, page)
                # One is well again, and was away itself for too long to declare anybody dead yet: what is for the
                # other one is refused there.
                other.wire.mend()
                await asyncio.to_thread(until, lambda: look(there, sessions[1]).status_code == 200)
                assert code_of(look(there, sessions[0])) == PAUSED
                other.wire.refuse()
                # There is nothing to wait for but the time at which somebody could be declared dead.
                await asyncio.sleep(max(0.0, began_s + OUTAGE_S - time.monotonic()))
                assert effects.count("kept-held") == 0
            finally:
                for each in pair.nodes:
                    each.wire.mend()
            # The socket stayed, and what was sent on it meanwhile is done.
            await socket.result(held_frame)
            assert await socket.value("window.mark", page) == "kept"
        for each in pair.nodes:
            await asyncio.to_thread(pair.until_beaten, each)
        effects.is_open.set()
        for number, (client, session) in enumerate(zip(clients, sessions, strict=True)):
            # Through the node that does not have it.
            assert value_of(clients[1 - number], tab_of(session), "window.mark") == "kept"
            assert client.get(f"/tabs/{tab_of(session)}").json()["generation"] == 1
        assert [ended(here, task)["state"] for task in tasks] == ["done", "done"]
        assert there.get(f"/commands/{command['commandId']}").json()["outcome"] == "completed"
    assert [effects.count(who) for who in ("running", "waiting", "kept-held")] == [1, 1, 1]
    assert [pair.epoch_of(each) for each in pair.nodes] == epochs
    assert [pids_of(each) for each in pair.nodes] == pids
    pair.until_counted()


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


async def test_a_crash_of_the_database_ends_nothing_and_work_goes_on_without_a_restart(
    pair: Cluster, effects: EffectsSite
) -> None:
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
