"""A whole server with a network policy: pages keep to it, and it outlives the server's own death."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.cli.running import running_server
from tests.server.conftest import Server, act, browser_pids, open_session, value_of

from .test_supervise import proxies_of

pytestmark = [pytest.mark.server, pytest.mark.browser]

POLICY = 'deny_hosts = ["bad.test"]\npinned_hosts = { "good.test" = "127.0.0.1", "bad.test" = "127.0.0.1" }\n'
FETCHED = "fetch('/again').then(answer => answer.status, () => 'refused')"


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"Hello")

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def port() -> Iterator[int]:
    """Where a site listens that answers under every name."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "tabherd.toml"
    path.write_text(f"[pools.default]\nwarm = 1\n{POLICY}")
    return path


@pytest.fixture
def server(tmp_path: Path, settings: Path) -> Iterator[Server]:
    with running_server(tmp_path / "state", {"TABHERD_CONFIG": str(settings)}) as started:
        yield Server(started.state, started)


def test_pages_keep_to_the_policy_through_the_deaths_of_their_server_and_to_one_that_is_new_afterwards(
    server: Server, settings: Path, port: int
) -> None:
    with server.client() as admin:
        tab_id = open_session(admin, agentId="ada", url=f"http://good.test:{port}/")["tabs"][0]["tabId"]
        assert value_of(admin, tab_id, "window.kept = document.body.innerText") == "Hello"
        pids = browser_pids(admin)
    server.kill()
    # The same policy: the page goes on behind it.
    server.start({"CONFIG": str(settings)})
    with server.client() as admin:
        assert browser_pids(admin) == pids
        assert value_of(admin, tab_id, "window.kept") == "Hello"
        assert value_of(admin, tab_id, FETCHED) == 200
        act(admin, tab_id, "navigate", url=f"http://bad.test:{port}/")
        assert "policy_denied" in value_of(admin, tab_id, "document.body.innerText")
        act(admin, tab_id, "navigate", url=f"http://good.test:{port}/")
    server.kill()
    # Another one: no browser from before it is used.
    settings.write_text(f"[pools.default]\nwarm = 1\ndeny_hosts = ['127.0.0.0/8']\n{POLICY.splitlines()[1]}\n")
    (server.state / "egress.json").unlink()
    server.start({"CONFIG": str(settings)})
    with server.client() as admin:
        assert "policy_denied" in value_of(admin, tab_id, "document.body.innerText")
        assert set(browser_pids(admin)).isdisjoint(pids)
    (proxy,) = proxies_of(server.record["pid"])
    server.stop()
    assert not proxy.is_running()
