"""Agents that hold tabs and locks and wait for them, so that there is something on the dashboard to look at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx
from tests.server.conftest import Server, end_sessions
from tests.server.tasking import until

# More of them wait at the same time in no test.
WAITING_MAX = 12
# Whoever waits here waits for a sign, not for the clock.
LONG_MS = 600_000
# Has the tab until somebody ends it.
FOREVER = "new Promise(() => {})"


class _Site(BaseHTTPRequestHandler):
    """A page whose title is what the query says, as text."""

    def do_GET(self) -> None:
        title = parse_qs(urlsplit(self.path).query).get("title", [""])[0]
        body = f"<meta charset=utf-8><title>{escape(title)}</title><h1>A page</h1>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


class Crowd:
    """What several agents do at one server."""

    def __init__(self, server: Server, site: str) -> None:
        self._server = server
        self._site = site
        self._callers = ThreadPoolExecutor(WAITING_MAX)
        self._clients: dict[str, httpx.Client] = {}
        self.admin = server.client()
        self.tokens: dict[str, str] = {}

    def agent(self, name: str) -> httpx.Client:
        if name not in self._clients:
            self.tokens[name] = self._server.token_of(name)
            self._clients[name] = self._server.client(self.tokens[name])
        return self._clients[name]

    def open(self, name: str, title: str = "", **fields: Any) -> Any:
        """A session of that agent, on a page of that title."""
        session = self.agent(name).post("/sessions", json=fields).raise_for_status().json()
        if title:
            navigate = {"kind": "navigate", "url": f"{self._site}?title={quote(title)}"}
            self.agent(name).post(f"/tabs/{tab_of(session)}/action", json=navigate).raise_for_status()
        return session

    def hold(self, session: Any, name: str, **fields: Any) -> Future[httpx.Response]:
        """A command of that agent has the tab when this returns, and keeps it."""
        tab_id = tab_of(session)
        running = self._act(tab_id, name, **{"expression": FOREVER, **fields})
        until(lambda: self.tab(tab_id)["holder"] is not None or running.done())
        return running

    def wait(self, session: Any, name: str, **fields: Any) -> Future[httpx.Response]:
        """A command of that agent waits for the tab when this returns."""
        tab_id = tab_of(session)
        before = len(self.tab(tab_id)["waiters"])
        waiting = self._act(tab_id, name, expression="1", waitPolicy="wait_with_timeout", **fields)
        until(lambda: len(self.tab(tab_id)["waiters"]) > before or waiting.done())
        return waiting

    def lock(self, session: Any, name: str, **fields: Any) -> Any:
        """That agent has the tab's lock."""
        body = {"lockLeaseMs": LONG_MS, **fields}
        return self.agent(name).post(f"/tabs/{tab_of(session)}/lock", json=body).raise_for_status().json()

    def take(self, lock: str, name: str, **fields: Any) -> Any:
        """That agent has the named lock."""
        body = {"leaseMs": LONG_MS, **fields}
        return self.agent(name).post(f"/locks/{quote(lock, safe='')}", json=body).raise_for_status().json()

    def ask(self, lock: str, name: str) -> Future[httpx.Response]:
        """That agent waits for the named lock when this returns."""
        before = self.waiters(lock)
        body = {"waitMs": LONG_MS, "leaseMs": LONG_MS}
        path = f"/locks/{quote(lock, safe='')}"
        waiting = self._callers.submit(self.agent(name).post, path, json=body, timeout=None)
        until(lambda: self.waiters(lock) > before or waiting.done())
        return waiting

    def tab(self, tab_id: str) -> Any:
        return self.admin.get(f"/tabs/{tab_id}").raise_for_status().json()

    def state_of(self, session: Any) -> str:
        """Without being taken for its owner."""
        rows = self.admin.get("/sessions", params={"limit": 1_000}).raise_for_status().json()["sessions"]
        return next(row["state"] for row in rows if row["sessionId"] == session["sessionId"])

    def waiters(self, lock: str) -> int:
        locks = self.admin.get("/locks").raise_for_status().json()["locks"]
        return next((one["waiters"] for one in locks if one["name"] == lock), 0)

    def close(self) -> None:
        """Whatever they had is given back, and nobody waits any more."""
        free_locks(self.admin)
        end_sessions(self.admin)
        self._callers.shutdown()
        for client in (self.admin, *self._clients.values()):
            client.close()

    def _act(self, tab_id: str, name: str, **fields: Any) -> Future[httpx.Response]:
        body = {"kind": "evaluate", "timeoutMs": LONG_MS, **fields}
        return self._callers.submit(self.agent(name).post, f"/tabs/{tab_id}/action", json=body, timeout=None)


@contextmanager
def crowd_at(server: Server) -> Iterator[Crowd]:
    """A crowd with pages to be on; nothing of it is left behind."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Site) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        crowd = Crowd(server, f"http://127.0.0.1:{site.server_port}/")
        try:
            yield crowd
        finally:
            crowd.close()
            site.shutdown()
            thread.join()


def free_locks(admin: httpx.Client) -> None:
    """Free each lock that is held; the next in line may have it a moment later."""

    def none_is_left() -> bool:
        locks = admin.get("/locks").json()["locks"]
        for lock in locks:
            admin.delete(f"/locks/{quote(lock['name'], safe='')}", params={"force": "true"})
        return not locks

    until(none_is_left)


def tab_of(session: Any) -> str:
    """The first tab of a session."""
    tab_id: str = session["tabs"][0]["tabId"]
    return tab_id
