"""What is fuzzed: each reader of foreign input, good inputs to start from, and the refusals that it may answer with.

A target raises nothing but its refusals. Where more can be said about what it lets through, it asserts that.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
from tests.edge.cdp.owner import CONTEXT, FILE, FOREIGN, TARGET, WINDOW, Client
from tests.edge.cdp.test_rules_fuzz import PLACES, assert_own

from tabherd import config, logs, toml_edit
from tabherd.actions import keys, selectors
from tabherd.actions.url_policy import ALLOWED_SCHEMES, allowed_url
from tabherd.broker import file_names, ids, webhook_address
from tabherd.broker.credentials import Credentials
from tabherd.cluster import hop
from tabherd.config_layers import Layers
from tabherd.edge import envelope, sse
from tabherd.edge.auth import Guard
from tabherd.edge.cdp.message import Request
from tabherd.edge.cdp.rules import Refuse, check
from tabherd.edge.cdp.tickets import Tickets
from tabherd.edge.cdp.wish import Wish, connect_query
from tabherd.edge.head import Head
from tabherd.edge.live_socket import LiveMessage
from tabherd.edge.login import Logins
from tabherd.edge.route import Endpoint, RouteTable
from tabherd.edge.routes import ROUTES
from tabherd.egress import head as egress_head
from tabherd.egress.policy import read_host
from tabherd.errors import TabherdError
from tabherd.store.memory import MemoryStore


class Target(NamedTuple):
    """One reader."""

    name: str
    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...] = (TabherdError,)


# --- HTTP -----------------------------------------------------------------------------------------------------------

_ENDPOINTS: Final = [Endpoint(route) for route in ROUTES]
_TABLE: Final = RouteTable(ROUTES)
_BODIES: Final = [endpoint.body for endpoint in _ENDPOINTS if endpoint.body is not None]
_QUERIES: Final = [endpoint.query for endpoint in _ENDPOINTS if endpoint.query is not None]
_GUARD: Final = Guard(config.parse({}), 7722, Credentials(MemoryStore()), logins=Logins(b"k" * 32))
_LOGIN: Final = _GUARD.logins.sign("crd_1")
_COOKIE: Final = f"{_GUARD.logins.cookie_name}={_LOGIN.cookie}".encode()


def _each(decoders: list[Any]) -> Callable[[bytes], None]:
    """All decoders in turn: which one a case meets is told by its bytes, so that it can be played again."""

    def read(data: bytes) -> None:
        decoders[sum(data[:64]) % len(decoders)].decode(data)

    return read


def _path(data: bytes) -> None:
    for part in _TABLE.find("GET", data.decode("latin-1"))[1]:
        part.encode()


def _headers(data: bytes) -> None:
    lines = [line.partition(b": ") for line in data.split(b"\r\n")]
    head = Head([(name.lower(), value) for name, _, value in lines])
    # What is echoed or logged must be harmless.
    assert b"\n" not in head.request_id + head.traceparent
    head.request_id.decode("ascii")
    _GUARD.check_address(head, ("127.0.0.1", 7722))
    _GUARD.logins.read(head.cookie, head.csrf)


# --- The control channel and the live view --------------------------------------------------------------------------


def _envelope(data: bytes) -> None:
    said = envelope.decode(data)
    if isinstance(said, envelope.Rejected):
        msgspec.json.encode(said.error.to_wire())
    else:
        msgspec.json.encode(said.payload)


_live: Final = msgspec.json.Decoder(LiveMessage)

# --- CDP ------------------------------------------------------------------------------------------------------------

_request: Final = msgspec.json.Decoder(Request)


def _rules(data: bytes) -> None:
    request = _request.decode(data)
    params = msgspec.json.decode(request.params, type=dict[str, Any]) if request.params else {}
    kind, method, tenancy = PLACES[sum(data[:64]) % len(PLACES)]
    verdict = check(kind, method, params, Client(tenancy), tenancy)
    if isinstance(verdict, Refuse):
        assert verdict.message
    else:
        assert_own(verdict.params)


_TICKETS: Final = Tickets(b"k" * 32)
_TICKET: Final = _TICKETS.sign("crd_1", "ada", Wish(session="ses_1"))


def _ticket(data: bytes) -> None:
    ticket = _TICKETS.read(data.decode("latin-1"))
    assert (ticket.credential_id, ticket.agent_id) == ("crd_1", "ada"), "a ticket that nobody signed"


_KEY: Final = b"k" * 32
_CLAIM: Final = hop.Hop(from_node="a", from_epoch=1, to_node="b", at_ms=0, client=("127.0.0.1", 5), boot_id="x")


def _hop(data: bytes) -> None:
    read = hop.verify(_KEY, data, method="GET", target=b"/tabs", node_id="b", now_ms=0)
    assert read in (None, _CLAIM), "a hop that nobody signed"


# --- Everything else ------------------------------------------------------------------------------------------------


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("utf-8", "surrogatepass"))


def _url(text: str) -> None:
    assert allowed_url(text).partition(":")[0] in ALLOWED_SCHEMES | {"about"}


def _file_name(text: str) -> None:
    name = file_names.clean_name(text)
    assert name
    assert name not in (".", "..")
    assert not set(name) & set("/\\\0\n\r\x1b\u202e")
    assert len(file_names.unique_name(name, {name}).encode()) <= 255


def _ids(text: str) -> None:
    epoch = ids.epoch_of_command(text)
    assert epoch is None or epoch >= 0
    sse.parse_position(text.encode("utf-8", "replace"))
    sse.parse_types(text)


def _redacted(text: str) -> None:
    assert "hunter2hunter2" not in logs.redact(f"{text} Authorization: Bearer hunter2hunter2")


_LAYERS: Final = Layers()


def _settings(data: bytes) -> None:
    _LAYERS.config_of(_LAYERS.tree_of(data))


def _toml_edit(text: str) -> None:
    _LAYERS.tree_of(text.encode())
    tree = toml_edit.merged(tomllib.loads(text), {"server": {"port": 1}})
    assert tomllib.loads(toml_edit.edited(text, {"server": {"port": 1}})) == tree


_ACTIONS: Final = (
    b'{"kind":"click","selector":"text=Save","timeoutMs":1000,"fence":3}',
    b'{"kind":"evaluate","expression":"1","args":[1,"a",null,{"b":[true]}]}',
    b'{"kind":"navigate","url":"https://a.test/","waitUntil":"load"}',
    b'{"kind":"upload","ref":"abc1.def2","files":["a.txt"],"controllerId":"c"}',
    b'{"kind":"setCookies","cookies":[{"name":"a","value":"b","url":"https://a.test"}]}',
    b'{"steps":[{"kind":"text"},{"kind":"press","key":"Control+A"}],"idempotencyKey":"k"}',
    b'{"agentId":"ada","tasks":[{"action":"text","tabId":"tab_1","priority":3}],"callbackUrl":"https://a.test/h"}',
    b'{"pool":"default","key":"k","tier":"pro","access":"shared","owner":{"pid":1}}',
    b'{"token":"th_x"}',
    b"{}",
)


def _said(kind: bytes, payload: bytes) -> bytes:
    return b'{"protocolVersion":"1.0","messageType":"%b","requestId":"r","timestamp":1,"nonce":"n","payload":%b}' % (
        kind,
        payload,
    )


_ENVELOPES: Final = (
    _said(b"hello", b'{"controllerId":"c","heartbeatMs":1000}'),
    *(
        _said(b"command", b'{"tabSessionId":"tab_1","payload":%b,"timeoutMs":5,"waitPolicy":"fail_fast"}' % action)
        for action in _ACTIONS[:6]
    ),
    _said(b"tab_lock", b'{"tabSessionId":"tab_1","lockLeaseMs":500}'),
    _said(b"lock", b'{"name":"a","leaseMs":500}'),
    _said(b"ping", b"{}").replace(b'"timestamp":1', b'"timestamp":"2026-01-01T00:00:00Z"'),
)
_CDP: Final = (
    b'{"id":1,"method":"Target.attachToTarget","params":{"targetId":"%b","flatten":true}}' % TARGET.encode(),
    b'{"id":1,"method":"x","params":{"targetId":"%b","browserContextId":"%b"}}' % (FOREIGN.encode(), CONTEXT.encode()),
    b'{"id":2,"method":"x","params":{"files":["%b","/etc/passwd"],"windowId":%d}}' % (FILE.encode(), WINDOW),
    b'{"id":3,"method":"x","params":{"url":"file:///etc/passwd","frameId":"f","autoAttach":true}}',
    b'{"id":4,"method":"x","params":{"data":{"items":[{"mimeType":"text/uri-list","data":"file:///x"}]}}}',
    b'{"id":5,"method":"x","params":{"behavior":"allow","downloadPath":"/etc","bounds":{"left":1}}}',
    b'{"id":6,"method":"x","params":{"cookies":[{"name":"a"}],"options":{},"headers":{"a":"b"}},"sessionId":"S"}',
)
_TOML: Final = (
    b'[server]\nport = 7722\nhost = "127.0.0.1"\nallowed_hosts = ["a.test"]\n',
    b"[pools.default]\nbrowsers_max = 2\nmax_active = 10 # many\n[pools.'two words']\nisolation = \"browser\"\n",
    b'store = "sqlite"\n[auth]\nenabled = true\nrate_per_s = 5\n[tiers]\npro = 3\n',
    b'server = { port = 1, "log_level" = "debug" }\n[webhooks]\nallow_hosts = ["127.0.0.1"]\n',
)
_BROWSING: Final = (
    b"GET http://a.test:80/x?y HTTP/1.1\r\nHost: a.test\r\nProxy-Connection: keep-alive\r\n\r\n",
    b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
    b"POST http://[::1]/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
)

TARGETS: Final[tuple[Target, ...]] = (
    Target("bodies of requests", _each(_BODIES), _ACTIONS),
    Target(
        "queries",
        _each(_QUERIES),
        (b"limit=5&cursor=ses_1&agentId=ada", b"token=th_x&session=ses_1&keepAlive=true&waitMs=5", b"types=a,b&fence=1",
         b"url=https%3A%2F%2Fa.test", b"https://a.test/?a=b", quote("é\u202e").encode() + b"=1"),
    ),
    Target("paths", _path,
           (b"/sessions/ses_1/files/a%20b.txt", b"/tabs/tab_1", b"/locks/%E2%80%AE/renew", b"/ui/app.js")),
    Target(
        "headers",
        _headers,
        (b"Host: 127.0.0.1:7722\r\nCookie: " + _COOKIE + b"\r\nX-Csrf-Token: " + _LOGIN.csrf.encode(),
         b"Host: [::1]:7722\r\nOrigin: http://[::1]:7722\r\nX-Request-Id: r-1\r\nContent-Length: 5",
         b"host: localhost:7722\r\ntraceparent: 00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01\r\nx-agent-id: ada"),
    ),
    Target("control channel", _envelope, _ENVELOPES),
    Target(
        "live view",
        _live.decode,
        (b'{"type":"ack","seq":3}', b'{"type":"mouse","event":"down","x":1,"y":2.5,"button":"left"}',
         b'{"type":"key","event":"down","key":"a","code":"KeyA"}', b'{"type":"text","text":"hi"}',
         b'{"type":"navigate","url":"https://a.test"}', b'{"type":"size","width":640,"height":480,"quality":50}',
         b'{"type":"take","force":true}'),
        (msgspec.MsgspecError, UnicodeDecodeError, RecursionError),
    ),
    Target("CDP messages and rules", _rules, _CDP, (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)),
    Target("connect queries", connect_query.decode, (b"token=t&pool=p&key=k&tier=pro", b"ticket=abc&node=n&agent=ada")),
    Target("tickets", _ticket, (_TICKET.encode(), _TICKET[:-1].encode())),
    Target("hops", _hop, (hop.sign(_KEY, _CLAIM, "GET", b"/tabs"), hop.sign(b"other", _CLAIM, "GET", b"/tabs"))),
    Target(
        "selectors",
        _text(selectors.parse),
        (b"text=Save >> nth=2", b'role=button[name="Save" i][level=3]', b"css=a > b:nth-child(2)", b"xpath=//a[@b]",
         b"[ref=abc1.def2]", b'- button "Save":', b"//a", b"ref=abc1"),
        (TabherdError, UnicodeDecodeError),
    ),
    Target("refs", _text(selectors.parse_ref), (b"abc1.def2", b"e1"), (TabherdError, UnicodeDecodeError)),
    Target("keys", _text(keys.chord_of), (b"Control+Shift+A", b"Enter", b"+", "é".encode()),
           (TabherdError, UnicodeDecodeError)),
    Target("addresses of pages", _text(_url), (b"https://a.test/", b"about:blank#x", b"data:text/html,x", b"blob:x"),
           (TabherdError, UnicodeDecodeError)),
    Target("addresses of webhooks", _text(webhook_address.read_target),
           (b"https://a.test:8443/hook?x=1", b"http://[::1]/", b"http://127.0.0.1.:80"),
           (TabherdError, UnicodeDecodeError)),
    Target("names of hosts", _text(read_host),
           (b"a.test", b"[::ffff:127.0.0.1]", b"0x7f.1", b"127.1", "ａ.test".encode()),
           (ValueError,)),
    Target("names of files", _text(_file_name),
           (b"../../x.tar.gz", b"a\x1b[2Jb.txt", "\u202egpj.exe".encode(), b"." * 300),
           (UnicodeDecodeError,)),
    Target("ids and places", _text(_ids), (b"cmd_000000301m7k50gfb2njxyd29mksmk", b"3-17", b"session.opened,tab.*"),
           (TabherdError, UnicodeDecodeError)),
    Target("settings", _settings, _TOML),
    Target("edits of settings", _text(_toml_edit), _TOML,
           (TabherdError, toml_edit.CannotEdit, UnicodeError)),
    Target("requests through the proxy", egress_head.read_request, _BROWSING, (egress_head.BadHead,)),
    Target("sizes of chunks", egress_head.read_chunk_size, (b"1a;x=y", b"0"), (egress_head.BadHead,)),
    Target("lines of logs", _text(_redacted), (b"GET /?token=th_x", b"postgresql://u:p@h/d"), (UnicodeDecodeError,)),
)  # fmt: skip
