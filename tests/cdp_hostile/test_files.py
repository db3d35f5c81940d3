"""Files of the machine: none is given to a page, and none is written outside of the session's own directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cdp_life.wire_client import CdpError

from .conftest import Scene
from .hostile import Shot

pytestmark = [pytest.mark.server, pytest.mark.browser]

READ = "Promise.all([...document.querySelector('#file').files].map(file => file.text()))"


def own_directory(scene: Scene) -> Path:
    """A directory of the attacker's session, from which its pages may be given files."""
    session_id = scene.session_of(scene.sessions.mark)["sessionId"]
    with scene.server.agent("attacker") as attacker:
        answer = attacker.post(f"/sessions/{session_id}/files", params={"name": "own.txt"}, content=b"own")
        assert answer.status_code == 201, answer.text
    (found,) = [path for path in scene.server.state.rglob("uploads") if path.parent.name == session_id]
    return found


async def test_no_file_of_the_machine_is_put_into_a_page(scene: Scene) -> None:
    attacker, page = scene.attacker, scene.page
    own = own_directory(scene)
    link = own / "link"
    link.symlink_to("/etc/passwd")
    directory = own / "etc"
    directory.symlink_to("/etc")
    found = await attacker.call("Runtime.evaluate", {"expression": "document.querySelector('#file')"}, page)
    paths = (
        *("/etc/passwd", "file:///etc/passwd", "%2Fetc%2Fpasswd", "/%65tc/passwd", "//etc/passwd", "/etc//passwd"),
        *("/etc/./passwd", "etc/passwd", "~/.bashrc", "/proc/self/environ", "", "/", "\x00/etc/passwd"),
        *(str(link), str(directory / "passwd"), f"{own}/../../../../../../../../etc/passwd", f"{own}/%2e%2e/x"),
        *(f"{own}x", f"{own.parent}", f"{own}/../uploads", str(scene.server.state / "admin.token")),
    )
    shots = [
        Shot("DOM.setFileInputFiles", {"files": files, "objectId": found["result"]["objectId"]}, page)
        for files in [[path] for path in paths]
    ]
    answered = await attacker.volley(shots)
    link.unlink()
    directory.unlink()
    assert [shot.params["files"] for shot, answer in answered if answer is None or "error" not in answer] == []
    assert await attacker.value(READ, page) == []


async def test_files_are_not_dropped_on_a_page_nor_is_it_sent_to_one_by_what_is_dropped(scene: Scene) -> None:
    attacker, page = scene.attacker, scene.page
    drags: list[dict[str, Any]] = [{"items": [], "dragOperationsMask": 1, "files": ["/etc/passwd"]}]
    for mime_type in ("text/uri-list", "Text/URI-List; charset=x", " text/uri-list"):
        drags.append({"items": [{"mimeType": mime_type, "data": "file:///etc/passwd"}], "dragOperationsMask": 1})
    for data in drags:
        for step in ("dragEnter", "dragOver", "drop"):
            with pytest.raises(CdpError):
                await attacker.call("Input.dispatchDragEvent", {"type": step, "x": 9, "y": 9, "data": data}, page)
    for mime_type in ("text/plain", "text/html", "text/x-moz-url", "DownloadURL", "url"):
        data = {"items": [{"mimeType": mime_type, "data": "file:///etc/passwd"}], "dragOperationsMask": 1}
        for step in ("dragEnter", "dragOver", "drop"):
            await attacker.send("Input.dispatchDragEvent", {"type": step, "x": 300, "y": 300, "data": data}, page)
        assert await attacker.value("location.protocol", page) == "http:"


async def test_nothing_is_downloaded_to_where_the_client_says(scene: Scene, tmp_path: Path) -> None:
    attacker = scene.attacker
    for behavior in ("allow", "allowAndName", "default"):
        told = {"behavior": behavior, "downloadPath": str(tmp_path), "eventsEnabled": True}
        await attacker.call("Page.setDownloadBehavior", told, scene.page)
        await attacker.call("Browser.setDownloadBehavior", told)
        await attacker.value(f"location.href = '/{scene.sessions.mark}/download'; 1", scene.page)
        begun = await attacker.event("Page.downloadWillBegin")
        scene.site.may_finish.set()
        done = await attacker.event("Browser.downloadProgress", lambda told, begun=begun: is_end_of(begun, told))
        assert done["state"] == ("canceled" if behavior == "default" else "completed")
    assert list(tmp_path.iterdir()) == []


def is_end_of(begun: dict[str, Any], told: dict[str, Any]) -> bool:
    return bool(told["guid"] == begun["guid"] and told["state"] != "inProgress")
