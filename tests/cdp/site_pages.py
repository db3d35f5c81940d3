"""What the pages of the compatibility site hold, by name; a name that is not listed is an empty page.

Each page notes, before anything else of its own runs, what a script of the client has planted (`first`), and says its
mark on the console.
"""

from __future__ import annotations

# PORT and WHO are filled in.
PAGES = {
    "form": """
        <form onsubmit="event.preventDefault(); sent.textContent = JSON.stringify([...new FormData(this)])">
          <label>Name <input name="name" id="name" placeholder="who"></label>
          <label>Colour <select name="colour"><option>red</option><option>green</option></select></label>
          <label><input type="checkbox" name="agree" value="yes"> I agree</label>
          <button type="submit" title="Sends it">Send</button>
        </form>
        <output id="sent" data-testid="sent"></output>
        <input type="file" id="file" multiple onchange="Promise.all([...this.files].map(f => f.text().then(
          t => f.name + '=' + t))).then(all => { sent.textContent = all.join(',') })">
        <ul><li>one</li><li>two</li><li>three</li></ul>
        <div id="host"></div>
        <script>host.attachShadow({mode: 'open'}).innerHTML = '<b id="deep">in the shadow</b>'</script>""",
    "input": """
        <style>body { margin: 0 } #pad { width: 200px; height: 100px; background: silver }</style>
        <div id="pad"></div><input id="keys">
        <script>
          window.log = []
          for (const kind of ['mousedown', 'mouseup', 'click', 'dblclick', 'contextmenu', 'wheel', 'touchstart'])
            pad.addEventListener(kind, e => log.push(kind + (e.button ? ':' + e.button : '')), {passive: true})
          keys.addEventListener('keydown', e => log.push((e.ctrlKey ? 'ctrl+' : '') + e.key))
        </script>""",
    "drag": """
        <div id="thing" draggable="true">thing</div><div id="place" style="width: 200px; height: 100px">here</div>
        <script>
          thing.addEventListener('dragstart', e => e.dataTransfer.setData('text/plain', 'thing of WHO'))
          place.addEventListener('dragover', e => e.preventDefault())
          place.addEventListener('drop', e => {
            e.preventDefault(); place.textContent = 'got ' + e.dataTransfer.getData('text/plain') })
        </script>""",
    "opener": """
        <button id="open" onclick="window.open('opened')">open</button>
        <button id="far" onclick="window.open('http://b.test:PORT/~WHO~/opened')">open another site</button>
        <button id="blank" onclick="window.open().document.title = '~WHO~ written'">write a window</button>
        <a id="link" href="opened" target="_blank">link</a>
        <a id="noopener" href="opened" target="_blank" rel="noopener">link without opener</a>""",
    "opened": """<button onclick="window.close()">close me</button>""",
    "inner": """<h1>inner</h1><button onclick="this.textContent = 'pressed'">press</button>""",
    "frames": """
        <iframe name="near" src="inner"></iframe>
        <iframe name="far" src="http://b.test:PORT/~WHO~/inner"></iframe>""",
    "nested": """<iframe name="outer" src="http://b.test:PORT/~WHO~/frames"></iframe>""",
    "worker": """<script>
        worker = new Worker('worker.js'); heard = new Promise(done => { worker.onmessage = e => done(e.data) })
        </script>""",
    "worker.js": """console.log('worker of ~WHO~'); postMessage('hello from ' + self.constructor.name)""",
    "shared": """<script>
        worker = new SharedWorker('shared.js'); heard = new Promise(done => {
          worker.port.onmessage = e => done(e.data) })
        worker.port.postMessage('count')
        </script>""",
    "shared.js": """let visits = 0
        onconnect = e => { e.ports[0].onmessage = () => e.ports[0].postMessage(++visits) }""",
    "service": """<script>
        ready = navigator.serviceWorker.register('service.js').then(() => navigator.serviceWorker.ready)
        controlled = new Promise(done => {
          navigator.serviceWorker.controller ? done() : navigator.serviceWorker.oncontrollerchange = done })
        </script>""",
    "service.js": """
        self.addEventListener('install', () => self.skipWaiting())
        self.addEventListener('activate', e => e.waitUntil(self.clients.claim()))
        self.addEventListener('fetch', e => {
          if (e.request.url.endsWith('/from-worker')) e.respondWith(new Response('served by the worker of ~WHO~')) })
        """,
    "dialogs": """<script>
        ask = {alert: () => alert('~WHO~'), confirm: () => confirm('~WHO~'), prompt: () => prompt('~WHO~', 'nobody')}
        </script>""",
    "stays": """<button id="touch">touch</button><script>onbeforeunload = e => { e.preventDefault() }</script>""",
    "tall": """
        <style>html { scrollbar-width: none } body { margin: 0; background: white }
        #box { width: 60px; height: 40px; background: rgb(200, 0, 0) }
        main { height: 3000px }</style><div id="box"></div><main></main>""",
    "broken": """<script>setTimeout(() => { throw new Error('broken of ~WHO~') })</script>""",
    "socket": """<script>
        socket = new WebSocket(`ws://${location.host}/~WHO~/echo`)
        said = new Promise(done => { socket.onmessage = e => done(e.data) })
        socket.onopen = () => socket.send('hello')
        </script>""",
    "download": """<a id="get" href="attachment">get it</a>""",
    "links": """<a id="next" href="next">next</a>
        <button id="push" onclick="history.pushState({}, '', 'pushed')">push</button>""",
    "media": """<script>media = name => matchMedia(name).matches</script>""",
}


def page(name: str, who: str, port: int) -> bytes:
    body = PAGES.get(name, "").replace("WHO", who).replace("PORT", str(port))
    if name.endswith(".js"):
        return body.encode()
    first = f"window.first = window.planted ?? 'nothing'; console.log('~{who}~ {name}')"
    return f"<!doctype html><title>~{who}~ {name}</title><script>{first}</script>{body}".encode()
