"""A real server that is shown every kind of secret, rightly and wrongly, and everything that could repeat one of them.

`lived` does it all once and ends the server; what is left is a name for each secret and a text for each place.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import psutil
from picows.websockets import InvalidStatus, WebSocketException, connect
from tests.edge.control_house import command, envelope
from tests.mcp_server.clients import over_http
from tests.server.conftest import (
    Server,
    act,
    browser_pids,
    kill_browser,
    open_session,
    release,
    value_of,
    with_settings,
)
from tests.server.tasking import ended, until

from .raw import UPGRADE

ALICE: Final = "alice"
WEBHOOK_SECRET: Final = "canary-of-the-webhooks-7c1f"
COOKIE: Final = "canary-of-a-cookie-93ab"
PASSWORD: Final = "canary-of-a-password-51de"
CALLBACK: Final = "canary-of-a-callback-e0c2"
WRONG_TOKEN: Final = "th_" + "canary-wrong-".ljust(43, "W")
WRONG_WORD: Final = "canary-that-is-no-token-88f0"
# Nothing waits longer than this for anything.
LIMIT_S: Final = 60

SETTINGS: Final = f"""
[server]
log_level = "debug"
log_format = "json"

[webhooks]
secret = "{WEBHOOK_SECRET}"
allow_hosts = ["127.0.0.1"]
attempts_max = 1

[pools.default]
browsers_max = 1
"""


class Refusal(msgspec.Struct, frozen=True):
    """A request that was not served."""

    what: str
    # The request, and what was said to it, each with its headers.
    sent: str
    said: str


class Lived(msgspec.Struct, frozen=True):
    """What is left of the server's life."""

    # What must not be repeated, by what it is.
    secrets: dict[str, str]
    # All that was said or written, by where.
    places: dict[str, str]
    # What each table of the store has.
    tables: dict[str, str]
    # How requests were answered, by what they were.
    statuses: dict[str, int]
    # Everything that was refused.
    refusals: list[Refusal]

    def found_in(self, place: str) -> set[str]:
        return found(self.secrets, self.places[place])


def found(secrets: dict[str, str], text: str) -> set[str]:
    """Which secrets are in it."""
    return {name for name, secret in secrets.items() if secret in text}


class _Receiver(BaseHTTPRequestHandler):
    """Takes webhooks, keeps what they said, and is a page for whoever asks."""

    heard: list[str]

    def do_GET(self) -> None:
        self._answer(b"<title>A page</title><h1>Hello</h1>")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.heard.append(f"{self.headers}\n{body.decode()}")
        self._answer(b"{}")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


@contextmanager
def receiving() -> Iterator[tuple[str, list[str]]]:
    """Where webhooks can be sent to, and what came."""
    heard: list[str] = []
    handler = type("Receiver", (_Receiver,), {"heard": heard})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{site.server_port}", heard
        finally:
            site.shutdown()
            thread.join()


