"""The verbs about files of sessions, and what the life of a session means for them.

Each session has a directory to itself. What its pages download goes there and is served by the name that the site
suggested; what its owner uploads goes there. Both can be given to its pages, by name. The directory lives as long as
the session: it goes when the session ends or is pooled, and what a server that died left of sessions that are over goes
at the next start.

Sessions that share a profile share its downloads, so those stay forbidden; a browser that is only attached to is left
as it is. Uploads work everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection, Coroutine
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import structlog

from .. import wire
from ..browsers.downloads import is_guid
from ..browsers.port import BrowserGone, BrowserPort, CdpFailure
from ..core import lease
from ..core.model import Session
from ..errors import BodyTooLarge, Capacity, FileNotFound, InvalidRequest, LeaseLost, StateConflict, StoreUnavailable
from . import file_disk
from .access import Access
from .caller import Caller
from .events import EventBus
from .file_disk import PIECE_BYTES
from .registry import LiveSession, Registry
from .session_files import FilesGone, SessionFiles, remove
from .settings import Settings
from .shelf import FileState, Shelf, ShelfFile
from .views import rfc3339

log = structlog.get_logger("files")

# How many names of files that exist, the latest, are told to whoever asks for one that does not.
NAMES_SHOWN: Final = 10
# What is repeated of a name that does not exist.
NAME_SHOWN_MAX: Final = 200


class OpenFile(msgspec.Struct, frozen=True):
    """A file on its way to whoever asked for it."""

    name: str
    size_bytes: int
    pieces: AsyncGenerator[bytes]
    # Closes it; called in any case, also when not one piece was read.
    close: Callable[[], None]


class Files:
    """The files of all sessions of this node."""

    def __init__(
        self,
        *,
        root: Path,
        settings: Settings,
        registry: Registry,
        access: Access,
        events: EventBus,
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._root = root
        self._settings = settings
        self._registry = registry
        self._access = access
        self._events = events
        self._clock = clock
        self._spawn = spawn
        # Of sessions that are being opened, are bound, or are being found again; by session id.
        self._sessions: dict[str, SessionFiles] = {}

    # --- Verbs ----------------------------------------------------------------------------------------------

    async def list(self, caller: Caller, session_id: str) -> wire.FilePage:
        """Everything that the session has, oldest first."""
        _, files = await self._owned(caller, session_id)
        return wire.FilePage(files=[file_view(file) for file in files.shelf])

    async def open(self, caller: Caller, session_id: str, name: str) -> OpenFile:
        """One file, to be read piece by piece. Its name is looked up, never made a path of."""
        live, files = await self._owned(caller, session_id)
        file = _whole(files, name)
        opened = await self._on_disk(files, file_disk.open_plain, files.dirs.of(file))
        if opened is None:
            raise FileNotFound("The file is gone from the disk.", sessionId=session_id)
        on_disk, size_bytes = opened
        loop = asyncio.get_running_loop()

        def close() -> None:
            # In a thread, because one may be reading in it: the file's own lock has this wait for that.
            loop.run_in_executor(None, on_disk.close)

        return OpenFile(file.name, size_bytes, self._pieces(live, on_disk, size_bytes), close)

    async def upload(
        self, caller: Caller, session_id: str, name: str, declared_bytes: int, pieces: AsyncIterable[bytes]
    ) -> wire.UploadedFile:
        """Take a file in; whole or not at all. `declared_bytes`: what the caller says that it will be, 0 if nothing."""
        if not name:
            raise InvalidRequest("name: a file needs a name.", field="name")
        live, files = await self._owned(caller, session_id)
        _refuse_count(files.shelf)
        file = files.shelf.add_upload(name, declared_bytes, self._clock())
        try:
            # Before the first byte is read, if its length says enough.
            _refuse_bytes(files.shelf)
            await self._take_in(live, files, file, pieces)
        except BaseException:
            files.shelf.remove(file)
            raise
        return wire.UploadedFile(name=file.name, size_bytes=file.size_bytes, path=str(files.dirs.of(file)))

    # --- For commands ---------------------------------------------------------------------------------------

    async def to_paths(self, session: Session, request: wire.Upload) -> wire.Upload:
        """The same with paths in the place of the names of the session's files, for the page that is given them.

        Names are looked up, never made a path of. Whether the caller may use them is for the caller of this to know.
        """
        files = self._of(session)
        try:
            await files.look()
        except FilesGone:
            raise _over(session.id) from None
        paths: list[str] = []
        for name in request.files:
            path = await self._on_disk(files, file_disk.path_to_give, files.dirs, _whole(files, name))
            if path is None:
                raise FileNotFound("The file is gone from the disk.", sessionId=session.id, name=name)
            paths.append(str(path))
        return msgspec.structs.replace(request, files=paths)

    # --- The life of a session ------------------------------------------------------------------------------

    def allow(self, session: Session, browser: BrowserPort, context_id: str) -> None:
        """Pages of the session save files from now on, if it has a context to itself in a browser of ours."""
        if context_id and self._settings.current.pools[session.pool].source == "launch":
            self._of(session).allow(browser, context_id)

    async def allow_downloads(self, live: LiveSession) -> None:
        """The same again, for a session that is bound; in force when this returns.

        For whoever let another connection change the setting: the last one to set it is obeyed, and when that one
        closes, nobody is. A session that has no browser now is told where its files go when it gets one.
        """
        browser = live.browser
        if browser is None:
            return
        self.allow(live.row, browser, live.row.context_id)
        try:
            # Chromium takes one connection's calls in order: that it answers this one shows that it obeyed the other.
            await browser.probe()
        except (BrowserGone, CdpFailure) as error:
            log.info("a browser died before it could be told where files go", sessionId=live.row.id, error=str(error))

    async def forbid(self, session_id: str) -> None:
        """The session is over, but its pages are not: they save nothing more when this returns."""
        if (files := self._sessions.get(session_id)) is not None:
            await files.forbid()

    def browser_gone(self, session_id: str) -> None:
        """The session's browser died, with all that was on its way."""
        if (files := self._sessions.get(session_id)) is not None:
            files.browser_gone()

    async def load(self, session: Session) -> None:
        """A session of an earlier life of this node goes on: so do its files. Idempotent."""
        if session.id not in self._sessions:
            files = self._of(session)
            if file_disk.has_any(files.dirs.top):
                await files.find_again()

    async def discard(self, session_id: str) -> None:
        """The session is over: nothing of its files stays. Idempotent."""
        files = self._sessions.pop(session_id, None)
        await (remove(self._root / session_id) if files is None else files.throw_away())

    async def sweep(self, known: Collection[str]) -> None:
        """Remove what is left of sessions that nobody knows; at the start, before anybody opens one."""
        for name in file_disk.list_sessions(self._root):
            if name not in known:
                log.info("files of a session that is over are removed", sessionId=name)
                await remove(self._root / name)

    # --- For CDP clients ------------------------------------------------------------------------------------

    def download_dir(self, session_id: str) -> str:
        """Where the pages of a session save files; while it is bound, it exists when this returns."""
        downloads = file_disk.SessionDirs(self._root, session_id).downloads
        if self._registry.session(session_id) is not None:
            file_disk.make_private(downloads)
        return str(downloads)

    def may_read(self, session_id: str, path: str) -> bool:
        """Whether that path leads to a file of the session, which its pages may be given."""
        return file_disk.is_inside(file_disk.SessionDirs(self._root, session_id), path)

    async def place(self, session_id: str, guid: str, directory: str) -> bool:
        """Have a whole download as `guid` in the artifacts directory that a Playwright on this machine made.

        Whether it is there. That the client is a process of ours on this machine is for the caller to know.
        """
        files = self._sessions.get(session_id)
        if files is None or not is_guid(guid):
            return False
        try:
            return await files.on_disk(file_disk.link_into, files.dirs.downloads / guid, directory)
        except (FilesGone, OSError) as error:
            log.info("a download could not be placed", sessionId=session_id, error=str(error))
            return False

    # --- Parts ----------------------------------------------------------------------------------------------

    def _of(self, session: Session) -> SessionFiles:
        files = self._sessions.get(session.id)
        if files is None:
            pool = self._settings.current.pools[session.pool]
            files = self._sessions[session.id] = SessionFiles(
                session.id,
                self._root,
                Shelf(max_bytes=pool.files_max_bytes, max_files=pool.files_max),
                clock=self._clock,
                spawn=self._spawn,
                ended=self._download_ended,
            )
        return files

    async def _owned(self, caller: Caller, session_id: str) -> tuple[LiveSession, SessionFiles]:
        """The caller's own session with its files, as they are now."""
        caller.require("files")
        live = await self._access.owned(caller, session_id)
        fence = live.row.fence
        live.read_by(caller, self._clock())
        files = self._of(live.row)
        try:
            await files.look()
        except FilesGone:
            raise _over(session_id) from None
        lease.check_fence(live.row, fence)
        return live, files

    async def _on_disk(self, files: SessionFiles, work: Callable[..., Any], *args: Any) -> Any:
        """Touch the session's directory on behalf of a caller."""
        try:
            return await files.on_disk(work, *args)
        except FilesGone:
            raise _over(files.session_id) from None
        except OSError as error:
            raise StoreUnavailable(
                f"The files of the session cannot be read or written: {error.strerror}.",
                action="Make room on the disk of the state directory, or make it writable.",
                cause=error.strerror,
            ) from error

    async def _take_in(
        self, live: LiveSession, files: SessionFiles, file: ShelfFile, pieces: AsyncIterable[bytes]
    ) -> None:
        incoming, fence = files.new_upload(), live.row.fence
        try:
            await self._on_disk(files, incoming.begin)
            gathered = bytearray()
            async for piece in pieces:
                live.heard(self._clock())
                file.size_bytes += len(piece)
                _refuse_bytes(files.shelf)
                gathered += piece
                if len(gathered) >= PIECE_BYTES:
                    await self._on_disk(files, incoming.write, gathered)
                    gathered = bytearray()
            await self._on_disk(files, incoming.write, gathered)
            # It becomes the session's, whose owner must not change meanwhile: it may wait for its turn at the disk.
            async with live.mutex:
                lease.check_fence(live.row, fence)
                await self._on_disk(files, incoming.finish, file)
                files.shelf.complete(file, file.size_bytes)
        except BaseException:
            files.drop(incoming)
            raise

    async def _pieces(self, live: LiveSession, on_disk: BinaryIO, size_bytes: int) -> AsyncGenerator[bytes]:
        left = size_bytes
        while left > 0:
            live.seen_at = self._clock()
            piece = await asyncio.to_thread(on_disk.read, min(PIECE_BYTES, left))
            if not piece:
                # It was cut; whoever reads learns it from the length that was announced.
                return
            left -= len(piece)
            yield piece

    def _download_ended(self, session_id: str, file: ShelfFile) -> None:
        live = self._registry.session(session_id)
        if live is not None:
            self._events.publish(
                "session.download",
                sessionId=session_id,
                agentId=live.row.agent_id,
                name=file.name,
                state=str(file.state),
                sizeBytes=file.size_bytes,
                reason=file.reason or None,
            )


