"""The files of sessions on disk: where each is, what is found again after a restart, and how one is handed out.

    <root>/<sessionId>/downloads/<guid>              a whole download; `<guid>.crdownload` while it is on its way
    <root>/<sessionId>/notes/<guid>                  its name and origin, so that they outlive the server
    <root>/<sessionId>/uploads/<name>                what a page is given, under the name that the page will see
    <root>/<sessionId>/given/<guid>/<name>           the same for a download, once a page was given it
    <root>/<sessionId>/incoming/<n>                  an upload that is not whole yet

What a download has become can be read off the disk alone; a note is written once. Every directory is the owner's alone.
Nothing here follows a symbolic link. All of it may block, so it runs in threads; that is the caller's business.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import structlog

from ..browsers.downloads import PARTIAL_SUFFIX
from .shelf import FileState, ShelfFile

log = structlog.get_logger("files")

# The directories that Playwright makes for itself where the system keeps what is temporary.
ARTIFACTS_PREFIX: Final = "playwright-artifacts-"
# One read or write of a thread: large enough that changing threads does not count.
PIECE_BYTES: Final = 512 << 10
PRIVATE_DIR: Final = 0o700


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What the disk does not say about a download by itself."""

    name: str
    url: str
    created_at: int


class SessionDirs:
    """Where one session's files are. Every session has one, and few have files, so a path is made when it is used."""

    __slots__ = ("top",)

    def __init__(self, root: Path, session_id: str) -> None:
        assert session_id.startswith("ses"), f"{session_id!r} is not ours to make a path of"
        assert "/" not in session_id, f"{session_id!r} is not ours to make a path of"
        self.top = root / session_id

    @property
    def downloads(self) -> Path:
        return self.top / "downloads"

    @property
    def notes(self) -> Path:
        return self.top / "notes"

    @property
    def uploads(self) -> Path:
        return self.top / "uploads"

    @property
    def incoming(self) -> Path:
        return self.top / "incoming"

    @property
    def given(self) -> Path:
        return self.top / "given"

    def of(self, file: ShelfFile) -> Path:
        """Where a whole file is."""
        return (self.downloads if file.source == "download" else self.uploads) / file.disk_name

    def partial(self, guid: str) -> Path:
        """Where the browser writes a download that is on its way."""
        return self.downloads / (guid + PARTIAL_SUFFIX)


def make_private(directory: Path) -> None:
    """The directory and those above it that are missing, for the owner alone, also where the browser made it."""
    for level in (directory.parent.parent, directory.parent, directory):
        level.mkdir(mode=PRIVATE_DIR, exist_ok=True, parents=True)
    # Of the two that are the session's: the browser makes what it needs as its own settings say.
    for level in (directory.parent, directory):
        if stat.S_IMODE(level.lstat().st_mode) != PRIVATE_DIR:
            level.chmod(PRIVATE_DIR)


def write_note(dirs: SessionDirs, file: ShelfFile) -> None:
    """Keep a download's name and origin; whole or not at all."""
    make_private(dirs.downloads)
    make_private(dirs.notes)
    note = Note(name=file.name, url=file.url, created_at=file.created_at)
    unfinished = dirs.notes / f".{file.disk_name}"
    unfinished.write_bytes(msgspec.json.encode(note))
    unfinished.replace(dirs.notes / file.disk_name)


def forget_downloads(dirs: SessionDirs, files: Collection[ShelfFile], *, with_notes: bool) -> None:
    """Remove what is there of downloads that are cancelled."""
    for file in files:
        dirs.of(file).unlink(missing_ok=True)
        dirs.partial(file.disk_name).unlink(missing_ok=True)
        if with_notes:
            (dirs.notes / file.disk_name).unlink(missing_ok=True)


def size_of(path: Path) -> int | None:
    """The size of a plain file; None when there is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def path_to_give(dirs: SessionDirs, file: ShelfFile) -> Path | None:
    """Where a whole file is under the name that it is served by, which a page will see; None when it is gone."""
    path = dirs.of(file)
    if size_of(path) is None:
        return None
    if file.source == "upload":
        return path
    # The browser has named it by its id. A second link costs no room, and goes with the session as all of it does.
    named = dirs.given / file.disk_name / file.name
    if size_of(named) is None:
        make_private(named.parent)
        named.hardlink_to(path)
    return named


def sizes_of_download(dirs: SessionDirs, guid: str) -> tuple[int | None, int | None]:
    """What there is of a download that is on its way, and of one that is whole.

    In this order: the browser renames the one into the other, and whoever looked the other way round would see neither.
    """
    so_far = size_of(dirs.partial(guid))
    return so_far, size_of(dirs.downloads / guid)


def find_again(dirs: SessionDirs) -> list[ShelfFile]:
    """What an earlier life of this node left of a session's files, oldest first."""
    # Whoever sent these has been told that it failed, or nothing at all.
    remove_tree(dirs.incoming)
    # A dot is before those that were not whole when the server died.
    notes = {path.name: _read_note(path) for path in _plain_files(dirs.notes) if path.name[0] != "."}
    guids = {path.name.removesuffix(PARTIAL_SUFFIX) for path in _plain_files(dirs.downloads)} | set(notes)
    found = [_download_again(dirs, guid, notes.get(guid)) for guid in guids]
    found += [_upload_again(path) for path in _plain_files(dirs.uploads)]
    return sorted(found, key=lambda file: (file.created_at, file.name))


