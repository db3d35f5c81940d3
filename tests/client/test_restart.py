"""The server is killed and starts again elsewhere: its clients find it, and their sessions and promises hold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.client.living import LIMIT_S, SETTINGS, TOO_LONG_S, environ_of
from tests.server.conftest import Server, with_settings
from tests.server.effects_site import REPORT, EffectsSite
from tests.server.local_site import serving

from tabherd import errors
from tabherd.client import Tabherd

pytestmark = [pytest.mark.server, pytest.mark.browser]

REPORT_AND_STAY = f"{REPORT % 'me'}.then(() => new Promise(() => 0))"


@pytest.fixture
def site() -> Iterator[EffectsSite]:
    with serving(EffectsSite()) as site:
        yield site


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that every test here kills and starts again."""
    with with_settings(tmp_path_factory.mktemp("restart") / "state", SETTINGS) as server:
        yield server


@pytest.fixture
def herd(own_server: Server) -> Iterator[Tabherd]:
    with Tabherd(environ=environ_of(own_server)) as client:
        yield client


def wait_for_effect(site: EffectsSite) -> None:
    limit_s = time.monotonic() + LIMIT_S
    while site.count("me") == 0:
        assert time.monotonic() < limit_s
        time.sleep(0.02)


def test_a_session_goes_on_after_a_restart_at_another_address(own_server: Server, herd: Tabherd) -> None:
    with herd.session(agent="alice") as session:
        session.tab.evaluate("window.kept = 'still here'")
        before = herd.url
        own_server.kill()
        own_server.start(SETTINGS)
        assert session.tab.evaluate("window.kept") == "still here"
        assert herd.url == own_server.record["url"] != before


def test_heartbeats_find_the_server_again_while_nobody_calls(own_server: Server, herd: Tabherd) -> None:
    with herd.session(agent="alice", pool="hasty") as session:
        session.heartbeat()
        own_server.kill()
        own_server.start(SETTINGS)
        time.sleep(TOO_LONG_S)
        with own_server.client() as admin:
            assert admin.get(f"/sessions/{session.id}").json()["state"] == "active"
        assert session.is_lost is False


def test_a_command_without_a_key_that_is_cut_off_is_outcome_unknown_and_done_once(
    own_server: Server, herd: Tabherd, site: EffectsSite
) -> None:
    with ThreadPoolExecutor(1) as threads, herd.session(agent="alice", url=site.url("/")) as session:
        running = threads.submit(session.tab.evaluate, REPORT_AND_STAY)
        wait_for_effect(site)
        own_server.kill()
        with pytest.raises(errors.OutcomeUnknown):
            running.result(LIMIT_S)
        own_server.start(SETTINGS)
        assert session.tab.evaluate("1") == 1
    assert site.count("me") == 1


def test_a_command_with_a_key_that_is_cut_off_is_asked_for_again_and_done_once(
    own_server: Server, herd: Tabherd, site: EffectsSite
) -> None:
    with ThreadPoolExecutor(1) as threads, herd.session(agent="alice", url=site.url("/")) as session:
        done = session.tab.evaluate(f"{REPORT % 'before'}.then(() => 'done')", idempotency_key="order-6")
        running = threads.submit(session.tab.evaluate, REPORT_AND_STAY, idempotency_key="order-7")
        wait_for_effect(site)
        own_server.kill()
        own_server.start(SETTINGS)
        # Nobody saw it end: that is what its second asking is told, and nothing is done again.
        with pytest.raises(errors.OutcomeUnknown):
            running.result(LIMIT_S)
        # One that had ended is answered with its outcome.
        again = session.tab.evaluate(f"{REPORT % 'before'}.then(() => 'done')", idempotency_key="order-6")
    assert (done, again) == ("done", "done")
    assert (site.count("me"), site.count("before")) == (1, 1)


def test_tasks_and_who_waits_for_them_go_on_after_a_restart(
    own_server: Server, herd: Tabherd, site: EffectsSite
) -> None:
    with ThreadPoolExecutor(2) as threads, herd.session(agent="alice", url=site.url("/")) as session:
        running = herd.submit(action="evaluate", tab=session.tab, expression=REPORT_AND_STAY)
        there = [{"kind": "navigate", "url": site.url("/")}, {"kind": "evaluate", "expression": REPORT % "next"}]
        behind = herd.submit(steps=there, tab=session.tab)
        wait_for_effect(site)
        waiting = [threads.submit(task.result, LIMIT_S) for task in (running, behind)]
        own_server.kill()
        late = threads.submit(herd.submit, steps=there, tab=session.tab, deadline_ms=60_000)
        own_server.start(SETTINGS)
        with pytest.raises(errors.OutcomeUnknown):
            waiting[0].result(LIMIT_S)
        waiting[1].result(LIMIT_S)
        late.result(LIMIT_S).result(LIMIT_S)
    assert (site.count("me"), site.count("next")) == (1, 2)


def test_events_go_on_after_a_restart(own_server: Server, herd: Tabherd) -> None:
    events = herd.events(after="0-0")
    assert next(events).type == "reset"
    own_server.kill()
    own_server.start(SETTINGS)
    # What happened meanwhile could not be kept; from here on it is.
    assert next(events).type == "reset"
    with herd.session(agent="alice") as session:
        opened = next(event for event in events if event.type == "session.opened")
    assert opened.data["sessionId"] == session.id
