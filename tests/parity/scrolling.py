"""Situations of the place: elements that have to be scrolled to, are transformed, or can be reached by no scrolling."""

from __future__ import annotations

from typing import Final

from tabherd.wire import Click, Hover

from .situation import HEARD, HEARD_BY_X, SHORT_MS, Situation, listening

PRESSED: Final = listening()
BUTTON: Final = "<button id=x>Go</button>"


def _pressed(name: str, about: str, page: str) -> Situation:
    """One button, which is to be pressed wherever it is."""
    return Situation(
        name=name,
        about=about,
        pages={"/": PRESSED + page},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD_BY_X,
    )


SITUATIONS: Final = (
    _pressed(
        "scroll-down",
        "A button far below is scrolled to.",
        f"<div style='height: 3000px'></div>{BUTTON}<div style='height: 3000px'></div>",
    ),
    _pressed(
        "scroll-sideways",
        "A button far to the right is scrolled to.",
        f"<div style='width: 5000px; padding-left: 3000px'>{BUTTON}</div>",
    ),
    _pressed(
        "scroll-nested",
        "A button in a scroller inside of a scroller is scrolled to in both.",
        f"""<div style='height: 3000px'></div><div style='height: 200px; overflow: auto'>
        <div style='height: 900px'></div><div style='height: 100px; width: 200px; overflow: auto'>
        <div style='height: 500px; width: 900px; padding: 300px'>{BUTTON}</div></div>
        <div style='height: 900px'></div></div>""",
    ),
    _pressed(
        "scroll-hidden-overflow",
        "A button in a box that clips without a scroll bar is scrolled to all the same.",
        f"<div style='height: 100px; overflow: hidden'><div style='height: 900px'></div>{BUTTON}</div>",
    ),
    _pressed(
        "scroll-smooth",
        "A page that scrolls smoothly is not waited for.",
        f"<style>html {{scroll-behavior: smooth}}</style><div style='height: 3000px'></div>{BUTTON}",
    ),
    _pressed(
        "scroll-snap",
        "A page whose scrolling snaps to its sections lets the button in one be pressed.",
        f"""<style>html {{scroll-snap-type: y mandatory}} section {{height: 100vh; scroll-snap-align: start}}</style>
        <section></section><section></section><section>{BUTTON}</section><section></section>""",
    ),
    _pressed(
        "sticky-header",
        "A button under a sticky header is scrolled out from under it.",
        f"""<style>header {{position: sticky; top: 0; height: 150px; background: #eee}}</style>
        <header>Top</header><div style='height: 300px'></div>{BUTTON}<div style='height: 3000px'></div>
        <script>onload = () => scrollTo(0, 350)</script>""",
    ),
    _pressed(
        "sticky-header-and-footer",
        "A button between two bars that stay is found room for.",
        f"""<style>nav {{position: fixed; left: 0; right: 0; height: 40%; background: #eee}}</style>
        <nav style='top: 0'>Top</nav><nav style='bottom: 0'>Bottom</nav><div style='height: 2000px'></div>
        {BUTTON}<div style='height: 2000px'></div>""",
    ),
    _pressed(
        "page-scrolls-itself",
        "A page that scrolls itself to its top for a while is waited for.",
        f"""<div style='height: 3000px'></div>{BUTTON}<script>
        const timer = setInterval(() => scrollTo(0, 0), 16);
        setTimeout(() => clearInterval(timer), 200);</script>""",
    ),
    _pressed(
        "grows-above",
        "A button that is pushed down by what loads above it is pressed where it ends up.",
        f"""<div id=d></div>{BUTTON}<div style='height: 3000px'></div><script>let count = 0;
        const timer = setInterval(() => {{
          d.append(document.createElement("hr"));
          if (++count === 10) clearInterval(timer);
        }}, 16);</script>""",
    ),
    _pressed(
        "large-element",
        "An element that is larger than the window is pressed in a part of it that is in the window.",
        "<div id=x style='width: 4000px; height: 4000px; background: #eee'></div>",
    ),
    _pressed(
        "transformed",
        "A button that is turned, scaled and moved is pressed where it is drawn.",
        "<button id=x style='margin: 100px; transform: rotate(30deg) scale(1.7) translate(60px, 20px)'>Go</button>",
    ),
    _pressed(
        "css-zoom",
        "A page with CSS zoom is pressed where it is drawn.",
        f"<body style='zoom: 1.5'><div style='height: 1500px'></div><div style='zoom: 0.7'>{BUTTON}</div>",
    ),
    _pressed(
        "right-to-left",
        "In a page that runs from right to left, a button far to the left is scrolled to.",
        f"<html dir=rtl><div style='width: 5000px'><div style='padding-right: 4000px'>{BUTTON}</div></div>",
    ),
    _pressed(
        "fixed-corner",
        "A button that stays in a corner of the window is pressed without scrolling.",
        """<button id=x style='position: fixed; right: 5px; bottom: 5px'>Go</button>
        <div style='height: 3000px'></div>""",
    ),
    Situation(
        name="fixed-corner-scroll",
        about="Pressing what is in the window already does not scroll the page.",
        pages={
            "/": PRESSED
            + f"<div style='height: 200px'></div>{BUTTON}<div style='height: 3000px'></div>"
            + "<script>onload = () => scrollTo(0, 50)</script>"
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen="[heard, scrollY]",
    ),
    Situation(
        name="off-screen",
        about="What stands where no scrolling leads cannot be pressed.",
        pages={"/": PRESSED + "<button id=x style='position: absolute; left: -9999px'>Go</button>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
        end="outside",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="scroll-to-hover",
        about="What is hovered is scrolled to first.",
        pages={"/": f"<div style='height: 3000px'></div>{BUTTON}"},
        ours=[Hover(selector="#x")],
        theirs=lambda page: page.hover("#x"),
        seen='[document.querySelector("#x:hover") !== null, scrollY > 0]',
    ),
)
