"""Files over HTTP, with real pages that save them and a real server that is killed under them."""

from __future__ import annotations

import http.client
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.browsers.file_site import HELD_BYTES, FileSite, serving_files
from tests.shared_server import unique

from .conftest import (
    Server,
    act,
    browser_pids,
    events_of,
    kill_browser,
    open_session,
    release,
    value_of,
)

pytestmark = [pytest.mark.server, pytest.mark.browser]

# How often, every twentieth of a second, something is looked for before it is missed.
TRIES = 600
Files = list[dict[str, Any]]


@pytest.fixture
def files_site() -> Iterator[FileSite]:
    with serving_files() as site:
        yield site


def files_of(client: httpx.Client, session: dict[str, Any]) -> Files:
    answer = client.get(f"/sessions/{session['sessionId']}/files")
    assert answer.status_code == 200, answer.text
    return answer.json()["files"]


def until(client: httpx.Client, session: dict[str, Any], is_so: Callable[[Files], bool]) -> Files:
    """The session's files, as soon as they are like that."""
    for _ in range(TRIES):
        files = files_of(client, session)
        if is_so(files):
            return files
        time.sleep(0.05)
    raise AssertionError(f"it never comes to be: {files}")


def states(*wanted: str) -> Callable[[Files], bool]:
    return lambda files: [file["state"] for file in files] == list(wanted)


def is_begun(files: Files) -> bool:
    return bool(files) and all(file["state"] == "in_progress" and file["sizeBytes"] > 0 for file in files)


def is_one_more(count: int, files: Files) -> bool:
    return len(files) > count and files[-1]["state"] == "completed"


def save(client: httpx.Client, session: dict[str, Any], url: str) -> None:
    """Have the session's page save what is at that address."""
    value_of(client, session["tabs"][0]["tabId"], f"location.href = {url!r}; 1")


def until_asked(site: FileSite, name: str) -> None:
    for _ in range(TRIES):
        if name in site.asked:
            return
        time.sleep(0.05)
    raise AssertionError(f"nobody asks for {name}: {site.asked}")


def body_of(client: httpx.Client, session: dict[str, Any], name: str) -> httpx.Response:
    return client.get(f"/sessions/{session['sessionId']}/files/{quote(name, safe='')}")


def raw_get(server: Server, path: str) -> Any:
    """What is answered to exactly this path, which a client for people would tidy up first."""
    address = httpx.URL(server.record["url"])
    with closing(http.client.HTTPConnection(address.host, address.port, timeout=60)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {server.admin_token}"})
        return json.loads(connection.getresponse().read())


def upload(client: httpx.Client, session: dict[str, Any], name: str, content: Any) -> httpx.Response:
    return client.post(f"/sessions/{session['sessionId']}/files", params={"name": name}, content=content)


def directory_of(server: Server, session: dict[str, Any]) -> Path:
    return server.state / "files" / session["sessionId"]


# --- Downloads --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["default", "full"])
def test_what_a_page_saves_is_listed_told_and_served_by_the_name_the_site_gave_it(
    server: Server, pool: str, files_site: FileSite
) -> None:
    with server.client() as admin:
        session = open_session(admin, pool=pool, agentId="ada", url=files_site.url())
        with events_of(server, "session.download") as events:
            save(admin, session, files_site.url("/file?name=bill.pdf&body=%25PDF"))
            told = next(events)
        assert (told["sessionId"], told["name"], told["state"], told["sizeBytes"]) == (
            session["sessionId"],
            "bill.pdf",
            "completed",
            4,
        )
        (file,) = files_of(admin, session)
        assert file["createdAt"].endswith("Z")
        assert {key: file[key] for key in ("name", "sizeBytes", "source", "state", "url")} == {
            "name": "bill.pdf",
            "sizeBytes": 4,
            "source": "download",
            "state": "completed",
            "url": files_site.url("/file?name=bill.pdf&body=%25PDF"),
        }
        answer = body_of(admin, session, "bill.pdf")
        assert (answer.status_code, answer.content) == (200, b"%PDF")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-length"] == "4"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-disposition"] == "attachment; filename=\"bill.pdf\"; filename*=UTF-8''bill.pdf"