def remove_tree(directory: Path) -> None:
    """Remove it with all that is in it; what cannot be removed is told, and tried again at the next start."""
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("files of a session could not be removed", path=str(directory), error=str(error))


def has_any(directory: Path) -> bool:
    """Whether it exists: one look, which the kernel answers from memory. Most sessions have no files."""
    return directory.exists()


def list_sessions(root: Path) -> list[str]:
    """The sessions that have files here, or had."""
    try:
        return os.listdir(root)
    except FileNotFoundError:
        return []


def open_plain(path: Path) -> tuple[BinaryIO, int] | None:
    """A plain file, open, with its size; None when there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
    file = os.fdopen(descriptor, "rb", buffering=PIECE_BYTES)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        file.close()
        return None
    return file, found.st_size


class Incoming:
    """An upload that is not whole yet, out of reach of pages."""

    def __init__(self, dirs: SessionDirs, number: int) -> None:
        self._dirs = dirs
        # Its place, which no other upload of the session has.
        self._path = dirs.incoming / str(number)
        # Absent before it begins.
        self._file: BinaryIO | None = None

    def begin(self) -> None:
        make_private(self._dirs.incoming)
        self._file = self._path.open("xb", buffering=0)

    def write(self, piece: bytes | bytearray) -> None:
        assert self._file is not None, "begin comes first"
        left = memoryview(piece)
        # Ends: each turn writes at least a byte, or raises.
        while left:
            left = left[self._file.write(left) :]

    def finish(self, file: ShelfFile) -> None:
        """It is whole: put it where pages may be given it."""
        assert self._file is not None, "begin comes first"
        self._file.close()
        make_private(self._dirs.uploads)
        self._path.rename(self._dirs.of(file))

    def drop(self) -> None:
        """Leave nothing of it."""
        if self._file is not None:
            self._file.close()
        self._path.unlink(missing_ok=True)


def is_inside(dirs: SessionDirs, path: str) -> bool:
    """Whether that path, whatever leads there, ends at a file that pages of this session may be given."""
    if not os.path.isabs(path) or "\0" in path:
        return False
    real = os.path.realpath(path)
    places = (os.path.realpath(dirs.downloads), os.path.realpath(dirs.uploads))
    return os.path.dirname(real) in places and os.path.isfile(real)


def link_into(whole: Path, directory: str) -> bool:
    """Have a whole download under the same name in a directory that a Playwright on this machine made for itself.

    Only there, because whoever names the directory is a client: it must not have us write anywhere else.
    """
    wanted = Path(directory)
    is_artifacts = wanted.name.startswith(ARTIFACTS_PREFIX) and wanted.parent == Path(tempfile.gettempdir())
    if not is_artifacts or "\0" in directory:
        return False
    try:
        opened = os.open(wanted, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        found = os.fstat(opened)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != PRIVATE_DIR:
            return False
        return _link(whole, opened)
    finally:
        os.close(opened)


def _link(whole: Path, directory: int) -> bool:
    try:
        os.link(whole, whole.name, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        # Told twice. Anything else under this name is not ours to replace.
        there = os.stat(whole.name, dir_fd=directory, follow_symlinks=False)
        return os.path.samestat(there, whole.lstat())
    except OSError as error:
        if error.errno == errno.ENOENT:
            return False
        if error.errno not in (errno.EXDEV, errno.EPERM):
            raise
        return _copy(whole, directory)
    return True


def _copy(whole: Path, directory: int) -> bool:
    """For a directory on another file system, or one that knows no links."""
    source = open_plain(whole)
    if source is None:
        return False
    file, _ = source
    with file:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(whole.name, flags, 0o600, dir_fd=directory), "wb") as copy:
            try:
                shutil.copyfileobj(file, copy, PIECE_BYTES)
            except OSError:
                os.unlink(whole.name, dir_fd=directory)
                raise
    return True


def _plain_files(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            return [Path(entry.path) for entry in entries if entry.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _read_note(path: Path) -> Note | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Note)
    except (OSError, msgspec.DecodeError) as error:
        log.warning("a download has lost its name", path=str(path), error=str(error))
        return None


def _download_again(dirs: SessionDirs, guid: str, note: Note | None) -> ShelfFile:
    whole = dirs.downloads / guid
    so_far, size = sizes_of_download(dirs, guid)
    state = FileState.COMPLETED
    if size is None:
        state = FileState.CANCELED if so_far is None else FileState.IN_PROGRESS
    return ShelfFile(
        # One whose note was never written is served all the same.
        name=guid if note is None else note.name,
        disk_name=guid,
        source="download",
        state=state,
        created_at=_changed_at(whole if size is not None else dirs.partial(guid)) if note is None else note.created_at,
        size_bytes=size or so_far or 0,
        url="" if note is None else note.url,
        reason="server_stopped" if state is FileState.CANCELED else "",
        is_unheard=state is FileState.IN_PROGRESS,
    )


def _upload_again(path: Path) -> ShelfFile:
    return ShelfFile(
        name=path.name,
        disk_name=path.name,
        source="upload",
        state=FileState.COMPLETED,
        created_at=_changed_at(path),
        size_bytes=size_of(path) or 0,
    )


def _changed_at(path: Path) -> int:
    """Milliseconds since 1970; 0 when it has gone meanwhile."""
    try:
        return path.lstat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
