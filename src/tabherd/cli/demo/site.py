"""The web site that the demo's agents visit: it logs people in, keeps their lines, and writes down all that it is sent.

It knows nothing of tabherd. What it writes down is the evidence that the demo is judged by, so it only ever adds, in
the order in which requests came. It listens on a free port of 127.0.0.1 and ends with its `with`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from . import pages
from .record import BOARD, Hit, What, now_ms

AGENT_COOKIE: Final = "agent"
VISIT_COOKIE: Final = "visit"
# Longer than any demo: a cookie that ends with the browser would not be there to be kept.
COOKIE_AGE_S: Final = 3_600
# What pages report, by where they report it.
REPORTS: Final[Mapping[str, What]] = {"/add": "add", "/begin": "begin", "/end": "end", "/pulse": "pulse"}
BODY_MAX_BYTES: Final = 10_000
# A limit on what is written down; the longest demo stays far below.
HITS_MAX: Final = 500_000
POLL_S: Final = 0.05


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a page says about a command that is at work in it, or about itself."""

    agent: str
    visit: str
    document: str
    tab: str = ""
    id: str = ""
    page_ms: float = 0.0


class Site:
    """The site, while it is open."""

    def __init__(self) -> None:
        self._http = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"site": self}))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(POLL_S,), name="demo-site")
        self._lock = threading.Lock()
        self._hits: list[Hit] = []
        # What was written, by the visit that the cookies named.
        self._lines: dict[str, list[str]] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @property
    def url(self) -> str:
        """Where it is, without a trailing slash."""
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def hits(self) -> list[Hit]:
        """All that it was sent so far, in order."""
        with self._lock:
            return list(self._hits)

    def see(self, hit: Hit) -> None:
        """Write it down."""
        with self._lock:
            assert len(self._hits) < HITS_MAX, "the site was sent more than any demo sends"
            self._hits.append(hit)
            if hit.what == "add":
                self._lines.setdefault(hit.cookie_visit, []).append(hit.id)

    def lines_of(self, visit: str) -> list[str]:
        """What was written under the cookie of that visit."""
        with self._lock:
            return list(self._lines.get(visit, ())) if visit else []


def login_url(site_url: str, agent: str, visit: str, *, has_pulse: bool) -> str:
    """Where an agent logs in; it is led on to its desk. With a pulse, the desk says all the time that it lives."""
    query = {"agent": agent, "visit": visit} | ({"pulse": "1"} if has_pulse else {})
    return f"{site_url}/login?{urlencode(query)}"


def desk_url(site_url: str, agent: str, visit: str, *, has_pulse: bool) -> str:
    """The desk of whoever is logged in already."""
    return login_url(site_url, agent, visit, has_pulse=has_pulse).replace("/login?", "/desk?", 1)


def board_url(site_url: str) -> str:
    """The page that several agents share."""
    return f"{site_url}/board?{urlencode({'agent': BOARD, 'visit': BOARD})}"


class _Server(ThreadingHTTPServer):
    # A page may hold its connection open for as long as it lives; the site does not wait for it.
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A browser that is killed breaks its connections, and demos kill browsers.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    # Small answers must not wait for more to be sent along.
    disable_nagle_algorithm = True
    site: Site

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        agent, visit = query.get("agent", ""), query.get("visit", "")
        cookie_agent, cookie_visit = self._cookies()
        claimed = Hit(
            at_ms=now_ms(),
            what="arrive" if address.path == "/login" else "page",
            agent=agent,
            visit=visit,
            cookie_agent=cookie_agent,
            cookie_visit=cookie_visit,
        )
        match address.path:
            case "/login":
                self.site.see(claimed)
                cookies = (f"{AGENT_COOKIE}={agent}", f"{VISIT_COOKIE}={visit}")
                self._answer(303, cookies=cookies, location=f"/desk?{address.query}")
            case "/desk":
                self.site.see(claimed)
                self._answer(200, pages.desk(cookie_agent, self.site.lines_of(cookie_visit)))
            case "/board":
                self.site.see(claimed)
                # So that there is a login to be kept here, too.
                self._answer(200, pages.board(), cookies=(f"{AGENT_COOKIE}={agent}", f"{VISIT_COOKIE}={visit}"))
            case _:
                self._answer(404, "There is nothing here.")

    def do_POST(self) -> None:
        what, size = REPORTS.get(self.path), int(self.headers.get("Content-Length") or 0)
        if what is None or size > BODY_MAX_BYTES:
            self.close_connection = True
            self._answer(404 if what is None else 413)
            return
        try:
            report = msgspec.json.decode(self.rfile.read(size), type=Report)
        except msgspec.DecodeError as error:
            self._answer(400, str(error))
            return
        agent, visit = self._cookies()
        fields = msgspec.structs.asdict(report)
        self.site.see(Hit(at_ms=now_ms(), what=what, cookie_agent=agent, cookie_visit=visit, **fields))
        self._answer(204)

    def log_message(self, format: str, *words: object) -> None:
        """Nothing: whatever is of interest is written down as evidence."""

    def _cookies(self) -> tuple[str, str]:
        """The agent and the visit that the browser's cookies name; empty where it has none."""
        try:
            jar = SimpleCookie(self.headers.get("Cookie", ""))
        except CookieError:
            return "", ""
        agent, visit = (jar[name].value if name in jar else "" for name in (AGENT_COOKIE, VISIT_COOKIE))
        return agent, visit

    def _answer(self, status: int, body: str = "", *, cookies: tuple[str, ...] = (), location: str = "") -> None:
        content = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Cache-Control", "no-store")
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        for cookie in cookies:
            self.send_header("Set-Cookie", f"{cookie}; Path=/; Max-Age={COOKIE_AGE_S}; SameSite=Lax")
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(content)
