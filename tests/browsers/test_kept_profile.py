"""Profiles that a pool keeps: what is in them survives the browser, and no two browsers write to one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tabherd.browsers.port import LaunchFailed

from .real import launched, new_launcher, new_row, orphaned, processes_of

pytestmark = pytest.mark.browser

URL = "http://example.test/"
COOKIE = {"name": "who", "value": "me", "url": URL, "expires": 4_000_000_000}


async def test_logins_survive_and_only_the_profile_is_left(tmp_path: Path) -> None:
    profiles, kept = tmp_path / "profiles", tmp_path / "kept"
    settings = {"browser": "chromium", "isolation": "shared", "profile_dir": str(kept)}
    async with launched(profiles, **settings) as browser:
        tab = await browser.new_tab("")
        await tab.call("Network.setCookie", COOKIE)
    assert processes_of(browser.row) == []
    assert list(profiles.iterdir()) == []
    async with launched(profiles, **settings) as browser:
        tab = await browser.new_tab("")
        found = (await tab.call("Network.getCookies", {"urls": [URL]}))["cookies"]
    assert [cookie["value"] for cookie in found] == ["me"]


async def test_a_kept_profile_that_another_browser_uses_is_refused(tmp_path: Path) -> None:
    settings = {"isolation": "shared", "profile_dir": str(tmp_path / "kept")}
    async with launched(tmp_path / "profiles", **settings) as browser:
        with pytest.raises(LaunchFailed, match=rf"is in use by another browser \(pid {browser.row.pid}\)"):
            await new_launcher(tmp_path / "profiles", **settings).launch(new_row())
        await browser.new_tab("")


async def test_a_kept_profile_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = {"isolation": "shared", "profile_dir": str(tmp_path / "file" / "kept")}
    with pytest.raises(LaunchFailed, match="cannot be made: Not a directory"):
        await new_launcher(tmp_path / "profiles", **settings).launch(new_row())
    assert list((tmp_path / "profiles").iterdir()) == []


async def test_an_orphan_is_reaped_without_its_kept_profile(tmp_path: Path) -> None:
    profiles, kept = tmp_path / "profiles", tmp_path / "kept"
    settings = {"isolation": "shared", "profile_dir": str(kept)}
    with orphaned(profiles, **settings) as (row, _):
        launcher = new_launcher(profiles, **settings)
        await launcher.reap(row)
        assert await launcher.reap_strays(row.node_id, ()) == 0
        assert processes_of(row) == []
        assert list(profiles.iterdir()) == []
        assert (kept / "Default").is_dir()
