"""The server is killed, or told to stop, with tasks that wait and run: each that was acknowledged ends once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from .conftest import SPARING, open_session, with_settings
from .effects_site import EffectsSite
from .local_site import serving
from .tasking import ended, held, look, reporting, states, submit, submit_there, there, until, until_running

pytestmark = [pytest.mark.server, pytest.mark.browser]

# So that an orderly stop does not wait long for what never ends, and nothing ends because the machine is slow.
SETTINGS = SPARING | {"SERVER__DRAIN_S": "1", "SCHEDULER__WORKERS": "4", "SCHEDULER__DEADLINE_MS": "600000"}


@pytest.fixture
def site() -> Iterator[EffectsSite]:
    with serving(EffectsSite()) as site:
        yield site


def open_tab(client: httpx.Client, site: EffectsSite) -> str:
    return str(open_session(client, agentId="ada", url=site.url())["tabs"][0]["tabId"])


def is_idle(admin: httpx.Client) -> bool:
    queue = admin.get("/scheduler/stats").json()["queue"]
    return (queue["totalQueued"], queue["totalInflight"]) == (0, 0)


def test_after_a_kill_each_task_that_was_acknowledged_ends_once(tmp_path: Path, site: EffectsSite) -> None:
    """What waited is run, what ran is unknown unless it may be repeated, and nothing else is done twice."""
    acknowledged: dict[str, str] = {}
    with with_settings(tmp_path / "state", SETTINGS) as server:
        with server.client() as admin:
            first, second, third = (open_tab(admin, site) for _ in range(3))
            ran = submit(admin, held("ran"), tabId=first)
            again = submit_there(admin, site.url(), held("again"), tabId=second, idempotent=True)
            until_running(admin, ran, again)
            until(lambda: site.count("ran") == site.count("again") == 1)
            over = submit(admin, "1")
            assert ended(admin, over)["state"] == "done"

            def flood() -> None:
                """Submit until there is nobody to submit to; some of it waits behind what runs."""
                with server.client() as client:
                    for number in range(10_000):
                        task = there(site.url(), reporting(f"n{number}")) | {"agentId": "ada"}
                        try:
                            answer = client.post("/tasks", json=task | {"tabId": (first, third)[number % 2]})
                        except httpx.HTTPError:
                            return
                        if answer.status_code == 202:
                            acknowledged[answer.json()["taskId"]] = f"n{number}"

            with ThreadPoolExecutor(1) as callers:
                flooding = callers.submit(flood)
                until(lambda: len(acknowledged) >= 12)
                server.kill()
                flooding.result()
        site.is_open.set()
        server.start(SETTINGS)
        with server.client() as admin:
            unknown, repeated = ended(admin, ran), ended(admin, again)
            assert (unknown["state"], unknown["code"], unknown["attempts"]) == ("failed", "outcome_unknown", 1)
            assert (repeated["state"], repeated["attempts"]) == ("done", 2)
            # What was over before is as it was.
            assert look(admin, over)["state"] == "done"
            ends = {task_id: ended(admin, task_id) for task_id in acknowledged}
            for task in ends.values():
                assert (task["state"], task["code"]) in (("done", None), ("failed", "outcome_unknown"))
            listed = Counter(task["taskId"] for task in pages_of(admin))
            assert all(listed[task_id] == 1 for task_id in acknowledged)
            # Also those whose acknowledgement was lost with the server.
            until(lambda: is_idle(admin))
    done = Counter(effect.who for effect in site.effects)
    assert done.pop("again") == 2
    assert max(done.values()) == 1
    assert all(done[acknowledged[task_id]] == 1 for task_id, task in ends.items() if task["state"] == "done")


def test_an_orderly_stop_does_not_wait_for_the_queue_and_loses_nothing_of_it(tmp_path: Path, site: EffectsSite) -> None:
    with with_settings(tmp_path / "state", SETTINGS) as server:
        with server.client() as admin:
            tab_id = open_tab(admin, site)
            ran = submit(admin, held("ran"), tabId=tab_id)
            until_running(admin, ran)
            until(lambda: site.count("ran") == 1)
            waiting = [submit_there(admin, site.url(), reporting(f"w{number}"), tabId=tab_id) for number in range(5)]
        server.stop()
        assert [effect.who for effect in site.effects] == ["ran"]
        site.is_open.set()
        server.start(SETTINGS)
        with server.client() as admin:
            assert (ended(admin, ran)["state"], ended(admin, ran)["code"]) == ("failed", "outcome_unknown")
            assert set(states(admin, waiting)) == {"done"}
    assert Counter(effect.who for effect in site.effects) == Counter(["ran", *(f"w{number}" for number in range(5))])


def pages_of(client: httpx.Client) -> Iterator[dict[str, Any]]:
    """Every task that is at hand."""
    query: dict[str, Any] = {"limit": 200}
    while True:
        page = client.get("/tasks", params=query).json()
        yield from page["tasks"]
        if page["nextCursor"] is None:
            return
        query["cursor"] = page["nextCursor"]