def _over(session_id: str) -> LeaseLost:
    return LeaseLost("The session has ended.", sessionId=session_id)


def _whole(files: SessionFiles, name: str) -> ShelfFile:
    """The file of that name, if all of it is there."""
    file = files.shelf.named(name)
    if file is None or file.state is FileState.CANCELED:
        has = [other.name for other in files.shelf if other.state is FileState.COMPLETED]
        raise FileNotFound(
            f"The session has no file '{name[:NAME_SHOWN_MAX]}'.",
            action="Use a name that the session has: details lists the latest. POST /sessions/{id}/files adds one.",
            sessionId=files.session_id,
            files=has[-NAMES_SHOWN:],
        )
    if file.is_running:
        raise StateConflict(
            f"The file '{file.name}' is still on its way.",
            action="Wait for the event session.download, or list the files until its state is completed.",
            sessionId=files.session_id,
            sizeBytes=file.size_bytes,
        )
    return file


def _refuse_count(shelf: Shelf) -> None:
    """Raise unless there is room for one more file."""
    if shelf.count >= shelf.max_files:
        raise Capacity(
            f"The session has {shelf.max_files} files, which is all that it may have.",
            action="Open another session for more files, or raise files_max of the pool.",
            reason="file_cap",
            cap=shelf.max_files,
        )


def _refuse_bytes(shelf: Shelf) -> None:
    """Raise if what it has, with what is on its way, is more than it may have."""
    if shelf.is_over:
        raise BodyTooLarge(
            f"The session may have {shelf.max_bytes} bytes of files, and this would be more.",
            action="Send a smaller file, or raise files_max_bytes of the pool.",
            field="body",
            cap=shelf.max_bytes,
        )


def file_view(file: ShelfFile) -> wire.FileView:
    """A file as callers see it."""
    return wire.FileView(
        name=file.name,
        size_bytes=file.size_bytes,
        source=file.source,
        state=str(file.state),
        created_at=rfc3339(file.created_at),
        url=file.url or None,
        reason=file.reason or None,
    )
