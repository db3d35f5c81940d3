"""Situations of filling: every kind of field and editable region, and what cannot be filled."""

from __future__ import annotations

from typing import Final

from tabherd.wire import Fill, Press

from .forms import VALUE_AND_HEARD, filled, recording, steps
from .situation import PATIENT_MS, SHORT_MS, End, Outcome, Situation

# The kinds of field that are filled alike: name, markup, and what goes in.
_FIELDS: Final = (
    ("text", "<input id=x value=old>", "new text"),
    ("email", "<input id=x type=email value=old@a.test>", "new@b.test"),
    ("password", "<input id=x type=password value=old>", "p@ss w0rd"),
    ("search", "<input id=x type=search>", "words"),
    ("tel", "<input id=x type=tel>", "+43 1 234"),
    ("url", "<input id=x type=url>", "https://a.test/?b=c"),
    ("number", "<input id=x type=number value=1>", "-2.5"),
    ("textarea", "<textarea id=x>old</textarea>", "one line"),
    ("textarea-lines", "<textarea id=x>old</textarea>", "two\nlines\n"),
    ("unicode", "<input id=x>", "日本語 👨‍👩‍👧 שלום é"),
    ("empty-clears", "<input id=x value=old>", ""),
    ("empty-textarea", "<textarea id=x>old\ntext</textarea>", ""),
    ("maxlength", "<input id=x maxlength=3>", "abcdef"),
    ("date", "<input id=x type=date>", "2024-02-29"),
    ("time", "<input id=x type=time>", "23:59"),
    ("datetime-local", "<input id=x type=datetime-local>", "2024-02-29T10:00"),
    ("month", "<input id=x type=month>", "2024-02"),
    ("week", "<input id=x type=week>", "2024-W05"),
    ("color", "<input id=x type=color>", "#00FF7f"),
    ("range", "<input id=x type=range min=0 max=10>", "7"),
    ("late-enabled", "<input id=x disabled><script>setTimeout(() => { x.disabled = false }, 60)</script>", "a"),
    ("late-writable", "<input id=x readonly><script>setTimeout(() => { x.readOnly = false }, 60)</script>", "a"),
    ("late-attached", "<script>setTimeout(() => document.body.innerHTML = '<input id=x>', 60)</script>", "a"),
    (
        "fieldset-enabled",
        "<fieldset id=f disabled><input id=x></fieldset><script>setTimeout(() => { f.disabled = 0 }, 60)</script>",
        "a",
    ),
    (
        "mask",
        "<input id=x><script>x.oninput = () => { x.value = x.value.match(/[0-9]{2}/g).join('/') }</script>",
        "123456",
    ),
    ("uppercasing", "<input id=x oninput='this.value = this.value.toUpperCase()'>", "abc"),
    (
        "refusing-beforeinput",
        "<input id=x value=old><script>x.onbeforeinput = (event) => event.preventDefault()</script>",
        "new",
    ),
    ("label", "<label id=l for=x>Name</label><input id=x>", "a"),
)


def _refused(name: str, about: str, html: str, value: str = "a", end: End = "wrong_kind") -> Situation:
    return Situation(
        name=f"fill-{name}",
        about=about,
        pages={"/": recording() + html},
        ours=[Fill(selector="#x", value=value)],
        theirs=lambda page: page.fill("#x", value),
        seen="[x.value ?? x.textContent, heard.filter(([type]) => type !== 'blur')]",
        end=end,
        limit_ms=PATIENT_MS if end == "wrong_kind" else SHORT_MS,
    )


def _field(name: str, html: str, value: str) -> Situation:
    return Situation(
        name=f"fill-{name}",
        about=f"{name.capitalize().replace('-', ' ')}: the new value, a person's events, and `change` when it is left.",
        pages={"/": recording() + html},
        ours=[Fill(selector="#l" if name == "label" else "#x", value=value), Press(key="Tab")],
        theirs=steps(
            lambda page: page.fill("#l" if name == "label" else "#x", value),
            lambda page: page.keyboard.press("Tab"),
        ),
        seen=VALUE_AND_HEARD,
    )


