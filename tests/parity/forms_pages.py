"""Situations of filling in pages with a will of their own: frameworks, editors, fields that are replaced, frames."""

from __future__ import annotations

from typing import Final

from tabherd.wire import Fill, Press, Wait

from .forms import filled, steps, when
from .situation import Outcome, Situation

# React keeps the last value it knows on the element itself, and hears only of what differs from it.
_REACT: Final = """<input id=x value=old><script>
const own = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value');
let tracked = x.value; states = [];
Object.defineProperty(x, 'value', {
  configurable: true, get() { return own.get.call(this) },
  set(value) { tracked = '' + value; own.set.call(this, value) },
});
for (const type of ['input', 'change']) document.addEventListener(type, (event) => {
  const now = own.get.call(x);
  if (event.target !== x || now === tracked) return;
  tracked = now; states.push(now);
  // A controlled input is set back to its state, which is only digits here.
  x.value = now.replace(/\\D/g, '');
});</script>"""
# A model that is updated on input, unless an input method is composing; with .lazy, on change.
_VUE: Final = """<input id=x><input id=y><script>model = {}; composing = false;
x.addEventListener('compositionstart', () => { composing = true });
x.addEventListener('compositionend', () => { composing = false; x.dispatchEvent(new Event('input')) });
x.addEventListener('input', () => { if (!composing) model.x = x.value });
y.addEventListener('change', () => { model.y = y.value });</script>"""
# Its forms know of touched (blur) and dirty (input) fields.
_ANGULAR: Final = """<input id=x><input id=y><script>control = {value: '', isDirty: false, isTouched: false};
x.addEventListener('input', () => Object.assign(control, {value: x.value, isDirty: true}));
x.addEventListener('blur', () => { control.isTouched = true });</script>"""
# An editor that takes nothing from the browser: it keeps its own text, and draws it itself.
_EDITOR: Final = """<div id=x contenteditable>old text</div><script>let text = 'old text'; kinds = [];
x.addEventListener('beforeinput', (event) => {
  event.preventDefault(); kinds.push(event.inputType);
  const [range] = event.getTargetRanges(), length = (node, at) => {
    const before = new Range(); before.setStart(x, 0); before.setEnd(node, at); return before.toString().length };
  const from = length(range.startContainer, range.startOffset), to = length(range.endContainer, range.endOffset);
  text = text.slice(0, from) + event.data + text.slice(to);
  x.textContent = text;
});</script>"""
# A field in place of which another one comes.
_REPLACED: Final = """<div id=d><input id=x></div><script>let turns = 0;
replace = () => { const value = x.value; d.innerHTML = '<input id=x>'; x.value = value; listen() };
listen = () => { x.%s = () => { if (turns++ < %d) %s } };
listen();</script>"""


