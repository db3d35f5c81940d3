"""Pages that make it hard to drive them, by what they do. Each has a button and a field, like any other page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# What agents look for in each of them.
BODY: Final = "<button id=button>Press me</button><input id=field aria-label=Field><p id=text>Some text</p>"


def page(script: str = "", *, head: str = "", more: str = "") -> str:
    """With a script at its end."""
    return f"<!doctype html><title>Hostile</title>{head}<body>{BODY}{more}<script>{script}</script>"


# Pages that are large, or deep.
LARGE: Final[Mapping[str, str]] = {
    "100000 elements": page(
        "const all = document.createDocumentFragment();"
        "for (let i = 0; i < 100000; i++) all.append(Object.assign(document.createElement('i'), {textContent: i}));"
        "document.body.append(all)"
    ),
    "5000 deep": page(
        "let at = document.body; for (let i = 0; i < 5000; i++) at = at.appendChild(document.createElement('div'));"
        "at.textContent = 'bottom'"
    ),
    "20000 buttons of one name": page(
        "const all = document.createDocumentFragment();"
        "for (let i = 0; i < 20000; i++)"
        "  all.append(Object.assign(document.createElement('button'), {textContent: 'Go'}));"
        "document.body.append(all)"
    ),
    "12 MB of text": page(
        "const long = ('x'.repeat(99) + '\\n').repeat(120000), all = document.createElement('pre');"
        "all.hidden = true; all.textContent = long; document.body.append(all);"
        "document.title = long; document.body.title = long"
    ),
    "5000 shadow roots": page(
        "let at = document.body; for (let i = 0; i < 5000; i++) {"
        " const host = at.appendChild(document.createElement('div')); at = i % 50 ? host : document.body;"
        " host.attachShadow({mode: 'open'}).innerHTML = '<button>In here</button>' }"
    ),
}
# Pages that never give the main thread back, or hardly.
BUSY: Final[Mapping[str, str]] = {
    "spins while it loads": page("for (;;);"),
    "spins after it loaded": page("onload = () => setTimeout(() => { for (;;); }, 0)"),
    "spins in a timer": page("setInterval(() => { const end = Date.now() + 400; while (Date.now() < end); }, 1)"),
    "spins when the mouse moves": page("onmousemove = () => { for (;;); }"),
    "spins when it is clicked": page("onclick = () => { for (;;); }"),
    "spins when something is typed": page("oninput = () => { for (;;); }"),
    "spins when it is left": page("onbeforeunload = () => { for (;;); }; onpagehide = () => { for (;;); }"),
    "floods of microtasks": page("const again = () => Promise.resolve().then(again); setTimeout(again, 50)"),
    "long frames": page(
        "(function again() {"
        "  requestAnimationFrame(again);"
        "  const end = Date.now() + 200; while (Date.now() < end);"
        "})()"
    ),
    "debugger statements": page("setInterval(() => { debugger; }, 1); for (let i = 0; i < 1000; i++) { debugger; }"),
}
# Pages that open dialogs.
ASKING: Final[Mapping[str, str]] = {
    "alerts for ever": page("for (;;) alert('again')"),
    "alerts in a timer": page("setInterval(() => { alert(1); confirm(2); prompt(3) }, 1)"),
    "alerts when the mouse moves": page("onmousemove = onmousedown = onclick = () => alert('moved')"),
    "asks whether it may be left": page("onbeforeunload = (e) => { e.preventDefault(); return 'stay'; }"),
    "prints": page("onload = () => setInterval(print, 10)"),
    "long alerts": page("setInterval(() => alert('x'.repeat(5e7)), 50)"),
}
# Pages that do not stay where they are.
RESTLESS: Final[Mapping[str, str]] = {
    "replaces itself": page("location.replace('?' + Math.random())"),
    "replaces itself after it loaded": page("onload = () => location.replace('?' + Math.random())"),
    "refreshes itself": page(head="<meta http-equiv=refresh content=0>"),
    "pushes states": page(
        "setInterval(() => { for (let i = 0; i < 20; i++) history.pushState(0, 0, '?' + Math.random()) }, 10)"
    ),
    "changes its hash": page("setInterval(() => { location.hash = Math.random() }, 1)"),
    "writes itself anew": page(
        "setInterval(() => { document.open(); document.write('<button id=button>B</button>'); document.close() }, 5)"
    ),
    "goes back and forth": page(
        "history.pushState(0, 0, '?1'); setInterval(() => history.back(), 5); setInterval(() => history.forward(), 7)"
    ),
    "closes itself": page("setInterval(() => close(), 20)"),
    "opens windows": page(
        "setInterval(() => open('/plain'), 100);onclick = () => { for (let i = 0; i < 20; i++) open('/plain') }"
    ),
}
# Pages that shadow what scripts rely on.
SHADOWING: Final[Mapping[str, str]] = {
    "broken built-ins": page(
        "for (const kind of [Array, Object, String, Promise, Map, Set, WeakMap, Element, Node, Document, Function])"
        "  for (const name of Object.getOwnPropertyNames(kind.prototype)) {"
        "    if (name !== 'constructor') try { kind.prototype[name] = () => { throw new Error('mine') } } catch {} }"
        "JSON.parse = JSON.stringify = () => { throw new Error('mine') };"
        "globalThis.Promise = globalThis.setTimeout = globalThis.requestAnimationFrame = null"
    ),
    "throwing getters": page(
        "for (const name of ['innerText', 'textContent', 'value', 'shadowRoot', 'children', 'isConnected', 'labels'])"
        "  for (const kind of [Node, Element, HTMLElement, HTMLInputElement])"
        "    Object.defineProperty(kind.prototype, name, {configurable: true, get() { throw new Error('mine') }});"
        "Object.defineProperty(document, 'body', {get() { throw new Error('mine') }});"
        "Object.defineProperty(document, 'title', {get() { for (;;); }})"
    ),
    "proxies": page(
        "const trap = new Proxy({}, {get() { throw new Error('trap') }});"
        "globalThis.tabherd = trap; document.querySelectorAll = trap; Object.setPrototypeOf(document.body, trap)"
    ),
    "custom elements": page(
        "customElements.define('x-evil', class extends HTMLElement {"
        "  get innerText() { for (;;); } get shadowRoot() { for (;;); } get children() { for (;;); }"
        "  getBoundingClientRect() { for (;;); } get isConnected() { for (;;); } checkVisibility() { for (;;); } })",
        more="<x-evil role=button tabindex=0 style='display:block;width:9px;height:9px'>Evil</x-evil>",
    ),
}
# Pages that want everything of the machine.
GREEDY: Final[Mapping[str, str]] = {
    "logs": page("setInterval(() => { for (let i = 0; i < 200; i++) console.log('x'.repeat(1000), {i}) }, 1)"),
    "fetches": page(
        "setInterval(() => { for (let i = 0; i < 5; i++) fetch('/plain?' + Math.random()).catch(() => 0) }, 20)"
    ),
    "sockets": page("setInterval(() => new WebSocket('ws://' + location.host + '/never'), 20)"),
    "mutations": page(
        "setInterval(() => {"
        "  for (let i = 0; i < 200; i++) document.body.append(document.createElement('i'));"
        "  if (document.body.childElementCount > 20000) document.body.replaceChildren(button, field)"
        "}, 1)"
    ),
    "the whole screen": page(
        "onclick = () => { document.body.requestFullscreen(); document.body.requestPointerLock() }"
    ),
    "workers": page("for (let i = 0; i < 3; i++) new Worker(URL.createObjectURL(new Blob(['for (;;);'])))"),
    "messages to itself": page("onmessage = () => { postMessage(0, '*'); postMessage(0, '*') }; postMessage(0, '*')"),
}
# Pages with pages in them.
FRAMED: Final[Mapping[str, str]] = {
    "frames in themselves": page(more="<iframe src='?' id=frame></iframe>"),
    "500 frames": page("for (let i = 0; i < 500; i++) document.body.append(document.createElement('iframe'))"),
    "frames that come and go": page(
        "setInterval(() => {"
        "  const frame = document.createElement('iframe');"
        "  frame.src = '/plain'; document.body.append(frame); setTimeout(() => frame.remove(), 10)"
        "}, 20)"
    ),
    "a frame that spins": page(more="<iframe src='/p/spins%20while%20it%20loads'></iframe>"),
    "50 frames in each other": page(more="<iframe src='/nest/50'></iframe>"),
}
# Pages whose service worker answers for their site, from the second visit on.
SERVED: Final[Mapping[str, str]] = {
    "garbage": "event.respondWith(new Response(new Uint8Array(1e5), {headers: {'content-type': 'text/html'}}))",
    "nothing ever": "event.respondWith(new Promise(() => {}))",
    "an error": "event.respondWith(Response.error())",
    "spins": "for (;;);",
}
REGISTERING: Final = page(
    "navigator.serviceWorker.register('worker.js').then(() => navigator.serviceWorker.ready)"
    ".then(() => { document.title = 'Served' })"
)
