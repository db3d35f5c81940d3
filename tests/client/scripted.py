"""A way to a server that exists on paper only: prepared answers and breaks, and a clock that runs when it is slept."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.client.canned import Asked

from tabherd.client import Tabherd
from tabherd.client.sync import herd, link, task

Answer = httpx.Response | Exception

# Sent by itself in a test that takes longer than a second; not told among what was asked.
BEAT = "/sessions/ses_1/heartbeat"
BEATEN = {"expiresAt": "2026-01-01T00:20:00.000Z", "fence": 7, "cancel": []}


def answer(body: Any = None, status: int = 200) -> httpx.Response:
    return httpx.Response(status, content=b"" if body is None else json.dumps(body).encode())


def refusal(code: str, status: int, **fields: Any) -> httpx.Response:
    """An error of the server."""
    return answer({"code": code, "message": f"{code}!", "action": "", "details": {}, **fields}, status)


class Script:
    """Prepared answers by method and path; the last one prepared is given again and again."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._answers: dict[tuple[str, str], list[Answer]] = {("POST", BEAT): [answer(BEATEN)]}
        self.transport = httpx.MockTransport(self._reply)

    def on(self, method: str, path: str, *answers: Answer) -> None:
        self._answers.setdefault((method, path), []).extend(answers)

    def herd(self, **options: Any) -> Tabherd:
        """A client that gets these answers."""
        return Tabherd("http://herd.test", "secret", environ={}, transport=self.transport, **options)

    def bodies(self, method: str, path: str) -> list[Any]:
        """What came there, in order."""
        return [asked.body for asked in self.asked if (asked.method, asked.path) == (method, path)]

    def _reply(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        path = request.url.raw_path.decode().partition("?")[0]
        query = dict(request.url.params)
        if path != BEAT:
            self.asked.append(Asked(request.method, path, query, dict(request.headers), body))
        prepared = self._answers[request.method, path]
        found = prepared.pop(0) if len(prepared) > 1 else prepared[0]
        if isinstance(found, Exception):
            raise found
        return httpx.Response(found.status_code, content=found.content)


class SleptClock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.slept_s: list[float] = []

    def sleep(self, wait_s: float) -> None:
        self.slept_s.append(wait_s)
        self.now_s += wait_s

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SleptClock:
    """What the client waits passes at once; it is never lucky."""
    slept = SleptClock()
    for module in (link, herd):
        monkeypatch.setattr(module, "sleep", slept.sleep)
    for module in (link, herd, task):
        monkeypatch.setattr(module, "monotonic", slept.monotonic)
    monkeypatch.setattr(link.Link, "chance", lambda self: 0.0)
    return slept
