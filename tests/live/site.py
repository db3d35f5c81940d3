"""Pages that note what is done to them."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from tests.server.local_site import LocalSite

# Notes what is done to it; 'red' is red all over.
PAGE = """<!doctype html><title>{name}</title><style>
body {{ margin: 0; {style} }} #field, #go {{ position: absolute; left: 40px; top: 30px; width: 200px; height: 24px }}
#go {{ top: 80px; width: 100px; height: 30px }}
</style><input id=field><button id=go>Go</button><script>
seen = [];
for (const kind of ["mousedown", "mouseup", "click", "dblclick", "contextmenu", "auxclick", "wheel", "keydown"])
  addEventListener(kind, event => seen.push([kind, event.target.id || "", event.key ?? event.button, event.clientX ?? 0,
    event.clientY ?? 0, event.isTrusted]), true);
for (const kind of ["visibilitychange", "blur", "focus", "resize"])
  (kind === "visibilitychange" ? document : window).addEventListener(kind, () => seen.push([kind]));
</script>"""
STYLES = {"red": "background: #ff0000", "blue": "background: #0000ff"}


class Site(LocalSite):
    """Pages by their name."""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = urlsplit(self.path).path.strip("/")
                body = PAGE.format(name=name, style=STYLES.get(name, "")).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Quiet."""

        return Handler
