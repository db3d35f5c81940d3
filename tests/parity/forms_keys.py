"""Situations of pressing keys: what the page is told, and what a browser does on them."""

from __future__ import annotations

from typing import Any, Final

from tabherd.wire import AnyAction, Click, Press

from .forms import KEYS, TOLD, VALUE_AND_HEARD, recording, steps
from .situation import SHORT_MS, Outcome, Situation

_CODES: Final = (
    "Enter",
    "Tab",
    "Escape",
    "Backspace",
    "Delete",
    "Insert",
    "ArrowUp",
    "Home",
    "PageDown",
    "F1",
    "F12",
    "a",
    "1",
    "Control",
    "Shift+ArrowLeft",
    "Control+Shift+ArrowRight",
    "Alt+x",
    "Meta+k",
    "Shift+Tab",
    "Shift+A",
    "KeyB",
    "Digit7",
    "ShiftLeft",
    "ShiftRight",
    "ControlRight",
    "NumpadEnter",
    "NumpadAdd",
    "Space",
    "CapsLock",
    "ContextMenu",
)


def _pressed(name: str, about: str, html: str, keys: tuple[str, ...], seen: str) -> Situation:
    """Presses in a row, the first one on #x."""
    return Situation(
        name=f"press-{name}",
        about=about,
        pages={"/": html},
        ours=[Press(selector="#x", key=keys[0]), *(Press(key=key) for key in keys[1:])],
        theirs=steps(
            lambda page: page.press("#x", keys[0]),
            *(lambda page, key=key: page.keyboard.press(key) for key in keys[1:]),  # type: ignore[misc]
        ),
        seen=seen,
    )


def _fails(name: str, about: str, html: str, action: AnyAction, theirs: Any, end: Any) -> Situation:
    return Situation(
        name=name,
        about=about,
        pages={"/": recording(*KEYS) + html},
        ours=[action],
        theirs=theirs,
        seen="heard",
        end=end,
        limit_ms=SHORT_MS,
    )


