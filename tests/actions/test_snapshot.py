"""Writing a real page down as an accessibility tree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from bench import rig
from bench.rig.tokens import tokens_in

from tabherd.actions import snapshot as module
from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import AmbiguousTarget
from tabherd.wire import Navigate, Snapshot

from .driving import act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def written(tab: ChromiumTab, html: str, **options: Any) -> str:
    """The snapshot with its refs left out."""
    await show(tab, html)
    return re.sub(r" \[ref=[a-z0-9.]+\]", "", await act(tab, Snapshot(**options)))


PAGE = """<!doctype html><title>Shop</title><header><nav><a href=/>Home</a> <a href=/cart>Cart</a></nav></header>
<main><h1>Sign in</h1><p>Welcome <b>back</b>, friend.</p><p>Read the <a href=/terms>terms</a> first.</p>
<form aria-label=Login><label>E-mail <input value='a@b.test'></label><label for=p>Password</label>
<input id=p type=password value=secret><label><input type=checkbox checked> Remember me</label>
<select aria-label=Size><option>S<option selected>M</select><button disabled>Send</button></form>
<ul><li>One<li>Two</ul><img src=data: alt=Logo><img src=data: alt=''><div onclick=x()>Custom</div>
<div hidden>no</div><div aria-hidden=true>no</div><script>no</script>
<details><summary>More</summary>inside</details></main>"""


async def test_a_page_is_written_as_a_person_would_have_it_read_out(tab: ChromiumTab) -> None:
    assert await written(tab, PAGE) == "\n".join(
        [
            "banner",
            "  navigation",
            '    link "Home"',
            '    link "Cart"',
            "main",
            '  heading "Sign in" [level=1]',
            '  text "Welcome back, friend."',
            '  text "Read the" link "terms" "first."',
            '  form "Login"',
            '    textbox "E-mail" value="a@b.test"',
            '    textbox "Password" value="••••••"',
            '    checkbox "Remember me" [checked]',
            '    combobox "Size" value="M" options="S | M"',
            '    button "Send" [disabled]',
            '  - "One"',
            '  - "Two"',
            '  img "Logo"',
            '  generic "Custom"',
            '  button "More" [collapsed]',
        ]
    )


async def test_interactive_is_only_what_can_be_used(tab: ChromiumTab) -> None:
    assert (await written(tab, PAGE, interactive=True)).splitlines() == [
        *('link "Home"', 'link "Cart"', 'link "terms"'),
        *('textbox "E-mail" value="a@b.test"', 'textbox "Password" value="••••••"', 'checkbox "Remember me" [checked]'),
        *('combobox "Size" value="M" options="S | M"', 'button "Send" [disabled]', 'generic "Custom"'),
        'button "More" [collapsed]',
    ]


@pytest.mark.parametrize(
    ("html", "line"),
    [
        ("<div role=tab aria-selected=true>T</div>", 'tab "T" [selected]'),
        ("<button aria-expanded=true>M</button>", 'button "M" [expanded]'),
        ("<button aria-pressed=true>B</button>", 'button "B" [pressed]'),
        ("<input id=f aria-label=F><script>f.focus()</script>", 'textbox "F" [focused]'),
        (
            "<input type=checkbox id=c aria-label=C><script>c.indeterminate = true</script>",
            'checkbox "C" [checked=mixed]',
        ),
        ("<div contenteditable aria-label=E>typed</div>", 'textbox "E" value="typed"'),
        ("<div style='cursor:pointer'>Tile <b>big</b></div>", 'generic "Tile big"'),
        ('<button>a "b"\n c</button>', 'button "a \\"b\\" c"'),
        (
            "<div id=h></div><script>h.attachShadow({mode:'open'}).innerHTML = '<button>Deep</button>'</script>",
            'button "Deep"',
        ),
        (
            "<div id=h><b>slotted</b></div>"
            "<script>h.attachShadow({mode:'open'}).innerHTML = '<button><slot></slot></button>'</script>",
            'button "slotted"',
        ),
        ("<div style='display:contents'><button>In</button></div>", 'button "In"'),
        ("<button style='visibility:hidden'>no</button>", ""),
        ("", ""),
    ],
)
async def test_states_and_oddities(tab: ChromiumTab, html: str, line: str) -> None:
    assert await written(tab, html) == line


async def test_an_element_keeps_its_ref_and_new_ones_get_new_refs(tab: ChromiumTab) -> None:
    await show(tab, "<button id=a>A</button>")
    first: str = await act(tab, Snapshot())
    await ask(tab, "document.body.insertAdjacentHTML('afterbegin', '<button>B</button>')")
    second: list[str] = (await act(tab, Snapshot())).splitlines()
    assert second[1] == first
    assert second[0] != first.replace('"A"', '"B"')


async def test_a_part_of_the_page_can_be_written(tab: ChromiumTab) -> None:
    await show(tab, "<p>no</p><ul id=x><li>yes</ul><ul><li>no</ul>")
    assert await act(tab, Snapshot(selector="#x")) == '- "yes"'
    with pytest.raises(AmbiguousTarget):
        await act(tab, Snapshot(selector="ul"))


async def test_a_large_page_is_cut_and_says_so(tab: ChromiumTab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHARS_MAX", 300)
    await show(tab, "".join(f"<button>Button {number}</button>" for number in range(100)))
    lines = (await act(tab, Snapshot())).splitlines()
    assert lines[-1].startswith("... (cut")
    assert sum(len(line) + 1 for line in lines[:-1]) <= 300


async def test_more_frames_than_allowed_are_cut(tab: ChromiumTab, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRAMES_MAX", 2)
    site.own["/many"] = "<iframe srcdoc='<button>In'></iframe>" * 3
    await act(tab, Navigate(url=f"{site.origin}/many"))
    taken: str = await act(tab, Snapshot())
    assert taken.count('button "In"') == 2
    assert "... (cut" in taken


async def test_a_page_nested_without_end_does_not_break_the_snapshot(tab: ChromiumTab) -> None:
    await show(
        tab,
        "<p>top</p><script>let at = document.body; for (let i = 0; i < 1000; i++) {"
        "const next = document.createElement('div'); at.append(next); at = next } at.textContent = 'bottom'</script>",
    )
    assert (await act(tab, Snapshot())).startswith('text "top"')


# --- What belongs together, what is noise, and what is in the way ----------------------------------------------------


@pytest.mark.parametrize(
    ("html", "lines"),
    [
        ("<p>One <i>two</i><br>three</p><div>four</div>", ['text "One two three"', 'text "four"']),
        ("<ul><li><a href=/a>A</a> 5 <button>Add</button></ul>", ['- link "A" "5" button "Add"']),
        (
            "<ul><li>Top<ul><li>Low</ul><li><li>End</ul>",
            ['- "Top"', '  - "Low"', '- "End"'],
        ),
        ("<ul><li>A</ul><ul><li>B</ul>", ['- "A"', "list", '  - "B"']),
        (
            "<table><tr><th>N<th>V<th><tr><td>a<td><a href=/x>b</a><td></table>",
            ["table", '  - "N" "V" ""', '  - "a" link "b" ""'],
        ),
        (
            "<table><tr><td>a<td>b <button>c</button></table>",
            ["table", '  - "a" | "b" button "c"'],
        ),
        ("<table role=presentation><tr><td>a<td>b</table>", ['text "a"', 'text "b"']),
        ("<a href=/x><img src=data: alt=Hat></a><h3><a href=/x>Hat</a></h3>", ['heading [level=3]: link "Hat"']),
        ("<a href=/x><img src=data: alt=Hat> Hat</a>", ['link "Hat Hat"']),
        ("<a href=/x>A<svg><title>B</title></svg></a><svg></svg><img src=data:>", ['link "AB"']),
        (
            "<span>Wifi</span><button role=switch aria-label=Wifi aria-checked=true></button>",
            ['switch "Wifi" [checked]'],
        ),
        (
            "<section aria-labelledby=h><h2 id=h>News</h2>x</section>",
            ["region", '  heading "News" [level=2]', '  text "x"'],
        ),
        ("<a href=/x aria-current=page>A</a>", ['link "A" [current]']),
        ("<nav></nav><main><ul></ul></main>", []),
        (
            "<div style='cursor:pointer'>Card <button>Buy</button></div>",
            ["generic", '  text "Card"', '  button "Buy"'],
        ),
        (
            "<style>label {cursor: pointer}</style><label><input type=checkbox> Mail</label>",
            ['checkbox "Mail"'],
        ),
        ("<label>Dark <input type=checkbox hidden checked></label>", ['generic "Dark" [checked]']),
        ("<div role='foo button'>B</div>", ['button "B"']),
        ("<main inert><button>no</button></main><button>yes</button>", ["main [inert]", 'button "yes"']),
    ],
)
async def test_what_belongs_together_shares_a_line_and_noise_is_left_out(
    tab: ChromiumTab, html: str, lines: list[str]
) -> None:
    assert (await written(tab, html)).splitlines() == lines


@pytest.mark.parametrize(
    "dialog",
    [
        "<dialog id=d><h2>Sure?</h2><button>Yes</button></dialog><script>d.showModal()</script>",
        "<div role=dialog aria-modal=true style='position:fixed;inset:0'><h2>Sure?</h2><button>Yes</button></div>",
    ],
)
async def test_an_open_modal_dialog_is_all_there_is(tab: ChromiumTab, dialog: str) -> None:
    lines = (await written(tab, f"<button>Behind</button>{dialog}")).replace(" [focused]", "").splitlines()
    assert lines[:3] == ["dialog", '  heading "Sure?" [level=2]', '  button "Yes"']
    assert lines[3].startswith("... (this dialog is modal")
    assert len(lines) == 4


@pytest.mark.parametrize(
    "dialog",
    [
        "<dialog open>Not modal</dialog>",
        "<div role=dialog aria-modal=true style='position:fixed;left:-900px'>Out of sight</div>",
    ],
)
async def test_a_dialog_that_is_not_in_the_way_does_not_hide_the_rest(tab: ChromiumTab, dialog: str) -> None:
    assert 'button "Beside"' in await written(tab, f"<button>Beside</button>{dialog}")


async def test_no_text_of_a_page_passes_for_a_thing(tab: ChromiumTab) -> None:
    taken = await written(tab, '<p>x" button "Pay" [ref=aaa1]<ul><li>- button "Pay"</ul>')
    assert taken.splitlines() == ['text "x\\" button \\"Pay\\""', '- "- button \\"Pay\\""']


async def test_a_page_that_takes_too_long_is_cut_and_says_so(tab: ChromiumTab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DOCUMENT_MS", 0)
    await show(tab, "<p>x</p>" * 1000)
    taken: str = await act(tab, Snapshot())
    assert taken.splitlines()[-1].startswith("... (cut")
    assert len(taken.splitlines()) < 100


async def test_a_dozen_frames_in_each_other_are_written(tab: ChromiumTab, site: Site) -> None:
    for number in range(12):
        site.own[f"/{number}"] = f"<button>B{number}</button><iframe src=/{number + 1}></iframe>"
    site.own["/12"] = "end"
    await act(tab, Navigate(url=f"{site.origin}/0"))
    taken: str = await act(tab, Snapshot())
    assert taken.count("button") == 12


async def test_frames_that_do_not_answer_are_cut_and_the_rest_is_there(
    tab: ChromiumTab, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRAMES_S", 0)
    site.own["/many"] = "<button>Out</button>" + "<iframe srcdoc='<button>In'></iframe>" * 3
    await act(tab, Navigate(url=f"{site.origin}/many"))
    taken: str = await act(tab, Snapshot())
    assert 'button "Out"' in taken
    assert 'button "In"' not in taken
    assert "... (cut" in taken


TOKENS_MAX = 1_000
ORDINARY = sorted((Path(rig.__file__).parent / "ordinary").glob("*.html"))


@pytest.mark.parametrize("page", ORDINARY, ids=lambda page: page.stem)
async def test_an_ordinary_page_is_less_than_a_thousand_tokens(tab: ChromiumTab, site: Site, page: Path) -> None:
    site.own["/page"] = page.read_text()
    await act(tab, Navigate(url=f"{site.origin}/page"))
    taken: str = await act(tab, Snapshot())
    assert tokens_in(taken) < TOKENS_MAX
    assert "... (cut" not in taken
    # Nothing that can be used is missing: in the same order, and with the same names, as when there is nothing else.
    assert re.findall(r"\[ref=([a-z0-9]+)\]", await act(tab, Snapshot(interactive=True))) == [
        ref
        for line in taken.splitlines()
        for ref in re.findall(r"\[ref=([a-z0-9]+)\]", line)
        if not is_container(line, ref)
    ]


def is_container(line: str, ref: str) -> bool:
    return re.search(rf"\b(table|region|form)\b[^\[]*\[ref={ref}\]", line) is not None
