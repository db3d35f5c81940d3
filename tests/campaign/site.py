"""The web site that the crowd works on: it counts every effect, and tells when a page has somebody else's cookies.

Whoever leases a session goes to `/home/WHOSE` first, a name that no other session has; from then on its cookie says so.
Effects are named `WHOSE.NUMBER`: one that comes with the cookie of another session is cross-talk.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

from tests.server.local_site import LocalSite

# Pages that were left alone keep nothing open.
IDLE_LIMIT_S = 10
HOME = """<!doctype html><title>{whose}</title><h1>Home of {whose}</h1>
<label>Field <input id=field></label><button id=push onclick="field.value = field.value + '!'">Push</button>
<ul><li>one</li><li>two</li><li>three</li></ul>"""


def effect(who: str) -> str:
    """A script that has this effect, and answers with its name once the site has noted it."""
    return f"fetch('/effect?who={who}').then((answer) => answer.text())"


class CountingSite(LocalSite):
    """Listens on a free loopback port."""

    def __init__(self) -> None:
        # How often each effect happened.
        self.effects: Counter[str] = Counter()
        # What one session saw or did with the cookies of another.
        self.crosstalk: list[str] = []
        self._lock = threading.Lock()
        super().__init__()

    def home(self, whose: str) -> str:
        return self.url(f"/home/{whose}")

    def note(self, who: str, cookie_of: str) -> None:
        with self._lock:
            self.effects[who] += 1
            if cookie_of and not who.startswith(f"{cookie_of}."):
                self.crosstalk.append(f"{who} was done with the cookies of {cookie_of}")

    def visit(self, whose: str, cookie_of: str) -> None:
        if cookie_of and cookie_of != whose:
            with self._lock:
                self.crosstalk.append(f"{whose} came home with the cookies of {cookie_of}")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            timeout = IDLE_LIMIT_S

            def do_GET(self) -> None:
                address = urlsplit(self.path)
                cookie = SimpleCookie(self.headers.get("Cookie", "")).get("whose")
                cookie_of = cookie.value if cookie is not None else ""
                # Browsers are killed in the middle of it: that is what this is about.
                with suppress(ConnectionError, TimeoutError):
                    if address.path == "/effect":
                        who = parse_qs(address.query)["who"][0]
                        site.note(who, cookie_of)
                        self._answer(who, {})
                    elif address.path.startswith("/home/"):
                        whose = unquote(address.path.removeprefix("/home/"))
                        site.visit(whose, cookie_of)
                        self._answer(HOME.format(whose=whose), {"Set-Cookie": f"whose={whose}; Path=/; Max-Age=9999"})
                    else:
                        self._answer("<title>Blank</title>", {})

            def _answer(self, body: str, headers: dict[str, str]) -> None:
                self.send_response(200)
                told = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(body.encode()))}
                for name, value in (told | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *args: object) -> None:
                """Quiet."""

        return Handler