SITUATIONS: Final = (
    *(
        Situation(
            name=f"keys-{key.lower().replace('+', '-')}",
            about=f"{key}: the page is told its name, its place, its number and what is held with it.",
            pages={"/": TOLD},
            ours=[Press(key=key)],
            theirs=lambda page, key=key: page.keyboard.press(key),  # type: ignore[misc]
            seen="heard",
        )
        for key in _CODES
    ),
    _pressed(
        "select-all",
        "Control+A and Delete empty a field.",
        recording("input") + "<input id=x value='some text'>",
        ("Control+a", "Delete"),
        VALUE_AND_HEARD,
    ),
    _pressed(
        "selection",
        "Shift and arrows select.",
        "<input id=x value=abcdef>",
        ("End", "Shift+ArrowLeft", "Shift+ArrowLeft"),
        "[x.selectionStart, x.selectionEnd]",
    ),
    _pressed(
        "replace-selection",
        "A key replaces what is selected.",
        "<input id=x value=abcdef>",
        ("End", "Shift+Home", "X"),
        "x.value",
    ),
    _pressed(
        "words",
        "Control and arrows go by words.",
        "<input id=x value='one two'>",
        ("Home", "Control+ArrowRight", "Backspace"),
        "x.value",
    ),
    _pressed("undo", "Control+Z takes back.", "<input id=x>", ("a", "Control+z"), "x.value"),
    _pressed(
        "tab",
        "Tab goes through the fields in their order, past what takes no focus.",
        "<input id=x tabindex=1><input id=a><input disabled><a href=#>l</a><button id=b>b</button>",
        ("Tab", "Tab", "Tab"),
        "document.activeElement.id",
    ),
    _pressed(
        "shift-tab", "Shift+Tab goes back.", "<input id=a><input id=x>", ("Shift+Tab",), "document.activeElement.id"
    ),
    _pressed(
        "enter-submits",
        "Enter submits the form, by its button.",
        recording("click", "submit") + "<form onsubmit='return false'><input id=x><button id=b>Go</button></form>",
        ("Enter",),
        "heard",
    ),
    _pressed(
        "enter-on-button",
        "Enter presses a button.",
        recording("click") + "<button id=x>Go</button>",
        ("Enter",),
        "heard",
    ),
    _pressed(
        "space-on-button",
        "Space presses a button.",
        recording("click") + "<button id=x>Go</button>",
        ("Space",),
        "heard",
    ),
    _pressed(
        "space-on-checkbox",
        "Space toggles a checkbox.",
        recording("click", "input", "change") + "<input id=x type=checkbox>",
        ("Space",),
        "[x.checked, heard]",
    ),
    _pressed(
        "arrow-in-radios",
        "Arrows go through radio buttons.",
        recording("change") + "<input type=radio name=r id=x checked><input type=radio name=r id=y>",
        ("ArrowDown",),
        "[y.checked, document.activeElement.id, heard]",
    ),
    _pressed(
        "arrow-in-select",
        "Arrows go through options.",
        recording("input", "change") + "<select id=x><option>a<option>b<option>c</select>",
        ("ArrowDown", "ArrowDown"),
        VALUE_AND_HEARD,
    ),
    _pressed(
        "arrow-in-number",
        "Arrows count.",
        recording("input") + "<input id=x type=number value=1>",
        ("ArrowUp",),
        VALUE_AND_HEARD,
    ),
    _pressed(
        "arrow-in-range",
        "Arrows slide.",
        recording("input", "change") + "<input id=x type=range value=5 max=10>",
        ("ArrowRight",),
        VALUE_AND_HEARD,
    ),
    _pressed(
        "prevented",
        "A key that the page takes for itself types nothing.",
        "<input id=x><script>x.onkeydown = (event) => event.preventDefault()</script>",
        ("a", "Enter"),
        "x.value",
    ),
    _pressed("label", "A label stands for its field.", "<label id=x>Name <input id=y></label>", ("a",), "y.value"),
    _pressed(
        "div-with-tabindex",
        "What takes the focus takes keys.",
        "<div id=x tabindex=0 onkeydown='told = event.key'>d</div>",
        ("ArrowDown",),
        "told",
    ),
    Situation(
        name="press-escape-closes-dialog",
        about="Escape closes an open dialog.",
        pages={"/": "<dialog id=d><input id=x></dialog><script>d.showModal()</script>"},
        ours=[Press(key="Escape")],
        theirs=lambda page: page.keyboard.press("Escape"),
        seen="d.open",
    ),
    Situation(
        name="press-where-the-focus-is",
        about="Without an element a key goes to where the focus is.",
        pages={"/": "<input id=x><input id=y>"},
        ours=[Click(selector="#y"), Press(key="a")],
        theirs=steps(lambda page: page.click("#y"), lambda page: page.keyboard.press("a")),
        seen="[x.value, y.value]",
    ),
    Situation(
        name="keys-control-a",
        about="Control+A, as people write it.",
        pages={"/": TOLD},
        ours=[Press(key="Control+A")],
        theirs=lambda page: page.keyboard.press("Control+A"),
        seen="heard.map(([type, key]) => key)",
        difference="Playwright tells the page of a capital A without Shift. We press the a that everybody means, so "
        "that shortcuts which compare the key are found.",
        ours_pinned=Outcome(end="ok", seen=["Control", "a", "a", "Control"]),
        theirs_pinned=Outcome(end="ok", seen=["Control", "A", "A", "Control"]),
    ),
    Situation(
        name="keys-keypad-digit",
        about="A digit of the keypad.",
        pages={"/": TOLD + "<input id=x autofocus>"},
        ours=[Press(selector="#x", key="Numpad5")],
        theirs=lambda page: page.press("#x", "Numpad5"),
        seen="[x.value, heard[0].slice(1, 5)]",
        difference="Playwright's keypad is without NumLock and types nothing. Whoever names a digit means the digit.",
        ours_pinned=Outcome(end="ok", seen=["5", ["5", "Numpad5", 101, 3]]),
        theirs_pinned=Outcome(end="ok", seen=["", ["Clear", "Numpad5", 12, 3]]),
    ),
    _fails(
        "press-missing",
        "What is not there is waited for in vain.",
        "",
        Press(selector="#x", key="a"),
        lambda page: page.press("#x", "a"),
        "not_found",
    ),
)
