"""A node is killed, with the default times: its sessions go on at the other one, and nothing is done twice.

Played once, looked at by each test.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest
from tests.server.conftest import act, open_session, value_of
from tests.server.effects_site import LOOP, EffectsSite
from tests.server.local_site import serving
from tests.server.login_site import LoginSite
from tests.server.tasking import held, reporting

from .rig import NOW_MS, Cluster, ClusterNode, code_of, is_silent, tab_of, until

pytestmark = [pytest.mark.server, pytest.mark.browser]

# What the settings say when nobody sets anything.
DEFAULT_TIMES = {"CLUSTER__BEAT_S": "3", "CLUSTER__PAUSE_AFTER_S": "7", "CLUSTER__DEAD_AFTER_S": "10"}
DEAD_AFTER_MS = 10_000
# From the last beat to the end of the takeover: 12 s are promised on a machine that has time, and this one may stall.
TAKEN_OVER_MAX_MS = 60_000
PATIENT = {"waitPolicy": "wait_with_timeout", "timeoutMs": 120_000}
# The command that runs when the node dies.
ONCE = {"kind": "evaluate", "expression": held("once"), "idempotencyKey": "only-once", **PATIENT}


class Death(msgspec.Struct, kw_only=True):
    """What came of it."""

    cluster: Cluster
    killed: ClusterNode
    killed_id: str
    survivor: ClusterNode
    # Sessions with a login, and the one whose page was at work.
    quiet: list[dict[str, Any]]
    busy: dict[str, Any]
    command_id: str
    # What callers heard whose requests were there: of the command that ran, and of one that waited for its turn.
    running: httpx.Response
    waiting: httpx.Response
    # By the database's clock.
    last_beat_ms: int
    taken_over_ms: int


@pytest.fixture(scope="module")
def logins() -> Iterator[LoginSite]:
    with serving(LoginSite()) as site:
        yield site


@pytest.fixture(scope="module")
def death(empty_cluster: Cluster, effects: EffectsSite, logins: LoginSite) -> Death:
    # In this order, so that the one that dies has the larger epoch: what it accepted is not in the survivor's future.
    (survivor,) = empty_cluster.start(1, DEFAULT_TIMES)
    (killed,) = empty_cluster.start(1, DEFAULT_TIMES)
    killed_id = killed.id
    with killed.client() as there, survivor.client() as here, ThreadPoolExecutor(2) as callers:
        quiet = [open_session(there, agentId=f"a{n}", url=logins.url(f"/login/a{n}")) for n in range(2)]
        busy = open_session(there, agentId="busy", key="vendor", url=effects.url())
        for n, session in enumerate(quiet):
            until_kept(empty_cluster, session, f"secret-of-a{n}")
        tab_id = tab_of(busy)
        value_of(there, tab_id, f"{LOOP % 'old-page'}; 1")
        running: Future[httpx.Response] = callers.submit(act, here, tab_id, **ONCE)
        assert effects.is_held.wait(60)
        waiting = callers.submit(act, here, tab_id, "evaluate", expression=reporting("late"), **PATIENT)
        command_id = until(lambda: at_work(there, tab_id))
        killed.kill()
        heard = running.result(60), waiting.result(60)
        last_beat_ms = empty_cluster.value("SELECT at FROM beats WHERE id = %s", killed_id)
        for session in (*quiet, busy):
            until(lambda session=session: empty_cluster.is_active_on(session, survivor))
        taken_over_ms = empty_cluster.value(f"SELECT {NOW_MS}")
    return Death(
        cluster=empty_cluster,
        killed=killed,
        killed_id=killed_id,
        survivor=survivor,
        quiet=quiet,
        busy=busy,
        command_id=command_id,
        running=heard[0],
        waiting=heard[1],
        last_beat_ms=last_beat_ms,
        taken_over_ms=taken_over_ms,
    )


def test_its_sessions_go_on_elsewhere_with_their_logins_addresses_ids_and_fences(
    death: Death, logins: LoginSite
) -> None:
    with death.survivor.client() as client:
        for n, session in enumerate(death.quiet):
            found = value_of(client, tab_of(session), "[document.body.innerText, location.pathname]")
            assert found == [f"Hello, a{n}", f"/home/a{n}"]
            now = client.get(f"/sessions/{session['sessionId']}").json()
            assert (now["state"], now["fence"], now["node"]) == ("active", session["fence"], death.survivor.id)
            assert client.get(f"/tabs/{tab_of(session)}").json()["generation"] == 2


def test_nobody_acts_before_it_must_have_stopped_trusting_itself_and_soon_afterwards_somebody_does(
    death: Death,
) -> None:
    assert DEAD_AFTER_MS <= death.taken_over_ms - death.last_beat_ms <= TAKEN_OVER_MAX_MS


def test_the_caller_of_a_command_that_ran_hears_that_nobody_knows_how_it_ended(death: Death) -> None:
    assert code_of(death.running) == (502, "outcome_unknown")


def test_a_caller_whose_command_waited_is_told_and_it_never_runs(death: Death, effects: EffectsSite) -> None:
    assert code_of(death.waiting) == (502, "outcome_unknown")
    assert effects.count("late") == 0


def test_the_command_has_that_outcome_for_good_and_is_never_run_again(death: Death, effects: EffectsSite) -> None:
    with death.survivor.client() as client:
        assert client.get(f"/commands/{death.command_id}").json()["outcome"] == "outcome_unknown"
        again = act(client, tab_of(death.busy), **ONCE)
        assert code_of(again) == (502, "outcome_unknown")
    assert effects.count("once") == 1


def test_counters_are_what_a_recount_says(death: Death) -> None:
    death.cluster.until_counted()
    assert death.cluster.counters()["active:default"] == 3
    assert death.cluster.counters()["active:default:key:vendor"] == 1


def test_nothing_is_left_of_the_node_when_its_things_are_taken_over(death: Death) -> None:
    until(lambda: death.killed_id not in death.cluster.states_at(death.survivor))
    assert death.cluster.rows("SELECT id FROM sessions WHERE node_id = %s", death.killed_id) == []
    assert death.cluster.rows("SELECT id FROM tabs WHERE node_id = %s", death.killed_id) == []


def test_started_again_it_has_no_page_of_a_session_that_is_elsewhere_and_one_browser(
    death: Death, effects: EffectsSite
) -> None:
    # Its browser has run on all the while, with the page that others have recovered.
    seen = effects.count("old-page")
    until(lambda: effects.count("old-page") > seen)
    death.killed.start()
    death.cluster.until_whole()
    with death.killed.client() as client:
        (itself,) = [view for view in client.get("/nodes").json()["nodes"] if view["isSelf"]]
        assert itself["sessions"] == 0
        until(lambda: is_silent(effects, "old-page"))
        assert death.cluster.node_of(death.busy["sessionId"]) == death.survivor.id
        mine = [view for view in client.get("/browsers").json()["browsers"] if view["node"] == death.killed_id]
    assert [view["browserId"] for view in mine] == death.killed.profiles()
    assert [process.pid for process in death.killed.browsers()] == [mine[0]["pid"]]


# --- Parts ------------------------------------------------------------------------------------------------------


def until_kept(cluster: Cluster, session: dict[str, Any], text: str) -> None:
    """Until its checkpoint has that text in it."""
    found = "SELECT count(*) FROM checkpoints WHERE id = %s AND strpos(cookies, %s) > 0"
    until(lambda: cluster.value(found, session["sessionId"], text))


def at_work(client: httpx.Client, tab_id: str) -> str | None:
    """The command that has the tab, once somebody waits behind it."""
    view = client.get(f"/tabs/{tab_id}").json()
    return view["holder"]["commandId"] if view["waiters"] else None
