"""Launching, driving and ending a real Chromium."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tabherd.browsers import chromium, debug_port, process, profile
from tabherd.browsers.cdp import CdpConnection
from tabherd.browsers.chromium import ChromiumBrowser, ChromiumLauncher
from tabherd.browsers.find import FoundBrowser, find_browser
from tabherd.browsers.port import LaunchFailed, TabGone
from tabherd.config import Pool
from tabherd.core.model import changed

from .real import blank_tab, launched, new_launcher, new_row, orphaned, processes_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


def launcher_of(binary: Path, profiles_dir: Path, start_limit_ms: int = 20_000) -> ChromiumLauncher:
    """One that starts that program, browser or not."""
    found = FoundBrowser(path=binary, kind="headless-shell", version="")
    return ChromiumLauncher(profiles_dir, {"default": Pool(start_limit_ms=start_limit_ms)}, find=lambda *_: found)


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


# --- Driving --------------------------------------------------------------------------------------------------------


async def test_the_row_says_how_to_find_the_browser_again(browser: ChromiumBrowser) -> None:
    row = browser.row
    assert row.pid_started == process.start_time(row.pid)
    assert f"--tabherd-owner={row.node_id}:{row.id}" in process.command_line(row.pid)
    assert os.getsid(row.pid) == row.pid
    assert row.port in debug_port.RESTRICTED_PORTS
    assert row.endpoint.startswith(f"ws://127.0.0.1:{row.port}/devtools/browser/")
    assert Path(row.profile_dir).is_dir()
    assert "Chrome" in row.product


async def test_contexts_do_not_share_cookies(browser: ChromiumBrowser) -> None:
    first, second = await asyncio.gather(blank_tab(browser), blank_tab(browser))
    cookie = {"name": "who", "value": "first", "url": "http://example.test/"}
    await first.call("Network.setCookie", cookie)
    assert len((await first.call("Network.getCookies", {"urls": [cookie["url"]]}))["cookies"]) == 1
    assert (await second.call("Network.getCookies", {"urls": [cookie["url"]]}))["cookies"] == []


async def test_a_context_outlives_the_connection_that_made_it(browser: ChromiumBrowser) -> None:
    maker = await CdpConnection.connect(browser.row.endpoint)
    passing = ChromiumBrowser(browser.row, maker, browser._group)
    context_id = await passing.new_context()
    await maker.close()
    tab = await browser.new_tab(context_id)
    assert (await tab.call("Runtime.evaluate", {"expression": "1 + 1"}))["result"]["value"] == 2
    await browser.dispose_context(context_id)


async def test_closing_and_disposing_what_is_gone_already_is_fine(browser: ChromiumBrowser) -> None:
    context_id = await browser.new_context()
    tab = await browser.new_tab(context_id)
    await browser.close_tab(tab.target_id)
    await browser.close_tab(tab.target_id)
    await browser.dispose_context(context_id)
    await browser.dispose_context(context_id)


async def test_a_closed_tab_fails_its_waiting_call(browser: ChromiumBrowser) -> None:
    tab = await blank_tab(browser)
    waiting = asyncio.create_task(
        tab.call("Runtime.evaluate", {"expression": "new Promise(() => {})", "awaitPromise": True})
    )
    await tab.call("Runtime.evaluate", {"expression": "1"})
    await browser.close_tab(tab.target_id)
    with pytest.raises(TabGone):
        await waiting


async def test_a_crashed_page_fails_its_waiting_call_and_leaves_the_others_alone(browser: ChromiumBrowser) -> None:
    victim, bystander = await asyncio.gather(blank_tab(browser), blank_tab(browser))
    crash = asyncio.create_task(victim.call("Page.crash"))
    with pytest.raises(TabGone):
        await victim.call("Runtime.evaluate", {"expression": "new Promise(() => {})", "awaitPromise": True})
    with pytest.raises(TabGone):
        await crash
    assert (await bystander.call("Runtime.evaluate", {"expression": "2"}))["result"]["value"] == 2


@pytest.mark.parametrize(("dialog", "answer"), [("confirm('x')", False)])
async def test_a_dialog_does_not_block_the_page(browser: ChromiumBrowser, dialog: str, answer: object) -> None:
    tab = await blank_tab(browser)
    loop, accept = asyncio.get_running_loop(), ("Page.handleJavaScriptDialog", {"accept": True})
    # Whoever answers after the driver comes too late.
    tab.listen("Page.javascriptDialogOpening", lambda _: loop.call_soon(tab.post, *accept))
    async with asyncio.timeout(60):
        result = (await tab.call("Runtime.evaluate", {"expression": dialog}))["result"]
    assert result.get("value") == answer


async def _pages_in(browser: ChromiumBrowser, context_id: str) -> list[Any]:
    targets = (await browser._connection.call("Target.getTargets"))["targetInfos"]
    return [target for target in targets if target.get("browserContextId") == context_id]


async def test_a_new_tab_whose_caller_leaves_is_closed(browser: ChromiumBrowser) -> None:
    context_id = await browser.new_context()
    attaching = asyncio.Event()

    async def attach_never(method: str, *rest: Any) -> dict[str, Any]:
        if method == "Target.attachToTarget":
            attaching.set()
            await asyncio.Event().wait()
        return await call(method, *rest)

    call, browser._connection.call = browser._connection.call, attach_never  # type: ignore[method-assign]
    try:
        caller = asyncio.create_task(browser.new_tab(context_id))
        await attaching.wait()
        assert len(await _pages_in(browser, context_id)) == 1
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
    finally:
        browser._connection.call = call  # type: ignore[method-assign]
    async with asyncio.timeout(60):
        while await _pages_in(browser, context_id):
            await asyncio.sleep(0.005)


# --- Death and ending -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["headless-shell", "chromium"])
async def test_stop_leaves_no_process_no_profile_and_no_reserved_port(kind: str, tmp_path: Path) -> None:
    async with launched(tmp_path, browser=kind) as browser:
        await blank_tab(browser)
        singleton = Path(browser.row.profile_dir) / "SingletonSocket"
        outside = Path(os.readlink(singleton)).parent if singleton.is_symlink() else None
        assert processes_of(browser.row) != []
    assert process.group_members(browser.row.pid) == []
    assert processes_of(browser.row) == []
    assert list(tmp_path.iterdir()) == []
    assert outside is None or not outside.exists()
    assert browser.row.port not in debug_port._reserved
    assert await browser.wait_gone() == "The browser was stopped."


async def test_a_stopped_process_that_does_not_answer_can_be_ended(tmp_path: Path) -> None:
    async with launched(tmp_path) as browser:
        os.kill(browser.row.pid, signal.SIGSTOP)
        await browser.stop()
        assert processes_of(browser.row) == []


# --- Launches that fail ---------------------------------------------------------------------------------------------


async def _refused(launcher: ChromiumLauncher, profiles_dir: Path) -> str:
    """The message of the launch's failure, once it is sure that it left nothing behind."""
    row = new_row()
    reserved = set(debug_port._reserved)
    with pytest.raises(LaunchFailed) as caught:
        await launcher.launch(row)
    assert processes_of(row) == []
    assert not profiles_dir.exists() or list(profiles_dir.iterdir()) == []
    assert debug_port._reserved == reserved
    return str(caught.value)


