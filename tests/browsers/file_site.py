"""A web site with files to save: at once, never ending, broken off, from frames and windows, and under any name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

# What a held file sends before it waits, and what it says that it will be.
HELD_FIRST_BYTES = 100_000
HELD_BYTES = 200_000

PAGES = {
    "/": "<title>Files</title><h1>Files</h1>",
    "/frame": "<iframe src='/file?name=from-frame.txt'></iframe>",
    "/upload": "<title>Upload</title><input type=file id=f>",
}


class FileSite:
    """What the site serves is decided by the address; held files end when the site is told so."""

    def __init__(self) -> None:
        self.port = 0
        # Set to let held files end.
        self.finish = threading.Event()
        # The names of the files that were asked for, in order.
        self.asked: list[str] = []

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


def _handler(site: FileSite) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(address.query).items()}
            name = query.get("name", "report.txt")
            match address.path:
                case "/file":
                    site.asked.append(name)
                    body = query.get("body", "hello").encode() * int(query.get("times", "1"))
                    self._begin(len(body), name)
                    self.wfile.write(body)
                case "/held":
                    self._held(name)
                case _:
                    body = PAGES.get(address.path, "").encode()
                    self._begin(len(body), None)
                    self.wfile.write(body)

        def _begin(self, length: int, name: str | None) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            if name is None:
                self.send_header("Content-Type", "text/html")
            else:
                self.send_header("Content-Type", "application/octet-stream")
                # As it is, quotes included: servers send worse.
                self.send_header("Content-Disposition", f'attachment; filename="{name}"')
            self.end_headers()

        def _held(self, name: str) -> None:
            self._begin(HELD_BYTES, name)
            try:
                self.wfile.write(b"x" * HELD_FIRST_BYTES)
                site.finish.wait(60)
                self.wfile.write(b"y" * (HELD_BYTES - HELD_FIRST_BYTES))
            except OSError:
                # Whoever wanted it has gone.
                self.close_connection = True

        def log_message(self, *args: object) -> None:
            """Quiet."""

    return Handler


@contextmanager
def serving_files() -> Iterator[FileSite]:
    site = FileSite()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(site)) as server:
        server.daemon_threads = True
        server.block_on_close = False
        site.port = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            site.finish.set()
            server.shutdown()
            thread.join()
