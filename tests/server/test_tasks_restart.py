"""The server is killed, or told to stop, with tasks that wait and run: each that was acknowledged ends once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from .conftest import Server, open_session, with_settings
from .effects_site import EffectsSite
from .local_site import serving
from .tasking import ended, held, look, reporting, states, submit, submit_there, there, until, until_running

pytestmark = [pytest.mark.server, pytest.mark.browser]

# So that an orderly stop does not wait long for what never ends, and nothing ends because the machine is slow.
SETTINGS = {"SERVER__DRAIN_S": "1", "SCHEDULER__WORKERS": "4", "SCHEDULER__DEADLINE_MS": "600000"}


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that every test here ends and starts again."""
    with with_settings(tmp_path_factory.mktemp("tasks") / "state", SETTINGS) as server:
        yield server


@pytest.fixture
def site() -> Iterator[EffectsSite]:
    with serving(EffectsSite()) as site:
        yield site


def open_tab(client: httpx.Client, site: EffectsSite) -> str:
    return str(open_session(client, agentId="ada", url=site.url())["tabs"][0]["tabId"])


def test_after_a_kill_what_waited_is_run_what_ran_is_unknown_and_what_may_be_repeated_is(
    own_server: Server, site: EffectsSite
) -> None:
    with own_server.client() as admin:
        first, second = open_tab(admin, site), open_tab(admin, site)
        ran = submit(admin, held("ran"), tabId=first)
        again = submit_there(admin, site.url(), held("again"), tabId=second, idempotent=True)
        until_running(admin, ran, again)
        until(lambda: site.count("ran") == site.count("again") == 1)
        waiting = [submit_there(admin, site.url(), reporting(f"w{number}"), tabId=first) for number in range(5)]
        leasing = submit(admin, "1")
        assert ended(admin, leasing)["state"] == "done"
    own_server.kill()
    site.is_open.set()
    own_server.start(SETTINGS)
    with own_server.client() as admin:
        unknown = ended(admin, ran)
        assert (unknown["state"], unknown["code"], unknown["attempts"]) == ("failed", "outcome_unknown", 1)
        repeated = ended(admin, again)
        assert (repeated["state"], repeated["attempts"]) == ("done", 2)
        assert states(admin, waiting) == ["done"] * 5
        # What was over before is as it was.
        assert look(admin, leasing)["state"] == "done"
    assert [site.count(who) for who in ("ran", "again", "w0", "w1", "w2", "w3", "w4")] == [1, 2, 1, 1, 1, 1, 1]


def is_idle(admin: httpx.Client) -> bool:
    queue = admin.get("/scheduler/stats").json()["queue"]
    return (queue["totalQueued"], queue["totalInflight"]) == (0, 0)


def test_whatever_was_acknowledged_when_the_server_is_killed_ends_once_and_nothing_is_done_twice(
    own_server: Server, site: EffectsSite
) -> None:
    acknowledged: dict[str, str] = {}
    site.is_open.set()
    with own_server.client() as admin:
        tabs = [open_tab(admin, site) for _ in range(3)]

        def flood(name: str) -> None:
            """Submit until there is nobody to submit to."""
            with own_server.client() as client:
                for number in range(10_000):
                    who = f"{name}{number}"
                    task = there(site.url(), reporting(who)) | {"tabId": tabs[number % 3], "agentId": name}
                    try:
                        answer = client.post("/tasks", json=task)
                    except httpx.HTTPError:
                        return
                    if answer.status_code == 202:
                        acknowledged[answer.json()["taskId"]] = who

        with ThreadPoolExecutor(2) as callers:
            flooding = [callers.submit(flood, name) for name in ("ada", "bob")]
            until(lambda: len(acknowledged) >= 40)
            own_server.kill()
            for each in flooding:
                each.result()
    own_server.start(SETTINGS)
    with own_server.client() as admin:
        ends = {task_id: ended(admin, task_id) for task_id in acknowledged}
        for task in ends.values():
            assert (task["state"], task["code"]) in (("done", None), ("failed", "outcome_unknown"))
        listed = Counter(task["taskId"] for task in pages_of(admin))
        assert all(listed[task_id] == 1 for task_id in acknowledged)
        # Also those whose acknowledgement was lost with the server.
        until(lambda: is_idle(admin))
    done = Counter(effect.who for effect in site.effects)
    assert max(done.values()) == 1
    assert all(done[acknowledged[task_id]] == 1 for task_id, task in ends.items() if task["state"] == "done")


def test_an_orderly_stop_does_not_wait_for_the_queue_and_loses_nothing_of_it(
    own_server: Server, site: EffectsSite
) -> None:
    with own_server.client() as admin:
        tab_id = open_tab(admin, site)
        ran = submit(admin, held("ran"), tabId=tab_id)
        until_running(admin, ran)
        until(lambda: site.count("ran") == 1)
        waiting = [submit_there(admin, site.url(), reporting(f"w{number}"), tabId=tab_id) for number in range(20)]
    own_server.stop()
    assert [effect.who for effect in site.effects] == ["ran"]
    site.is_open.set()
    own_server.start(SETTINGS)
    with own_server.client() as admin:
        assert (ended(admin, ran)["state"], ended(admin, ran)["code"]) == ("failed", "outcome_unknown")
        assert set(states(admin, waiting)) == {"done"}
    assert Counter(effect.who for effect in site.effects) == Counter({"ran", *(f"w{number}" for number in range(20))})


def pages_of(client: httpx.Client) -> Iterator[dict[str, Any]]:
    """Every task that is at hand."""
    query: dict[str, Any] = {"limit": 200}
    while True:
        page = client.get("/tasks", params=query).json()
        yield from page["tasks"]
        if page["nextCursor"] is None:
            return
        query["cursor"] = page["nextCursor"]
