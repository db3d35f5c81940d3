"""Where the script is, is remembered from one action to the next, and never taken for granted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tabherd import wire
from tabherd.actions import world as module
from tabherd.actions.world import DocumentLost, World
from tabherd.browsers.driver import ChromiumTab

from .driving import LIMIT_S, act, ask, show
from .site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Watched:
    """A page whose calls are written down."""

    def __init__(self, tab: ChromiumTab) -> None:
        self._tab = tab
        self.target_id = tab.target_id
        self.script = tab.script
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tab, name)

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self.calls.append(method)
        return await self._tab.call(method, params)


async def test_reading_a_page_again_takes_one_call(tab: ChromiumTab) -> None:
    await show(tab, "hello")
    await act(tab, wire.Text())
    watched = Watched(tab)
    assert await act(watched, wire.Text()) == "hello"
    assert watched.calls == ["Runtime.callFunctionOn"]


async def test_another_document_is_met_anew(tab: ChromiumTab, site: Site) -> None:
    await act(tab, wire.Navigate(url=site.origin + "/"))
    assert "Welcome" in await act(tab, wire.Text())
    await act(tab, wire.Navigate(url=site.other_origin + "/missing"))
    assert await act(tab, wire.Text()) == "gone"


async def test_going_back_reads_the_page_that_is_there(tab: ChromiumTab, site: Site) -> None:
    for path in ("/", "/missing"):
        await act(tab, wire.Navigate(url=site.origin + path))
        await act(tab, wire.Text())
    await act(tab, wire.Back())
    assert "Welcome" in await act(tab, wire.Text())
    await act(tab, wire.Forward())
    assert await act(tab, wire.Text()) == "gone"


@pytest.mark.parametrize("target", ["/missing", "other"])
async def test_a_document_that_came_unnoticed_is_read_in_its_own_world(
    tab: ChromiumTab, site: Site, target: str
) -> None:
    await act(tab, wire.Navigate(url=site.origin + "/"))
    await act(tab, wire.Text())
    before = tab.script
    await act(tab, wire.Navigate(url=site.other_origin + "/missing" if target == "other" else site.origin + target))
    # As if the action had begun before the event was there that tells of the navigation.
    tab.script = before
    assert await act(tab, wire.Text()) == "gone"
    assert tab.script != before


async def test_a_page_that_is_taken_for_the_script_cannot_answer_for_it(tab: ChromiumTab) -> None:
    await show(
        tab,
        f"""honest<script>
        window.asked = 0;
        const forged = {{get token() {{ asked++; return arguments.callee.caller?.arguments?.[0]; }},
                         readPage: () => ({{done: 'forged'}})}};
        Object.hasOwn = () => true;
        Object.defineProperty(window, '{module._SCRIPT}', {{get: () => forged}});
        </script>""",
    )
    # The number of the page's own world.
    main_world = (await tab.call("Runtime.evaluate", {"expression": "({})"}))["result"]["objectId"]
    tab.script = (int(main_world.split(".")[1]), "0" * 32)
    assert await act(tab, wire.Text()) == "honest"
    # It was really met: without that, nothing has been shown.
    assert await ask(tab, "asked") == 1


async def test_a_script_of_another_version_is_not_used(tab: ChromiumTab, monkeypatch: pytest.MonkeyPatch) -> None:
    await show(tab, "hello")
    await act(tab, wire.Text())
    # A new life of the broker: nothing is remembered, and its script has changed.
    tab.script = None
    renamed = "tabherd_next"
    monkeypatch.setattr(module, "_CALL", module._CALL.replace(module._SCRIPT, renamed))
    monkeypatch.setattr(module, "_SCRIPT", renamed)
    watched = Watched(tab)
    assert await act(watched, wire.Text()) == "hello"
    assert watched.calls.count("Runtime.evaluate") == 1


async def test_a_world_that_has_answered_is_lost_with_its_document(tab: ChromiumTab) -> None:
    await show(tab, "one")
    met = await World.of(tab)
    await met.run("addressOf")
    recalled = await World.of(tab)
    await recalled.run("addressOf")
    await show(tab, "two")
    for world in (met, recalled):
        with pytest.raises(DocumentLost):
            async with asyncio.timeout(LIMIT_S):
                await world.run("addressOf")
