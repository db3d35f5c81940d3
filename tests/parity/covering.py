"""Situations of the hit target: what lies over an element, lets a press through, or makes a part of the page inert."""

from __future__ import annotations

from typing import Final

from playwright.async_api import Page

from tabherd.wire import Click

from .situation import HEARD, SHORT_MS, Situation, listening

PRESSED: Final = listening()
BUTTON: Final = "<button id=x>Go</button>"
_ALL: Final = "position: fixed; inset: 0; background: #eee"

SITUATIONS: Final = (
    Situation(
        name="cookie-banner",
        about="A fixed banner over the button takes the press, so there is none.",
        pages={"/": PRESSED + BUTTON + f"<div id=banner style='{_ALL}'>We use cookies</div>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
        end="covered",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="banner-accepted",
        about="When the banner is gone, what was under it can be pressed.",
        pages={
            "/": PRESSED
            + BUTTON
            + f"<div id=banner style='{_ALL}'>Cookies <button id=ok onclick='banner.remove()'>OK</button></div>"
        },
        ours=[Click(selector="#ok"), Click(selector="#x")],
        theirs=lambda page: _clicked(page, "#ok", "#x"),
        seen=HEARD,
    ),
    Situation(
        name="overlay-goes-away",
        about="A spinner over the page is waited for.",
        pages={
            "/": PRESSED
            + BUTTON
            + f"<div id=spinner style='{_ALL}'></div><script>setTimeout(() => spinner.remove(), 200)</script>"
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="overlay-fades-out",
        about="An overlay that fades out and then lets presses through is waited for.",
        pages={
            "/": PRESSED
            + BUTTON
            + f"""<div id=shade style='{_ALL}; transition: opacity 150ms'></div><script>onload = () => {{
              shade.ontransitionend = () => {{ shade.style.display = "none"; }};
              shade.getBoundingClientRect();
              shade.style.opacity = 0;
            }}</script>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="overlay-transparent",
        about="An overlay that nobody sees takes the press all the same.",
        pages={"/": PRESSED + BUTTON + "<div style='position: fixed; inset: 0'></div>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
        end="covered",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="overlay-lets-through",
        about="An overlay with pointer-events: none is no obstacle.",
        pages={"/": PRESSED + BUTTON + "<div style='position: fixed; inset: 0; pointer-events: none'></div>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="pointer-events-none",
        about="A button with pointer-events: none hears of no press.",
        pages={"/": PRESSED + "<button id=x style='pointer-events: none'>Go</button>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
        end="covered",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="pointer-events-none-child",
        about="A span with pointer-events: none inside of a button is a part of the button.",
        pages={"/": PRESSED + "<button id=x><span id=s style='pointer-events: none'>Go</span></button>"},
        ours=[Click(selector="#s")],
        theirs=lambda page: page.click("#s"),
        seen=HEARD,
    ),
    Situation(
        name="pointer-events-child-only",
        about="A button inside of a box with pointer-events: none can be pressed when it says so.",
        pages={
            "/": PRESSED
            + "<div style='pointer-events: none'><button id=x style='pointer-events: auto'>Go</button></div>"
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="covered-by-child",
        about="A press on a card lands on what is in its middle.",
        pages={"/": PRESSED + "<div id=x style='width: 100px'><p id=p>one</p></div>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="half-covered",
        about="A button whose middle is covered is covered, though its edge is not.",
        pages={
            "/": PRESSED
            + """<style>#x, #o {position: absolute; left: 0; top: 0; width: 200px; height: 40px}
            #o {left: 50px; background: #eee}</style><button id=x>Go</button><div id=o></div>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
        end="covered",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="inert",
        about="What is inert takes no press.",
        pages={"/": PRESSED + "<div inert><button id=x>Go</button></div>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
        end="covered",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="behind-modal-dialog",
        about="While a modal dialog is open, what is behind it takes no press.",
        pages={"/": PRESSED + BUTTON + "<dialog id=d>Wait</dialog><script>d.showModal()</script>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
        end="covered",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="inside-modal-dialog",
        about="A modal dialog is closed by its button, and what was behind it can be pressed again.",
        pages={
            "/": PRESSED
            + BUTTON
            + "<dialog id=d><form method=dialog><button id=ok>OK</button></form></dialog><script>d.showModal()</script>"
        },
        ours=[Click(selector="#ok"), Click(selector="#x")],
        theirs=lambda page: _clicked(page, "#ok", "#x"),
        seen=HEARD,
    ),
    Situation(
        name="popover",
        about="A popover lies over everything, and what is in it can be pressed.",
        pages={
            "/": PRESSED
            + f"""<button id=x popovertarget=p>More</button>
            <div id=p popover><button id=y>Inside</button></div><div style='{_ALL}; z-index: 9; top: 200px'></div>"""
        },
        ours=[Click(selector="#x"), Click(selector="#y")],
        theirs=lambda page: _clicked(page, "#x", "#y"),
        seen=HEARD,
    ),
)


async def _clicked(page: Page, first: str, second: str) -> None:
    await page.click(first)
    await page.click(second)