async def test_a_program_that_exits_at_once_is_reported_with_its_status(tmp_path: Path) -> None:
    message = await _refused(launcher_of(Path("/bin/false"), tmp_path / "profiles"), tmp_path / "profiles")
    assert "/bin/false exited with status 1" in message
    assert "It printed nothing" in message


async def test_what_a_failing_program_printed_is_in_the_message(tmp_path: Path) -> None:
    binary = script(tmp_path / "broken", "echo 'libnss3.so: cannot open shared object file' >&2; exit 127")
    message = await _refused(launcher_of(binary, tmp_path / "profiles"), tmp_path / "profiles")
    assert "status 127" in message
    assert "libnss3.so: cannot open shared object file" in message


async def test_a_program_that_hangs_is_ended_with_its_children_when_the_start_limit_is_over(tmp_path: Path) -> None:
    binary = script(tmp_path / "hangs", f"sleep 1000 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/group; wait")
    message = await _refused(launcher_of(binary, tmp_path / "profiles", 1_000), tmp_path / "profiles")
    assert "did not open its debug port within 1000 ms" in message
    assert "start_limit_ms" in message
    assert process.group_members(int((tmp_path / "group").read_text())) == []
    assert process.command_line(int((tmp_path / "child").read_text())) == ()


async def test_a_path_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    message = await _refused(launcher_of(tmp_path / "absent", tmp_path / "profiles"), tmp_path / "profiles")
    assert "cannot be started" in message


async def test_a_program_that_failed_is_looked_for_again(tmp_path: Path) -> None:
    looked, launcher = _counting(tmp_path, script(tmp_path / "exits", "exit 3"))
    for _ in range(2):
        await _refused(launcher, tmp_path / "profiles")
    assert looked == ["auto", "auto"]


async def test_a_browser_that_has_started_is_not_looked_for_again(tmp_path: Path) -> None:
    looked, launcher = _counting(tmp_path, find_browser().path)
    for _ in range(2):
        await (await launcher.launch(new_row())).stop()
    assert looked == ["auto"]


def _counting(tmp_path: Path, binary: Path) -> tuple[list[str], ChromiumLauncher]:
    """A launcher of that program, and what was looked for."""
    looked: list[str] = []

    def find(wanted: str, headless: bool) -> FoundBrowser:
        looked.append(wanted)
        return FoundBrowser(path=binary, kind="headless-shell", version="")

    return looked, ChromiumLauncher(tmp_path / "profiles", {"default": Pool()}, find=find)


async def test_no_browser_on_the_machine_is_reported_with_what_to_run(tmp_path: Path) -> None:
    message = await _refused(new_launcher(tmp_path, browser="/no/such/browser"), tmp_path)
    assert "There is no browser at /no/such/browser" in message


