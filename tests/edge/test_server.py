"""A whole server process: it starts ready, refuses what cannot be, drains when told, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.server.effects_site import EffectsSite
from tests.server.local_site import serving

from tabherd.edge import server
from tabherd.edge.server import _bound, _url, memory_bytes
from tabherd.errors import InvalidRequest, StateConflict

# A hung server must not hang the tests; what is asserted never depends on it.
LIMIT_S = 60
SERVE = """
import json, sys
from pathlib import Path
from tabherd.config import parse
from tabherd.edge.server import serve
from tabherd.errors import TabherdError
say = lambda info: print(json.dumps({"url": info.url, "pid": info.pid, "nodeId": info.node_id}), flush=True)
try:
    sys.exit(serve(parse(json.loads(sys.argv[2])), Path(sys.argv[1]), ready=say))
except TabherdError as error:
    print(json.dumps(error.to_wire()), flush=True)
    sys.exit(1)
"""


class Running:
    """A server in a process of its own, ready."""

    def __init__(self, state: Path, **settings: Any) -> None:
        self.state = state
        # A browser of a busy machine is not taken for one that hangs.
        pools = {"default": {"probe_limit_ms": 30_000}}
        settings = {"server": {"port": 0, "drain_s": 3_600, **settings}, "pools": pools}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(state), json.dumps(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the server did not start:\n{self.process.communicate()[1]}")
        self.info = json.loads(line)
        token = (state / "admin.token").read_text().strip()
        self.client = httpx.Client(
            base_url=self.info["url"], headers={"Authorization": f"Bearer {token}"}, timeout=LIMIT_S
        )
        self.browsers = psutil.Process(self.process.pid).children(recursive=True)

    def signal(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        code = self.process.wait(LIMIT_S)
        _, alive = psutil.wait_procs(self.browsers, timeout=LIMIT_S)
        assert alive == []
        return code

    def end(self) -> None:
        """Also after a failure: nothing of it stays."""
        self.client.close()
        for process in [psutil.Process(self.process.pid)] if self.process.poll() is None else []:
            self.browsers += process.children(recursive=True)
            process.kill()
        for browser in self.browsers:
            if browser.is_running():
                browser.kill()
        self.process.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    started: list[Running] = []

    def begin(**settings: Any) -> Running:
        started.append(Running(tmp_path, **settings))
        return started[-1]

    yield begin
    for running in started:
        running.end()


def open_tab(running: Running) -> str:
    answer = running.client.post("/sessions", json={"agentId": "alice"})
    assert answer.status_code == 201, answer.text
    tab_id: str = answer.json()["tabs"][0]["tabId"]
    return tab_id


class Evaluation(threading.Thread):
    """An action that runs while the test goes on, and its answer."""

    def __init__(self, running: Running, expression: str) -> None:
        super().__init__()
        self._running = running
        self._tab_id = open_tab(running)
        self._body: dict[str, Any] = {"kind": "evaluate", "expression": expression, "timeoutMs": 3_000_000}
        # It may meet the probe below on the tab, and must then wait for it.
        self._body["waitPolicy"] = "wait_with_timeout"
        self.answer: httpx.Response | None = None
        self.start()
        # Nothing else tells that it runs: a second one is refused because the tab is busy.
        for _ in range(10_000):
            if self._is_running():
                return
        raise AssertionError("the command never began")

    def _is_running(self) -> bool:
        answer = self._running.client.post(f"/tabs/{self._tab_id}/action", json={"kind": "evaluate", "expression": "1"})
        return answer.status_code == 423

    def run(self) -> None:
        try:
            with httpx.Client(headers=self._running.client.headers, timeout=LIMIT_S) as client:
                url = f"{self._running.info['url']}/tabs/{self._tab_id}/action"
                self.answer = client.post(url, json=self._body)
        except httpx.TransportError:
            self.answer = None


def until_draining(running: Running) -> None:
    for _ in range(10_000):
        if running.client.get("/ready").json().get("code") == "draining":
            return
    raise AssertionError("the server does not drain")


@pytest.mark.server
@pytest.mark.browser
def test_a_node_is_the_same_after_a_kill_and_leaves_nothing_behind_after_a_signal(start: Any, tmp_path: Path) -> None:
    first = start()
    second = subprocess.run(
        [sys.executable, "-c", SERVE, str(tmp_path), "{}"], capture_output=True, text=True, timeout=LIMIT_S
    )
    # Another on the same state is told where the first is.
    assert second.returncode == 1
    error = json.loads(second.stdout)
    assert error["code"] == "state_dir_in_use"
    assert (error["details"]["pid"], error["details"]["url"]) == (first.info["pid"], first.info["url"])
    first.process.kill()
    first.process.wait()
    again = start()
    assert again.info["nodeId"] == first.info["nodeId"]
    assert json.loads((tmp_path / "node.json").read_bytes())["epoch"] == 2
    assert again.client.headers["Authorization"] == first.client.headers["Authorization"]
    assert json.loads((tmp_path / "server.json").read_bytes()) == again.info
    assert again.client.get("/ready").json()["node"] == again.info["nodeId"]
    assert again.client.get("/browsers").json()["browsers"][0]["state"] == "ready"
    again.signal()
    assert again.wait() == 0
    assert not (tmp_path / "server.json").exists()
    assert list((tmp_path / "profiles").iterdir()) == []


@pytest.mark.server
@pytest.mark.browser
def test_draining_lets_work_finish_and_admits_nothing_new_until_a_second_signal_ends_it(start: Any) -> None:
    running = start()
    endless = Evaluation(running, "new Promise(() => {})")
    with serving(EffectsSite()) as site:
        evaluation = Evaluation(running, f"fetch('{site.url('/hold')}', {{mode: 'no-cors'}}).then(() => 7)")
        running.signal()
        until_draining(running)
        refused = running.client.post("/sessions", json={"agentId": "bob"})
        assert (refused.status_code, refused.json()["code"]) == (503, "draining")
        assert refused.headers["retry-after"]
        site.is_open.set()
        evaluation.join(LIMIT_S)
    assert evaluation.answer is not None
    assert evaluation.answer.json()["result"] == 7
    assert running.process.poll() is None
    running.signal()
    assert running.wait() == 0
    endless.join(LIMIT_S)


@pytest.mark.server
@pytest.mark.browser
def test_the_drain_is_bounded(start: Any) -> None:
    running = start(drain_s=0)
    evaluation = Evaluation(running, "new Promise(() => {})")
    running.signal()
    assert running.wait() == 0
    evaluation.join(LIMIT_S)


# --- Parts ------------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_named_with_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StateConflict, match=str(port)) as caught, _bound("127.0.0.1", port):
            pass
    assert "--port" in caught.value.action


@pytest.mark.parametrize("host", ["no such host", "203.0.113.7"])
def test_an_address_that_is_not_ours_is_refused(host: str) -> None:
    with pytest.raises(InvalidRequest), _bound(host, 0):
        pass


def test_a_bound_socket_accepts_before_anybody_serves() -> None:
    with _bound("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        pass


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")])
def test_the_address_that_is_told_can_be_dialled_from_here(host: str, shown: str) -> None:
    with socket.socket() as listener:
        listener.bind((host, 0))
        assert _url(listener) == f"http://{shown}:{listener.getsockname()[1]}"


def test_memory_is_what_the_machine_has_at_most() -> None:
    assert 0 < memory_bytes() <= psutil.virtual_memory().total


def test_a_container_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(server, "CGROUP_LIMIT", limit)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_bytes() == machine
    limit.write_text("max\n")
    assert memory_bytes() == machine
    limit.write_text("1048576\n")
    assert memory_bytes() == 1_048_576
