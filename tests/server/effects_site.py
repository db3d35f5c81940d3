"""A web site that notes every effect of a script in its pages, and that can be slow in all the ways a site can be.

Scripts report by asking for `/effect?who=...&at=...` and say themselves when they ran: a request that was on its way
already may arrive late, so what counts is when it was made. Pages, workers and tests share one clock.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from .local_site import LocalSite

REPORT: Final = "fetch('/effect?who=%s&at=' + Date.now())"
# Reports until it is stopped, and no faster than a busy machine can note it down.
LOOP: Final = f"setInterval(() => {REPORT}, 40)"
PAGES: Final = {
    "/worker.js": LOOP % "worker",
    "/shared_worker.js": LOOP % "shared-worker",
    # Goes on for as long as it has something to install.
    "/service_worker.js": f"oninstall = event => event.waitUntil(new Promise(() => {LOOP % 'service-worker'}))",
    "/frame": f"<script>{LOOP % 'frame'}</script>",
    "/field": "<input id=field><button id=spin onclick='for (;;);'>Spin</button>",
    # Only a page that somebody has touched may ask whether it may be left.
    "/leaving": "<button id=touch>Touch</button><script>onbeforeunload = () => 'stay'</script>",
}


class Effect(NamedTuple):
    """What a script did."""

    who: str
    # When, in milliseconds since 1970, by its own account.
    at: int


class EffectsSite(LocalSite):
    """Listens on a free loopback port. All pages that are not named are blank."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        # While it is clear, `/hold` is not answered.
        self.is_open = threading.Event()
        # Set when somebody asks for `/hold`.
        self.is_held = threading.Event()
        self._is_over = threading.Event()
        super().__init__()

    def count(self, who: str) -> int:
        return sum(effect.who == who for effect in self.effects)

    def stop(self) -> None:
        self._is_over.set()
        self.is_open.set()
        super().stop()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = urlsplit(self.path)
                # The browser may have gone away meanwhile; that is what these tests are about.
                with suppress(ConnectionError):
                    match address.path:
                        case "/effect":
                            query = parse_qs(address.query)
                            site.effects.append(Effect(query["who"][0], int(query["at"][0])))
                            self._answer("")
                        case "/hold":
                            site.is_held.set()
                            site.is_open.wait()
                            self._answer("")
                        case "/never":
                            site._is_over.wait()
                        case "/half":
                            self._begin({"Content-Type": "text/html", "Content-Length": "1000000"})
                            self.wfile.write(b"<title>Half</title><p>Half a page".ljust(2_000))
                            site._is_over.wait()
                        case "/file":
                            self._begin({"Content-Disposition": "attachment", "Content-Length": "1000000"})
                            self.wfile.write(b"x" * 2_000)
                            site._is_over.wait()
                        case path:
                            self._answer(PAGES.get(path, "<title>Blank</title>"))

            def _answer(self, body: str) -> None:
                kind = "text/javascript" if self.path.endswith(".js") else "text/html"
                self._begin({"Content-Type": kind, "Content-Length": str(len(body))})
                self.wfile.write(body.encode())

            def _begin(self, headers: dict[str, str]) -> None:
                self.send_response(200)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """Quiet."""

        return Handler
