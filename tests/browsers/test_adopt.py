"""Browsers that an earlier life of the node started: taken over, or ended when nobody wrote them down."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tabherd.browsers import adopt, debug_port, process
from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.port import BrowserGone
from tabherd.core.model import Browser, changed

from .real import blank_tab, launched, new_launcher, new_row, orphaned, processes_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that answers late because the machine is busy is not one that does not answer."""
    monkeypatch.setattr(adopt, "ADOPT_LIMIT_S", 60)


async def adopted(profiles_dir: Path, row: Browser, **settings: object) -> ChromiumBrowser:
    browser = await new_launcher(profiles_dir, **settings).adopt(row)
    assert isinstance(browser, ChromiumBrowser)
    return browser


async def value(browser: ChromiumBrowser, target_id: str, expression: str) -> Any:
    tab = await browser.attach_tab(target_id)
    return (await tab.call("Runtime.evaluate", {"expression": expression}))["result"].get("value")


# --- Adopting -------------------------------------------------------------------------------------------------------


async def test_an_adopted_browser_has_its_pages_and_cookies_and_can_be_ended(tmp_path: Path) -> None:
    with orphaned(tmp_path) as (row, target_id):
        browser = await adopted(tmp_path, row)
        assert browser.row == row
        assert row.port in debug_port._reserved
        page = next(page for page in await browser.pages() if page.target_id == target_id)
        assert [page.context_id] == await browser.context_ids()
        assert await value(browser, target_id, "state") == 42
        tab = await browser.attach_tab(target_id)
        cookies = (await tab.call("Network.getCookies", {"urls": ["http://example.test/"]}))["cookies"]
        assert [cookie["value"] for cookie in cookies] == ["me"]
        assert (await blank_tab(browser)).target_id != target_id
        await asyncio.gather(browser.stop(), browser.stop())
        assert process.group_members(row.pid) == []
        assert processes_of(row) == []
        assert list(tmp_path.iterdir()) == []
        assert row.port not in debug_port._reserved


async def test_an_adopted_page_still_may_not_write_files(tmp_path: Path) -> None:
    with orphaned(tmp_path) as (row, _):
        said: list[tuple[str, Any]] = []
        call = adopt.CdpConnection.call

        async def heard(self: Any, method: str, params: Any = None, session_id: str | None = None) -> Any:
            said.append((method, params))
            return await call(self, method, params, session_id)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(adopt.CdpConnection, "call", heard)
            browser = await adopted(tmp_path, row, isolation="shared")
        context_ids = await browser.context_ids()
        forbidden = [params.get("browserContextId") for method, params in said if method.endswith("DownloadBehavior")]
        assert forbidden == [*context_ids, None]
        await browser.stop()


