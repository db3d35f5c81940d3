"""A small page on a local web server: what sessions have loaded while their memory is measured."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

PAGE: Final = (
    "<!doctype html><title>Small page</title><style>li { padding: 4px }</style><h1>Small page</h1>"
    f"<form><input name=q><button>Go</button></form><ul>{''.join(f'<li>Item {n}' for n in range(50))}</ul>"
    "<script>document.title += ' ready'</script>"
).encode()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None:
        """Not a word: the output belongs to the figures."""


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