def test_sessions_that_save_at_once_in_one_browser_see_their_own_files_only(
    server: Server, files_site: FileSite
) -> None:
    agents = [server.agent(unique("a")) for _ in range(2)]
    sessions = [open_session(agent, url=files_site.url()) for agent in agents]
    for n, (agent, session) in enumerate(zip(agents, sessions, strict=True)):
        save(agent, session, files_site.url(f"/held?name=same.bin&of={n}"))
    for agent, session in zip(agents, sessions, strict=True):
        until(agent, session, is_begun)
    files_site.finish.set()
    for n, (agent, session) in enumerate(zip(agents, sessions, strict=True)):
        (file,) = until(agent, session, states("completed"))
        assert (file["sizeBytes"], file["url"]) == (HELD_BYTES, files_site.url(f"/held?name=same.bin&of={n}"))
        stranger = agents[1 - n]
        assert stranger.get(f"/sessions/{session['sessionId']}/files").json()["code"] == "session_not_found"
        assert body_of(stranger, session, "same.bin").json()["code"] == "session_not_found"
    for agent in agents:
        agent.close()


def test_names_that_mean_harm_are_served_harmless_and_lead_nowhere_else(server: Server, files_site: FileSite) -> None:
    hostile = ["../../../etc/passwd", ".bashrc", "a/b\\c.txt", "same.txt", "same.txt", "x" * 300 + ".csv", "é %22.txt"]
    with server.client() as admin:
        session = open_session(admin, pool="mortal", agentId="ada", url=files_site.url())
        for name in hostile:
            before = len(files_of(admin, session))
            save(admin, session, files_site.url(f"/file?name={quote(name)}"))
            until(admin, session, partial(is_one_more, before))
        names = [file["name"] for file in files_of(admin, session)]
        assert len(set(names)) == len(hostile)
        for name in names:
            assert not set(name) & set("/\\\0\r\n"), name
            assert not name.startswith("."), name
            assert len(name.encode()) <= 220, name
            assert body_of(admin, session, name).content == b"hello"
        assert "same (1).txt" in names
    for escape in ("..", "%2e%2e", "..%2fuploads", "..%2f..%2f..%2fadmin.token", "%2fetc%2fpasswd", "..%5cx", "%00"):
        assert raw_get(server, f"/sessions/{session['sessionId']}/files/{escape}")["code"] == "file_not_found"


def test_a_download_over_the_bytes_of_the_session_is_cancelled_and_says_so(
    server: Server, files_site: FileSite
) -> None:
    with server.client() as admin:
        session = open_session(admin, pool="mortal", agentId="ada", url=files_site.url())
        save(admin, session, files_site.url(f"/file?name=big.bin&body=0123456789&times={600_000}"))
        (file,) = until(admin, session, states("canceled"))
        assert (file["reason"], file["sizeBytes"]) == ("files_max_bytes", 0)
        assert body_of(admin, session, "big.bin").json()["code"] == "file_not_found"
        save(admin, session, files_site.url("/file?name=small.bin"))
        until(admin, session, states("canceled", "completed"))
        downloads = directory_of(server, session) / "downloads"
        assert sum(path.stat().st_size for path in downloads.iterdir()) == len("hello")


def test_a_download_dies_with_its_browser_and_the_next_browser_saves_again(
    server: Server, files_site: FileSite
) -> None:
    with server.client() as admin:
        session = open_session(admin, pool="mortal", agentId="ada", url=files_site.url())
        save(admin, session, files_site.url("/file?name=kept.txt"))
        until(admin, session, states("completed"))
        save(admin, session, files_site.url("/held?name=lost.bin"))
        until(admin, session, lambda files: len(files) == 2 and is_begun(files[1:]))
        with events_of(server, "session_recovered") as events:
            kill_browser(*browser_pids(admin, "mortal"))
            while next(events)["sessionId"] != session["sessionId"]:
                pass
        (_, lost) = until(admin, session, states("completed", "canceled"))
        assert (lost["name"], lost["reason"]) == ("lost.bin", "browser_crashed")
        assert body_of(admin, session, "kept.txt").content == b"hello"
        save(admin, session, files_site.url("/file?name=after.txt"))
        until(admin, session, states("completed", "canceled", "completed"))
        left = os.listdir(directory_of(server, session) / "downloads")
        assert not [name for name in left if name.endswith(".crdownload")]