SITUATIONS: Final = (
    filled(
        "editor",
        "A rich editor that handles beforeinput itself gets the text and where it goes.",
        _EDITOR,
        "new",
        "[x.textContent, kinds]",
    ),
    filled(
        "react",
        "A controlled input of React hears of the text and puts its own value there.",
        _REACT,
        "4a2",
        "[states, x.value]",
    ),
    filled("react-clear", "A controlled input of React hears that it was emptied.", _REACT, "", "[states, x.value]"),
    filled("vue", "A model of Vue follows the field at once.", _VUE, "abc", "model"),
    Situation(
        name="fill-selecting-focus",
        about="A field that puts the caret somewhere when it gets the focus.",
        pages={"/": "<input id=x value=old onfocus='this.setSelectionRange(1, 1)'>"},
        ours=[Fill(selector="#x", value="new")],
        theirs=lambda page: page.fill("#x", "new"),
        seen="x.value",
        difference="Playwright selects first and focuses then, so the old value stays around the new one. We "
        "focus first.",
        ours_pinned=Outcome(end="ok", seen="new"),
        theirs_pinned=Outcome(end="ok", seen="onewld"),
    ),
    filled(
        "replaced-on-focus",
        "A field that is replaced when it gets the focus: the new one is filled.",
        _REPLACED % ("onfocus", 1, "{ replace(); x.focus() }"),
        "abc",
        "x.value",
    ),
    filled(
        "replaced-on-input",
        "A field that is replaced when it hears of the text.",
        _REPLACED % ("oninput", 1, "replace()"),
        "abc",
        "x.value",
    ),
    filled(
        "replaced-before",
        "A field that is rendered anew just before.",
        "<div id=d><input id=x value=1></div>"
        "<script>setTimeout(() => { d.innerHTML = '<input id=x value=2>' })</script>",
        "abc",
        "x.value",
    ),
    Situation(
        name="fill-vue-lazy",
        about="A lazy model of Vue follows when the field is left.",
        pages={"/": _VUE},
        ours=[Fill(selector="#y", value="abc"), Fill(selector="#x", value="d")],
        theirs=steps(lambda page: page.fill("#y", "abc"), lambda page: page.fill("#x", "d")),
        seen="model",
    ),
    Situation(
        name="fill-angular",
        about="A control of Angular is dirty at once, and touched when it is left.",
        pages={"/": _ANGULAR},
        ours=[Fill(selector="#x", value="abc"), Fill(selector="#y", value="d")],
        theirs=steps(lambda page: page.fill("#x", "abc"), lambda page: page.fill("#y", "d")),
        seen="control",
    ),
    Situation(
        name="fill-frame",
        about="A field in a frame, then one of the page, then the same one in the frame again.",
        pages={"/": "<iframe src=/in></iframe><input id=y>", "/in": "<input id=x>"},
        ours=[
            Fill(selector="iframe >> #x", value="one"),
            Fill(selector="#y", value="page"),
            Fill(selector="iframe >> #x", value="two"),
        ],
        theirs=steps(
            lambda page: page.frame_locator("iframe").locator("#x").fill("one"),
            lambda page: page.fill("#y", "page"),
            lambda page: page.frame_locator("iframe").locator("#x").fill("two"),
        ),
        seen="[frames[0].x.value, y.value]",
    ),
    Situation(
        name="fill-frame-of-another-site",
        about="The same, where the frame is of another site and has a process of its own.",
        pages={
            "/": "<iframe src={other}/in></iframe><input id=y><script>onmessage = ({data}) => { told = data }</script>",
            "/in": "<input id=x oninput='parent.postMessage([this.value, event.isTrusted], `*`)'>",
        },
        ours=[
            Fill(selector="iframe >> #x", value="one"),
            Fill(selector="#y", value="page"),
            Fill(selector="iframe >> #x", value="two"),
        ],
        theirs=steps(
            lambda page: page.frame_locator("iframe").locator("#x").fill("one"),
            lambda page: page.fill("#y", "page"),
            lambda page: page.frame_locator("iframe").locator("#x").fill("two"),
        ),
        seen=when("globalThis.told?.[0] === 'two'", "[told, y.value]"),
    ),
    Situation(
        name="fill-submitting-change",
        about="A form that submits when a field of it changes does so when the field is left.",
        pages={"/": "<form action=/next><input id=x name=q onchange='form.submit()'></form>", "/next": "next"},
        ours=[Fill(selector="#x", value="a b"), Press(key="Tab")],
        theirs=steps(
            lambda page: page.fill("#x", "a b"),
            lambda page: page.keyboard.press("Tab"),
            lambda page: page.wait_for_url("**/next*"),
        ),
        seen="location.pathname + location.search",
    ),
    Situation(
        name="fill-submitting-input",
        about="A form that submits at the first input takes the page along.",
        pages={"/": "<form action=/next><input id=x name=q oninput='form.submit()'></form>", "/next": "next"},
        ours=[Fill(selector="#x", value="a b")],
        theirs=steps(lambda page: page.fill("#x", "a b"), lambda page: page.wait_for_url("**/next*")),
        seen="location.pathname + location.search",
    ),
    Situation(
        name="fill-autocomplete",
        about="A list of proposals opens on input, and the keys choose from it.",
        pages={
            "/": """<input id=x role=combobox><ul id=l hidden></ul><script>
const all = ['Vienna', 'Vilnius', 'Bern']; let at = -1;
x.oninput = () => setTimeout(() => { at = -1; l.hidden = false;
  const found = all.filter((one) => one.startsWith(x.value));
  l.innerHTML = found.map((one) => `<li role=option>${one}</li>`).join('') }, 30);
x.onkeydown = (event) => {
  if (event.key === 'ArrowDown') at++;
  if (event.key === 'Enter') { x.value = l.children[at].textContent; l.hidden = true } };
x.onchange = () => { if (!all.includes(x.value)) x.value = '' };</script>"""
        },
        ours=[
            Fill(selector="#x", value="Vi"),
            Wait(selector="role=option[name=Vilnius]"),
            Press(selector="#x", key="ArrowDown"),
            Press(key="ArrowDown"),
            Press(key="Enter"),
        ],
        theirs=steps(
            lambda page: page.fill("#x", "Vi"),
            lambda page: page.get_by_role("option", name="Vilnius").wait_for(),
            lambda page: page.press("#x", "ArrowDown"),
            lambda page: page.keyboard.press("ArrowDown"),
            lambda page: page.keyboard.press("Enter"),
        ),
        seen="[x.value, l.hidden]",
    ),
    Situation(
        name="fill-focus-given-away",
        about="A field that hands its focus on to another one.",
        pages={"/": "<input id=x onfocus='y.focus()'><input id=y>"},
        ours=[Fill(selector="#x", value="a")],
        theirs=lambda page: page.fill("#x", "a"),
        seen="[x.value, y.value]",
        difference="Playwright types into whatever has the focus by then, and calls it done: a password may go into "
        "another field. We refuse.",
        ours_pinned=Outcome(end="wrong_kind", seen=["", ""]),
        theirs_pinned=Outcome(end="ok", seen=["", "a"]),
    ),
)
