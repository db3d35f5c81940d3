"""Giving a real page files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tabherd.actions import upload as uploading
from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import ElementNotActionable
from tabherd.wire import Click, Navigate, Upload

from .driving import Waiting, act, ask, show
from .site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

HEARD = """<script>heard = []; for (const type of ['input', 'change', 'cancel', 'click', 'mousedown']) {
  document.addEventListener(type, (event) => heard.push([type, event.target.id, event.isTrusted]), true);
}</script>"""
INPUT = "<input id=i type=file>" + HEARD
CHOSEN = [["input", "i", True], ["change", "i", True]]
# A button that makes an input of its own, which is never in the page, and asks for files with it.
MAKING = """<button id=o>Choose</button><p id=p></p>{heard}<script>o.onclick = () => {{
  const made = Object.assign(document.createElement('input'), {{type: 'file', {more}}});
  made.onchange = () => {{ p.textContent = Array.from(made.files, (file) => file.name); }};
  made.click();
}};</script>"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name in ("one.txt", "two words é.csv"):
        (tmp_path / name).write_text(f"in {name}")
    return [str(tmp_path / name) for name in ("one.txt", "two words é.csv")]


def making(more: str = "") -> str:
    return MAKING.format(heard=HEARD, more=more)


async def names(tab: ChromiumTab) -> Any:
    return await ask(tab, "Array.from(i.files, (file) => file.name)")


async def test_a_file_input_is_given_a_file_that_it_can_read(tab: ChromiumTab, files: list[str]) -> None:
    await show(tab, INPUT)
    assert await act(tab, Upload(selector="#i", files=files[:1])) == ["one.txt"]
    assert await ask(tab, "i.files[0].text()") == "in one.txt"
    assert await ask(tab, "heard") == CHOSEN


async def test_what_a_person_could_not_choose_for_is_given_files_too(tab: ChromiumTab, files: list[str]) -> None:
    await show(tab, INPUT.replace("type=file", "type=file hidden accept=image/*"))
    assert await act(tab, Upload(selector="#i", files=files[:1])) == ["one.txt"]
    assert await ask(tab, "heard") == CHOSEN


async def test_a_label_stands_for_its_input(tab: ChromiumTab, files: list[str]) -> None:
    await show(tab, "<label for=i>Your <b>file</b></label>" + INPUT.replace("type=file", "type=file hidden"))
    assert await act(tab, Upload(selector="text=file", files=files[:1])) == ["one.txt"]
    assert await names(tab) == ["one.txt"]


async def test_several_files_go_into_an_input_for_several(tab: ChromiumTab, files: list[str]) -> None:
    await show(tab, INPUT.replace("type=file", "type=file multiple"))
    assert await act(tab, Upload(selector="#i", files=files)) == ["one.txt", "two words é.csv"]
    assert await names(tab) == ["one.txt", "two words é.csv"]


async def test_what_was_chosen_before_is_replaced_or_cleared(tab: ChromiumTab, files: list[str]) -> None:
    await show(tab, INPUT)
    await act(tab, Upload(selector="#i", files=files[:1]))
    await act(tab, Upload(selector="#i", files=files[1:]))
    assert await names(tab) == ["two words é.csv"]
    await ask(tab, "void heard.splice(0)")
    assert await act(tab, Upload(selector="#i", files=[])) == []
    assert await names(tab) == []
    assert [event[0] for event in await ask(tab, "heard")] == ["input", "change"]


async def test_several_files_for_an_input_for_one_are_refused(tab: ChromiumTab, files: list[str]) -> None:
    await show(tab, INPUT)
    with pytest.raises(ElementNotActionable, match="one file only"):
        await act(tab, Upload(selector="#i", files=files))
    assert await ask(tab, "heard") == []


@pytest.mark.parametrize(
    "page", [INPUT.replace("type=file", "type=file webkitdirectory"), making("webkitdirectory: true")]
)
async def test_an_input_for_a_directory_is_refused_in_words(tab: ChromiumTab, files: list[str], page: str) -> None:
    await show(tab, page)
    with pytest.raises(ElementNotActionable, match="directory"):
        await act(tab, Upload(selector="#i" if "id=i" in page else "#o", files=files[:1]))


@pytest.mark.parametrize(
    "page",
    [
        "<div id=host></div><script>host.attachShadow({mode: 'open'}).innerHTML = '<input type=file>'</script>",
        """<div id=host></div><script>const root = host.attachShadow({mode: 'open'});
        root.innerHTML = '<button>Pick</button><input type=file hidden>';
        root.querySelector('button').onclick = () => root.querySelector('input').click();</script>""",
    ],
    ids=["input", "button"],
)
async def test_what_is_in_a_shadow_root_is_given_files(tab: ChromiumTab, files: list[str], page: str) -> None:
    await show(tab, page)
    inner = "button" if "button" in page else "input"
    assert await act(tab, Upload(selector=f"#host >> {inner}", files=files[:1])) == ["one.txt"]
    assert await ask(tab, "host.shadowRoot.querySelector('input').files[0].text()") == "in one.txt"


# --- Whatever opens the chooser ---------------------------------------------------------------------------------


