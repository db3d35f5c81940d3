"""The sites that the agents of the pictures work on: a shop, a form, a chart and a list of tickets, served from here.

Each has a name of its own under .localhost, which browsers take for this machine without asking anybody. Listens on
127.0.0.1 only and ends with its `with`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

# The same in every picture where one of them is free; else any.
PORTS: Final = (8080, 8000, 8888, 0)

STYLE: Final = """
* { box-sizing: border-box }
body { margin: 0; font: 15px/1.5 'DejaVu Sans', sans-serif; color: #22303c; background: #f4f6f8 }
header { background: #1d3a4f; color: #fff; padding: 14px 28px; display: flex; gap: 24px; align-items: center }
header b { font-size: 19px }
header span { margin-left: auto; background: #f2b84b; color: #333; border-radius: 12px; padding: 2px 12px }
main { padding: 24px 28px; max-width: 1100px; margin: auto }
h1 { font-size: 24px; margin: 0 0 16px }
button { background: #1d6f8c; color: #fff; border: 0; border-radius: 6px; padding: 8px 14px; font: inherit }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(210px, 1fr)); gap: 18px }
.card { background: #fff; border-radius: 10px; padding: 14px; box-shadow: 0 1px 4px #0002 }
.card b { display: block }
.art { height: 110px; border-radius: 8px; margin-bottom: 10px }
label { display: block; margin: 12px 0 4px; color: #567 }
input, select, textarea { width: 100%; padding: 9px; border: 1px solid #bcc8d0; border-radius: 6px; font: inherit }
table { width: 100%; border-collapse: collapse; background: #fff; border-radius: 10px }
td, th { text-align: left; padding: 9px 14px; border-bottom: 1px solid #e4e9ed }
"""
GOODS: Final = (
    ("Trail lantern", "39.00", "#ffd27d,#c96f4a"),
    ("Enamel mug", "14.50", "#9fd8cb,#2d6a6a"),
    ("Wool blanket", "89.00", "#d9b8c4,#7a4b63"),
    ("Field notebook", "9.80", "#cfe3a8,#5c7d2f"),
    ("Folding stool", "54.00", "#b9cdf0,#3f5f9e"),
    ("Rain shell", "129.00", "#a6e0f5,#21708f"),
    ("Camp kettle", "46.00", "#e4d4b5,#86704a"),
    ("Head torch", "32.00", "#f7b8a4,#a8452e"),
)
TICKETS: Final = (
    ("Parcel arrived without the kettle", "Maya", "open"),
    ("Cannot change the delivery address", "Jonas", "waiting"),
    ("Refund for a torn rain shell", "Aiko", "open"),
    ("Invoice with a VAT number", "Pedro", "answered"),
    ("Where is my order from Tuesday?", "Ines", "open"),
    ("The mug lost its enamel", "Tom", "answered"),
    ("Gift card does not apply", "Leila", "open"),
)


def _document(title: str, body: str, script: str = "") -> bytes:
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
        f"{body}<script>{script}</script>"
    ).encode()


def _shop() -> bytes:
    cards = "".join(
        f"<div class=card><div class=art style='background:linear-gradient(135deg,{art})'></div><b>{name}</b>"
        f"<p>€ {price}</p><button class=add onclick=add()>Add to cart</button></div>"
        for name, price, art in GOODS
    )
    return _document(
        "Harbour & Pine",
        "<header><b>Harbour &amp; Pine</b>Outdoor <a>Kitchen</a> Journals <span id=cart>0 in the cart</span></header>"
        f"<main><h1>Made for long evenings outside</h1><div class=grid>{cards}</div></main>",
        "let n = 0; function add() { n = (n + 1) % 7; cart.textContent = n + ' in the cart' }",
    )


def _claims() -> bytes:
    fields = "".join(
        f"<label for={name}>{label}</label>{field}"
        for name, label, field in (
            ("who", "Your name", "<input id=who autocomplete=off>"),
            ("what", "What it was for", "<input id=what autocomplete=off>"),
            ("sum", "Amount in €", "<input id=sum inputmode=decimal>"),
            ("kind", "Kind", "<select id=kind><option>Travel<option>Material<option>Meals</select>"),
            ("note", "Anything we should know", "<textarea id=note rows=3></textarea>"),
        )
    )
    return _document(
        "Expense claim",
        f"<header><b>Expense claims</b></header><main class=card style='margin:24px auto;max-width:640px'>"
        f"<h1>New claim</h1>{fields}<p><button id=send onclick=sent()>Send</button> <i id=state></i></p></main>",
        "let n = 0; function sent() { state.textContent = 'Claim ' + (1040 + ++n) + ' was sent.' }",
    )


def _insights() -> bytes:
    bars = "".join(
        f"<rect x={40 + 72 * n} y={230 - high} width=46 height={high} rx=5 fill=#1d6f8c />"
        f"<text x={63 + 72 * n} y=252 text-anchor=middle font-size=13 fill=#567>{day}</text>"
        for n, (day, high) in enumerate(
            (("Mon", 92), ("Tue", 131), ("Wed", 118), ("Thu", 167), ("Fri", 204), ("Sat", 186), ("Sun", 122))
        )
    )
    return _document(
        "Sales this week",
        "<header><b>Insights</b>Sales Stock Visitors <span id=now></span></header><main><h1>Sales this week</h1>"
        f"<div class=card><svg viewBox='0 0 560 265' width=100%>{bars}<path id=line fill=none stroke=#f2a33a "
        "stroke-width=4 stroke-linejoin=round /></svg></div><h1 style='margin-top:20px'>By channel</h1><table>"
        "<tr><th>Channel<th>Orders<th>Revenue<tr><td>Web shop<td>412<td>€ 18,390<tr><td>Market stall<td>96<td>€ 3,214"
        "<tr><td>Wholesale<td>23<td>€ 9,870</table></main>",
        "let t = 0; setInterval(() => { t += .12; now.textContent = Math.round(60 + 25 * Math.sin(t)) + ' visitors';"
        "line.setAttribute('d', 'M' + [...Array(57).keys()].map((i) => `${34 + i * 9} ${110 - i + 28 * "
        "Math.sin(i / 5 + t)}`).join('L')) }, 60)",
    )


def _support() -> bytes:
    rows = "".join(f"<tr><td>{text}<td>{who}<td>{state}" for text, who, state in TICKETS)
    return _document(
        "Inbox: 4 open tickets",
        "<header><b>Support desk</b>Inbox Answers Team</header><main><h1>Inbox</h1>"
        f"<table id=tickets><tr><th>Subject<th>From<th>State{rows}</table></main>",
    )


PAGES: Final = {"shop": _shop(), "claims": _claims(), "insights": _insights(), "support": _support()}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = PAGES.get(self.headers.get("Host", "").partition(".")[0], b"")
        self.send_response(200 if page else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Not a word: what is made are pictures."""


class Sites:
    """Where they are."""

    def __init__(self, port: int) -> None:
        self._port = port

    def url(self, name: str, path: str = "") -> str:
        assert name in PAGES, f"there is no site {name}"
        return f"http://{name}.localhost:{self._port}/{path}"


@contextmanager
def serving() -> Iterator[Sites]:
    """The sites, while they are open."""
    http = _bound()
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield Sites(http.server_port)
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def _bound() -> ThreadingHTTPServer:
    for port in PORTS:
        try:
            return ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        except OSError:
            # Somebody has it already.
            continue
    raise AssertionError("port 0 is always free")
