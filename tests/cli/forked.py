"""Servers that are forked from a process which has imported tabherd already: half of a start is imports.

Each test worker has one such process, its nursery. The nursery is single-threaded and runs no event loop, so a fork of
it is as good as a new interpreter. `tests/cli/test_serve.py` starts the real command.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).parents[2]
# A request to the nursery: the environment of the server, with its output and its log as open files.
REQUEST_MAX_BYTES = 1 << 20
# With these a server has imported everything that it needs.
IMPORTED = ("tabherd.cli.main", "tabherd.cli.serve", "tabherd.edge.server")


class Forked:
    """A server process that is not this process's child, held by its pidfd."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            # The process could not start, and has been reaped.
            self._pidfd = -1

    def poll(self) -> int | None:
        """None while the process runs; the exit code is the nursery's to know, so 0 stands for any."""
        return 0 if self._has_ended(0) else None

    def wait(self, timeout: float) -> int:
        """Wait for the end of the process; `subprocess.TimeoutExpired` when that does not come."""
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(f"server {self.pid}", timeout)
        return 0

    def _has_ended(self, limit_s: float) -> bool:
        if self._pidfd < 0:
            return True
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        if not poller.poll(limit_s * 1000):
            return False
        os.close(self._pidfd)
        self._pidfd = -1
        return True


class Nursery:
    """The process that servers are forked from. The nursery ends with the process that made it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # A process counts as a server only if one of its words is `tabherd`.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cli.forked", "tabherd", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._socket = ours

    def fork(self, env: Mapping[str, str], output: int, log: IO[bytes]) -> Forked:
        """Start `tabherd up --json` with that environment, in a session of its own."""
        request = json.dumps({"env": dict(env), "cwd": os.getcwd()}).encode()
        socket.send_fds(self._socket, [request], [output, log.fileno()])
        return Forked(int(self._socket.recv(64)))


@functools.cache
def nursery() -> Nursery:
    """The nursery of this process."""
    return Nursery()


def serve(requests: socket.socket) -> None:
    """Fork a server for each request, and reap those that have ended, until there is nobody to ask."""
    from tests.ablated.plugin import switch_off

    for module in IMPORTED:
        importlib.import_module(module)
    switch_off()
    ended, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    while True:
        readable, _, _ = select.select([requests, ended], [], [])
        if ended in readable:
            ended.recv(4096)
            reap()
        if requests in readable:
            message, files, _, _ = socket.recv_fds(requests, REQUEST_MAX_BYTES, 2)
            if not message:
                return
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                for one in (requests, ended, wakes):
                    one.close()
                become_server(json.loads(message), files)
            requests.send(str(pid).encode())
            for file in files:
                os.close(file)


def reap() -> None:
    """Collect the servers that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def become_server(request: dict[str, dict[str, str]], files: list[int]) -> NoReturn:
    """Run the command in this process, which was just forked, and end it."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, file in enumerate(files, start=1):
            os.dup2(file, number)
            os.close(file)
        os.chdir(str(request["cwd"]))
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = ["tabherd", "up", "--json"]
        from tabherd.cli.main import main

        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        if sys.exc_info()[1] is not None:
            sys.excepthook(*sys.exc_info())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[2])))
