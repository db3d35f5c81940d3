"""Files of sessions: what is told of downloads, what is taken in, what is left on disk, and what goes when."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tabherd import config, errors, wire
from tabherd.broker import file_disk
from tabherd.broker.access import Access
from tabherd.broker.caller import Caller
from tabherd.broker.events import EventBus
from tabherd.broker.files import Files
from tabherd.broker.registry import LiveSession, Registry
from tabherd.broker.session_files import SessionFiles
from tabherd.broker.settings import Settings
from tabherd.browsers.port import DownloadListener
from tabherd.core.lifecycle import LeaseState
from tabherd.core.model import Session, changed
from tabherd.store.memory import MemoryStore

from .house import ADA, BOB, House, in_house

NOW = 1_700_000_000_000


class Browser:
    """Remembers where files go, and what was cancelled."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self.listener: DownloadListener | None = None
        self.cancelled: list[str] = []

    def allow_downloads(self, context_id: str, directory: str, listener: DownloadListener) -> None:
        self.places[context_id], self.listener = directory, listener

    async def forbid_downloads(self, context_id: str) -> None:
        del self.places[context_id]

    def cancel_download(self, guid: str) -> None:
        self.cancelled.append(guid)


class Office:
    """The files of one node, with one session of ada's that is bound."""

    def __init__(self, root: Path, **pool: Any) -> None:
        self.root = root
        self.config = config.parse({"pools": {"default": pool}})
        self.tasks: set[asyncio.Task[None]] = set()
        self.browser = Browser()
        self.begin()

    def begin(self) -> None:
        """A life of the node, on the same disk."""
        self.registry = Registry()
        self.events = EventBus(epoch=1, ring=100)
        self.told = self.events.subscribe()
        self.files = Files(
            root=self.root,
            settings=Settings(self.config),
            registry=self.registry,
            access=Access(store=MemoryStore(), registry=self.registry, clock=lambda: NOW),
            events=self.events,
            clock=lambda: NOW,
            spawn=self._spawn,
        )
        row = Session(id="ses_1", agent_id="ada", state=LeaseState.ACTIVE, pool="default", version=1)
        self.live = LiveSession(row, self.browser, None)  # type: ignore[arg-type]
        self.registry.bind(self.live)

    def allow(self) -> DownloadListener:
        self.files.allow(self.live.row, self.browser, "context")  # type: ignore[arg-type]
        assert self.browser.listener is not None
        return self.browser.listener

    @property
    def downloads(self) -> Path:
        return self.root / "ses_1" / "downloads"

    def write(self, name: str, content: bytes) -> None:
        """What Chromium does."""
        self.downloads.mkdir(parents=True, exist_ok=True)
        (self.downloads / name).write_bytes(content)

    def save(self, guid: str, name: str, content: bytes) -> None:
        """A whole download, from begin to end."""
        listener = self.browser.listener
        assert listener is not None
        listener.download_began(guid, f"https://a.test/{name}", name)
        self.write(guid, content)
        listener.download_ended(guid, len(content), is_complete=True)

    async def listed(self) -> list[tuple[str, str, int]]:
        page = await self.files.list(ADA, "ses_1")
        return [(file.name, file.state, file.size_bytes) for file in page.files]

    async def upload(self, name: str, *pieces: bytes, declared: int = 0) -> str:
        async def coming() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        return (await self.files.upload(ADA, "ses_1", name, declared, coming())).path

    async def read(self, name: str) -> bytes:
        opened = await self.files.open(ADA, "ses_1", name)
        try:
            return b"".join([piece async for piece in opened.pieces])
        finally:
            opened.close()

    async def quiet(self) -> None:
        """Until the disk has followed."""
        while self.tasks:
            await asyncio.gather(*self.tasks)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path / "files")


# --- Downloads --------------------------------------------------------------------------------------------------