class _Visit:
    """One life of the server, from outside."""

    def __init__(self, server: Server, site: str) -> None:
        self.server = server
        self.url: str = server.record["url"]
        self.site = site
        self.token = server.token_of(ALICE)
        self.statuses: dict[str, int] = {}
        self.refusals: list[Refusal] = []
        self.secrets = {
            "the admin's token": server.admin_token,
            "an agent's token": self.token,
            "a wrong token": WRONG_TOKEN,
            "what is no token": WRONG_WORD,
            "the webhooks' secret": WEBHOOK_SECRET,
            "a cookie of a session": COOKIE,
            "a password in an address": PASSWORD,
            "the word in a callback": CALLBACK,
        }

    def note(self, what: str, answer: httpx.Response) -> httpx.Response:
        self.statuses[what] = answer.status_code
        if not answer.is_success:
            asked = answer.request
            sent = f"{asked.url} {list(asked.headers.raw)} {asked.content!r}"
            self.refusals.append(Refusal(what, sent, f"{answer.headers}\n{answer.text}"))
        return answer

    # --- What is done with them -----------------------------------------------------------------------------

    def live(self, alice: httpx.Client) -> dict[str, Any]:
        """Use each as it is meant; the session that is open in the end."""
        cookie = {"name": "login", "value": COOKIE, "domain": "127.0.0.1", "path": "/"}
        session = open_session(alice, storageState={"cookies": [cookie]}, url=self.site, keepAlive=True)
        tab_id = session["tabs"][0]["tabId"]
        assert value_of(alice, tab_id, "document.cookie") == f"login={COOKIE}"
        self.secrets["a session's ticket"] = session["webSocketDebuggerUrl"].rpartition("/")[2]
        with httpx.Client(base_url=self.url, timeout=LIMIT_S) as person:
            logged_in = self.note("a login", person.post("/login", json={"token": self.token}))
            name, _, value = logged_in.headers["set-cookie"].partition(";")[0].partition("=")
            self.secrets |= {"a login's cookie": value, "a login's word": logged_in.json()["csrf"]}
            whole = {"Cookie": f"{name}={value}", "X-Csrf-Token": self.secrets["a login's word"]}
            self.login_cookie = whole["Cookie"]
            person.cookies.clear()
            self.note("a login that is used", person.get("/tabs", headers=whole))
            self.note("a login without its word", person.get("/tabs", headers={"Cookie": self.login_cookie}))
            self.note("a login with a wrong token", person.post("/login", json={"token": WRONG_TOKEN}))
            about = self.note("a token in a query", person.get("/json/version", params={"token": self.token}))
            self.secrets["a browser's ticket"] = about.json()["webSocketDebuggerUrl"].rpartition("/")[2]
        return session

    def mistake(self, alice: httpx.Client, session: dict[str, Any]) -> None:
        """Show each where it does not belong."""
        with httpx.Client(base_url=self.url, timeout=LIMIT_S) as anybody:
            for name, secret in {**self.secrets}.items():
                for path in (f"/{secret}", f"/sessions/{secret}", f"/tabs/{secret}", f"/tasks/{secret}",
                             f"/devtools/browser/{secret}", f"/ui/{secret}"):  # fmt: skip
                    self.note(f"{name} in a path", anybody.get(path))
                    self.note(f"{name} in a path, with a token", alice.get(path))
                for path in ("/sessions", "/json/version", "/json/list", "/devtools/browser", "/mcp", "/events"):
                    self.note(f"{name} in a query of {path}", anybody.get(path, params={"token": secret}))
                self.note(f"{name} in a header", anybody.get("/tabs", headers={"Authorization": f"Bearer {secret}"}))
                self.note(f"{name} as Basic", anybody.get("/tabs", headers={"Authorization": f"Basic {secret}"}))
                self.note(f"{name} as an agent", alice.get("/tabs", headers={"X-Agent-Id": secret}))
                for body in (f'{{"token": "{secret}', f'{{"{secret}": 1}}', f'{{"pool": "{secret}"}}', f'"{secret}"',
                             f'{{"tier": "{secret}"}}', f'{{"waitMs": "{secret}"}}'):  # fmt: skip
                    self.note(f"{name} in a body", alice.post("/sessions", content=body))
        tab_id = session["tabs"][0]["tabId"]
        port = self.site.rpartition(":")[2]
        for url in (f"http://ada:{PASSWORD}@127.0.0.1:1/", f"http://ada:{PASSWORD}@127.0.0.1:{port}/",
                    f"nothing://ada:{PASSWORD}@127.0.0.1/", f"http://ada:{PASSWORD}@nowhere.invalid/"):  # fmt: skip
            self.note(f"a password at {url[:4]}", act(alice, tab_id, "navigate", url=url, timeoutMs=30_000))
        self.note("a password in a callback", alice.post("/tasks", json=self._task(f"http://a:{PASSWORD}@127.0.0.1/")))

    def call_back(self, alice: httpx.Client, heard: list[str]) -> None:
        """Tasks whose ends are told: to one who hears it, and to nobody."""
        for url in (self.site, "http://127.0.0.1:9"):
            task = alice.post("/tasks", json=self._task(f"{url}/?key={CALLBACK}")).raise_for_status().json()
            assert ended(alice, task["taskId"])["state"] == "done"
            until(lambda task=task: ended(alice, task["taskId"])["webhook"]["state"] != "pending")
        assert len(heard) == 1

    def _task(self, callback: str) -> dict[str, Any]:
        return {"action": "evaluate", "params": {"expression": "1"}, "callbackUrl": callback}

    async def connect(self, session: dict[str, Any]) -> None:
        """Every kind of socket, and MCP."""
        tab_id = session["tabs"][0]["tabId"]
        base = self.url.replace("http", "ws", 1)
        hello = [envelope("hello"), envelope("command", command(tab_id, f"'{WRONG_WORD}"))]
        about = [{"id": 1, "method": "Browser.getVersion"}, {"id": 2, "method": "Browser.getBrowserCommandLine"}]
        word, ticket = self.secrets["a login's word"], self.secrets["a session's ticket"]
        await self._speak("control", f"{base}/ws?token={self.token}", hello)
        await self._speak("control, malformed", f"{base}/ws?token={self.token}", [f'{{"{self.token}'])
        await self._speak("CDP", f"{base}/devtools/browser?token={self.token}&session={session['sessionId']}", about)
        await self._speak("CDP by ticket", f"{base}/devtools/browser/{ticket}", about)
        await self._speak("CDP of a page", f"{base}/devtools/page/{tab_id}?token={self.token}", about)
        await self._speak("live", f"{base}/live/{tab_id}?token={self.token}", [{"type": self.token}])
        page = {"Cookie": self.login_cookie, "Origin": self.url}
        await self._speak("live of a person", f"{base}/live/{tab_id}?csrf={word}", [], page)
        for name, secret in {**self.secrets}.items():
            for path in (f"/ws?token={secret}x", f"/devtools/browser/{secret}x", f"/devtools/page/{secret}",
                         f"/devtools/page/{tab_id}?token={secret}x", f"/live/{secret}?token={self.token}",
                         f"/live/{tab_id}?csrf={secret}", f"/{secret}", f"/ws?{secret}=1"):  # fmt: skip
                await self._speak(f"{name} at {path[:4]}", base + path, [])
        async with over_http(self.server, self.token) as tools:
            for arguments in ({"url": f"{self.site}/"}, {"url": f"http://ada:{PASSWORD}@127.0.0.1:1/"},
                              {self.token: 1}, {"url": 1, "tabId": self.token}):  # fmt: skip
                answer = await tools.call_tool("browser_navigate", arguments)
                if answer.is_error:
                    said = f"{answer.content[0].text}\n{answer.structured_content}"
                    self.refusals.append(Refusal("MCP", str(arguments), said))

    async def _speak(self, what: str, url: str, said: list[Any], headers: dict[str, str] | None = None) -> None:
        """Open it if it opens, say that, and hear one answer to each."""
        sent = f"{url} {headers} {said}"
        async with asyncio.timeout(LIMIT_S):
            try:
                async with connect(url, additional_headers=headers or {}, max_size=None) as socket:
                    self.statuses[what] = 101
                    with suppress(WebSocketException):
                        for message in said:
                            await socket.send(message if isinstance(message, str) else json.dumps(message))
                            # Whoever leaves while its command is at work has it cancelled, and the page replaced.
                            while '"event"' in (heard := str(await socket.recv())):
                                pass
                            if '"error"' in heard:
                                self.refusals.append(Refusal(what, sent, heard))
            except InvalidStatus:
                # That client does not read what a refusal says.
                async with httpx.AsyncClient(timeout=LIMIT_S, verify=False, trust_env=False) as http:
                    answer = await http.get(url.replace("ws", "http", 1), headers=UPGRADE | (headers or {}))
                self.note(what, answer)

    # --- What is left of it ---------------------------------------------------------------------------------

    def processes(self) -> str:
        """How the server and everything that it started was started."""
        broker = psutil.Process(self.server.record["pid"])
        said = []
        for process in (broker, *broker.children(recursive=True)):
            for name in ("cmdline", "environ"):
                with suppress(OSError):
                    said.append(Path(f"/proc/{process.pid}/{name}").read_bytes().decode(errors="replace"))
        return "\n".join(said)

    def events_since(self, place: str, alice: httpx.Client) -> str:
        """Everything that happened since, read again as one does who was cut off."""
        last = open_session(alice)
        release(alice, last)
        said = []
        with (
            self.server.client() as admin,
            admin.stream("GET", "/events", headers={"Last-Event-ID": place}) as stream,
        ):
            is_over = False
            for line in stream.iter_lines():
                said.append(line)
                is_over = is_over or last["sessionId"] in line
                if is_over and not line:
                    break
        return "\n".join(said)

    def place(self) -> str:
        """Where events stand now."""
        with self.server.client() as admin, admin.stream("GET", "/events") as stream:
            return next(line.removeprefix("id: ") for line in stream.iter_lines() if line.startswith("id: "))