async def test_the_death_of_an_adopted_browser_is_told_at_once_and_its_group_goes_with_it(tmp_path: Path) -> None:
    with orphaned(tmp_path) as (row, target_id):
        browser = await adopted(tmp_path, row)
        tab = await browser.attach_tab(target_id)
        waiting = asyncio.create_task(
            tab.call("Runtime.evaluate", {"expression": "new Promise(() => {})", "awaitPromise": True})
        )
        await tab.call("Runtime.evaluate", {"expression": "1"})
        os.kill(row.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            assert await browser.wait_gone()
        with pytest.raises(BrowserGone):
            await waiting
        await browser.stop()
        assert process.group_members(row.pid) == []
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", [{"pid_started": 1}, {"id": "brw_other"}, {"port": 1}])
async def test_a_browser_that_is_not_the_one_described_is_not_adopted(
    browser: ChromiumBrowser, tmp_path: Path, change: dict[str, Any]
) -> None:
    assert await new_launcher(tmp_path).adopt(changed(browser.row, **change)) is None
    await blank_tab(browser)


async def test_a_browser_that_pastes_selections_is_adopted_for_sessions_alone_only(tmp_path: Path) -> None:
    with orphaned(tmp_path, isolation="browser") as (row, _):
        assert await new_launcher(tmp_path, isolation="context").adopt(row) is None
        assert await new_launcher(tmp_path, isolation="shared").adopt(row) is None
        await (await adopted(tmp_path, row, isolation="browser")).stop()


async def test_a_browser_that_is_gone_is_not_adopted(tmp_path: Path) -> None:
    async with launched(tmp_path) as browser:
        row = browser.row
    assert await new_launcher(tmp_path).adopt(row) is None


async def test_a_browser_of_a_pool_that_is_gone_is_not_adopted(browser: ChromiumBrowser, tmp_path: Path) -> None:
    assert await new_launcher(tmp_path).adopt(changed(browser.row, pool="other")) is None


async def test_a_browser_that_does_not_answer_is_not_adopted_and_not_harmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with orphaned(tmp_path) as (row, target_id):
        os.kill(row.pid, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(adopt, "ADOPT_LIMIT_S", 0.3)
            assert await new_launcher(tmp_path).adopt(row) is None
        assert row.port not in debug_port._reserved
        os.kill(row.pid, signal.SIGCONT)
        browser = await adopted(tmp_path, row)
        assert await value(browser, target_id, "state") == 42
        await browser.stop()


async def test_an_adoption_that_is_cancelled_leaves_the_browser_as_it_was(tmp_path: Path) -> None:
    with orphaned(tmp_path) as (row, target_id):
        os.kill(row.pid, signal.SIGSTOP)
        adopting = asyncio.create_task(new_launcher(tmp_path).adopt(row))
        await asyncio.sleep(0.05)
        adopting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adopting
        os.kill(row.pid, signal.SIGCONT)
        assert row.port not in debug_port._reserved
        browser = await adopted(tmp_path, row)
        assert await value(browser, target_id, "state") == 42
        await browser.stop()


# --- Strays ---------------------------------------------------------------------------------------------------------


async def test_only_browsers_that_nobody_knows_are_ended_and_their_profiles_removed(tmp_path: Path) -> None:
    with orphaned(tmp_path) as (stray, _):
        launcher = new_launcher(tmp_path)
        known = await launcher.launch(changed(new_row(), node_id=stray.node_id))
        try:
            assert await launcher.reap_strays(stray.node_id, {known.row.id, "brw_x"}) == 1
            assert process.group_members(stray.pid) == []
            assert [directory.name for directory in tmp_path.iterdir()] == [known.row.id]
            await blank_tab(known)
        finally:
            await known.stop()


async def test_profiles_without_a_browser_are_removed_and_nothing_else_is(tmp_path: Path) -> None:
    profiles, precious = tmp_path / "profiles", tmp_path / "precious"
    for directory in (profiles / "brw_left" / "Default", profiles / "brw_known", precious):
        directory.mkdir(parents=True)
    (profiles / "note.txt").write_text("not a profile")
    (profiles / "link").symlink_to(precious)
    assert await new_launcher(profiles).reap_strays("nod_nobody", {"brw_known"}) == 1
    assert sorted(entry.name for entry in profiles.iterdir()) == ["brw_known", "link", "note.txt"]
    assert precious.is_dir()


async def test_browsers_of_other_nodes_are_no_strays(browser: ChromiumBrowser, tmp_path: Path) -> None:
    node_id = browser.row.node_id
    assert await adopt.reap_strays(tmp_path / "none", node_id[:-1], ()) == 0
    await blank_tab(browser)


async def test_a_process_without_the_marker_is_no_stray(tmp_path: Path) -> None:
    bystander = process.ChildGroup(
        ("/bin/sleep", "1000"), log_path=tmp_path / "log", environ={"X": adopt.marker("nod_x", "brw_x")}
    )
    try:
        assert await adopt.reap_strays(tmp_path / "none", "nod_x", ()) == 0
        assert not bystander.has_exited
    finally:
        await bystander.end()