async def test_a_press_that_opens_the_chooser_is_answered_with_the_files(tab: ChromiumTab, files: list[str]) -> None:
    await show(tab, making())
    assert await act(tab, Upload(selector="#o", files=files[:1])) == ["one.txt"]
    assert await ask(tab, "p.textContent") == "one.txt"
    assert await ask(tab, "heard[0]") == ["mousedown", "o", True]


async def test_a_chooser_for_one_is_not_given_several(tab: ChromiumTab, files: list[str]) -> None:
    await show(tab, making())
    with pytest.raises(ElementNotActionable, match="one file only"):
        await act(tab, Upload(selector="#o", files=files))
    await show(tab, making("multiple: true"))
    assert len(await act(tab, Upload(selector="#o", files=files))) == 2


async def test_a_page_that_opens_the_chooser_late_is_waited_for(tab: ChromiumTab, files: list[str]) -> None:
    await show(tab, making().replace("made.click()", "setTimeout(() => made.click(), 300)"))
    assert await act(tab, Upload(selector="#o", files=files[:1])) == ["one.txt"]


async def test_a_page_that_removes_the_input_as_it_is_clicked_gets_its_files(
    tab: ChromiumTab, files: list[str]
) -> None:
    page = "<button id=o onclick='i.click(); i.remove()'>Choose</button><p id=p></p><input id=i type=file hidden>"
    await show(tab, page + "<script>i.onchange = (event) => p.textContent = event.target.files[0].name</script>")
    assert await act(tab, Upload(selector="#o", files=files[:1])) == ["one.txt"]
    assert await ask(tab, "p.textContent") == "one.txt"


async def test_a_press_that_opens_nothing_is_told(
    tab: ChromiumTab, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "CHOOSER_LIMIT_S", 0.2)
    await show(tab, "<button id=o onclick='got = 1'>Nothing</button>")
    with pytest.raises(ElementNotActionable, match="opened no file chooser"):
        await act(tab, Upload(selector="#o", files=files[:1]))
    assert await ask(tab, "got") == 1


async def test_a_chooser_without_an_input_is_told(tab: ChromiumTab, site: Site, files: list[str]) -> None:
    site.own["/picker"] = "<button id=o onclick='showOpenFilePicker().catch((e) => { got = e.name })'>Pick</button>"
    await act(tab, Navigate(url=f"{site.origin}/picker"))
    with pytest.raises(ElementNotActionable, match="belongs to no file input"):
        await act(tab, Upload(selector="#o", files=files[:1]))
    assert await ask(tab, "got") == "AbortError"


async def test_choosers_are_the_browser_s_own_business_again(own_tab: ChromiumTab, files: list[str]) -> None:
    await show(own_tab, making())
    await act(own_tab, Upload(selector="#o", files=files[:1]))
    opened: list[Any] = []
    own_tab.listen("Page.fileChooserOpened", opened.append)
    await act(own_tab, Click(selector="#o"))
    await ask(own_tab, "new Promise((done) => setTimeout(done, 100))")
    assert opened == []


async def test_choosers_are_let_be_when_the_caller_leaves(own_tab: ChromiumTab, files: list[str]) -> None:
    # Pressed: from then on a chooser is waited for.
    page = "<button id=o>Nothing yet</button><input id=i type=file><script>"
    await show(own_tab, page + "pressed = new Promise((done) => { o.onclick = () => setTimeout(done, 50); })</script>")
    async with Waiting(own_tab, Upload(selector="#o", files=files[:1])):
        await ask(own_tab, "pressed")
    opened: list[Any] = []
    own_tab.listen("Page.fileChooserOpened", opened.append)
    await act(own_tab, Click(selector="#i"))
    await ask(own_tab, "new Promise((done) => setTimeout(done, 100))")
    assert opened == []


# --- Pages that do something with what they get -----------------------------------------------------------------


async def test_the_names_are_told_although_the_page_empties_the_input(tab: ChromiumTab, files: list[str]) -> None:
    await show(tab, INPUT + "<script>i.oninput = i.onchange = () => { i.value = ''; }</script>")
    assert await act(tab, Upload(selector="#i", files=files[:1])) == ["one.txt"]


async def test_a_page_that_goes_on_when_it_has_its_file_holds_nobody_up(
    tab: ChromiumTab, site: Site, files: list[str]
) -> None:
    site.own["/form"] = "<form action=/><input id=i type=file name=f onchange='this.form.submit()'></form>"
    await act(tab, Navigate(url=f"{site.origin}/form"))
    assert await act(tab, Upload(selector="#i", files=files[:1])) == ["one.txt"]
    assert await ask(tab, "document.title") == "Home"


async def test_an_input_that_is_replaced_a_moment_before_is_looked_for_again(
    tab: ChromiumTab, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await show(tab, INPUT)
    give = uploading.World.give_files
    tries = []

    async def late(world: uploading.World, paths: list[str]) -> None:
        if not tries:
            await ask(tab, "void i.replaceWith(i.cloneNode())")
        tries.append(paths)
        await give(world, paths)

    monkeypatch.setattr(uploading.World, "give_files", late)
    assert await act(tab, Upload(selector="#i", files=files[:1])) == ["one.txt"]
    assert await names(tab) == ["one.txt"]
