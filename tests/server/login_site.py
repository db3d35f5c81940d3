"""A web site with logins, for tests of what a session keeps and what it does not leave behind.

`/login/NAME` logs in by a cookie that only the server can read. Every page says whom the site takes its visitor for,
so that a lost login cannot be mistaken for a kept one, and the site remembers who asked for what.
"""

from __future__ import annotations

from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

from .local_site import LocalSite

STRANGER = "stranger"
# Pages with something on them; all others only greet.
PAGES = {
    "/links": '<a id="blank" href="/opened/by-link" target="_blank">open</a>',
    "/sw.js": "self.addEventListener('fetch', () => {});",
}


class Visit(NamedTuple):
    """One request, and whom the site took its sender for."""

    path: str
    user: str


class LoginSite(LocalSite):
    """Listens on a free loopback port."""

    def __init__(self) -> None:
        # In the order in which they came.
        self.visits: list[Visit] = []
        super().__init__()
        self.origin = self.url("")

    def visitors(self, path: str) -> list[str]:
        """Who has asked for that page."""
        return [visit.user for visit in self.visits if visit.path == path]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                login = SimpleCookie(self.headers.get("Cookie", "")).get("login")
                user = login.value.removeprefix("secret-of-") if login is not None else STRANGER
                site.visits.append(Visit(self.path, user))
                if self.path.startswith("/login/"):
                    name = self.path.removeprefix("/login/")
                    self._answer(302, "", {"Location": f"/home/{name}", "Set-Cookie": _login_of(name)})
                    return
                found = PAGES.get(self.path, "")
                if self.path.endswith(".js"):
                    self._answer(200, found, {"Content-Type": "text/javascript"})
                    return
                self._answer(200, f"<title>{self.path}</title><h1>Hello, {user}</h1>{found}", {})

            def _answer(self, status: int, body: str, headers: dict[str, str]) -> None:
                raw = body.encode()
                self.send_response(status)
                for name, value in ({"Content-Type": "text/html"} | headers).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *args: object) -> None:
                """Quiet."""

        return Handler


def _login_of(name: str) -> str:
    """A cookie that ends with the browser: the kind that a killed one loses even from its own profile."""
    return f"login=secret-of-{name}; Path=/; HttpOnly; SameSite=Lax"
