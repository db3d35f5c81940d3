"""A web site on a free loopback port, answered by threads: what the sites of these tests have in common."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar


class LocalSite:
    """Subclasses say how a request is answered, and call this when they can be asked."""

    def __init__(self) -> None:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self._http.server_port}{path}"

    def serve(self) -> None:
        self._http.serve_forever(poll_interval=0.05)

    def stop(self) -> None:
        self._http.shutdown()

    def close(self) -> None:
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        raise NotImplementedError


AnySite = TypeVar("AnySite", bound=LocalSite)


@contextmanager
def serving(site: AnySite) -> Iterator[AnySite]:
    thread = threading.Thread(target=site.serve)
    thread.start()
    try:
        yield site
    finally:
        site.stop()
        thread.join()
        site.close()