def test_files_outlive_a_killed_broker_and_an_orderly_stop_also_one_that_was_on_its_way(
    own_server: Server, files_site: FileSite
) -> None:
    with own_server.client() as admin:
        session, over = (open_session(admin, agentId="ada", url=files_site.url()) for _ in range(2))
        save(admin, session, files_site.url("/file?name=before.txt"))
        until(admin, session, states("completed"))
        assert upload(admin, session, "given.txt", b"given").status_code == 201
        save(admin, session, files_site.url("/held?name=meanwhile.bin"))
        until(admin, session, lambda files: len(files) == 3 and is_begun(files[2:]))
        assert upload(admin, over, "over.txt", b"over").status_code == 201
        before = files_of(admin, session)
    own_server.kill()
    # A session of which no row is left.
    (own_server.state / "files" / "ses_stray" / "downloads").mkdir(parents=True)
    own_server.start()
    with own_server.client() as admin:
        assert not (own_server.state / "files" / "ses_stray").exists()
        found = files_of(admin, session)
        assert [(file["name"], file["source"], file["state"]) for file in found] == [
            ("before.txt", "download", "completed"),
            ("given.txt", "upload", "completed"),
            ("meanwhile.bin", "download", "in_progress"),
        ]
        assert [file.get("url") for file in found] == [file.get("url") for file in before]
        files_site.finish.set()
        until(admin, session, states("completed", "completed", "completed"))
        assert len(body_of(admin, session, "meanwhile.bin").content) == HELD_BYTES
        assert body_of(admin, session, "before.txt").content == b"hello"
        save(admin, session, files_site.url("/file?name=after.txt"))
        (*_, after) = until(admin, session, lambda files: len(files) == 4 and files[3]["state"] == "completed")
        assert after["name"] == "after.txt"
        files_site.finish.clear()
        save(admin, session, files_site.url("/held?name=cut.bin"))
        until(admin, session, lambda files: len(files) == 5 and is_begun(files[4:]))
    own_server.stop()
    own_server.start()
    with own_server.client() as admin:
        (before, *_, cut) = until(admin, session, states(*["completed"] * 4, "canceled"))
        assert (before["name"], cut["name"]) == ("before.txt", "cut.bin")
        assert body_of(admin, session, "before.txt").content == b"hello"
        release(admin, session)
        assert not directory_of(own_server, session).exists()


def test_the_directory_is_private_and_goes_with_the_session(server: Server, files_site: FileSite) -> None:
    with server.client() as admin:
        session = open_session(admin, agentId="ada", url=files_site.url())
        assert not directory_of(server, session).exists()
        save(admin, session, files_site.url("/file"))
        until(admin, session, states("completed"))
        assert upload(admin, session, "given.txt", b"given").status_code == 201
        for path in (directory_of(server, session), *directory_of(server, session).iterdir()):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
        release(admin, session)
        assert not directory_of(server, session).exists()


def test_a_pooled_tab_has_no_files_and_saves_none(server: Server, files_site: FileSite) -> None:
    with server.client() as admin:
        session = open_session(admin, agentId="ada", key="k", reuse="same-agent", url=files_site.url())
        later = f"setTimeout(() => location.href = {files_site.url('/file?name=late.txt')!r}, 300); 1"
        save(admin, session, files_site.url("/held?name=running.bin"))
        until(admin, session, is_begun)
        value_of(admin, session["tabs"][0]["tabId"], later)
        release(admin, session, "pool")
        assert not directory_of(server, session).exists()
        # While nobody has the tab, or it would be the next one's file.
        until_asked(files_site, "late.txt")
        again = open_session(admin, agentId="ada", key="k", reuse="same-agent")
        assert value_of(admin, again["tabs"][0]["tabId"], "document.title") == "Files"
        assert [file for file in files_of(admin, again) if file["name"] == "running.bin"] == []
        save(admin, again, files_site.url("/file?name=mine.txt"))
        until(admin, again, lambda files: any(f["name"] == "mine.txt" and f["state"] == "completed" for f in files))
        assert not directory_of(server, session).exists()