async def test_a_download_is_listed_from_its_begin_to_its_end_and_served_by_its_name(office: Office) -> None:
    listener = office.allow()
    assert office.browser.places == {"context": str(office.downloads)}
    listener.download_began("g1", "https://a.test/", "bill.pdf")
    assert await office.listed() == [("bill.pdf", "in_progress", 0)]
    listener.download_moved("g1", 3, 5)
    assert await office.listed() == [("bill.pdf", "in_progress", 3)]
    office.write("g1", b"12345")
    listener.download_ended("g1", 5, is_complete=True)
    assert await office.listed() == [("bill.pdf", "completed", 5)]
    assert await office.read("bill.pdf") == b"12345"
    event = office.told.take()
    assert event is not None
    assert (event.type, event.fields["name"], event.fields["agentId"]) == ("session.download", "bill.pdf", "ada")
    await office.quiet()


async def test_a_download_of_more_bytes_than_there_is_room_for_is_cancelled_at_once(tmp_path: Path) -> None:
    office = Office(tmp_path, files_max_bytes=1_024)
    listener = office.allow()
    listener.download_began("g1", "", "big.bin")
    office.write("g1.crdownload", b"x")
    listener.download_moved("g1", 1, 1_025)
    assert office.browser.cancelled == ["g1"]
    page = await office.files.list(ADA, "ses_1")
    assert [(file.state, file.reason) for file in page.files] == [("canceled", "files_max_bytes")]
    await office.quiet()
    assert os.listdir(office.downloads) == []


async def test_a_download_that_was_whole_before_it_was_known_to_be_too_large_does_not_stay(tmp_path: Path) -> None:
    office = Office(tmp_path, files_max_bytes=1_024)
    office.allow()
    office.save("g1", "big.bin", b"x" * 1_025)
    assert await office.listed() == [("big.bin", "canceled", 0)]
    await office.quiet()
    assert os.listdir(office.downloads) == []
    with pytest.raises(errors.FileNotFound):
        await office.read("big.bin")


async def test_a_refused_download_that_became_whole_meanwhile_does_not_stay(tmp_path: Path) -> None:
    office = Office(tmp_path, files_max=1)
    listener = office.allow()
    office.save("g1", "first", b"1")
    listener.download_began("g2", "", "second")
    assert office.browser.cancelled == ["g2"]
    await office.quiet()
    office.write("g2", b"2")
    listener.download_ended("g2", 1, is_complete=True)
    await office.quiet()
    assert os.listdir(office.downloads) == ["g1"]
    page = await office.files.list(ADA, "ses_1")
    assert [(file.name, file.reason) for file in page.files] == [("first", None), ("second", "files_max")]


async def test_what_was_on_its_way_dies_with_the_browser(office: Office) -> None:
    listener = office.allow()
    office.save("g1", "kept", b"1")
    listener.download_began("g2", "", "lost")
    office.write("g2.crdownload", b"half")
    office.files.browser_gone("ses_1")
    assert await office.listed() == [("kept", "completed", 1), ("lost", "canceled", 0)]
    await office.quiet()
    assert os.listdir(office.downloads) == ["g1"]


async def test_a_file_that_is_a_link_is_not_served(office: Office, tmp_path: Path) -> None:
    office.allow()
    office.save("g1", "a", b"1")
    (tmp_path / "secret").write_bytes(b"secret")
    (office.downloads / "g1").unlink()
    (office.downloads / "g1").symlink_to(tmp_path / "secret")
    with pytest.raises(errors.FileNotFound):
        await office.read("a")
    await office.quiet()


async def test_a_file_on_its_way_is_not_served(office: Office) -> None:
    office.allow().download_began("g1", "", "a")
    with pytest.raises(errors.StateConflict):
        await office.read("a")
    await office.quiet()


