"""Situations of waiting: elements that come, appear, are enabled or come to rest late, or never."""

from __future__ import annotations

from typing import Final

from tabherd.wire import Click

from .situation import HEARD, HEARD_BY_X, SHORT_MS, Outcome, Situation, listening

PRESSED: Final = listening()
# As frameworks draw: the button is a new element every time. Presses are counted, not clicks: nobody's press becomes
# one when the page draws anew before it is released.
_REDRAWN: Final = """<div id=d></div><script>presses = 0;
const draw = () => {
  const button = document.createElement("button");
  button.id = "x";
  button.textContent = "Go";
  button.onmousedown = (event) => { presses += event.isTrusted; };
  d.replaceChildren(button);
};
draw();
"""

SITUATIONS: Final = (
    Situation(
        name="css-animation",
        about="A button that slides in by a CSS animation is pressed where it comes to rest.",
        pages={
            "/": PRESSED
            + """<style>@keyframes in {from {transform: translateX(400px)} to {transform: none}}
            #x {animation: in 200ms linear}</style><button id=x>Go</button>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD_BY_X,
    ),
    Situation(
        name="css-transition",
        about="A button that is moving by a transition is pressed where it comes to rest.",
        pages={
            "/": PRESSED
            + """<style>#x {position: absolute; left: 0; transition: left 200ms}</style><button id=x>Go</button>
            <script>onload = () => { x.getBoundingClientRect(); x.style.left = "300px"; };</script>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD_BY_X,
    ),
    Situation(
        name="moved-by-script",
        about="A button that a script moves in every frame for a while is pressed when it rests.",
        pages={
            "/": PRESSED
            + """<button id=x style='position: absolute'>Go</button><script>
            const begin = performance.now();
            const move = (now) => {
              x.style.left = Math.min(200, now - begin) + "px";
              if (now - begin < 200) requestAnimationFrame(move);
            };
            requestAnimationFrame(move);</script>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD_BY_X,
    ),
    Situation(
        name="never-rests",
        about="A button that never rests is not pressed, and it is said why.",
        pages={
            "/": PRESSED
            + """<style>@keyframes round {from {transform: translateX(0)} to {transform: translateX(300px)}}
            #x {animation: round 1s linear infinite}</style><button id=x>Go</button>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
        end="unstable",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="spins-in-place",
        about="An animation that does not change the box of the button is not waited for.",
        pages={
            "/": PRESSED
            + """<style>@keyframes fade {from {opacity: 0.5} to {opacity: 1}}
            #x {animation: fade 300ms alternate infinite}</style><button id=x>Go</button>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="redrawn-every-100-ms",
        about="A button that is replaced by a new one every 100 ms is pressed once.",
        pages={"/": _REDRAWN + "setInterval(draw, 100);</script>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen="presses",
    ),
    Situation(
        name="redrawn-every-frame",
        about="A button that is replaced by a new one in every frame is never the same for long enough.",
        pages={"/": _REDRAWN + "const again = () => { draw(); requestAnimationFrame(again); }; again();</script>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen="presses",
        limit_ms=SHORT_MS,
        difference="Playwright says that the element was detached. There is one at every moment, and that it is being"
        " replaced all the time is what the caller has to know.",
        ours_pinned=Outcome(end="unstable", seen=0),
        theirs_pinned=Outcome(end="not_found", seen=0),
    ),
    Situation(
        name="redrawn-for-a-while",
        about="A button that is replaced in every frame for a while is pressed when that is over.",
        pages={
            "/": _REDRAWN
            + """const begin = performance.now();
            const again = () => { draw(); if (performance.now() - begin < 200) requestAnimationFrame(again); };
            again();</script>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen="presses",
    ),
    Situation(
        name="detached-while-waiting",
        about="A button that is taken away while it is waited for, and put back, is pressed.",
        pages={
            "/": PRESSED
            + """<p id=p><button id=x disabled>Go</button></p><script>
            setTimeout(() => x.remove(), 60);
            setTimeout(() => { p.innerHTML = "<button id=x>Go</button>"; }, 150);</script>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD_BY_X,
    ),
    Situation(
        name="detached-for-ever",
        about="A button that goes away while it is waited for is not there.",
        pages={"/": "<button id=x disabled>Go</button><script>setTimeout(() => x.remove(), 60)</script>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen="document.querySelector('#x')",
        end="not_found",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="late-content",
        about="A button that is appended after a while is waited for.",
        pages={
            "/": PRESSED
            + """<p id=p></p><script>
            setTimeout(() => { p.innerHTML = "<button id=x>Go</button>"; }, 200);</script>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="late-enabled",
        about="A button that is enabled after a while is waited for.",
        pages={
            "/": PRESSED
            + "<button id=x disabled>Go</button><script>setTimeout(() => { x.disabled = false; }, 200)</script>"
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="late-visible",
        about="A button that is shown after a while is waited for.",
        pages={
            "/": PRESSED
            + """<button id=x style='display: none'>Go</button>
            <script>setTimeout(() => { x.style.display = ""; }, 200)</script>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="never-there",
        about="What is not in the page is not found.",
        pages={"/": PRESSED + "<button id=y>Go</button>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
        end="not_found",
        limit_ms=SHORT_MS,
    ),
    *(
        Situation(
            name=name,
            about=about,
            pages={"/": f"{PRESSED}<style>#x {{{style}}}</style><button id=x>Go</button>"},
            ours=[Click(selector="#x")],
            theirs=lambda page: page.click("#x"),
            seen=HEARD,
            end="not_visible",
            limit_ms=SHORT_MS,
        )
        for name, about, style in (
            ("display-none", "What is not drawn cannot be pressed.", "display: none"),
            ("visibility-hidden", "What is hidden cannot be pressed.", "visibility: hidden"),
            ("zero-size", "What has no size cannot be pressed.", "width: 0; height: 0; padding: 0; border: 0"),
        )
    ),
    Situation(
        name="opacity-zero",
        about="What is wholly transparent is there all the same: many pages lay such inputs over what they draw.",
        pages={"/": PRESSED + "<button id=x style='opacity: 0'>Go</button>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="disabled",
        about="A disabled button is not pressed, and it is said why.",
        pages={"/": PRESSED + "<button id=x disabled>Go</button>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
        end="disabled",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="disabled-fieldset",
        about="A button in a disabled fieldset is disabled.",
        pages={"/": PRESSED + "<fieldset disabled><legend>-</legend><button id=x>Go</button></fieldset>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
        end="disabled",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="fieldset-legend",
        about="A button in the legend of a disabled fieldset is enabled.",
        pages={"/": PRESSED + "<fieldset disabled><legend><button id=x>Go</button></legend></fieldset>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="aria-disabled",
        about="What says that it is disabled is taken at its word.",
        pages={"/": PRESSED + "<div id=x role=button aria-disabled=true>Go</div>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
        end="disabled",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="span-in-disabled-button",
        about="A part of a disabled button is as disabled as the button.",
        pages={"/": PRESSED + "<button disabled><span id=x>Go</span></button>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
        end="disabled",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="display-contents",
        about="An element without a box of its own is pressed where its content is.",
        pages={"/": PRESSED + "<div id=x style='display: contents'><button id=y>Go</button></div>"},
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
    Situation(
        name="content-visibility",
        about="What is not drawn until it is scrolled to is scrolled to.",
        pages={
            "/": PRESSED
            + """<div style='height: 3000px'></div>
            <div style='content-visibility: auto; contain-intrinsic-size: 100px'><button id=x>Go</button></div>"""
        },
        ours=[Click(selector="#x")],
        theirs=lambda page: page.click("#x"),
        seen=HEARD,
    ),
)
