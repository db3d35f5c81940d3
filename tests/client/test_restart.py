"""The server is killed and starts again elsewhere: its clients find it, and their sessions and promises hold."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.client.living import LIMIT_S, environ_of, until
from tests.server.conftest import Server, with_settings
from tests.server.effects_site import REPORT, EffectsSite
from tests.server.local_site import serving

from tabherd import errors
from tabherd.client import Tabherd

pytestmark = [pytest.mark.server, pytest.mark.browser]

SETTINGS = {"POOLS__DEFAULT__WARM": "0", "POOLS__DEFAULT__HEARTBEAT_S": "1", "POOLS__DEFAULT__PROBE_LIMIT_MS": "30000"}


@pytest.fixture
def site() -> Iterator[EffectsSite]:
    with serving(EffectsSite()) as site:
        yield site


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    with with_settings(tmp_path / "state", SETTINGS) as server:
        yield server


@pytest.fixture
def herd(own_server: Server) -> Iterator[Tabherd]:
    with Tabherd(environ=environ_of(own_server)) as client:
        yield client


def and_stay(who: str) -> str:
    """A script that reports once and never ends."""
    return f"{REPORT % who}.then(() => new Promise(() => 0))"


def test_sessions_locks_and_events_go_on_after_a_restart_at_another_address(own_server: Server, herd: Tabherd) -> None:
    def seen_at() -> str:
        with own_server.client() as admin:
            return str(admin.get(f"/sessions/{session.id}").json()["seenAt"])

    with herd.session(agent="alice") as session, herd.lock("kept", lease_ms=120_000) as lock:
        session.tab.evaluate("window.kept = 'still here'")
        events = herd.events(after="0-0")
        assert next(events).type == "reset"
        before = herd.url
        own_server.kill()
        own_server.start(SETTINGS)
        # Heartbeats find the server by themselves, while nobody calls.
        signs: set[str] = set()
        until(lambda: signs.add(seen_at()) or len(signs) == 3)
        assert session.tab.evaluate("window.kept") == "still here"
        assert herd.url == own_server.record["url"] != before
        assert [each.name for each in herd.locks()] == ["kept"]
        lock.check()
        # Nobody kept the events of the time between; the later ones are told.
        assert next(events).type == "reset"
        with herd.session(agent="bob") as later:
            opened = next(event for event in events if event.type == "session.opened")
        assert opened.data["sessionId"] == later.id
    assert herd.locks() == []


def test_commands_and_tasks_that_were_cut_off_are_done_once(
    own_server: Server, herd: Tabherd, site: EffectsSite
) -> None:
    url = site.url("/")
    before = f"{REPORT % 'before'}.then(() => 'done')"
    there = [{"kind": "navigate", "url": url}, {"kind": "evaluate", "expression": REPORT % "next"}]
    with (
        ThreadPoolExecutor(5) as threads,
        herd.session(agent="alice", url=url) as plain,
        herd.session(agent="bob", url=url) as keyed,
        herd.session(agent="carol", url=url) as queued,
    ):
        assert keyed.tab.evaluate(before, idempotency_key="order-6") == "done"
        without_key = threads.submit(plain.tab.evaluate, and_stay("plain"))
        with_key = threads.submit(keyed.tab.evaluate, and_stay("keyed"), idempotency_key="order-7")
        running = herd.submit(action="evaluate", tab=queued.tab, expression=and_stay("task"))
        behind = herd.submit(steps=there, tab=queued.tab)
        waiting = [threads.submit(task.result, LIMIT_S) for task in (running, behind)]
        until(lambda: all(site.count(who) for who in ("plain", "keyed", "task")))
        own_server.kill()
        with pytest.raises(errors.OutcomeUnknown):
            without_key.result(LIMIT_S)
        late = threads.submit(herd.submit, steps=there, tab=queued.tab, deadline_ms=60_000)
        own_server.start(SETTINGS)
        # Nobody saw the end of the other two: the second asking is told so, and nothing is done again.
        with pytest.raises(errors.OutcomeUnknown):
            with_key.result(LIMIT_S)
        with pytest.raises(errors.OutcomeUnknown):
            waiting[0].result(LIMIT_S)
        # A command that had ended is answered with its outcome.
        assert keyed.tab.evaluate(before, idempotency_key="order-6") == "done"
        waiting[1].result(LIMIT_S)
        late.result(LIMIT_S).result(LIMIT_S)
        assert plain.tab.evaluate("1") == 1
    counted = {who: site.count(who) for who in ("before", "plain", "keyed", "task", "next")}
    assert counted == {"before": 1, "plain": 1, "keyed": 1, "task": 1, "next": 2}
