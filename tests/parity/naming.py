"""Situations of selectors: which element is meant, and when it is not clear."""

from __future__ import annotations

from typing import Final

from tabherd.wire import Click

from .situation import HEARD, SHORT_MS, Outcome, Situation, listening

PRESSED: Final = listening("click")

SITUATIONS: Final = (
    Situation(
        name="two-matches",
        about="A selector that fits two elements is refused instead of guessed.",
        pages={"/": PRESSED + "<button id=x>Go</button><button id=y>Go</button>"},
        ours=[Click(selector="button")],
        theirs=lambda page: page.locator("button").click(),
        seen=HEARD,
        end="ambiguous",
    ),
    Situation(
        name="hidden-match",
        about="Of two matches one can be seen.",
        pages={"/": PRESSED + "<button id=x hidden>Go</button><button id=y>Go</button>"},
        ours=[Click(selector="button")],
        theirs=lambda page: page.locator("button").click(),
        seen=HEARD,
        difference="Hidden elements do not count while a visible one fits: whoever names something on a page means"
        " what can be seen. Playwright refuses, and needs another selector.",
        ours_pinned=Outcome(end="ok", seen=[["click", "y", True]]),
        theirs_pinned=Outcome(end="ambiguous", seen=[]),
    ),
    Situation(
        name="text-smallest",
        about="text= is the smallest element that has it.",
        pages={"/": PRESSED + "<div id=a><p id=p>Please <b id=b>sign in</b> first</p></div>"},
        ours=[Click(selector="text=sign in")],
        theirs=lambda page: page.click("text=sign in"),
        seen=HEARD,
    ),
    Situation(
        name="text-any-case",
        about="text= does not care for case and space.",
        pages={"/": PRESSED + "<button id=x>  Sign\n   IN </button><p>other</p>"},
        ours=[Click(selector="text=sign in")],
        theirs=lambda page: page.click("text=sign in"),
        seen=HEARD,
    ),
    Situation(
        name="text-exact",
        about="Quoted text is the whole text.",
        pages={"/": PRESSED + "<button id=x>Save as</button><button id=y>Save</button>"},
        ours=[Click(selector='text="Save"')],
        theirs=lambda page: page.click('text="Save"'),
        seen=HEARD,
    ),
    Situation(
        name="text-across-elements",
        about="text= finds what is put together from several elements.",
        pages={"/": PRESSED + "<p id=p>Hello <i>wide</i> world</p>"},
        ours=[Click(selector="text=Hello wide world")],
        theirs=lambda page: page.click("text=Hello wide world"),
        seen=HEARD,
    ),
    Situation(
        name="text-of-input-button",
        about="The text of a submit button is its value.",
        pages={"/": PRESSED + "<input id=x type=button value='Send it'>"},
        ours=[Click(selector="text=Send it")],
        theirs=lambda page: page.click("text=Send it"),
        seen=HEARD,
    ),
    Situation(
        name="text-hidden-match",
        about="A hidden match of text= does not stand in the way of one that can be seen.",
        pages={"/": PRESSED + "<p id=a style='display: none'>Delete</p><button id=x>Delete</button>"},
        ours=[Click(selector="text=Delete")],
        theirs=lambda page: page.locator("text=Delete").click(),
        seen=HEARD,
        difference="Hidden elements do not count while a visible one fits: whoever names something on a page means"
        " what can be seen. Playwright refuses, and needs another selector.",
        ours_pinned=Outcome(end="ok", seen=[["click", "x", True]]),
        theirs_pinned=Outcome(end="ambiguous", seen=[]),
    ),
    Situation(
        name="text-in-script",
        about="What stands in scripts and styles is no text of the page.",
        pages={
            "/": PRESSED
            + "<script>const word = 'Launch';</script><style>/* Launch */</style><button id=x>Launch</button>"
        },
        ours=[Click(selector="text=Launch")],
        theirs=lambda page: page.click("text=Launch"),
        seen=HEARD,
    ),
    Situation(
        name="role-and-name",
        about="A role and a name find what assistive technology would.",
        pages={
            "/": PRESSED
            + """<a id=a href='#'>Save</a><button id=x aria-label=Save>*</button><button id=y>Save all</button>
            <div role=button aria-hidden=true>Save</div>"""
        },
        ours=[Click(selector='role=button[name="Save"]')],
        theirs=lambda page: page.click('role=button[name="Save"s]'),
        seen=HEARD,
    ),
    Situation(
        name="role-hidden",
        about="What is hidden from assistive technology has no role there.",
        pages={"/": PRESSED + "<div aria-hidden=true><button id=x>Save</button></div>"},
        ours=[Click(selector='role=button[name="Save"]')],
        theirs=lambda page: page.click('role=button[name="Save"]'),
        seen=HEARD,
        end="not_found",
        limit_ms=SHORT_MS,
    ),
    Situation(
        name="role-labelled-by",
        about="A name may be put together from elsewhere.",
        pages={
            "/": PRESSED
            + "<span id=l1>Delete</span> <span id=l2>row 7</span><button id=x aria-labelledby='l1 l2'>x</button>"
        },
        ours=[Click(selector='role=button[name="Delete row 7"]')],
        theirs=lambda page: page.get_by_role("button", name="Delete row 7", exact=True).click(),
        seen=HEARD,
    ),
    Situation(
        name="xpath",
        about="An XPath that begins with // is one.",
        pages={
            "/": PRESSED + "<table><tr><td>a<td><button id=x>1</button><tr><td>b<td><button id=y>2</button></table>"
        },
        ours=[Click(selector="//tr[td='b']//button")],
        theirs=lambda page: page.click("//tr[td='b']//button"),
        seen=HEARD,
    ),
    Situation(
        name="chained",
        about="What comes after >> is inside of what came before.",
        pages={"/": PRESSED + "<p id=a><button id=x>Go</button></p><p id=b><button id=y>Go</button></p>"},
        ours=[Click(selector="#b >> text=Go")],
        theirs=lambda page: page.click("#b >> text=Go"),
        seen=HEARD,
    ),
    Situation(
        name="invalid-css",
        about="A selector that is none is refused at once.",
        pages={"/": PRESSED + "<button id=x>Go</button>"},
        ours=[Click(selector="button[")],
        theirs=lambda page: page.click("button["),
        seen=HEARD,
        end="invalid_selector",
    ),
    Situation(
        name="invalid-xpath",
        about="An XPath that is none is refused at once.",
        pages={"/": PRESSED + "<button id=x>Go</button>"},
        ours=[Click(selector="//button[")],
        theirs=lambda page: page.click("//button["),
        seen=HEARD,
        end="invalid_selector",
    ),
)
