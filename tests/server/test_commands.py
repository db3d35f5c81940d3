"""Commands on one tab of a real page: one at a time, in order, each with one outcome."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest

from .conftest import Server, act, open_session

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Overlaps if two of them run at once: each notes whether it found another one at work.
NOTE = """(name) => new Promise(done => {
  window.log ??= [];
  window.busy = (window.busy ?? 0) + 1;
  log.push([name, busy]);
  setTimeout(() => { busy--; done(name); }, 5);
})"""


@pytest.fixture
def ada(server: Server) -> Iterator[httpx.Client]:
    with server.agent("ada") as client:
        yield client


@pytest.fixture
def tab_id(ada: httpx.Client) -> Iterator[str]:
    session = open_session(ada)
    yield session["tabs"][0]["tabId"]
    ada.delete(f"/sessions/{session['sessionId']}")


def test_commands_that_arrive_together_run_one_after_the_other(ada: httpx.Client, tab_id: str) -> None:
    def note(name: int) -> int:
        answer = act(ada, tab_id, "evaluate", expression=NOTE, args=[name], waitPolicy="wait_with_timeout")
        return answer.json()["result"]

    with ThreadPoolExecutor(8) as callers:
        assert sorted(callers.map(note, range(8))) == list(range(8))
    log = act(ada, tab_id, "evaluate", expression="log").json()["result"]
    assert sorted(name for name, _ in log) == list(range(8))
    assert {busy for _, busy in log} == {1}


def test_a_busy_tab_refuses_who_will_not_wait_and_says_who_has_it(ada: httpx.Client, tab_id: str) -> None:
    with ThreadPoolExecutor(1) as callers:
        patient = {"waitPolicy": "wait_with_timeout", "timeoutMs": 60_000}
        slow = callers.submit(act, ada, tab_id, "evaluate", expression="new Promise(() => {})", **patient)
        while (refused := act(ada, tab_id, "evaluate", expression="1")).status_code == 200:
            pass
        assert refused.status_code == 423
        assert refused.json()["code"] == "tab_busy"
        assert refused.json()["retryable"]
        assert refused.json()["details"]["holder"]
        assert int(refused.headers["Retry-After"]) >= 1
        command_id = ada.get(f"/tabs/{tab_id}").json()["holder"]["commandId"]
        assert ada.post(f"/commands/{command_id}/cancel").json()["outcome"] == "cancelled"
        assert slow.result().json()["outcome"] == "cancelled"


@pytest.mark.parametrize(
    "stuck",
    ["while (true) {}", "new Promise(() => {})"],
    ids=["a spinning page", "a promise that never settles"],
)
def test_after_a_timeout_the_next_command_meets_a_fresh_page(ada: httpx.Client, tab_id: str, stuck: str) -> None:
    act(ada, tab_id, "evaluate", expression="window.mark = 'old page'")
    timed_out = act(ada, tab_id, "evaluate", expression=stuck, timeoutMs=300)
    assert (timed_out.status_code, timed_out.json()["code"]) == (504, "command_timed_out")
    assert not timed_out.json()["retryable"]
    after = act(ada, tab_id, "evaluate", expression="window.mark ?? null", waitPolicy="wait_with_timeout")
    assert after.json()["result"] is None


def test_nothing_of_a_timed_out_command_happens_afterwards(ada: httpx.Client, tab_id: str) -> None:
    """Each request says when its script ran: one that was on its way already may arrive late, but none is made late."""
    counting = """new Promise(() => {
      const count = () => fetch('/count?' + Date.now());
      count();
      setInterval(count, 10);
    })"""
    hits: list[str] = []
    with _counting_site(hits) as site:
        act(ada, tab_id, "navigate", url=site)
        timed_out = act(ada, tab_id, "evaluate", expression=counting, timeoutMs=2_000)
        assert timed_out.json()["code"] == "command_timed_out"
        # The next command runs, so the page that counted is proven gone; then it is given time to show otherwise.
        wait = "new Promise(done => { const at = Date.now(); setTimeout(() => done(at), 200); })"
        next_at = act(ada, tab_id, "evaluate", expression=wait, waitPolicy="wait_with_timeout").json()["result"]
        ran_at = [int(path.partition("?")[2]) for path in hits]
    assert ran_at
    assert max(ran_at) <= next_at


def test_the_outcome_of_a_command_can_be_read_afterwards(ada: httpx.Client, tab_id: str) -> None:
    good = act(ada, tab_id, "evaluate", expression="({a: [1, null]})").json()
    bad = act(ada, tab_id, "evaluate", expression="throw new Error('no')")
    assert (bad.status_code, bad.json()["code"]) == (422, "javascript_error")
    read = ada.get(f"/commands/{good['commandId']}").json()
    assert (read["outcome"], read["result"], read["ok"]) == ("completed", {"a": [1, None]}, True)
    failed = ada.get(f"/commands/{bad.json()['details']['commandId']}").json()
    assert (failed["outcome"], failed["error"]["code"], failed["ok"]) == ("failed", "javascript_error", False)


def test_a_command_id_nobody_gave_out_is_not_found(ada: httpx.Client) -> None:
    assert ada.get("/commands/cmd_nonsense").json()["code"] == "command_not_found"


@contextmanager
def _counting_site(hits: list[str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/count"):
                hits.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as site:
        thread = Thread(target=site.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{site.server_port}/"
        finally:
            site.shutdown()
            thread.join()
