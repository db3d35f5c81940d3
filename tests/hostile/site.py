"""A web site of hostile pages, under two names, and some answers that are hostile themselves."""

from __future__ import annotations

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from tests.server.local_site import LocalSite

from . import pages

PLAIN: Final = (
    "<!doctype html><title>Plain</title><body><h1>All is well</h1>"
    "<button id=button>Press</button><input id=field aria-label=Field>"
)
ALL: Final = {
    **pages.LARGE,
    **pages.BUSY,
    **pages.ASKING,
    **pages.RESTLESS,
    **pages.SHADOWING,
    **pages.GREEDY,
    **pages.FRAMED,
}


class HostileSite(LocalSite):
    """Pages by name at `/p/`; what is not named is a plain page."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        super().__init__()

    def page(self, name: str) -> str:
        return self.url(f"/p/{quote(name)}")

    def other(self, path: str) -> str:
        """The same under a name that is another site to a browser."""
        return self.url(path).replace("127.0.0.1", "localhost")

    def stop(self) -> None:
        self._is_over.set()
        super().stop()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = unquote(urlsplit(self.path).path)
                # Browsers go away in the middle; that is what these tests are about.
                with suppress(ConnectionError):
                    match path.split("/")[1:]:
                        case ["p", name]:
                            self._answer(ALL[name])
                        case ["nest", depth] if int(depth) > 0:
                            # Every second one is of another site.
                            path = f"/nest/{int(depth) - 1}"
                            inner = site.other(path) if int(depth) % 2 else site.url(path)
                            self._answer(f"<button>{depth}</button><iframe src='{inner}'></iframe>")
                        case ["served", kind, "worker.js"]:
                            script = (
                                f"onfetch = (event) => {{ {pages.SERVED[kind]} }}; onactivate = () => clients.claim()"
                            )
                            self._answer(script, "text/javascript")
                        case ["served", _, _]:
                            self._answer(pages.REGISTERING)
                        case ["never"]:
                            site._is_over.wait()
                        case _:
                            self._answer(PLAIN)

            def _answer(self, body: str, kind: str = "text/html", **headers: str) -> None:
                content = body.encode()
                self.send_response(200)
                for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: object) -> None:
                """Quiet."""

        return Handler
