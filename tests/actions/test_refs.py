"""What a ref means after the page has changed: the same thing, drawn anew or not, or nothing; never another thing."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tabherd.actions import world
from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import AmbiguousTarget, StaleRef
from tabherd.wire import Back, Click, Fill, Navigate, Snapshot, Text

from .driving import act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

# Draws the list `rows` into #list with a new element for everything; a click on a button says whose it was.
TABLE = """<h1>Users</h1><table><tbody id=list></tbody></table><script>
hit = null; rows = %s;
draw = () => { list.innerHTML = rows.map((row) =>
  `<tr><td>${row}</td><td><button onclick="hit = '${row}'">Delete</button></td></tr>`).join('') }; draw()</script>"""
# The same in elements without a meaning.
CARDS = TABLE.replace("<table><tbody id=list></tbody></table>", "<div id=list></div>").replace(
    "<tr><td>${row}</td><td><button onclick=\"hit = '${row}'\">Delete</button></td></tr>",
    "<div><b>${row}</b><button onclick=\"hit = '${row}'\">Delete</button></div>",
)


def refs(written: str, thing: str) -> list[str]:
    """The refs of everything that is called so, in order."""
    return re.findall(rf"{re.escape(thing)} \[ref=([a-z0-9.]+)\]", written)


async def shown(tab: ChromiumTab, html: str, thing: str) -> list[str]:
    await show(tab, html)
    return refs(await act(tab, Snapshot()), thing)


async def assert_stale(tab: ChromiumTab, ref: str) -> None:
    with pytest.raises(StaleRef):
        await act(tab, Click(ref=ref))


def rows(html: str, names: Sequence[str]) -> str:
    return html % list(names)


# --- Drawn anew ------------------------------------------------------------------------------------------------------


async def test_a_ref_survives_when_the_whole_app_is_drawn_anew_and_a_counter_counts_on(tab: ChromiumTab) -> None:
    page = """<div id=app></div><script>count = 0; draw = () => { app.innerHTML =
    `<h1>Counter</h1><p>Count: ${count}</p><button onclick='count++; draw()'>Add</button>` }; draw()</script>"""
    (add,) = await shown(tab, page, 'button "Add"')
    for _ in range(3):
        await act(tab, Click(ref=add))
    assert await ask(tab, "count") == 3


@pytest.mark.parametrize("html", [TABLE, CARDS], ids=["rows", "plain elements"])
async def test_a_ref_in_a_list_that_is_drawn_anew_means_its_own_row(tab: ChromiumTab, html: str) -> None:
    deletes = await shown(tab, rows(html, ["Ann", "Bob", "Cy"]), 'button "Delete"')
    await ask(tab, "rows = ['Dee', 'Cy', 'Bob', 'Ann']; draw()")
    await act(tab, Click(ref=deletes[1]))
    assert await ask(tab, "hit") == "Bob"


@pytest.mark.parametrize("html", [TABLE, CARDS], ids=["rows", "plain elements"])
@pytest.mark.parametrize("left", [["Ann", "Cy"], ["Dee"]])
async def test_the_ref_of_a_deleted_row_never_means_another_row(tab: ChromiumTab, html: str, left: list[str]) -> None:
    deletes = await shown(tab, rows(html, ["Ann", "Bob", "Cy"]), 'button "Delete"')
    await ask(tab, f"rows = {left}; draw()")
    await assert_stale(tab, deletes[1])
    assert await ask(tab, "hit") is None


@pytest.mark.parametrize("html", [TABLE, CARDS], ids=["rows", "plain elements"])
async def test_the_only_row_that_gives_way_to_another_leaves_its_ref_stale(tab: ChromiumTab, html: str) -> None:
    (delete,) = await shown(tab, rows(html, ["Ann"]), 'button "Delete"')
    await ask(tab, "rows = ['Bob']; draw()")
    await assert_stale(tab, delete)


async def test_of_several_alike_that_nothing_tells_apart_none_is_chosen(tab: ChromiumTab) -> None:
    buttons = "<div id=app>" + "<p><button>Delete</button></p>" * 3 + "</div>"
    deletes = await shown(tab, buttons, 'button "Delete"')
    await ask(tab, "void (app.innerHTML = '<p><button>Delete</button></p>')")
    for delete in deletes:
        await assert_stale(tab, delete)


async def test_a_thing_that_is_there_twice_afterwards_is_not_guessed(tab: ChromiumTab) -> None:
    (save,) = await shown(tab, "<div id=app><button>Save</button></div>", 'button "Save"')
    await ask(tab, "void (app.innerHTML = '<button>Save</button><button>Save</button>')")
    await assert_stale(tab, save)


async def test_what_was_shown_together_with_a_thing_does_not_take_its_place(tab: ChromiumTab) -> None:
    (save,) = await shown(tab, "<div><button>Save</button><button>Safe</button></div>", 'button "Save"')
    await ask(tab, "document.querySelector('button').remove()")
    await ask(tab, "void (document.querySelector('button').textContent = 'Save')")
    await assert_stale(tab, save)


async def test_a_field_survives_being_drawn_anew_with_its_error_beside_it(tab: ChromiumTab) -> None:
    form = "<form id=f><label>E-mail <input name=mail></label>%s</form>"
    (mail,) = await shown(tab, form % "", 'textbox "E-mail"')
    await ask(tab, f"void (f.outerHTML = `{form % '<i>Not valid</i>'}`)")
    await act(tab, Fill(ref=mail, value="a@b.test"))
    assert await ask(tab, "f.mail.value") == "a@b.test"


async def test_another_identity_is_another_thing(tab: ChromiumTab) -> None:
    (delete,) = await shown(tab, "<div id=app><button data-id=17>Delete</button></div>", 'button "Delete"')
    await ask(tab, "void (app.innerHTML = '<button data-id=18>Delete</button>')")
    await assert_stale(tab, delete)


async def test_a_hidden_copy_does_not_count(tab: ChromiumTab) -> None:
    (save,) = await shown(tab, "<div id=app><button>Save</button></div>", 'button "Save"')
    await ask(tab, "void (app.innerHTML = '<button hidden>Save</button><button onclick=hit=1>Save</button>')")
    await act(tab, Click(ref=save))
    assert await ask(tab, "hit") == 1


async def test_a_ref_of_a_part_is_not_taken_for_the_only_one_when_there_are_more(tab: ChromiumTab) -> None:
    await show(tab, "<div id=app><button>Save</button></div><div><button id=other>Save</button></div>")
    (save,) = refs(await act(tab, Snapshot(selector="#app")), 'button "Save"')
    await ask(tab, "app.remove()")
    await assert_stale(tab, save)


async def test_candidates_of_a_refusal_are_never_confused(tab: ChromiumTab) -> None:
    await show(tab, rows(TABLE, ["Ann", "Bob"]))
    with pytest.raises(AmbiguousTarget) as caught:
        await act(tab, Click(selector="text=Delete"))
    second = caught.value.details["candidates"][1]["ref"]
    await ask(tab, "rows = ['Ann']; draw()")
    await assert_stale(tab, second)


# --- Changed in place ------------------------------------------------------------------------------------------------


async def test_a_recycled_row_is_another_row_until_it_shows_the_first_again(tab: ChromiumTab) -> None:
    page = "<ul id=list>" + "".join(f"<li><b>{name}</b><button>Delete</button></li>" for name in ("Ann", "Bob"))
    deletes = await shown(tab, page + "</ul>", 'button "Delete"')
    await ask(tab, "void (list.querySelector('b').textContent = 'Cy')")
    await assert_stale(tab, deletes[0])
    again = refs(await act(tab, Snapshot()), 'button "Delete"')
    assert again[0] not in deletes
    assert again[1] == deletes[1]
    await ask(tab, "void (list.querySelector('b').textContent = 'Ann')")
    await act(tab, Click(ref=deletes[0]))
    await assert_stale(tab, again[0])


async def test_a_recycled_link_is_told_by_its_address(tab: ChromiumTab) -> None:
    links = await shown(tab, "<ul><li><a id=a href='#/1'>Open</a></li></ul>".replace("#/", "?"), 'link "Open"')
    await ask(tab, "a.setAttribute('href', '?2')")
    await assert_stale(tab, links[0])


async def test_a_link_to_the_same_address_is_itself_whatever_it_says(tab: ChromiumTab) -> None:
    (inbox,) = await shown(tab, "<ul><li><a id=a href='?inbox'>Inbox (3)</a></li></ul>", 'link "Inbox (3)"')
    await ask(tab, "void (a.textContent = 'Inbox (4)')")
    assert await act(tab, Text(ref=inbox)) == "Inbox (4)"


async def test_a_button_whose_text_changes_is_still_that_button(tab: ChromiumTab) -> None:
    (save,) = await shown(tab, "<p>Draft</p><button onclick='textContent = \"Saving…\"'>Save</button>", 'button "Save"')
    await act(tab, Click(ref=save))
    assert await act(tab, Text(ref=save)) == "Saving…"
    assert refs(await act(tab, Snapshot()), 'button "Saving…"') == [save]


async def test_times_and_other_buttons_of_a_row_may_change(tab: ChromiumTab) -> None:
    page = "<article><p>News</p><time>1 min ago</time><button id=like>Like 3</button><button>Share</button></article>"
    (share,) = await shown(tab, page, 'button "Share"')
    await ask(tab, "like.textContent = 'Like 4'; void (document.querySelector('time').textContent = '2 min ago')")
    await act(tab, Click(ref=share))


async def test_a_field_in_an_item_stays_itself_when_an_error_appears(tab: ChromiumTab) -> None:
    (mail,) = await shown(tab, "<ul><li id=i><label>Mail <input name=m></label></li></ul>", 'textbox "Mail"')
    await ask(tab, "i.insertAdjacentHTML('beforeend', '<i>Not valid</i>')")
    await act(tab, Fill(ref=mail, value="x"))


async def test_an_element_that_became_something_else_is_stale(tab: ChromiumTab) -> None:
    (tile,) = await shown(tab, "<div id=t role=button tabindex=0>Menu</div>", 'button "Menu"')
    await ask(tab, "t.setAttribute('role', 'link')")
    await assert_stale(tab, tile)


# --- What a stale ref says, and what is remembered -------------------------------------------------------------------


async def resolved(tab: ChromiumTab, ref: str) -> dict[str, object]:
    """What the script itself answers."""
    look = {"parts": [{"by": "ref", "body": ref}], "needs": [], "sliceMs": 0, "round": 0}
    answer = await (await world.World.of(tab)).run("locate", look)
    refused: dict[str, object] = answer["refused"]
    return refused


async def test_a_stale_ref_says_what_it_was(tab: ChromiumTab) -> None:
    (save,) = await shown(tab, "<button id=b>Save</button>", 'button "Save"')
    await ask(tab, "b.remove()")
    refused = await resolved(tab, save)
    assert (refused["stale"], refused["role"], refused["name"]) == (save, "button", "Save")


async def test_another_document_knows_nothing_of_a_ref(tab: ChromiumTab, site: Site) -> None:
    site.own["/a"] = site.own["/b"] = "<button>Save</button>"
    await act(tab, Navigate(url=f"{site.origin}/a"))
    (save,) = refs(await act(tab, Snapshot()), 'button "Save"')
    await act(tab, Navigate(url=f"{site.origin}/b"))
    await assert_stale(tab, save)


async def test_a_document_that_comes_back_has_its_refs_or_none(tab: ChromiumTab, site: Site) -> None:
    site.own["/a"] = "<button onclick=document.title='hit'>Save</button><script>born = Math.random()</script>"
    await act(tab, Navigate(url=f"{site.origin}/a"))
    born = await ask(tab, "born")
    (save,) = refs(await act(tab, Snapshot()), 'button "Save"')
    await act(tab, Navigate(url=f"{site.origin}/"))
    await act(tab, Back())
    if await ask(tab, "born") == born:
        await act(tab, Click(ref=save))
    else:
        await assert_stale(tab, save)


async def test_a_reloaded_frame_is_another_document(tab: ChromiumTab, site: Site) -> None:
    site.own["/top"], site.own["/in"] = "<iframe id=f src=/in></iframe>", "<button>Save</button>"
    await act(tab, Navigate(url=f"{site.origin}/top"))
    (save,) = refs(await act(tab, Snapshot()), 'button "Save"')
    await ask(tab, "new Promise((done) => { f.onload = () => done(null); f.contentWindow.location.reload() })")
    await assert_stale(tab, save)


async def test_a_page_that_is_drawn_anew_for_weeks_does_not_fill_the_memory(
    tab: ChromiumTab, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The bound itself would take thousands of elements to reach.
    monkeypatch.setattr(world, "_SOURCE", world._SOURCE.replace("const REFS_MAX = 5_000;", "const REFS_MAX = 20;"))
    page = "<button>Fixed</button><div id=app></div><script>draw = (n) => { app.innerHTML = Array.from({length: 8}, "
    (fixed,) = await shown(
        tab, page + "(_, at) => `<button>${n}.${at}</button>`).join('') }</script>", 'button "Fixed"'
    )
    first = ""
    for turn in range(5):
        await ask(tab, f"draw({turn})")
        written = await act(tab, Snapshot())
        first = first or refs(written, 'button "0.0"')[0]
        assert refs(written, 'button "Fixed"') == [fixed]
    refused = await resolved(tab, first)
    assert "name" not in refused, "what it was is forgotten"
    await act(tab, Click(ref=fixed))
