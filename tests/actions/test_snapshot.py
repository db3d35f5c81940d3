"""Writing a real page down as an accessibility tree."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tabherd.actions import snapshot as module
from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import AmbiguousTarget
from tabherd.wire import Click, Navigate, Snapshot

from .driving import act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


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
            '  text "Read the"',
            '  link "terms"',
            '  text "first."',
            '  form "Login"',
            '    textbox "E-mail" value="a@b.test"',
            '    textbox "Password" value="••••••"',
            '    checkbox "Remember me" [checked]',
            '    combobox "Size" value="M" options="S | M"',
            '    button "Send" [disabled]',
            "  list",
            "    listitem",
            '      text "One"',
            "    listitem",
            '      text "Two"',
            '  img "Logo"',
            '  generic "Custom"',
            "  group",
            '    button "More" [collapsed]',
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


async def test_a_ref_is_accepted_by_the_next_action(tab: ChromiumTab) -> None:
    await show(tab, "<button onclick='hit = 1'>A</button>")
    ref = (await act(tab, Snapshot())).partition("[ref=")[2].rstrip("]")
    await act(tab, Click(ref=ref))
    assert await ask(tab, "hit") == 1


async def test_a_part_of_the_page_can_be_written(tab: ChromiumTab) -> None:
    await show(tab, "<p>no</p><ul id=x><li>yes</ul><ul><li>no</ul>")
    assert await act(tab, Snapshot(selector="#x")) == 'list\n  listitem\n    text "yes"'
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
