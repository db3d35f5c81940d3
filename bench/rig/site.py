"""A local web server: a small page, which sessions have loaded while something is measured, others, and a login.

`/desk` is a page to act upon, `/crowded` one of more than a thousand elements, `/ordinary/NAME` one of the pages in
`ordinary/`, which are like those that agents meet. `/login/NAME` logs in by a cookie that only the server can read and
that ends with the browser; from then on the other pages greet their visitor by that name. `/booth/NAME` is a page to
act upon that belongs to one visitor: it says the name, and leaves it in a cookie that scripts can read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

PAGE: Final = (
    "<!doctype html><title>Small page</title><style>li { padding: 4px }</style><h1>Small page</h1>"
    f"<form><input name=q><button>Go</button></form><ul>{''.join(f'<li>Item {n}' for n in range(50))}</ul>"
    "<script>document.title += ' ready'</script>"
).encode()
# A page to act upon; it counts the clicks on its button.
DESK: Final = (
    "<!doctype html><title>Desk</title><style>li { padding: 4px }</style><h1>Desk</h1>"
    "<label>Name <input id=name></label><button id=go onclick='window.clicks = (window.clicks ?? 0) + 1'>Go</button>"
    f"<ul>{''.join(f'<li>Item {n} <a href=#item-{n}>more</a>' for n in range(50))}</ul>"
).encode()
DESK_PATH: Final = "desk"
_ROW: Final = (
    "<tr><td>Order {n}<td><a href=#o{n}>Customer {n}</a><td><span class=amount>{n}.00</span>"
    "<td><label><input type=checkbox> paid</label><td><input value='note {n}'><button>Send {n}</button></tr>"
)
CROWDED: Final = (
    "<!doctype html><title>Crowded</title><style>td { padding: 4px }</style><h1>Orders</h1><table>"
    + "".join(_ROW.format(n=n) for n in range(100))
    + "</table>"
).encode()
CROWDED_PATH: Final = "crowded"
ORDINARY: Final = {page.stem: page.read_bytes() for page in sorted((Path(__file__).parent / "ordinary").glob("*.html"))}
ORDINARY_PATH: Final = "ordinary/"
LOGIN: Final = "/login/"
BOOTH_PATH: Final = "booth/"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith(LOGIN):
            name = self.path.removeprefix(LOGIN)
            self.send_response(302)
            self.send_header("Location", "/home")
            self.send_header("Set-Cookie", f"login={name}; Path=/; HttpOnly; SameSite=Lax")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        page = self._page()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        if self.path.startswith(f"/{BOOTH_PATH}"):
            self.send_header("Set-Cookie", f"booth={self.path.removeprefix(f'/{BOOTH_PATH}')}; Path=/; SameSite=Lax")
        self.end_headers()
        self.wfile.write(page)

    def _page(self) -> bytes:
        if self.path == f"/{DESK_PATH}":
            return DESK
        if self.path.startswith(f"/{BOOTH_PATH}"):
            return DESK.replace(b"<h1>Desk</h1>", b"<h1>%b</h1>" % self.path.removeprefix(f"/{BOOTH_PATH}").encode())
        if self.path == f"/{CROWDED_PATH}":
            return CROWDED
        if self.path.startswith(f"/{ORDINARY_PATH}"):
            return ORDINARY[self.path.removeprefix(f"/{ORDINARY_PATH}")]
        login = SimpleCookie(self.headers.get("Cookie", "")).get("login")
        return PAGE if login is None else f"<!doctype html><h1>{greeting(login.value)}</h1>".encode()

    def log_message(self, format: str, *args: object) -> None:
        """Not a word: the output belongs to the figures."""


def greeting(name: str) -> str:
    """What a page says to a visitor who is logged in."""
    return f"Hello, {name}"


@contextmanager
def small_page() -> Iterator[str]:
    """The page's address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            serving.join()
