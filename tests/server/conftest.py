"""The server that tests use, one that they may kill, and what is needed to talk to them and to look behind them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.cli.running import Started, running_server

from .callers import CallerProcess, caller_process
from .local_site import serving
from .login_site import LoginSite

# How often, every twentieth of a second, a checkpoint is looked for before it is missed.
KEPT_TRIES = 600
# Before it an event that was expected counts as missing; the stream itself never ends.
EVENT_LIMIT_S = 120
# Between two looks at what only asking tells. Who asks without a pause keeps the server from what is waited for.
LOOK_S = 0.02
# Every page that is kept ready is a process to be started; one is enough for a session to come from the stock. A test
# that is about the stock says how large it is.
SPARING = {"POOLS__DEFAULT__WARM": "1"}


class Server:
    """A real broker process as its callers and the operating system see it."""

    def __init__(self, state: Path, started: Started | None = None) -> None:
        self.state = state
        self._started = started or Started(state)

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

    def token_of(self, agent_id: str) -> str:
        """A fresh token of that agent."""
        with self.client() as admin:
            return admin.post("/agents", json={"agentId": agent_id}).raise_for_status().json()["token"]

    def caller(self, agent_id: str) -> AbstractContextManager[CallerProcess]:
        """A process of its own that speaks for that agent."""
        return caller_process(self.record["url"], self.token_of(agent_id))

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

    def kill(self) -> None:
        """End the broker as a power cut would; its browsers run on."""
        broker = psutil.Process(self.record["pid"])
        broker.kill()
        broker.wait()

    @property
    def is_running(self) -> bool:
        return self._started.is_running

    def start(self, settings: dict[str, str] | None = None) -> None:
        """Start a broker on the same state again."""
        self._started.start(environment_of(settings or {}))

    def stop(self) -> None:
        """The orderly end."""
        self._started.stop()

    def wait_kept(self, session_ids: Iterable[str], text: str) -> None:
        """Until the checkpoint of each of these sessions is on disk and has that text in it, without asking for one."""
        waiting = set(session_ids)
        with closing(sqlite3.connect(f"file:{self.state / 'tabherd.db'}?mode=ro", uri=True)) as rows:
            for _ in range(KEPT_TRIES):
                found = rows.execute("SELECT id FROM checkpoints WHERE instr(cookies || origins, ?)", (text,))
                waiting -= {row[0] for row in found}
                if not waiting:
                    return
                time.sleep(0.05)
        raise AssertionError(f"no checkpoint with {text!r} for {sorted(waiting)}")


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


@pytest.fixture
def login_site() -> Iterator[LoginSite]:
    with serving(LoginSite()) as site:
        yield site


@contextmanager
def with_settings(state: Path, settings: dict[str, str]) -> Iterator[Server]:
    """A server with other settings, given as the environment spells them, without the prefix."""
    with running_server(state, environment_of(settings)) as started:
        yield Server(state, started)


def environment_of(settings: dict[str, str]) -> dict[str, str]:
    return {f"TABHERD_{name}": value for name, value in settings.items()}


@contextmanager
def events_of(server: Server, types: str, token: str | None = None) -> Iterator[Iterator[dict[str, Any]]]:
    """Events of those types, from now on."""
    with server.client(token) as listener, listener.stream("GET", "/events", params={"types": types}) as stream:
        yield _told(stream.iter_lines())


def _told(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    give_up_at = time.monotonic() + EVENT_LIMIT_S
    for line in lines:
        if line.startswith("data:"):
            yield json.loads(line.removeprefix("data:"))
            give_up_at = time.monotonic() + EVENT_LIMIT_S
        # A line comes at least every few seconds.
        assert time.monotonic() < give_up_at, "no such event"


@pytest.fixture
def server(shared_server: Server) -> Server:
    """The worker's server. What a test leaves there under an agent's name, the next one does not meet: `unique`."""
    return shared_server


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def ada(server: Server) -> Iterator[httpx.Client]:
    with server.agent(_unique("ada")) as client:
        yield client


@pytest.fixture
def bob(server: Server) -> Iterator[httpx.Client]:
    with server.agent(_unique("bob")) as client:
        yield client


def _unique(name: str) -> str:
    # Not at the top, because that module needs this one.
    from tests.shared_server import unique

    return unique(name)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may kill."""
    with with_settings(tmp_path / "state", SPARING) as server:
        yield server


def wait_while(is_so: Callable[[], Any]) -> None:
    """Look again and again, for as long as it is so."""
    while is_so():
        time.sleep(LOOK_S)


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


def value_of(client: httpx.Client, tab_id: str, expression: str) -> Any:
    """What the page makes of the expression; waits for its turn, and for a page that is being rebuilt."""
    answer = act(client, tab_id, "evaluate", expression=expression, waitPolicy="wait_with_timeout")
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


def end_sessions(client: httpx.Client) -> None:
    """End every session that there is, so that the next test finds none."""
    for session in client.get("/sessions", params={"limit": 500}).json()["sessions"]:
        if session["state"] not in ("closed", "lost"):
            client.delete(f"/sessions/{session['sessionId']}", params={"disposition": "close"})


def release(client: httpx.Client, session: dict[str, Any], disposition: str | None = None) -> None:
    """Give the session back."""
    query = {"fence": session["fence"]} | ({} if disposition is None else {"disposition": disposition})
    answer = client.delete(f"/sessions/{session['sessionId']}", params=query)
    assert answer.status_code == 204, answer.text


def kill_browser(pid: int) -> None:
    """End a browser with all its processes, as the kernel does when memory runs out."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def browser_pids(client: httpx.Client, pool: str = "default") -> list[int]:
    """The browsers of that pool that serve."""
    browsers = client.get("/browsers").json()["browsers"]
    return [b["pid"] for b in browsers if b["pool"] == pool and b["state"] in ("ready", "draining")]


def renderer_of(client: httpx.Client, tab_id: str, pool: str = "default") -> psutil.Process:
    """The process in which the page of that tab lives, told from the others by giving it something to do."""
    (pid,) = browser_pids(client, pool)
    for attempt in range(20):
        # Longer each time: on a busy machine it gets only a part of its time.
        spin = f"{{ const end = performance.now() + {300 * (1 + attempt)}; while (performance.now() < end); }}"
        before = {process.pid: process.cpu_times().user for process in renderers(pid)}
        assert act(client, tab_id, "evaluate", expression=spin).status_code == 200
        # One that started meanwhile is another's: what its start cost must not be taken for the work.
        known = [process for process in renderers(pid) if process.pid in before]
        worked = sorted((process.cpu_times().user - before[process.pid], process.pid) for process in known)
        others = worked[-2][0] if len(worked) > 1 else 0.0
        if worked[-1][0] >= 0.1 and worked[-1][0] >= 2 * others:
            return psutil.Process(worked[-1][1])
    raise AssertionError("no renderer did clearly more than the others")


def renderers(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children(recursive=True) if _is_renderer(child)]


def _is_renderer(process: psutil.Process) -> bool:
    try:
        return "--type=renderer" in process.cmdline()
    except psutil.NoSuchProcess:
        # It ended between the two looks; a zombie is one that did, too.
        return False
