"""Situations of choosing: options of selects, checkboxes, radio buttons and what pages make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tabherd.wire import Check, Press, Select

from .forms import recording, steps, when
from .situation import PATIENT_MS, SHORT_MS, End, Outcome, Situation

_OPTIONS: Final = "<option value=a>Apple<option value=b>Big  pear<option value=c>Cherry<option value=d disabled>Date"
_SELECTED: Final = "[Array.from(x.selectedOptions, (each) => each.value), heard]"
_CHECKED: Final = "[x.checked, heard]"


def _selected(
    name: str, about: str, html: str, values: Sequence[str | int], end: End = "ok", selector: str = "#x"
) -> Situation:
    chosen: dict[str, Any] = {"index": values} if values and isinstance(values[0], int) else {"value": values}
    is_label = any(isinstance(each, str) and each[0].isupper() for each in values)
    return Situation(
        name=f"select-{name}",
        about=about,
        pages={"/": recording("input", "change") + html},
        ours=[Select(selector=selector, values=list(values))],
        theirs=lambda page: page.select_option(selector, **({"label": values} if is_label else chosen)),
        seen=_SELECTED,
        end=end,
        limit_ms=PATIENT_MS if end in ("ok", "wrong_kind", "javascript_error", "invalid_selector") else SHORT_MS,
    )


def _checked(
    name: str,
    about: str,
    html: str,
    *,
    checked: bool = True,
    end: End = "ok",
    selector: str = "#x",
    seen: str = _CHECKED,
) -> Situation:
    return Situation(
        name=f"check-{name}",
        about=about,
        pages={"/": recording("click", "input", "change") + html},
        ours=[Check(selector=selector, checked=checked)],
        theirs=lambda page: page.set_checked(selector, checked),
        seen=seen,
        end=end,
        limit_ms=PATIENT_MS if end in ("ok", "wrong_kind", "javascript_error", "invalid_selector") else SHORT_MS,
    )


SITUATIONS: Final = (
    _selected("value", "By value.", f"<select id=x>{_OPTIONS}</select>", ["b"]),
    _selected("label", "By label, whatever its spaces.", f"<select id=x>{_OPTIONS}</select>", ["Big pear"]),
    _selected("index", "By number.", f"<select id=x>{_OPTIONS}</select>", [2]),
    _selected("several", "Several.", f"<select id=x multiple>{_OPTIONS}</select>", ["a", "c"]),
    _selected(
        "several-instead",
        "In place of what was selected.",
        "<select id=x multiple><option value=a selected>A<option value=b>B</select>",
        ["b"],
    ),
    _selected("none", "None of many.", "<select id=x multiple><option value=a selected>A</select>", []),
    _selected(
        "optgroup",
        "In a group.",
        "<select id=x><optgroup label=g><option value=a>A</optgroup><optgroup label=h><option value=b>B</select>",
        ["b"],
    ),
    _selected(
        "late-option",
        "An option that comes late.",
        "<select id=x><option value=a>A</select><script>setTimeout(() => x.add(new Option('L', 'l')), 60)</script>",
        ["l"],
    ),
    _selected(
        "late-enabled",
        "An option that is enabled late.",
        "<select id=x><option value=a>A<option id=o value=l disabled>L</select>"
        "<script>setTimeout(() => { o.disabled = false }, 60)</script>",
        ["l"],
    ),
    _selected("list", "In a list that is open always.", f"<select id=x size=4>{_OPTIONS}</select>", ["c"]),
    _selected(
        "label-of-select",
        "By the select's label.",
        f"<label id=l>Fruit <select id=x>{_OPTIONS}</select></label>",
        ["b"],
        selector="#l",
    ),
    _selected("missing", "An option that never comes.", f"<select id=x>{_OPTIONS}</select>", ["z"], "no_option"),
    _selected(
        "disabled-option", "An option that stays disabled.", f"<select id=x>{_OPTIONS}</select>", ["d"], "disabled"
    ),
    _selected(
        "disabled-group",
        "An option of a disabled group.",
        "<select id=x><option>a<optgroup disabled label=g><option value=b>B</select>",
        ["b"],
        "disabled",
    ),
    _selected("disabled", "A disabled select.", f"<select id=x disabled>{_OPTIONS}</select>", ["b"], "disabled"),
    _selected(
        "hidden",
        "A select that is hidden behind something styled.",
        f"<select id=x style='display:none'>{_OPTIONS}</select><div>Apple ▾</div>",
        ["b"],
        "not_visible",
    ),
    _selected(
        "see-through",
        "A select that lies unseen over something styled.",
        f"<select id=x style='opacity:0;position:absolute'>{_OPTIONS}</select><div>Apple ▾</div>",
        ["b"],
    ),
    Situation(
        name="select-no-select",
        about="What is no select is refused.",
        pages={"/": "<input id=x>"},
        ours=[Select(selector="#x", values=["a"])],
        theirs=lambda page: page.select_option("#x", "a"),
        seen="x.value",
        end="wrong_kind",
    ),
    Situation(
        name="select-submits",
        about="A choice that submits the form takes the page along.",
        pages={
            "/": f"<form action=/next><select id=x name=q onchange='form.submit()'>{_OPTIONS}</select></form>",
            "/next": "next",
        },
        ours=[Select(selector="#x", values=["c"])],
        theirs=steps(lambda page: page.select_option("#x", "c"), lambda page: page.wait_for_url("**/next*")),
        seen="location.pathname + location.search",
    ),
    Situation(
        name="select-frame-of-another-site",
        about="In a frame with a process of its own.",
        pages={
            "/": "<iframe src={other}/in></iframe><script>onmessage = ({data}) => { told = data }</script>",
            "/in": f"<select id=x onchange='parent.postMessage(this.value, `*`)'>{_OPTIONS}</select>",
        },
        ours=[Select(selector="iframe >> #x", values=["c"])],
        theirs=lambda page: page.frame_locator("iframe").locator("#x").select_option("c"),
        seen=when("globalThis.told", "told"),
    ),
    Situation(
        name="select-then-keys",
        about="After a choice the keys go on from it.",
        pages={"/": f"<select id=x>{_OPTIONS}</select>"},
        ours=[Select(selector="#x", values=["b"]), Press(selector="#x", key="ArrowUp")],
        theirs=steps(lambda page: page.select_option("#x", "b"), lambda page: page.press("#x", "ArrowUp")),
        seen="x.value",
    ),
    Situation(
        name="select-same",
        about="What is selected already is chosen.",
        pages={"/": recording("input", "change") + f"<select id=x>{_OPTIONS}</select>"},
        ours=[Select(selector="#x", values=["a"])],
        theirs=lambda page: page.select_option("#x", "a"),
        seen="[x.value, heard.length]",
        difference="Playwright fires both events though nothing has changed. A browser's own list fires none.",
        ours_pinned=Outcome(end="ok", seen=["a", 0]),
        theirs_pinned=Outcome(end="ok", seen=["a", 2]),
    ),
    Situation(
        name="select-too-many",
        about="Two options of a select that takes one.",
        pages={"/": f"<select id=x>{_OPTIONS}</select>"},
        ours=[Select(selector="#x", values=["b", "c"])],
        theirs=lambda page: page.select_option("#x", ["b", "c"]),
        seen="x.value",
        difference="Playwright takes the first one silently. We refuse: the caller is mistaken about the page.",
        ours_pinned=Outcome(end="wrong_kind", seen="a"),
        theirs_pinned=Outcome(end="ok", seen="b"),
    ),
    Situation(
        name="check-hidden-box",
        about="A box that is not shown is named itself; its label is shown.",
        pages={"/": "<label for=x>☐ Yes</label><input id=x type=checkbox style='display:none'>"},
        ours=[Check(selector="#x")],
        theirs=lambda page: page.check("#x"),
        seen="x.checked",
        limit_ms=SHORT_MS,
        difference="Playwright waits in vain for the box to be shown. We press the label that is drawn in its place.",
        ours_pinned=Outcome(end="ok", seen=True),
        theirs_pinned=Outcome(end="not_visible", seen=False),
    ),
    Situation(
        name="check-slow-switch",
        about="A switch that shows its state a moment after the press.",
        pages={
            "/": "<div id=x role=switch aria-checked=false "
            "onclick='setTimeout(() => { this.ariaChecked = true }, 100)'>S</div>"
        },
        ours=[Check(selector="#x")],
        theirs=lambda page: page.check("#x"),
        seen=when("x.ariaChecked === 'true'", "true"),
        difference="Playwright looks once, at once, and calls it failed. We give it a second.",
        ours_pinned=Outcome(end="ok", seen=True),
        theirs_pinned=Outcome(end="wrong_kind", seen=True),
    ),
    _checked("box", "A checkbox is clicked.", "<input id=x type=checkbox>"),
    _checked("box-off", "A checkbox is unchecked.", "<input id=x type=checkbox checked>", checked=False),
    _checked("box-already", "A checkbox that is checked already is left alone.", "<input id=x type=checkbox checked>"),
    _checked("box-already-disabled", "Also when it is disabled.", "<input id=x type=checkbox checked disabled>"),
    _checked(
        "radio",
        "A radio button takes the place of another.",
        "<input type=radio name=r id=y checked><input type=radio name=r id=x>",
        seen="[x.checked, y.checked, heard]",
    ),
    _checked(
        "radio-off",
        "A radio button cannot be unchecked.",
        "<input type=radio id=x checked>",
        checked=False,
        end="wrong_kind",
    ),
    _checked(
        "label",
        "By its label, of which the box is inside.",
        "<label id=l><input id=x type=checkbox> Yes</label>",
        selector="#l",
        seen="x.checked",
    ),
    _checked(
        "label-with-link",
        "By its label, of which a part is a link.",
        "<label id=l><input id=x type=checkbox> I accept <a href=#terms>the terms and conditions</a> here</label>",
        selector="#l",
        seen="[x.checked, location.hash]",
    ),
    _checked(
        "label-for",
        "By a label elsewhere.",
        "<input id=x type=checkbox><label id=l for=x>Yes</label>",
        selector="#l",
        seen="x.checked",
    ),
    _checked(
        "drawn-by-label",
        "A box that is not shown, drawn by the label that is named.",
        "<label id=l for=x>☐ Yes</label><input id=x type=checkbox style='display:none'>",
        selector="#l",
    ),
    _checked(
        "see-through",
        "A box that lies unseen over what is drawn.",
        "<div style='position:relative'>☐<input id=x type=checkbox "
        "style='opacity:0;position:absolute;left:0;width:20px;height:20px'></div>",
    ),
    _checked(
        "switch",
        "A switch of the page's own.",
        "<div id=x role=switch aria-checked=false onclick='this.ariaChecked = this.ariaChecked !== `true`'>S</div>",
        seen="[x.ariaChecked, heard]",
    ),
    _checked(
        "menu-item",
        "A menu item of the page's own.",
        "<div id=x role=menuitemcheckbox aria-checked=true onclick='this.ariaChecked = false'>S</div>",
        checked=False,
        seen="[x.ariaChecked, heard]",
    ),
    _checked(
        "indeterminate",
        "A box that is shown as neither.",
        "<input id=x type=checkbox><script>x.indeterminate = true</script>",
        seen="[x.checked, x.indeterminate, heard]",
    ),
    _checked(
        "indeterminate-checked",
        "A box that is shown as neither, but is checked.",
        "<input id=x type=checkbox checked><script>x.indeterminate = true</script>",
        seen="[x.checked, x.indeterminate, heard]",
    ),
    _checked(
        "vetoed",
        "A box that the page does not let be checked.",
        "<input id=x type=checkbox onclick='return false'>",
        end="wrong_kind",
        seen="x.checked",
    ),
    _checked(
        "reverted",
        "A box that the page unchecks again on change.",
        "<input id=x type=checkbox onchange='this.checked = false'>",
        end="wrong_kind",
        seen="x.checked",
    ),
    _checked("disabled", "A disabled box.", "<input id=x type=checkbox disabled>", end="disabled"),
    _checked(
        "label-of-disabled",
        "By the label of a disabled box.",
        "<label id=l><input id=x type=checkbox disabled> Yes</label>",
        selector="#l",
        end="disabled",
    ),
    _checked(
        "late-enabled",
        "A box that is enabled late.",
        "<input id=x type=checkbox disabled><script>setTimeout(() => { x.disabled = false }, 60)</script>",
    ),
    _checked("no-box", "What is no box is refused.", "<button id=x>B</button>", end="wrong_kind", seen="heard"),
    _checked(
        "replaced",
        "A box that is rendered anew when it is clicked.",
        "<div id=d><input id=x type=checkbox></div>"
        "<script>d.onclick = () => setTimeout(() => { d.innerHTML = '<input id=x type=checkbox checked>' })</script>",
        seen="x.checked",
    ),
)
