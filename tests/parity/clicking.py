"""Situations of the pointer: what a press is to the page, and what pages do in answer to it."""

from __future__ import annotations

from typing import Final

from playwright.async_api import Page

from tabherd.wire import Click, Dblclick, Hover, Text, Wait

from .situation import HEARD, HEARD_BY_X, PRESSES, Outcome, Situation, listening

BUTTON: Final = "<button id=x>Go</button>"
# What is known of a press besides its type and its element.
_DETAILS: Final = """<script>heard = [];
for (const type of ["mousedown", "mouseup", "click", "dblclick", "auxclick", "contextmenu"]) {
  addEventListener(type, ({isTrusted, button, buttons, detail, shiftKey, ctrlKey, altKey, metaKey}) => {
    heard.push([type, isTrusted, button, buttons, detail, shiftKey, ctrlKey, altKey, metaKey]);
  }, true);
}</script>"""

SITUATIONS: Final = (
    Situation(
        name="click-button",
        about="A plain button is pressed and released as a person would.",
        pages={"/": _DETAILS + BUTTON},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="click-pointer-events",
        about="Pointer events come before mouse events, and the mouse enters before it presses.",
        pages={
            "/": listening("pointerover", "pointerdown", "mouseover", "mousedown", "pointerup", "mouseup", "click")
            + "<style>body {margin: 200px}</style>"
            + BUTTON
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD_BY_X,
    ),
    Situation(
        name="click-focuses",
        about="A press moves the focus, and what had it before hears of it.",
        pages={"/": listening("focusin", "focusout", "click") + "<input id=before autofocus>" + BUTTON},
        ours=[Click(selector="#before"), Click(selector="#x")],
        theirs=lambda page: _both_clicked(page, "#before", "#x"),
        seen="[heard, document.activeElement.id]",
    ),
    Situation(
        name="dblclick-order",
        about="A double click is two clicks that count to two, and then one dblclick.",
        pages={"/": _DETAILS + BUTTON},
        ours=[Dblclick(selector="#x")],
        theirs=lambda page: page.dblclick("#x"),
        seen=HEARD,
    ),
    Situation(
        name="click-twice",
        about="Two clicks after each other are no double click.",
        pages={"/": _DETAILS + BUTTON},
        ours=[Click(selector="#x"), Click(selector="#x")],
        theirs=lambda page: _both_clicked(page, "#x", "#x"),
        seen=HEARD,
    ),
    Situation(
        name="right-click",
        about="The right button opens the context menu and is no click.",
        pages={"/": _DETAILS + BUTTON},
        ours=[Click(selector="#x", button="right")],
        theirs=lambda page: page.click("#x", button="right"),
        seen=HEARD,
    ),
    Situation(
        name="middle-click",
        about="The middle button is an auxclick.",
        pages={"/": _DETAILS + BUTTON},
        ours=[Click(selector="#x", button="middle")],
        theirs=lambda page: page.click("#x", button="middle"),
        seen=HEARD,
    ),
    Situation(
        name="click-modifiers",
        about="Keys that are held down are told with every event of the press.",
        pages={"/": _DETAILS + BUTTON},
        ours=[Click(selector="#x", modifiers=("Shift", "Control", "Alt"))],
        theirs=lambda page: page.click("#x", modifiers=["Shift", "Control", "Alt"]),
        seen=HEARD,
    ),
    Situation(
        name="click-nested-span",
        about="A press on a button with a span and an icon in it bubbles up to the button.",
        pages={"/": "<button id=x onclick='got = event.isTrusted'><b>+</b> <span>Add <i>one</i></span></button>"},
        ours=[Click(selector="#x i")],
        theirs=lambda page: page.click("#x i"),
        seen="got",
    ),
    Situation(
        name="click-label",
        about="A press on a label checks its checkbox.",
        pages={
            "/": listening("click", "input", "change") + "<label id=l for=c>Agree</label><input type=checkbox id=c>"
        },
        ours=[Click(selector="#l")],
        theirs=lambda page: page.click("#l"),
        seen="[heard, c.checked]",
    ),
    Situation(
        name="click-checkbox-under-its-label",
        about="A checkbox that its own label is drawn over is pressed through the label.",
        pages={
            "/": """<style>label {position: relative} input {position: absolute; left: 0; top: 0}
            span {position: relative; display: inline-block; width: 80px; height: 30px; background: #ddd}</style>"""
            + listening("click", "change")
            + "<label><input type=checkbox id=c><span id=s>On</span></label>"
        },
        ours=[Click(selector="#c")],
        theirs=lambda page: page.click("#c"),
        seen="[heard, c.checked]",
        limit_ms=2_000,
        difference="Playwright refuses, because the label's text takes the press. The text is there to be pressed in"
        " place of the checkbox: a person would, and the checkbox hears of it.",
        ours_pinned=Outcome(end="ok", seen=[[["click", "s", True], ["click", "c", True], ["change", "c", True]], True]),
        theirs_pinned=Outcome(end="covered", seen=[[], False]),
    ),
    Situation(
        name="click-svg",
        about="A shape inside of an SVG hears of the press.",
        pages={"/": listening() + "<svg width=90 height=90><rect id=x width=60 height=60 fill=red /></svg>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="click-canvas",
        about="A canvas is pressed in its middle.",
        pages={
            "/": """<canvas id=x width=100 height=60
            onclick='got = [Math.round(event.offsetX), Math.round(event.offsetY)]'></canvas>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen="got",
    ),
    Situation(
        name="click-link-over-two-lines",
        about="A link that is broken over two lines is pressed where it is, not in the middle of the box around it.",
        pages={
            "/": listening("click")
            + """<div style='width: 300px; font: 16px monospace'>
            <span>aaaaaaaaaaaaaaaaaaaaaaaa</span> <a id=x href='#there'>link that breaks</a> <span>b b</span></div>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen="[heard, location.hash]",
    ),
    Situation(
        name="click-navigates",
        about="A press on a link returns on the page that it leads to.",
        pages={"/": "<a href='/next'>Next</a>", "/next": "<h1>There</h1>"},
        ours=[Click(selector="text=Next"), Wait(selector="h1")],
        theirs=lambda page: _clicked_then_seen(page, "text=Next", "h1"),
        seen="[location.pathname, document.querySelector('h1').textContent]",
    ),
    Situation(
        name="click-submits",
        about="A press on the submit button of a form sends it.",
        pages={"/": "<form action='/next'><input name=q value=1><button>Send</button></form>", "/next": "<h1>Got</h1>"},
        ours=[Click(selector="button"), Wait(selector="h1")],
        theirs=lambda page: _clicked_then_seen(page, "button", "h1"),
        seen="[location.pathname, location.search]",
    ),
    Situation(
        name="click-opens-alert",
        about="A press that opens an alert is not held up by it.",
        pages={"/": "<button id=x onclick=\"alert('hello'); got = 'after'\">Go</button>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen="got",
    ),
    Situation(
        name="click-opens-confirm",
        about="A question that nobody answers is answered with no.",
        pages={"/": "<button id=x onclick=\"got = [confirm('sure?'), prompt('who?', 'me')]\">Go</button>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen="got",
    ),
    Situation(
        name="click-writes-document",
        about="A press whose handler writes the whole page anew ends well.",
        pages={
            "/": "<button onclick=\"document.open(); document.write('<p id=p>new</p>'); document.close()\">Go</button>"
        },
        ours=[Click(selector="button"), Wait(selector="#p")],
        theirs=lambda page: _clicked_then_seen(page, "button", "#p"),
        seen="document.body.innerText",
    ),
    Situation(
        name="mousedown-removes",
        about="A button that goes away when it is pressed down hears no click, and nobody waits for one.",
        pages={"/": listening() + "<button id=x onmousedown='this.remove()'>Go</button>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="mousedown-moves",
        about="A button that jumps away when it is pressed down is not clicked a second time.",
        pages={
            "/": listening()
            + "<button id=x style='position: absolute' onmousedown='this.style.top = \"300px\"'>Go</button>"
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD_BY_X,
    ),
    Situation(
        name="mousedown-replaces",
        about="A button that is drawn anew when it is pressed down is pressed once.",
        pages={
            "/": """<div id=d></div><script>presses = clicks = 0;
            const draw = () => {
              d.innerHTML = "<button id=x>Go</button>";
              x.onmousedown = () => { presses++; draw(); };
            };
            d.onclick = () => { clicks++; };
            draw();</script>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen="[presses, clicks]",
    ),
    Situation(
        name="moves-away-on-hover",
        about="A button that jumps away when the mouse first comes is pressed where it went.",
        pages={
            "/": """<style>#x {position: absolute; left: 20px}</style><button id=x>Go</button><script>heard = [];
            x.addEventListener("mouseover", () => { x.style.left = "300px"; }, {once: true});
            for (const type of ["mousedown", "click"]) x.addEventListener(type, () => heard.push(type));</script>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="replaced-on-hover",
        about="A button that is drawn anew when the mouse comes is pressed, and once.",
        pages={
            "/": """<div id=d></div><script>clicks = 0;
            const draw = () => { d.innerHTML = "<button id=x>Go</button>"; x.onclick = () => { clicks++; }; };
            draw();
            x.addEventListener("mouseover", draw, {once: true});</script>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen="clicks",
    ),
    Situation(
        name="flees-three-times",
        about="A button that flees from the mouse three times is pressed when it has come to rest, and once.",
        pages={
            "/": """<style>#x {position: absolute; left: 20px}</style><button id=x>Go</button><script>heard = [];
            let left = 3;
            x.addEventListener("mouseover", () => { if (left-- > 0) x.style.left = `${20 + 200 * (left + 1)}px`; });
            for (const type of ["mousedown", "click"]) x.addEventListener(type, () => heard.push(type));</script>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="hover-menu",
        about="What appears when the mouse is over its menu can be pressed.",
        pages={
            "/": """<style>#menu ul {display: none} #menu:hover ul {display: block}</style>
            <div id=menu style='width: 120px'>Menu<ul><li><a id=x href='#here'>Here</a></ul></div>"""
        },
        ours=[Hover(selector="#menu"), Click(selector="#x")],
        theirs=lambda page: _hovered_then_clicked(page, "#menu", "#x"),
        seen="location.hash",
    ),
    Situation(
        name="hover-events",
        about="Hovering moves the mouse there and presses nothing.",
        pages={"/": listening("mouseover", "mouseenter", "mousemove", *PRESSES) + "<p>-</p>" + BUTTON},
        ours=[Hover(selector="#x")],
        theirs=lambda page: page.hover("#x"),
        seen='[...new Set(heard.filter(([, id]) => id === "x").map(String))]',
    ),
    Situation(
        name="hover-transition",
        about="A button that grows while the mouse is over it is still clicked.",
        pages={
            "/": listening()
            + """<style>#x {transition: transform 150ms} #x:hover {transform: scale(1.4) translateX(10px)}</style>"""
            + BUTTON
        },
        ours=[Hover(selector="#x"), Click(selector="#x")],
        theirs=lambda page: _hovered_then_clicked(page, "#x", "#x"),
        seen=HEARD_BY_X,
    ),
    Situation(
        name="hover-disabled",
        about="A disabled button can be hovered: its tooltip may say why it is disabled.",
        pages={"/": "<button id=x disabled>Go</button>"},
        ours=[Hover(selector="#x")],
        theirs=lambda page: page.hover("#x"),
        seen='document.querySelector("#x:hover") !== null',
    ),
    Situation(
        name="click-then-late-content",
        about="What a press fetches is waited for by whoever uses it next.",
        pages={
            "/": """<button id=x onclick='setTimeout(() => { p.innerHTML = "<b id=b>ready</b>"; }, 100)'>Go</button>
            <p id=p></p>"""
        },
        ours=[Click(selector="#x"), Wait(selector="#b"), Text(selector="#b")],
        theirs=lambda page: _clicked_then_seen(page, "#x", "#b"),
        seen="b.textContent",
    ),
)


async def _both_clicked(page: Page, first: str, second: str) -> None:
    await page.click(first)
    await page.click(second)


async def _hovered_then_clicked(page: Page, first: str, second: str) -> None:
    await page.hover(first)
    await page.click(second)


async def _clicked_then_seen(page: Page, pressed: str, awaited: str) -> None:
    await page.click(pressed)
    await page.wait_for_selector(awaited)
