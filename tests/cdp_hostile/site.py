"""The web site that victim and attacker visit: the same origin for both, and every word on it is its visitor's mark.

An address is `/MARK/NAME`. A page keeps its mark wherever a page can keep something. Frames come from another site, so
that they are out of process; from one for each mark, for where the context is shared, frames of one site share theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

DOWNLOAD_BYTES = 4096

PAGE = """<!doctype html><title>{mark}</title><h1 id=heading>{mark}</h1><input type=file id=file>
<iframe id=frame src="http://{mark}.test:{port}/{mark}/frame"></iframe>
<script>
  var mark = '{mark}', ticks = 0, seen = [];
  setInterval(() => ticks++, 20);
  document.cookie = 'script=' + mark;
  localStorage.mark = sessionStorage.mark = mark;
  var blobUrl = URL.createObjectURL(new Blob([mark]));
  var worker = new Worker('/{mark}/worker.js');
  var ask = text => new Promise(done => {{ worker.onmessage = told => done(told.data); worker.postMessage(text); }});
  var ready = (async () => {{
    await (await caches.open(mark)).put('/{mark}/cached', new Response(mark));
    await new Promise(done => {{
      const opening = indexedDB.open(mark);
      opening.onupgradeneeded = () => opening.result.createObjectStore(mark).add(mark, 1);
      opening.onsuccess = () => {{ opening.result.close(); done(); }};
    }});
    await navigator.serviceWorker.register('/{mark}/service.js');
    await navigator.serviceWorker.ready;
    if (document.readyState !== 'complete') await new Promise(done => addEventListener('load', done));
    return await ask('are you there');
  }})();
</script>"""
FRAME = (
    "<!doctype html><title>{mark}</title><p>{mark}</p><script>var ticks = 0; setInterval(() => ticks++, 20)</script>"
)
WORKER = "onmessage = told => postMessage('{mark}: ' + told.data)"
SERVICE = "// {mark}\nself.onfetch = () => {{}}; self.onactivate = event => event.waitUntil(clients.claim());"
SCRIPTS = {"worker.js": WORKER, "service.js": SERVICE}
PAGES = {"page": PAGE, "frame": FRAME}


class Site(ThreadingHTTPServer):
    """Listens on a free loopback port."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Visit)
        # Downloads are cut off in the middle until this is set.
        self.may_finish = threading.Event()

    @property
    def origin(self) -> str:
        return f"http://localhost:{self.server_port}"

    def url(self, mark: str, name: str = "page", host: str = "localhost") -> str:
        return f"http://{host}:{self.server_port}/{mark}/{name}"


class _Visit(BaseHTTPRequestHandler):
    server: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        mark, _, name = address.path.lstrip("/").partition("/")
        if name in PAGES:
            # Only the page has a cookie that scripts do not see; a frame of another site would not keep one.
            self._answer(PAGES[name].format(mark=mark, port=self.server.server_port), {"Set-Cookie": f"http={mark}"})
        elif name in SCRIPTS:
            self._answer(SCRIPTS[name].format(mark=mark), {"Content-Type": "text/javascript"})
        elif name == "redirect":
            self._answer("", {"Location": parse_qs(address.query)["to"][0]}, 302)
        elif name == "download":
            self._download(mark)
        else:
            self._answer(mark, {"Content-Type": "text/plain", "Access-Control-Allow-Origin": "*"})

    def _answer(self, body: str, headers: dict[str, str], status: int = 200) -> None:
        raw = body.encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "text/html"} | headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _download(self, mark: str) -> None:
        body = (mark * DOWNLOAD_BYTES)[:DOWNLOAD_BYTES].encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Disposition", f'attachment; filename="{mark}.bin"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: DOWNLOAD_BYTES // 2])
        self.wfile.flush()
        self.server.may_finish.wait()
        self.wfile.write(body[DOWNLOAD_BYTES // 2 :])

    def handle(self) -> None:
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):
            # The browser has gone away, as it may.
            self.close_connection = True

    def log_message(self, *args: Any) -> None:
        """Quiet."""


@contextmanager
def serving() -> Iterator[Site]:
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            site.may_finish.set()
            site.shutdown()
            thread.join()
