"""What a web page can try against a server on the same machine, as scripts that it runs; and the page itself.

A script gets what an attacker may have learnt at best: the server's address, the id of somebody's tab, a token that is
good, and the word of the operator's login. It answers with what it got hold of: an empty list if nothing.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from typing import Final, NamedTuple

from tests.server.local_site import LocalSite


class Way(NamedTuple):
    """One thing to try."""

    script: str
    # What the same script gets from a page of the server's own; None: its policy, or sense, lets nobody try it there.
    at_home: list[object] | None
    # How many requests the server must have refused, at the least, when the script ends: they did arrive.
    refused_min: int = 1


def _asking(path: str, options: str, *at_home: object) -> Way:
    """A request by `fetch`; what can be read of its answer is its status."""
    return Way(
        f"""async ({{url, tab, token, word}}) => {{
            try {{ return [(await fetch(url + `{path}`, {options})).status].filter((status) => status !== 0); }}
            catch (error) {{ return []; }}
        }}""",
        [*at_home],
    )


def _form(path: str, body: str) -> Way:
    """A form whose one field makes up a body of JSON, sent into a frame; forms need nobody's leave."""
    name, value = body.split("=", 1)
    return Way(
        f"""async ({{url, tab, mallorys}}) => {{
            const frame = document.createElement("iframe");
            frame.name = "into-" + Math.random();
            document.body.append(frame);
            const form = document.createElement("form");
            Object.assign(form, {{
                action: url + `{path}`, method: "post", enctype: "text/plain", target: frame.name}});
            const field = document.createElement("input");
            Object.assign(field, {{name: `{name}`, value: `{value}`}});
            form.append(field);
            document.body.append(form);
            const loaded = new Promise((done) => {{ frame.onload = done; }});
            form.submit();
            await loaded;
            const seen = frame.contentDocument;
            return seen && seen.URL !== "about:blank" ? [seen.body.innerText] : [];
        }}""",
        None,
    )


def _socket(path: str, *at_home: object, more: str = "") -> Way:
    """WebSockets with nothing but a cookie, and with a good token. There are no more of them, because Chromium makes a
    page wait longer and longer whose sockets fail."""
    return Way(
        f"""async ({{url, tab, token, word}}) => {{
            const opened = [];
            for (const [name, query] of Object.entries({{"a cookie": "", {more} "a token": "?token=" + token}})) {{
                const socket = new WebSocket(url.replace("http", "ws") + `{path}` + query);
                await new Promise((done) => {{
                    socket.onopen = () => {{ opened.push(name); done(); }};
                    socket.onmessage = socket.onerror = socket.onclose = done;
                }});
                socket.close();
            }}
            return opened;
        }}""",
        [*at_home],
        refused_min=3 if more else 2,
    )


_COOKIE: Final = "credentials: 'include'"
_TEXT: Final = "method: 'POST', mode: 'no-cors', credentials: 'include', headers: {'Content-Type': 'text/plain'}"
_TOKEN: Final = "headers: {Authorization: `Bearer ${token}`}"
_WORD: Final = "credentials: 'include', headers: {'X-Csrf-Token': word}"

WAYS: Final = {
    "reading sessions": _asking("/sessions", "{}", 401),
    "reading sessions with the cookie": _asking("/sessions", f"{{{_COOKIE}}}", 401),
    "reading sessions unread": _asking("/sessions", f"{{mode: 'no-cors', {_COOKIE}}}", 401),
    "reading sessions with a token": _asking("/sessions", f"{{{_TOKEN}}}", 200),
    "reading sessions with the operator's word": _asking("/sessions", f"{{{_WORD}}}", 200),
    "opening a session unread": _asking("/sessions", f"{{{_TEXT}, body: '{{}}'}}", 401),
    "opening a session with a token": _asking("/sessions", f"{{method: 'POST', body: '{{}}', {_TOKEN}}}", 201),
    "draining unread": _asking("/drain", f"{{{_TEXT}}}", 401),
    # The server is that of other tests, too: it is drained by none that may.
    "draining with a token": _asking("/drain", f"{{method: 'POST', {_TOKEN}}}")._replace(at_home=None),
    "draining with the operator's word": _asking("/drain", f"{{method: 'POST', {_WORD}}}")._replace(at_home=None),
    "pausing a tab unread": _asking("/tabs/${tab}/handoff", f"{{{_TEXT}, body: '{{}}'}}", 401),
    "pausing a tab with a token": _asking("/tabs/${tab}/handoff", f"{{method: 'POST', body: '{{}}', {_TOKEN}}}", 200),
    "changing settings with a token": _asking("/config", f"{{method: 'PATCH', body: '{{}}', {_TOKEN}}}", 200),
    "logging the operator out": _asking("/login", f"{{method: 'DELETE', {_COOKIE}}}")._replace(at_home=None),
    "logging the operator in as somebody else": _asking("/login", f"{{{_TEXT}, body: 'garbage'}}", 400),
    "a form that opens a session": _form("/sessions", '{"agentId":"x", "key":"=y"}'),
    "a form that drains": _form("/drain", "a=b"),
    "a form that pauses a tab": _form("/tabs/${tab}/handoff", '{"by":"=somebody"}'),
    "a form that logs in": _form("/login", '{"token":"${mallorys}", "x":"=y"}'),
    # The one route that does something and is asked with GET, as Chrome has it.
    "an image that closes a tab": Way(
        """async ({url, tab}) => {
            const image = new Image();
            image.src = `${url}/json/close/${tab}`;
            return await new Promise((done) => {
                image.onload = () => done([image.width]);
                image.onerror = () => done([]);
            });
        }""",
        [],
    ),
    "a script made of the answer": Way(
        """async ({url}) => {
            const script = document.createElement("script");
            script.src = `${url}/sessions`;
            document.body.append(script);
            return await new Promise((done) => {
                script.onload = () => done(["ran"]);
                script.onerror = () => done([]);
            });
        }""",
        None,
    ),
    "a stream of events": Way(
        """async ({url}) => {
            const source = new EventSource(url + "/events", {withCredentials: true});
            const heard = await new Promise((done) => {
                source.onopen = () => done(["open"]);
                source.onerror = () => done([]);
            });
            source.close();
            return heard;
        }""",
        [],
    ),
    # `Origin: null`, which a page has that hides where it is from.
    "a frame without an origin": Way(
        """async ({url, token}) => {
            const frame = document.createElement("iframe");
            frame.sandbox = "allow-scripts";
            frame.srcdoc = `<script>fetch("${url}/sessions", {headers: {Authorization: "Bearer ${token}"}})
                .then((answer) => [answer.status], () => []).then((got) => parent.postMessage(got, "*"))</` + "script>";
            const told = new Promise((done) => { onmessage = (event) => done(event.data); });
            document.body.append(frame);
            return await told;
        }""",
        None,
    ),
    "a CDP socket": _socket("/", "a token"),
    "a control channel": _socket("/ws", "a token"),
    "a CDP socket of a browser": _socket("/devtools/browser", "a token"),
    "a CDP socket of somebody's tab": _socket("/devtools/page/${tab}", "a token"),
    "a live view of somebody's tab": _socket(
        "/live/${tab}", "a word", "a token", more='"a word": "?csrf=" + word,'
    ),
}  # fmt: skip


class Lure(LocalSite):
    """The attacker's page, on a port of its own."""

    def __init__(self) -> None:
        super().__init__()
        # What browsers sent along.
        self.cookies: list[str] = []

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.cookies.append(self.headers.get("Cookie", ""))
                body = b"<!doctype html><title>Free kittens</title><body><h1>Free kittens</h1>"
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Quiet."""

        return Handler
