"""`http`: requests per second of the front door, on one core, next to a bare uvicorn that answers a constant.

Two subprocesses with the settings of the real server, driven by `wrk` one after the other and in rounds, so that a
disturbance of the machine hits all of them: a bare ASGI function (the limit of the HTTP server), `/health`, and
`/browsers` with a token (authentication, scope, a verb, an encoded answer). The verbs behind are a stand-in: this
measures the edge.

Two figures each: requests per second of wall time, which other load on the machine lowers, and requests per second of
the server's own CPU time, which is less disturbed. The bar is for the first, so it wants a quiet machine: where bare
uvicorn itself does not reach it, nothing can.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import uvloop

from bench import Figure
from tabherd.edge.server import Front

BAR_PER_S = 10_000
ROUNDS = 3
SECONDS = 5
CONNECTIONS = 32
START_LIMIT_S = 20.0


def run() -> dict[str, Figure]:
    """Measure, and answer with the figures."""
    if shutil.which("wrk") is None:
        raise RuntimeError("This one needs 'wrk' (apt-get install wrk).")
    per_s: dict[str, list[float]] = {"bare": [], "health": [], "authenticated": []}
    per_cpu_s: dict[str, list[float]] = {name: [] for name in per_s}
    bare, ours = _Server("bare"), _Server("tabherd")
    try:
        token = ours.first_line()
        bare.first_line()
        cases = (("bare", bare, "/", ""), ("health", ours, "/health", ""), ("authenticated", ours, "/browsers", token))
        for _ in range(ROUNDS):
            for name, server, path, credential in cases:
                before = server.cpu_s()
                requests, rate = _drive(server.url + path, credential)
                per_s[name].append(rate)
                per_cpu_s[name].append(requests / (server.cpu_s() - before))
    finally:
        bare.end()
        ours.end()
    wall = {name: round(statistics.median(values)) for name, values in per_s.items()}
    core = {name: round(statistics.median(values)) for name, values in per_cpu_s.items()}
    figures: dict[str, Figure] = {}
    for name in ("health", "authenticated"):
        figures[name] = Figure(ours=wall[name], unit="req/s", others={"bare uvicorn": wall["bare"]}, at_least=BAR_PER_S)
        figures[f"{name}_cpu"] = Figure(ours=core[name], unit="req/CPU s", others={"bare uvicorn": core["bare"]})
    return figures


class _Server:
    """One uvicorn in a process of its own."""

    def __init__(self, kind: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.http", kind, str(port)],
            cwd=Path(__file__).parent.parent,
            stdout=subprocess.PIPE,
            text=True,
        )

    def first_line(self) -> str:
        """What it prints before it listens (ours: its token); returns when it answers."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        limit = time.monotonic() + START_LIMIT_S
        while time.monotonic() < limit:
            try:
                urllib.request.urlopen(self.url + "/health", timeout=1).close()
            except urllib.error.URLError:
                time.sleep(0.05)
            else:
                return line
        raise RuntimeError(f"the server at {self.url} did not answer")

    def cpu_s(self) -> float:
        """The CPU time it has used so far."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def _drive(url: str, token: str) -> tuple[int, float]:
    """How many requests were answered, and how many per second."""
    header = ["-H", f"Authorization: Bearer {token}"] if token else []
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", *header, url]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in report:
        raise RuntimeError(f"{url} answered with errors:\n{report}")
    total, rate = re.search(r"(\d+) requests in", report), re.search(r"Requests/sec:\s+([\d.]+)", report)
    assert total, report
    assert rate, report
    return int(total[1]), float(rate[1])


async def _bare(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"15")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"status":"ok"}'})


async def _tabherd(port: int) -> Any:
    from tabherd import logs, wire
    from tabherd.broker.credentials import Credentials
    from tabherd.broker.events import EventBus
    from tabherd.broker.registry import Registry
    from tabherd.config import Config
    from tabherd.edge.http import create_app
    from tabherd.metrics import Metrics
    from tabherd.store.memory import MemoryStore

    class Verbs:
        """The one verb that is measured: it has nothing to tell, so that what is measured is the way to it and back."""

        def __init__(self) -> None:
            self.credentials = Credentials(MemoryStore())
            self.registry = Registry()
            self.operations = self

        def clock(self) -> int:
            return time.time_ns() // 1_000_000

        def browsers(self, caller: Any) -> wire.BrowserPage:
            return wire.BrowserPage(browsers=[])

    logs.configure("json", "info")
    verbs = Verbs()
    token, _ = await verbs.credentials.create("bench", ["admin"])
    print(token, flush=True)
    return create_app(
        config=Config(),
        broker=verbs,  # type: ignore[arg-type]
        events=EventBus(epoch=1, ring=16),
        metrics=Metrics(),
        node_id="nod_bench",
        version="bench",
        port=port,
    )


async def _serve(kind: str, port: int) -> None:
    if kind == "tabherd":
        app = await _tabherd(port)
    else:
        app = _bare
        print("bare", flush=True)
    with socket.create_server(("127.0.0.1", port), backlog=2_048) as listener:
        await Front(app).serve(sockets=[listener])


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], int(sys.argv[2])))
