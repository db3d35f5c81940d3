"""Driving a page that resists, beside somebody whose page must not notice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx
from tests.server.conftest import act, open_session, release

# How long a command on a hostile page is given. Many of them need all of it.
LIMIT_MS: Final = 250
# And how long one that brings a page is.
VISIT_MS: Final = 3_000
# How long any command may take to be answered, on a machine that is busy: whoever needs longer hangs.
HANG_S: Final = 60
# The session of somebody who works through all tests of a file, on however slow a machine.
LIFE_MS: Final = 3_600_000
# How long somebody who does ordinary things rests between two rounds: most of the machine is for the others.
REST_S: Final = 0.5
# What is done to every page.
KINDS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("snapshot", {}),
    ("text", {}),
    ("evaluate", {"expression": "1 + 1"}),
    ("screenshot", {"format": "jpeg"}),
    ("click", {"selector": "#button"}),
    ("fill", {"selector": "#field", "value": "x"}),
)
# How a command may end there.
ENDS: Final = {
    *("command_timed_out", "queue_wait_timed_out", "element_not_found", "element_not_actionable", "ambiguous_target"),
    *("navigation_failed", "javascript_error", "conflict", "outcome_unknown", "browser_crashed", "stale_ref"),
}
PATIENT: Final = {"waitPolicy": "wait_with_timeout"}


def end_of(client: httpx.Client, answer: httpx.Response) -> str:
    """How the command ended: `completed`, or the code of its error. The record says the same, once and for all."""
    body = answer.json()
    if answer.status_code == 200:
        recorded = client.get(f"/commands/{body['commandId']}").json()
        assert (recorded["ok"], recorded["outcome"]) == (True, "completed"), recorded
        return "completed"
    assert body["code"] in ENDS, body
    recorded = client.get(f"/commands/{body['details']['commandId']}").json()
    assert recorded["outcome"] in ("failed", "timed_out", "outcome_unknown"), recorded
    assert recorded["error"]["code"] == body["code"]
    return str(body["code"])


class Driver:
    """One tab of one agent, on pages that resist."""

    def __init__(self, client: httpx.Client, session: dict[str, Any]) -> None:
        self._client = client
        self._session = session
        self.tab_id: str = session["tabs"][0]["tabId"]
        self._generation = 0

    def run(self, kind: str, limit_ms: int = LIMIT_MS, **params: Any) -> str:
        """Do it, and say how it ended."""
        return end_of(self._client, self.ask(kind, limit_ms, **params))

    def ask(self, kind: str, limit_ms: int = LIMIT_MS, **params: Any) -> httpx.Response:
        return act(self._client, self.tab_id, kind, timeoutMs=limit_ms, **PATIENT, **params)

    def everything(self, url: str, limit_ms: int = LIMIT_MS, visit_ms: int = VISIT_MS) -> dict[str, str]:
        """Every kind, each on the page as it comes; how each ended."""
        ends = {}
        for kind, params in KINDS:
            self.visit(url, visit_ms)
            ends[kind] = self.run(kind, limit_ms, **params)
        return ends

    def another(self) -> Driver:
        """A second tab of the same session."""
        opened = self._client.post(f"/sessions/{self._session['sessionId']}/tabs", json={})
        assert opened.status_code == 201, opened.text
        return Driver(self._client, {**self._session, "tabs": [opened.json()]})

    def others(self) -> list[Driver]:
        """The tabs that pages of this one have opened."""
        tabs = self._client.get(f"/sessions/{self._session['sessionId']}/tabs").json()["tabs"]
        found = [tab for tab in tabs if tab["tabId"] != self.tab_id]
        return [Driver(self._client, {**self._session, "tabs": [tab]}) for tab in found]

    def is_there(self) -> bool:
        return self._client.get(f"/tabs/{self.tab_id}").status_code == 200

    def visit(self, url: str, limit_ms: int = VISIT_MS) -> None:
        """Go there, unless the page is there already."""
        state = self._client.get(f"/tabs/{self.tab_id}").json()
        if state["generation"] != self._generation:
            # The page is left as far as it came: what it does next is what the test is about.
            self.run("navigate", limit_ms, url=url, waitUntil="commit")
            self._generation = self._client.get(f"/tabs/{self.tab_id}").json()["generation"]

    def comes_back(self, url: str) -> None:
        """A plain page can be had in the tab, at the latest when the hostile one was replaced."""
        # That takes its time on a machine that is busy.
        for limit_ms in (VISIT_MS, VISIT_MS, 15 * VISIT_MS):
            if self.run("navigate", limit_ms, url=url) == "completed" and self.run("text", limit_ms) == "completed":
                return
        raise AssertionError("the tab cannot be used any more")


@contextmanager
def driver(client: httpx.Client) -> Iterator[Driver]:
    """A tab in a session of its own, which is given back, whatever became of it."""
    session = open_session(client)
    yield Driver(client, session)
    release(client, session)


class Innocent:
    """Somebody in the same browser who does ordinary things all the time."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self._client = client
        self._session = open_session(client, deadlineMs=LIFE_MS)
        self._tab_id: str = self._session["tabs"][0]["tabId"]
        self._failures: list[str] = []
        self._is_over = False
        self._rounds = 0
        # Without a rest until there were so many.
        self._wanted = 0
        self._changed = threading.Condition()
        assert act(client, self._tab_id, "navigate", url=url).status_code == 200
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def check(self) -> None:
        """All it has asked for so far has been done, and a round that begins now is done as well."""
        with self._changed:
            wanted = self._wanted = self._rounds + 2
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._rounds >= wanted or self._failures, HANG_S), "it hangs"
            assert self._failures == []

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._thread.join(HANG_S)
        release(self._client, self._session)

    def _work(self) -> None:
        while not self._is_over:
            for kind, params in KINDS:
                try:
                    answer = act(self._client, self._tab_id, kind, **params)
                    failure = "" if answer.status_code == 200 else answer.text
                except httpx.HTTPError as error:
                    failure = repr(error)
                if failure:
                    with self._changed:
                        self._failures.append(failure)
                        self._changed.notify_all()
            with self._changed:
                self._rounds += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_over or self._rounds < self._wanted, REST_S)