SITUATIONS: Final = (
    *(_field(*each) for each in _FIELDS),
    filled(
        "keeps-focus",
        "The field has the focus afterwards, its caret at the end.",
        "<input id=x value=old>",
        "new",
        "[document.activeElement.id, x.selectionStart, x.selectionEnd]",
    ),
    filled(
        "megabyte",
        "A megabyte goes in whole.",
        "<input id=x>",
        "0123456789abcdef" * 65_536,
        "[x.value.length, x.value.slice(-20)]",
    ),
    filled(
        "many-lines",
        "A text of many lines goes in whole, and frameworks hear of it.",
        "<textarea id=x>old</textarea><script>x.oninput = (event) => { told = [x.value, event.isTrusted] }</script>",
        "".join(f"line {number}\n" for number in range(150)),
        "[told, x.value]",
    ),
    filled(
        "region",
        "An editable region with markup is replaced by plain text.",
        recording() + "<div id=x contenteditable>old <b>bold</b> <i>text</i></div>",
        "new <b>text</b>",
        "[x.innerHTML, heard]",
    ),
    filled(
        "region-lines",
        "Lines of an editable region become lines of it.",
        "<div id=x contenteditable>old</div>",
        "one\ntwo",
        "x.innerText",
    ),
    filled(
        "region-empty",
        "An editable region is emptied.",
        "<div id=x contenteditable><p>old</p><p>text</p></div>",
        "",
        "x.innerText.trim()",
    ),
    filled(
        "region-caret",
        "Where the caret was does not matter.",
        "<div id=x contenteditable><p id=p>old</p><p>text</p></div>"
        "<script>getSelection().collapse(p.firstChild, 2)</script>",
        "new",
        "x.innerText",
    ),
    filled(
        "region-part",
        "A paragraph inside an editable region is replaced alone.",
        "<div id=h contenteditable><p>first</p><p id=x>old</p></div>",
        "new",
        "h.innerText",
    ),
    filled(
        "region-in-shadow",
        "An editable region in a shadow root is replaced.",
        "<div id=h></div><script>"
        "h.attachShadow({mode: 'open'}).innerHTML = '<div id=x contenteditable>old</div>'</script>",
        "new",
        "h.shadowRoot.firstChild.innerText",
    ),
    filled(
        "plaintext-region",
        "An editable region for plain text only.",
        "<div id=x contenteditable=plaintext-only>old</div>",
        "new\nline",
        "x.innerText",
    ),
    filled(
        "shadow",
        "A field in nested shadow roots.",
        "<div id=h></div><script>h.attachShadow({mode: 'open'}).innerHTML = '<div></div>';"
        "h.shadowRoot.firstChild.attachShadow({mode: 'open'}).innerHTML = '<input id=x>'</script>",
        "deep",
        "h.shadowRoot.firstChild.shadowRoot.firstChild.value",
    ),
    filled(
        "label-part",
        "A part of a label stands for its field.",
        "<label>Your <b id=b>name</b> <input id=x></label>",
        "a",
        "x.value",
        selector="#b",
    ),
    _refused(
        "readonly", "A read-only field is waited for in vain.", "<input id=x readonly value=old>", end="read_only"
    ),
    _refused("disabled", "A disabled field is waited for in vain.", "<input id=x disabled>", end="disabled"),
    _refused("hidden", "A field that is not shown is waited for in vain.", "<input id=x hidden>", end="not_visible"),
    _refused("div", "What is no field is refused.", "<div id=x>text</div>"),
    _refused("button", "A button is refused.", "<button id=x>text</button>"),
    _refused("select", "A select is refused.", "<select id=x><option>a</select>"),
    _refused("checkbox", "A checkbox is refused.", "<input id=x type=checkbox>"),
    _refused("file", "A file input is refused.", "<input id=x type=file>"),
    _refused("number-with-text", "A number is no text.", "<input id=x type=number value=1>", "many"),
    Situation(
        name="fill-date-with-text",
        about="A date is no text.",
        pages={"/": "<input id=x type=date value=2024-01-01>"},
        ours=[Fill(selector="#x", value="tomorrow")],
        theirs=lambda page: page.fill("#x", "tomorrow"),
        seen="x.value",
        difference="The field is emptied by Playwright, which may call it done. We refuse and leave it as it was.",
        ours_pinned=Outcome(end="wrong_kind", seen="2024-01-01"),
        theirs_pinned=Outcome(end="ok", seen=""),
    ),
    Situation(
        name="fill-range-outside",
        about="A range ends before the value.",
        pages={"/": "<input id=x type=range max=10>"},
        ours=[Fill(selector="#x", value="11")],
        theirs=lambda page: page.fill("#x", "11"),
        seen="x.value",
        difference="Playwright takes what the browser makes of it for done. We refuse, and say what it "
        "would have become.",
        ours_pinned=Outcome(end="wrong_kind", seen="5"),
        theirs_pinned=Outcome(end="ok", seen="10"),
    ),
)
