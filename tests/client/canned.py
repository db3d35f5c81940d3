"""An HTTP server that gives prepared answers and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, urlsplit


class Asked(NamedTuple):
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class CannedServer:
    """Listens on a free loopback port for as long as it is entered."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._answers: dict[tuple[str, str], list[tuple[int, str, bytes]]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(
        self, method: str, path: str, body: Any = None, status: int = 200, media: str = "application/json"
    ) -> None:
        """Prepare the next answer for that request; the last one prepared is given again and again."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self._answers.setdefault((method, path), []).append((status, media, raw))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _reply(self) -> None:
                parts = urlsplit(self.path)
                length = int(self.headers.get("content-length", 0))
                raw = self.rfile.read(length)
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = json.loads(raw) if raw else None
                outer.asked.append(Asked(self.command, parts.path, dict(parse_qsl(parts.query)), headers, body))
                prepared = outer._answers[self.command, parts.path]
                status, media, answer = prepared.pop(0) if len(prepared) > 1 else prepared[0]
                self.send_response(status)
                self.send_header("content-type", media)
                if status != 204:
                    self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_DELETE = _reply  # noqa: N815 (the names are http.server's)

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet: tests read what was asked instead."""

        return Handler


SESSION = {
    "sessionId": "ses_1",
    "agentId": "alice",
    "fence": 7,
    "state": "active",
    "pool": "default",
    "key": "",
    "tier": "default",
    "node": "nod_1",
    "browserId": "brw_1",
    "tabs": [{"tabId": "tab_1", "url": "about:blank", "title": ""}],
    "createdAt": "2026-01-01T00:00:00.000Z",
    "expiresAt": "2026-01-01T00:20:00.000Z",
    "heartbeatMs": 60000,
    "seenAt": "2026-01-01T00:00:00.000Z",
    "phase": "",
    "keepAlive": False,
    "access": "exclusive",
    "reuse": "never",
    "endReason": "",
    "cdpUrl": "",
    "webSocketDebuggerUrl": "",
    "liveUrl": "",
}
TAB = {
    "tabId": "tab_1",
    "sessionId": "ses_1",
    "agentId": "alice",
    "state": "ready",
    "url": "about:blank",
    "title": "",
    "generation": 1,
    "provenance": "created",
    "openerTabId": None,
    "createdAt": "2026-01-01T00:00:00.000Z",
    "holder": None,
    "waiters": [],
    "expectedWaitMs": 0,
}
COMMAND = {
    "commandId": "cmd_1",
    "ok": True,
    "outcome": "completed",
    "result": "Hello",
    "error": None,
    "queuedMs": 0,
    "durationMs": 3,
}
TASK = {
    "taskId": "tsk_1",
    "agentId": "alice",
    "action": "text",
    "tabId": "tab_1",
    "sessionId": None,
    "selector": None,
    "ref": None,
    "params": {},
    "steps": None,
    "priority": 0,
    "state": "done",
    "position": None,
    "etaMs": None,
    "deadline": "2026-01-01T00:01:00.000Z",
    "createdAt": "2026-01-01T00:00:00.000Z",
    "startedAt": "2026-01-01T00:00:00.010Z",
    "completedAt": "2026-01-01T00:00:00.020Z",
    "latencyMs": 20,
    "result": "Hello",
    "error": None,
    "code": None,
    "attempts": 1,
    "callbackUrl": None,
    "webhook": None,
}
QUEUED_TASK = TASK | {
    "state": "queued",
    "position": 3,
    "etaMs": 4_000,
    "startedAt": None,
    "completedAt": None,
    "latencyMs": None,
    "result": None,
    "attempts": 0,
}
SUBMITTED_TASK = {
    "taskId": "tsk_1",
    "state": "queued",
    "position": 3,
    "etaMs": 4_000,
    "createdAt": "2026-01-01T00:00:00.000Z",
}
BUSY = {
    "code": "tab_busy",
    "message": "bob is on it.",
    "retryable": True,
    "retryAfterMs": 40,
    "action": "Wait.",
    "details": {"holder": "bob"},
}
BROWSER = {
    "browserId": "brw_1",
    "pool": "default",
    "node": "nod_1",
    "state": "ready",
    "pid": 42,
    "product": "Chromium/1",
    "sessions": 1,
    "sessionsServed": 3,
    "stock": 4,
    "memoryBytes": 200 << 20,
    "cpuMs": 1500,
    "cpuPercent": 2.5,
    "processes": 7,
    "circuit": "closed",
    "suspect": False,
    "lastFailure": "",
    "startedAt": "2026-01-01T00:00:00.000Z",
}
NODE = {
    "nodeId": "nod_1",
    "url": "http://10.0.0.1:7722",
    "state": "up",
    "epoch": 3,
    "isSelf": True,
    "startedAt": "2026-01-01T00:00:00.000Z",
    "beatAgeMs": 1_200,
    "sessions": 2,
    "freeSeats": 24,
}
STATS = {
    "node": "nod_1",
    "draining": False,
    "sessions": 2,
    "pools": {
        "default": {
            "active": 2,
            "pooled": 3,
            "tabs": 5,
            "waiting": 1,
            "capacity": 100,
            "freeSeats": 24,
            "stock": 4,
            "browsers": 1,
        }
    },
}
