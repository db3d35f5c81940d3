"""Callers that are processes of their own: told line by line what to send, they can be stopped, resumed and killed.

Run as a program, this file is such a process. It uses nothing but the standard library, so that a dozen of them start
quickly, and sends what it is told in order, one request after the other.
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

# How long the process waits for one answer.
ANSWER_LIMIT_S = 120


class Heard(NamedTuple):
    """What the process was answered."""

    status: int
    retry_after: str | None
    body: Any


class CallerProcess:
    """One such process, seen from the test."""

    def __init__(self, url: str, token: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, url, token], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, method: str, path: str, body: Any = None) -> None:
        """Let it send that as soon as it can; does not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([method, path, body]) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Heard:
        """What it was answered to the next of its requests."""
        assert self._process.stdout is not None
        return Heard(*json.loads(self._process.stdout.readline()))

    def ask(self, method: str, path: str, body: Any = None) -> Heard:
        self.send(method, path, body)
        return self.hear()

    def act(self, tab_id: str, kind: str, **params: Any) -> Heard:
        return self.ask("POST", f"/tabs/{tab_id}/action", {"kind": kind, **params})

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, whatever it is doing."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def caller_process(url: str, token: str) -> Iterator[CallerProcess]:
    caller = CallerProcess(url, token)
    try:
        yield caller
    finally:
        caller.close()


def _run(url: str, token: str) -> None:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=ANSWER_LIMIT_S)
    connection.connect()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    for line in sys.stdin:
        method, path, body = json.loads(line)
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        raw = answer.read()
        heard = [answer.status, answer.getheader("Retry-After"), json.loads(raw) if raw else None]
        print(json.dumps(heard), flush=True)


if __name__ == "__main__":
    _run(*sys.argv[1:])