def test_pages_of_a_shared_profile_save_nothing_but_can_be_given_files(server: Server, files_site: FileSite) -> None:
    with server.client() as admin:
        session = open_session(admin, pool="shared", agentId="ada", url=files_site.url())
        refused = act(admin, session["tabs"][0]["tabId"], "navigate", url=files_site.url("/file?name=no.txt"))
        assert refused.json()["code"] == "navigation_failed"
        assert files_of(admin, session) == []
        assert upload(admin, session, "given.txt", b"given").status_code == 201
        release(admin, session, "close")
        assert not directory_of(server, session).exists()


# --- Uploads ----------------------------------------------------------------------------------------------------


def test_an_upload_is_listed_served_and_has_a_path_for_cdp_clients(server: Server) -> None:
    with server.client() as admin:
        session = open_session(admin, agentId="ada")
        answer = upload(admin, session, "notes.txt", b"some notes")
        assert answer.status_code == 201
        uploaded = answer.json()
        assert uploaded == {
            "name": "notes.txt",
            "sizeBytes": 10,
            "path": str(directory_of(server, session) / "uploads" / "notes.txt"),
        }
        assert Path(uploaded["path"]).read_bytes() == b"some notes"
        assert upload(admin, session, "../notes.txt", b"more").json()["name"] == "notes (1).txt"
        assert [file["source"] for file in files_of(admin, session)] == ["upload", "upload"]
        assert body_of(admin, session, "notes.txt").content == b"some notes"
        assert upload(admin, session, "", b"").json()["details"]["field"] == "name"


def test_large_files_go_in_and_out_while_others_are_served(server: Server) -> None:
    piece, count = os.urandom(1 << 20), 40
    twice = piece + piece
    with server.client() as admin, server.client() as other:
        session = open_session(admin, agentId="ada")
        # Without a length that is said before: it is counted as it comes.
        uploaded = upload(admin, session, "large.bin", (piece for _ in range(count)))
        assert uploaded.json()["sizeBytes"] == count << 20
        with admin.stream("GET", f"/sessions/{session['sessionId']}/files/large.bin") as answer:
            assert answer.headers["content-length"] == str(count << 20)
            received = 0
            for chunk in answer.iter_raw():
                if received == 0:
                    # In the middle of it somebody else is answered.
                    assert other.get("/health").status_code == 200
                start = received % len(piece)
                expected = twice[start : start + len(chunk)] if len(chunk) <= len(piece) else None
                assert expected is None or chunk == expected
                received += len(chunk)
        assert received == count << 20
        head = admin.head(f"/sessions/{session['sessionId']}/files/large.bin")
        assert (head.headers["content-length"], head.content) == (str(count << 20), b"")
        release(admin, session)


def test_a_caller_that_leaves_in_the_middle_of_an_upload_leaves_nothing(server: Server) -> None:
    with server.client() as admin:
        session = open_session(admin, agentId="ada")
        began = threading.Event()

        def breaking_off() -> Iterator[bytes]:
            yield b"x" * (1 << 20)
            until(admin, session, is_begun)
            began.set()
            raise ConnectionError("the caller's machine is switched off")

        with server.client() as caller, pytest.raises(ConnectionError):
            upload(caller, session, "half.bin", breaking_off())
        assert began.is_set()
        until(admin, session, lambda files: files == [])
        incoming = directory_of(server, session) / "incoming"
        for _ in range(TRIES):
            if not os.listdir(incoming):
                break
            time.sleep(0.05)
        assert os.listdir(incoming) == []