def lived(home: Path) -> Lived:
    """Start a server, show it everything, end it, and gather what it has said."""
    settings = home / "tabherd.toml"
    settings.write_text(SETTINGS)
    settings.chmod(0o600)
    state = home / "state"
    with receiving() as (site, heard), with_settings(state, {"CONFIG": str(settings)}) as server:
        visit = _Visit(server, site)
        begun_at = visit.place()
        with server.client(visit.token) as alice, server.client() as admin:
            session = visit.live(alice)
            visit.mistake(alice, session)
            asyncio.run(visit.connect(session))
            visit.call_back(alice, heard)
            (pid,) = browser_pids(admin)
            kill_browser(pid)
            tab_id = session["tabs"][0]["tabId"]
            until(lambda: act(alice, tab_id, "evaluate", expression="1").status_code == 200)
            alice.get(f"/sessions/{session['sessionId']}/state").raise_for_status()
            server.wait_kept([session["sessionId"]], COOKIE)
            places = {
                "processes": visit.processes(),
                "GET /events": visit.events_since(begun_at, alice),
                "server.json": (state / "server.json").read_text(),
                "webhooks": "\n".join(heard),
            }
            for path in ("/audit", "/metrics", "/config", "/stats", "/openapi.json", "/history", "/browsers", "/nodes"):
                places[f"GET {path}"] = admin.get(path).raise_for_status().text
        server.stop()
    places["the log"] = (state / "server.log").read_text()
    for path in sorted(state.rglob("*")):
        if path.is_file() and path.name not in ("server.log", "server.json"):
            places[f"file {path.relative_to(state)}"] = path.read_bytes().decode("latin-1")
    return Lived(visit.secrets, places, _tables(state / "tabherd.db"), visit.statuses, visit.refusals)


def _tables(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
        names = [row[0] for row in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: repr(store.execute(f'SELECT * FROM "{name}"').fetchall()) for name in names}
