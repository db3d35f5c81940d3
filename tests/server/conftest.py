"""A running server for the module's tests, and what is needed to talk to it and to look behind it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.cli.running import running_server


class Server:
    """A real broker process as its callers and the operating system see it."""

    def __init__(self, state: Path) -> None:
        self.state = state

    @property
    def record(self) -> dict[str, Any]:
        return json.loads((self.state / "server.json").read_text())

    @property
    def admin_token(self) -> str:
        return (self.state / "admin.token").read_text().strip()

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token or self.admin_token}"}
        return httpx.Client(base_url=self.record["url"], headers=headers, timeout=60)

    def agent(self, agent_id: str, scopes: list[str] | None = None) -> httpx.Client:
        """A client with a fresh token of that agent."""
        body: dict[str, Any] = {"agentId": agent_id} | ({} if scopes is None else {"scopes": scopes})
        with self.client() as admin:
            return self.client(admin.post("/agents", json=body).raise_for_status().json()["token"])

    def browsers(self) -> list[psutil.Process]:
        """Every process, of any life of this server, whose profile is in its state directory."""
        mine = f"--user-data-dir={self.state}"
        found = []
        for process in psutil.process_iter(["cmdline"]):
            if any(word.startswith(mine) for word in process.info["cmdline"] or ()):
                found.append(process)
        return found

    def profiles(self) -> list[str]:
        return [path.name for path in (self.state / "profiles").iterdir()]


class _Site(BaseHTTPRequestHandler):
    """A page with a title and a heading, at every address."""

    def do_GET(self) -> None:
        body = b"<title>A page</title><h1>Hello from the site</h1>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def with_settings(state: Path, settings: dict[str, str]) -> Iterator[Server]:
    """A server with other settings, given as the environment spells them, without the prefix."""
    with running_server(state, {f"TABHERD_{name}": value for name, value in settings.items()}):
        yield Server(state)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server") / "state") as state:
        yield Server(state)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may kill."""
    with running_server(tmp_path / "state") as state:
        yield Server(state)


def act(client: httpx.Client, tab_id: str, kind: str, **params: Any) -> httpx.Response:
    return client.post(f"/tabs/{tab_id}/action", json={"kind": kind, **params})


def open_session(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/sessions", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def is_alive(process: psutil.Process) -> bool:
    """Whether it still does anything; a zombie that nobody has collected does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