MOMENTS = {
    "the binary is looked for": (chromium.asyncio, "to_thread"),
    "the profile is made": (profile, "remove"),
    "the browser opens its port": (chromium, "_wait_listening"),
    "its version is asked for": (chromium, "ask_version"),
    "its socket is opened": (CdpConnection, "connect"),
    "its downloads are forbidden": (chromium, "forbid_downloads"),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_launch_that_is_cancelled_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    place, name = MOMENTS[moment]
    step, reached = getattr(place, name), asyncio.Event()

    async def reach(*args: Any, **options: Any) -> Any:
        reached.set()
        # The step begins, and is cancelled wherever it happens to be.
        await asyncio.sleep(0)
        return await step(*args, **options)

    monkeypatch.setattr(place, name, reach)
    row, reserved = new_row(), set(debug_port._reserved)
    launching = asyncio.create_task(new_launcher(tmp_path, isolation="shared").launch(row))
    await reached.wait()
    monkeypatch.undo()
    for _ in range(3):
        launching.cancel()
        await asyncio.sleep(0.002)
    with pytest.raises(asyncio.CancelledError):
        await launching
    assert processes_of(row) == []
    assert list(tmp_path.iterdir()) == []
    assert debug_port._reserved == reserved


async def test_a_profile_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    # A file where the directory should be: also the superuser cannot write there.
    (tmp_path / "profiles").write_text("")
    with pytest.raises(LaunchFailed, match=r"profile directory .* cannot be written: Not a directory.*TABHERD_STATE"):
        await new_launcher(tmp_path / "profiles").launch(new_row())


async def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_path = Path.open

    def open_when_full(path: Path, *args: Any, **options: Any) -> Any:
        if path.name == profile.LOG_NAME:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return open_path(path, *args, **options)

    monkeypatch.setattr(Path, "open", open_when_full)
    assert "cannot be written: No space left on device" in await _refused(new_launcher(tmp_path), tmp_path)


async def test_a_window_of_the_full_build_has_no_pages_but_its_tabs(tmp_path: Path) -> None:
    # The pool's own wishes do not undo that, nor the other way round.
    async with launched(tmp_path, browser="chromium", flags=("--disable-features=BackForwardCache",)) as browser:
        await browser.new_tab(await browser.new_context())
        found = await browser._connection.call("Target.getTargets", {"filter": [{}]})
        assert [target["url"] for target in found["targetInfos"] if target["type"] == "browser_ui"] == []
        lines = [process.command_line(pid) for pid in process.group_members(browser.row.pid)]
        assert [line for line in lines if "--top-chrome-webui" in line] == []
        asked = [word for word in process.command_line(browser.row.pid) if word.startswith("--disable-features=")]
        assert [word.endswith(",BackForwardCache") for word in asked] == [True]


async def test_a_pools_own_blink_settings_cannot_bring_back_the_pasting_of_selections(tmp_path: Path) -> None:
    wished = "--blink-settings=imagesEnabled=false,middleClickPasteAllowed=true"
    async with launched(tmp_path, flags=(wished,)) as browser:
        words = process.command_line(browser.row.pid)
        asked = [word for word in words if word.startswith("--blink-settings=")]
        assert asked == [f"{wished},middleClickPasteAllowed=false,selectionClipboardBufferAvailable=false"]


async def test_a_port_that_somebody_else_took_is_given_up_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = stranger.getsockname()[1]
        reserve = debug_port.reserve
        monkeypatch.setattr(debug_port, "reserve", lambda tried: reserve(tried) if tried else taken)
        async with launched(tmp_path) as browser:
            assert browser.row.port in debug_port.RESTRICTED_PORTS


# --- What an earlier life left behind -------------------------------------------------------------------------------


async def test_a_browser_survives_the_kill_of_its_broker_and_is_reaped_by_the_next(tmp_path: Path) -> None:
    with orphaned(tmp_path) as (row, _):
        # It still answers, on the address that was written down.
        connection = await CdpConnection.connect(row.endpoint)
        assert (await connection.call("Browser.getVersion"))["product"] == row.product
        await connection.close()
        # Nobody wrote down its process.
        await new_launcher(tmp_path).reap(changed(row, pid=0, pid_started=0, profile_dir=""))
        assert process.group_members(row.pid) == []
        assert processes_of(row) == []
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", [{"pid_started": 1}, {"id": "brw_other"}])
async def test_reaping_never_ends_a_process_that_only_has_the_same_pid(
    browser: ChromiumBrowser, tmp_path: Path, change: dict[str, Any]
) -> None:
    row = changed(browser.row, profile_dir=str(tmp_path / "left"), **change)
    await new_launcher(tmp_path).reap(row)
    await blank_tab(browser)


async def test_reaping_a_row_whose_process_is_gone_removes_its_profile(tmp_path: Path) -> None:
    row = changed(new_row(), pid=0)
    left = tmp_path / row.id
    (left / "Default").mkdir(parents=True)
    (left / "Default" / "Cookies").write_text("x")
    await new_launcher(tmp_path).reap(changed(row, profile_dir=str(left)))
    assert not left.exists()


async def test_reaping_never_removes_a_directory_that_is_not_plainly_the_browsers(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    await new_launcher(tmp_path / "profiles").reap(changed(new_row(), profile_dir=str(precious)))
    assert precious.is_dir()