async def test_every_directory_is_the_owners_alone_also_one_that_the_browser_made(office: Office) -> None:
    office.downloads.mkdir(parents=True, mode=0o755)
    office.allow()
    office.save("g1", "a", b"1")
    await office.upload("b", b"2")
    await office.quiet()
    for path in (office.root / "ses_1", *(office.root / "ses_1").iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path


# --- Uploads ----------------------------------------------------------------------------------------------------


async def test_an_upload_is_at_its_path_when_it_is_whole(office: Office) -> None:
    path = await office.upload("../a b.txt", b"one ", b"two", declared=7)
    assert Path(path) == office.root / "ses_1" / "uploads" / "a b.txt"
    assert Path(path).read_bytes() == b"one two"
    assert await office.read("a b.txt") == b"one two"


@pytest.mark.parametrize("declared", [0, 2_000])
async def test_an_upload_of_too_many_bytes_is_refused_and_leaves_nothing(tmp_path: Path, declared: int) -> None:
    office = Office(tmp_path, files_max_bytes=1_024)
    with pytest.raises(errors.BodyTooLarge):
        await office.upload("a", b"x" * 1_000, b"x" * 1_000, declared=declared)
    await office.quiet()
    assert await office.listed() == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_one_upload_more_than_files_are_allowed_is_refused(tmp_path: Path) -> None:
    office = Office(tmp_path, files_max=1)
    await office.upload("a", b"")
    with pytest.raises(errors.Capacity) as refused:
        await office.upload("b", b"")
    assert refused.value.details["reason"] == "file_cap"


async def test_two_uploads_at_once_cannot_share_the_last_bytes(tmp_path: Path) -> None:
    office = Office(tmp_path, files_max_bytes=1_024)
    results = await asyncio.gather(
        *(office.upload(name, b"x" * 300, b"x" * 300) for name in "ab"), return_exceptions=True
    )
    assert sum(isinstance(result, errors.BodyTooLarge) for result in results) >= 1
    await office.quiet()
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 1_024


async def test_an_upload_that_is_whole_after_the_session_changed_hands_leaves_nothing(office: Office) -> None:
    live = office.registry.session("ses_1")
    assert live is not None

    async def long() -> AsyncIterator[bytes]:
        yield b"one"
        live.row = changed(live.row, agent_id="bob", fence=live.row.fence + 1)
        yield b"two"

    with pytest.raises(errors.LeaseLost):
        await office.files.upload(ADA, "ses_1", "a", 0, long())
    await office.quiet()
    assert [path for path in office.root.rglob("*") if path.is_file()] == []


async def test_an_upload_that_waits_for_the_disk_at_last_is_there_before_the_session_changes_hands(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = office.registry.session("ses_1")
    assert live is not None
    on_disk, giving = SessionFiles.on_disk, list[asyncio.Task[list[str]]]()

    async def give_away() -> list[str]:
        """As a takeover does it; answers with what the new owner finds."""
        async with live.mutex:
            live.row = changed(live.row, agent_id="bob", fence=live.row.fence + 1)
        return [file.name for file in (await office.files.list(BOB, "ses_1")).files if file.state == "completed"]

    async def late(self: SessionFiles, work: Any, *args: Any, **more: Any) -> Any:
        if work.__name__ == "finish":
            giving.append(asyncio.create_task(give_away()))
            await asyncio.sleep(0.05)
        return await on_disk(self, work, *args, **more)

    monkeypatch.setattr(SessionFiles, "on_disk", late)
    await office.upload("a", b"one")
    assert await giving[0] == ["a"]


async def test_an_upload_that_breaks_off_leaves_nothing(office: Office) -> None:
    came = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * file_disk.PIECE_BYTES
        came.set()
        await asyncio.Event().wait()

    uploading = asyncio.create_task(office.files.upload(ADA, "ses_1", "a", 0, endless()))
    await came.wait()
    uploading.cancel()
    await asyncio.wait([uploading])
    await office.quiet()
    assert await office.listed() == []
    assert os.listdir(office.root / "ses_1" / "incoming") == []


async def test_an_upload_to_a_session_that_ends_meanwhile_does_not_bring_its_directory_back(office: Office) -> None:
    async def ending() -> AsyncIterator[bytes]:
        yield b"x" * file_disk.PIECE_BYTES
        await office.files.discard("ses_1")
        yield b"x" * file_disk.PIECE_BYTES

    with pytest.raises(errors.LeaseLost):
        await office.files.upload(ADA, "ses_1", "a", 0, ending())
    await office.quiet()
    assert os.listdir(office.root) == []


async def test_a_disk_that_is_full_is_told_as_such(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, piece: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_disk.Incoming, "write", full)
    with pytest.raises(errors.StoreUnavailable, match="No space left"):
        await office.upload("a", b"x")
    await office.quiet()


async def test_files_are_their_owners_and_need_the_scope(office: Office) -> None:
    await office.upload("a", b"1")
    with pytest.raises(errors.SessionNotFound):
        await office.files.list(BOB, "ses_1")
    with pytest.raises(errors.SessionNotFound):
        await office.files.open(BOB, "ses_1", "a")
    mute = Caller(agent_id="ada", scopes=frozenset({"browse"}), controller_id="ada")
    with pytest.raises(errors.Forbidden):
        await office.files.list(mute, "ses_1")


# --- After a restart --------------------------------------------------------------------------------------------


async def test_files_are_found_again_with_their_names(office: Office) -> None:
    listener = office.allow()
    office.save("g1", "whole.txt", b"12345")
    listener.download_began("g2", "https://a.test/half", "half.txt")
    office.write("g2.crdownload", b"ha")
    listener.download_began("g3", "", "gone.txt")
    await office.upload("given.txt", b"given")
    await office.quiet()
    # Its note was not written when the server died.
    office.write("g4", b"nameless")
    office.begin()
    await office.files.load(office.live.row)
    found = {file.name: file for file in (await office.files.list(ADA, "ses_1")).files}
    assert {name: (file.state, file.size_bytes) for name, file in found.items()} == {
        "whole.txt": ("completed", 5),
        "half.txt": ("in_progress", 2),
        "gone.txt": ("canceled", 0),
        "given.txt": ("completed", 5),
        "g4": ("completed", 8),
    }
    assert found["whole.txt"].url == "https://a.test/whole.txt"
    assert await office.read("whole.txt") == b"12345"


@pytest.mark.parametrize(("became", "state"), [("whole", "completed"), ("nothing", "canceled")])
async def test_what_became_of_a_download_of_an_earlier_life_is_seen_on_the_disk(
    office: Office, became: str, state: str
) -> None:
    office.allow().download_began("g1", "", "a")
    office.write("g1.crdownload", b"half")
    await office.quiet()
    office.begin()
    await office.files.load(office.live.row)
    assert (await office.listed())[0][1] == "in_progress"
    partial = office.downloads / "g1.crdownload"
    partial.rename(office.downloads / "g1") if became == "whole" else partial.unlink()
    assert (await office.listed())[0][1] == state
    await office.quiet()


async def test_a_download_that_becomes_whole_while_one_looks_is_not_called_canceled(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.allow().download_began("g1", "", "a")
    office.write("g1.crdownload", b"half")
    await office.quiet()
    office.begin()
    await office.files.load(office.live.row)
    looked = file_disk.size_of

    def renaming_after(path: Path) -> int | None:
        """The browser is done just after the first look at the disk."""
        found = looked(path)
        monkeypatch.setattr(file_disk, "size_of", looked)
        (office.downloads / "g1.crdownload").rename(office.downloads / "g1")
        return found

    monkeypatch.setattr(file_disk, "size_of", renaming_after)
    assert (await office.listed())[0][1] == "completed"
    await office.quiet()


async def test_a_start_removes_what_is_left_of_sessions_that_are_over(office: Office) -> None:
    for name in ("ses_1", "ses_2"):
        (office.root / name / "downloads").mkdir(parents=True)
    await office.files.sweep({"ses_1"})
    assert os.listdir(office.root) == ["ses_1"]


async def test_nothing_is_left_of_a_session_that_is_over_and_nothing_comes_back(office: Office) -> None:
    listener = office.allow()
    office.save("g1", "a", b"1")
    await office.quiet()
    await office.files.discard("ses_1")
    assert os.listdir(office.root) == []
    listener.download_began("g2", "", "late")
    listener.download_ended("g2", 0, is_complete=False)
    await office.quiet()
    assert os.listdir(office.root) == []


# --- For CDP clients --------------------------------------------------------------------------------------------


async def test_pages_may_be_given_files_of_their_session_and_no_others(office: Office, tmp_path: Path) -> None:
    office.allow()
    office.save("g1", "a", b"1")
    path = await office.upload("b", b"2")
    await office.quiet()
    (tmp_path / "secret").write_bytes(b"secret")
    link = Path(path).with_name("link")
    link.symlink_to(tmp_path / "secret")
    (office.root / "ses_2" / "uploads").mkdir(parents=True)
    (office.root / "ses_2" / "uploads" / "c").write_bytes(b"3")
    may = {
        name: office.files.may_read("ses_1", str(asked))
        for name, asked in {
            "upload": path,
            "download": office.downloads / "g1",
            "by a detour": f"{path}/../../uploads/b",
            "link": link,
            "note": office.root / "ses_1" / "notes" / "g1",
            "directory": office.downloads,
            "another's": office.root / "ses_2" / "uploads" / "c",
            "elsewhere": tmp_path / "secret",
            "relative": os.path.relpath(path),
            "absurd": f"{path}\0",
            "missing": f"{path}x",
        }.items()
    }
    assert [name for name, is_so in may.items() if is_so] == ["upload", "download", "by a detour"]


async def test_the_directory_of_downloads_is_there_when_it_is_named(office: Office) -> None:
    assert Path(office.files.download_dir("ses_1")).is_dir()
    assert stat.S_IMODE(office.downloads.stat().st_mode) == 0o700


async def test_naming_the_directory_of_a_session_that_is_over_does_not_bring_it_back(office: Office) -> None:
    office.registry.unbind(office.live, "released")
    assert not Path(office.files.download_dir("ses_1")).exists()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the system keeps what is temporary."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


async def test_a_download_is_placed_where_playwright_looks_for_it(office: Office, temporary: Path) -> None:
    office.allow()
    office.save("g1", "a", b"12345")
    artifacts = Path(tempfile.mkdtemp(prefix="playwright-artifacts-"))
    assert await office.files.place("ses_1", "g1", str(artifacts))
    assert (artifacts / "g1").read_bytes() == b"12345"
    assert await office.files.place("ses_1", "g1", str(artifacts)), "told twice"
    await office.quiet()


async def test_a_download_is_copied_where_it_cannot_be_linked(
    office: Office, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    office.allow()
    office.save("g1", "a", b"12345")
    artifacts = Path(tempfile.mkdtemp(prefix="playwright-artifacts-"))
    assert await office.files.place("ses_1", "g1", str(artifacts))
    assert (artifacts / "g1").read_bytes() == b"12345"
    assert (artifacts / "g1").stat().st_mode & 0o777 == 0o600
    await office.quiet()


async def test_nothing_is_placed_anywhere_else(office: Office, temporary: Path, tmp_path: Path) -> None:
    office.allow()
    office.save("g1", "a", b"1")
    good = Path(tempfile.mkdtemp(prefix="playwright-artifacts-"))
    (good / "taken").write_bytes(b"somebody's")
    open_to_all = temporary / "playwright-artifacts-open"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    linked = temporary / "playwright-artifacts-link"
    linked.symlink_to(good)
    elsewhere = tmp_path / "playwright-artifacts-elsewhere"
    elsewhere.mkdir(mode=0o700)
    inside = good / "playwright-artifacts-inside"
    inside.mkdir(mode=0o700)
    plain = temporary / "other"
    plain.mkdir(mode=0o700)
    detour = f"{temporary}/other/../{good.name}"
    for directory in (open_to_all, linked, elsewhere, inside, plain, detour, temporary / "playwright-artifacts-none"):
        assert not await office.files.place("ses_1", "g1", str(directory)), directory
    for guid in ("g2", "../downloads/g1", "", "..", "g1/"):
        assert not await office.files.place("ses_1", guid, str(good)), guid
    assert not await office.files.place("ses_2", "g1", str(good))
    assert [path.name for path in temporary.rglob("g1")] == []
    await office.quiet()


# --- The life of a session --------------------------------------------------------------------------------------


@in_house()
async def test_an_open_session_may_save_files_and_one_in_stock_may_not(house: House) -> None:
    session = await house.open()
    context = house.page(session).context
    assert context.downloads is not None
    assert context.downloads[0].endswith(f"/{session.session_id}/downloads")


@in_house()
async def test_a_session_that_moves_to_another_browser_saves_its_files_there(house: House) -> None:
    session = await house.open()
    await house.lose_browser(session)
    await house.recovered(session)
    downloads = house.page(session).context.downloads
    assert downloads is not None
    assert downloads[0].endswith(f"/{session.session_id}/downloads")


@in_house()
async def test_a_session_that_is_adopted_is_told_anew_where_its_files_go(house: House) -> None:
    session = await house.open()
    house.page(session).context.downloads = None
    await house.kill()
    assert house.page(session).context.downloads is not None


@in_house()
async def test_the_page_of_a_pooled_session_saves_nothing(house: House) -> None:
    session = await house.open(key="k", reuse="same-agent")
    context = house.page(session).context
    await house.release(session, disposition="pool")
    assert context.downloads is None
    again = await house.open(key="k", reuse="same-agent")
    assert house.page(again).context is context
    assert context.downloads is not None
    assert again.session_id in context.downloads[0]


@in_house(isolation="shared")
async def test_pages_that_share_a_profile_save_nothing(house: House) -> None:
    session = await house.open()
    assert house.page(session).context.downloads is None


@in_house(source="attach", endpoint="http://127.0.0.1:9222")
async def test_a_browser_that_is_only_attached_to_is_left_as_it_is(house: House) -> None:
    session = await house.open()
    assert house.page(session).context.downloads is None


# --- Given to pages ---------------------------------------------------------------------------------------------


async def given(office: Office, *names: str) -> list[Path]:
    upload = wire.Upload(selector="#a", files=list(names))
    return [Path(path) for path in (await office.files.to_paths(office.live.row, upload)).files]


async def test_names_of_uploads_and_downloads_become_paths_that_end_in_them(office: Office) -> None:
    office.allow()
    office.save("g1", "bill.pdf", b"bill")
    await office.upload("photo.jpg", b"photo")
    bill, photo = await given(office, "bill.pdf", "photo.jpg")
    assert (bill.name, bill.read_bytes()) == ("bill.pdf", b"bill")
    assert (photo.name, photo.read_bytes()) == ("photo.jpg", b"photo")
    assert await given(office, "bill.pdf") == [bill]
    await office.quiet()


async def test_what_was_given_is_private_takes_no_room_and_goes_with_the_session(office: Office) -> None:
    office.allow()
    office.save("g1", "bill.pdf", b"bill")
    (bill,) = await given(office, "bill.pdf")
    assert {stat.S_IMODE(level.stat().st_mode) for level in (bill.parent, bill.parent.parent)} == {0o700}
    assert await office.listed() == [("bill.pdf", "completed", 4)]
    await office.quiet()
    await office.files.discard("ses_1")
    assert not bill.exists()


async def test_an_unknown_name_is_told_with_the_names_that_there_are(office: Office) -> None:
    await office.upload("photo.jpg", b"photo")
    with pytest.raises(errors.FileNotFound) as caught:
        await given(office, "photo.jpg", "foto.jpg")
    assert "'foto.jpg'" in caught.value.message
    assert caught.value.details["files"] == ["photo.jpg"]


@pytest.mark.parametrize("name", ["../uploads/photo.jpg", "/etc/passwd", "photo.jpg/", "./photo.jpg", "photo.jpg\0"])
async def test_a_name_is_never_made_a_path_of(office: Office, name: str) -> None:
    await office.upload("photo.jpg", b"photo")
    with pytest.raises(errors.FileNotFound):
        await given(office, name)


async def test_a_file_on_its_way_is_a_conflict_and_one_that_was_cancelled_is_none(office: Office) -> None:
    listener = office.allow()
    listener.download_began("g1", "", "slow.bin")
    with pytest.raises(errors.StateConflict, match="still on its way"):
        await given(office, "slow.bin")
    listener.download_ended("g1", 0, is_complete=False)
    with pytest.raises(errors.FileNotFound):
        await given(office, "slow.bin")
    await office.quiet()


async def test_a_file_that_somebody_took_from_the_disk_is_not_found(office: Office) -> None:
    Path(await office.upload("photo.jpg", b"photo")).unlink()
    with pytest.raises(errors.FileNotFound, match="gone from the disk"):
        await given(office, "photo.jpg")
