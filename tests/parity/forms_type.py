"""Situations of typing: text of all kinds, key by key."""

from __future__ import annotations

from typing import Final

from tabherd.wire import Press, Type, Wait

from .forms import KEYS, TOLD, VALUE_AND_HEARD, recording, steps, when
from .situation import SHORT_MS, Outcome, Situation


def _typed(name: str, about: str, html: str, text: str, seen: str, delay_ms: float = 0) -> Situation:
    return Situation(
        name=f"type-{name}",
        about=about,
        pages={"/": html},
        ours=[Type(selector="#x", text=text, delay_ms=delay_ms)],
        theirs=lambda page: page.locator("#x").press_sequentially(text, delay=delay_ms),
        seen=seen,
    )


SITUATIONS: Final = (
    _typed(
        "plain",
        "Each character has the events of its key.",
        recording(*KEYS, "beforeinput", "input") + "<input id=x>",
        "ab 1.",
        VALUE_AND_HEARD,
    ),
    _typed(
        "keyboard",
        "All that is on the keyboard.",
        "<input id=x>",
        "The quick brown fox ~!@#$%^&*()_+{}|:\"<>?`-=[]\\;',./ 0123456789",
        "x.value",
    ),
    _typed("slowly", "With pauses between the keys.", recording("input") + "<input id=x>", "abc", VALUE_AND_HEARD, 10),
    _typed("lines", "A new line in a textarea.", "<textarea id=x></textarea>", "one\ntwo\n", "x.value"),
    _typed("cjk", "Characters that are on no key.", "<input id=x>", "日本語 漢字", "x.value"),
    _typed("accents", "Letters with accents, composed and not.", "<input id=x>", "ne\u0301e café Å", "x.value"),
    _typed("rtl", "Text that runs from right to left.", "<input id=x dir=rtl>", "שלום עולם", "x.value"),
    _typed("astral", "Characters beyond the first plane.", "<input id=x>", "𝒳 = 𠮷", "x.value"),
    _typed("region", "Into an editable region.", "<div id=x contenteditable></div>", "some text", "x.innerText"),
    _typed("number", "Into a field for numbers.", "<input id=x type=number>", "-12.5", "x.value"),
    _typed("maxlength", "No more than fits.", "<input id=x maxlength=3>", "abcdef", "x.value"),
    _typed(
        "filtered",
        "A page that lets only digits through on keydown.",
        "<input id=x onkeydown='if (event.key.length === 1 && !/\\d/.test(event.key)) event.preventDefault()'>",
        "1a2b",
        "x.value",
    ),
    _typed(
        "code-fields",
        "A code of which each digit has a field of its own.",
        "<input id=x maxlength=1 oninput='y.focus()'><input id=y maxlength=1 oninput='z.focus()'>"
        "<input id=z maxlength=1>",
        "123",
        "[x.value, y.value, z.value]",
    ),
    _typed(
        "shadow",
        "Into a shadow root.",
        "<div id=h></div><script>h.attachShadow({mode: 'open'}).innerHTML = '<input id=x>'</script>",
        "deep",
        "h.shadowRoot.firstChild.value",
    ),
    Situation(
        name="type-enter-submits",
        about="A new line in an input submits its form.",
        pages={"/": "<form action=/next><input id=x name=q></form>", "/next": "next"},
        ours=[Type(selector="#x", text="word\n")],
        theirs=steps(
            lambda page: page.locator("#x").press_sequentially("word\n"), lambda page: page.wait_for_url("**/next*")
        ),
        seen="location.pathname + location.search",
    ),
    Situation(
        name="type-frame-of-another-site",
        about="Into a frame with a process of its own.",
        pages={
            "/": "<iframe src={other}/in></iframe><script>onmessage = ({data}) => { told = data }</script>",
            "/in": "<input id=x oninput='parent.postMessage(this.value, `*`)'>",
        },
        ours=[Type(selector="iframe >> #x", text="abc")],
        theirs=lambda page: page.frame_locator("iframe").locator("#x").press_sequentially("abc"),
        seen=when("globalThis.told === 'abc'", "told"),
    ),
    Situation(
        name="type-combobox",
        about="Typing opens a list, and the keys choose from it.",
        pages={
            "/": """<input id=x><ul id=l></ul><script>let at = -1;
x.onkeyup = (event) => { if (event.key.length === 1) setTimeout(() => { l.innerHTML = '<li>one<li>two' }, 20) };
x.onkeydown = (event) => {
  if (event.key === 'ArrowDown') { at++; event.preventDefault() }
  if (event.key === 'Enter') { x.value = l.children[at].textContent; l.innerHTML = '' } };</script>"""
        },
        ours=[
            Type(selector="#x", text="o"),
            Wait(text="two"),
            Press(key="ArrowDown"),
            Press(key="ArrowDown"),
            Press(key="Enter"),
        ],
        theirs=steps(
            lambda page: page.locator("#x").press_sequentially("o"),
            lambda page: page.get_by_text("two").wait_for(),
            lambda page: page.keyboard.press("ArrowDown"),
            lambda page: page.keyboard.press("ArrowDown"),
            lambda page: page.keyboard.press("Enter"),
        ),
        seen="[x.value, l.children.length]",
    ),
    Situation(
        name="type-readonly",
        about="A read-only field.",
        pages={"/": "<input id=x readonly>"},
        ours=[Type(selector="#x", text="a")],
        theirs=lambda page: page.locator("#x").press_sequentially("a"),
        seen="x.value",
        limit_ms=SHORT_MS,
        difference="Playwright presses keys that the field ignores, and calls it done. We wait until it can be "
        "written.",
        ours_pinned=Outcome(end="read_only", seen=""),
        theirs_pinned=Outcome(end="ok", seen=""),
    ),
    Situation(
        name="type-appends",
        about="A field that has text already.",
        pages={"/": "<input id=x value=old>"},
        ours=[Type(selector="#x", text="new")],
        theirs=lambda page: page.locator("#x").press_sequentially("new"),
        seen="x.value",
        difference="Playwright types in front of what is there unless the field has the focus. We always append.",
        ours_pinned=Outcome(end="ok", seen="oldnew"),
        theirs_pinned=Outcome(end="ok", seen="newold"),
    ),
    Situation(
        name="type-emoji",
        about="A family, a flag, a skin tone and a keycap, each of several code points.",
        pages={"/": recording("input") + "<input id=x>"},
        ours=[Type(selector="#x", text="👨\u200d👩\u200d👧🇦🇹👍🏽 1\ufe0f\u20e3")],
        theirs=lambda page: page.locator("#x").press_sequentially("👨\u200d👩\u200d👧🇦🇹👍🏽 1\ufe0f\u20e3"),
        seen="[x.value, heard.length]",
        difference="Playwright inserts code point by code point, so the page sees a father before it sees a family. We "
        "insert what is on no key at once, as an input method does.",
        ours_pinned=Outcome(end="ok", seen=["👨\u200d👩\u200d👧🇦🇹👍🏽 1\ufe0f\u20e3", 3]),
        theirs_pinned=Outcome(end="ok", seen=["👨\u200d👩\u200d👧🇦🇹👍🏽 1\ufe0f\u20e3", 13]),
    ),
    Situation(
        name="type-capital",
        about="A capital letter: what is held with it.",
        pages={"/": TOLD + "<input id=x>"},
        ours=[Type(selector="#x", text="A")],
        theirs=lambda page: page.locator("#x").press_sequentially("A"),
        seen="[x.value, heard[0][5]]",
        difference="Playwright tells the page of an A without Shift, which no keyboard has. We tell that Shift "
        "is held.",
        ours_pinned=Outcome(end="ok", seen=["A", "Shift"]),
        theirs_pinned=Outcome(end="ok", seen=["A", ""]),
    ),
    Situation(
        name="type-line-ends",
        about="Ends of lines as another system writes them.",
        pages={"/": "<textarea id=x></textarea>"},
        ours=[Type(selector="#x", text="a\r\nb")],
        theirs=lambda page: page.locator("#x").press_sequentially("a\r\nb"),
        seen="x.value",
        difference="Playwright presses Enter twice. We take the two for one end of a line.",
        ours_pinned=Outcome(end="ok", seen="a\nb"),
        theirs_pinned=Outcome(end="ok", seen="a\n\nb"),
    ),
)
