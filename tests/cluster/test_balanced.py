"""Two nodes behind a plain load balancer that sends every request to the next one: nobody notices that there are two.

The balancers are those of the distribution, with the shortest configuration that takes turns.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import sync_playwright
from tests.server.effects_site import EffectsSite

from tabherd import Tabherd

from .rig import CALM, Cluster, until

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Where `tools/setup` puts them, and where a distribution does.
PLACES = (Path(__file__).parents[2] / ".setup" / "balancers" / "bin", Path("/usr/sbin"), Path("/usr/bin"))
STOP_LIMIT_S = 60

HAPROXY = """
global
    maxconn 500
defaults
    mode http
    timeout connect 60s
    timeout client 120s
    timeout server 120s
    timeout tunnel 120s
frontend door
    bind 127.0.0.1:{port}
    default_backend nodes
backend nodes
    balance roundrobin
    server a 127.0.0.1:{nodes[0]}
    server b 127.0.0.1:{nodes[1]}
"""

NGINX = """
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/nginx.log;
events {{ worker_connections 500; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    client_max_body_size 0;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    upstream nodes {{ server 127.0.0.1:{nodes[0]}; server 127.0.0.1:{nodes[1]}; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://nodes;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_read_timeout 120s;
        }}
    }}
}}
"""


@pytest.fixture(scope="module")
def nodes(empty_cluster: Cluster) -> Cluster:
    # Callers know the nodes by the balancer's address.
    empty_cluster.start(2, {"SERVER__ALLOWED_HOSTS": "127.0.0.1", **CALM})
    return empty_cluster


@pytest.fixture(params=["haproxy", "nginx"])
def door(request: pytest.FixtureRequest, nodes: Cluster, tmp_path: Path) -> Iterator[str]:
    """The balancer's address."""
    with balanced(request.param, [int(node.url.rpartition(":")[2]) for node in nodes.nodes], tmp_path) as url:
        yield url


@contextmanager
def balanced(kind: str, node_ports: list[int], directory: Path) -> Iterator[str]:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    text = {"haproxy": HAPROXY, "nginx": NGINX}[kind].format(port=port, nodes=node_ports, directory=directory)
    settings = directory / f"{kind}.conf"
    settings.write_text(text.lstrip())
    program = shutil.which(kind, path=":".join(map(str, PLACES)))
    assert program is not None, f"{kind} is missing: run tools/setup dev"
    words = {"haproxy": ["-db", "-f", str(settings)], "nginx": ["-e", f"{directory}/nginx.log", "-c", str(settings)]}
    process = subprocess.Popen([program, *words[kind]])
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: is_open(url))
        yield url
    finally:
        process.terminate()
        process.wait(STOP_LIMIT_S)


def is_open(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.HTTPError:
        return False


def test_requests_take_turns(door: str, nodes: Cluster) -> None:
    headers = {"Authorization": f"Bearer {nodes.nodes[0].admin_token}"}
    with httpx.Client(base_url=door, headers=headers, timeout=60) as client:
        asked = [next(view for view in client.get("/nodes").json()["nodes"] if view["isSelf"]) for _ in range(4)]
    assert {view["nodeId"] for view in asked} == {node.id for node in nodes.nodes}


def test_thirty_mixed_steps_of_sdk_playwright_and_a_stream_of_events_all_succeed(
    door: str, nodes: Cluster, effects: EffectsSite
) -> None:
    done: list[str] = []

    def step(name: str, was_good: Any) -> None:
        assert was_good, name
        done.append(name)

    token = nodes.nodes[1].admin_token
    with Tabherd(door, token, agent="ada") as herd, Tabherd(door, token, agent="ada") as listening:
        heard: list[str] = []
        with herd.session(url=effects.url("/field")) as session:
            listener = threading.Thread(target=listen, args=(listening, heard, session.id), daemon=True)
            listener.start()
            # It hears what happens from when it is heard, which nobody else can tell.
            until(lambda: heard or herd.session().open().close())
            tab = session.tab
            for turn in range(6):
                step(f"evaluate {turn}", tab.evaluate(f"{turn} + 1") == turn + 1)
            tab.fill("#field", "hello")
            step("fill", tab.evaluate("field.value") == "hello")
            step("text", tab.text("#spin") == "Spin")
            step("snapshot", "Spin" in str(tab.snapshot()))
            step("screenshot", tab.screenshot())
            step("steps", tab.run([{"kind": "evaluate", "expression": "1"}, {"kind": "evaluate", "expression": "2"}]))
            step("view", tab.view().tab_id == tab.id)
            step("heartbeat", session.heartbeat().fence == session.fence)
            second = session.new_tab(effects.url("/leaving"))
            step("new tab", second.evaluate("location.pathname") == "/leaving")
            step("tabs", len(session.tabs) == 2)
            second.close()
            with tab.lock():
                step("locked", tab.evaluate("1") == 1)
            session.upload(b"x" * 100_000, "up.bin")
            step("upload", [file.name for file in session.files()] == ["up.bin"])
            step("download", session.download("up.bin") == b"x" * 100_000)
            session.set_storage_state(session.storage_state())
            step("state", True)
            for turn in range(3):
                task = herd.submit(action="evaluate", params={"expression": f"{turn} * 2"}, tab=tab.id)
                step(f"task {turn}", task.result(timeout=60) == turn * 2)
            step("task of the pool", herd.submit(action="evaluate", params={"expression": "7"}).result(timeout=60) == 7)
            with herd.lock("account:x", timeout=30):
                step("lock", [lock.name for lock in herd.locks()] == ["account:x"])
            for turn in range(2):
                step(f"playwright {turn}", driven(session.cdp_url, effects) == "typed")
            step("sessions", session.id in {view.session_id for view in herd.sessions()})
            step("stats", herd.stats().sessions >= 1)
            step("nodes", len(herd.nodes()) == 2)
            tab.goto(effects.url("/last"))
            step("goto", tab.evaluate("location.pathname") == "/last")
        listener.join(60)
        step("events", session.id in heard)
    assert len(done) >= 30


def listen(herd: Tabherd, heard: list[str], last: str) -> None:
    """Note the sessions that end, until that one does."""
    with closing(herd.events(types="session.closed")) as events:
        for event in events:
            heard.append(event.data["sessionId"])
            if heard[-1] == last:
                return


def driven(cdp_url: str, effects: EffectsSite) -> str:
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(cdp_url)
        page = browser.contexts[0].pages[0]
        page.goto(effects.url("/field"))
        page.fill("#field", "typed")
        value = page.input_value("#field")
        browser.close()
        return value
