"""One session's files while it lives: hears of its downloads, keeps them within limits, and keeps the disk in step.

Invariants:
- A download that goes over a limit is cancelled, listed as such with the limit as reason, and nothing of it stays.
- Work on the session's directory is done one piece after the other, in threads; once the session's files are thrown
  away nothing brings the directory back.

How much has arrived is heard every half second, so a fast download may be over a limit for that long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import structlog

from ..browsers.port import BrowserPort
from . import file_disk
from .file_disk import Incoming, SessionDirs
from .shelf import FileState, Shelf, ShelfFile

log = structlog.get_logger("files")

T = TypeVar("T")


class FilesGone(Exception):
    """The session's files were thrown away meanwhile."""


class SessionFiles:
    """The files of one session; what its browser tells about downloads is told here."""

    def __init__(
        self,
        session_id: str,
        root: Path,
        shelf: Shelf,
        *,
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        ended: Callable[[str, ShelfFile], None],
    ) -> None:
        self.session_id = session_id
        self.shelf = shelf
        self.dirs = SessionDirs(root, session_id)
        # Where its pages are; None while there is no browser, or one whose downloads are not ours.
        self.browser: BrowserPort | None = None
        # The contexts in which its pages may save files.
        self._contexts: set[str] = set()
        self._clock = clock
        self._spawn = spawn
        # Told of every download that has ended, with the session's id.
        self._ended = ended
        # Serialises what is done to the directory.
        self._disk = asyncio.Lock()
        self._is_gone = False
        self._uploads = 0

    # --- What the browser tells -----------------------------------------------------------------------------

    def download_began(self, guid: str, url: str, suggested_name: str) -> None:
        file = self.shelf.add_download(guid, url, suggested_name, self._clock())
        self._soon(file_disk.write_note, self.dirs, file)
        if self.shelf.count > self.shelf.max_files:
            self._refuse(file, "files_max")

    def download_moved(self, guid: str, received_bytes: int, total_bytes: int) -> None:
        file = self.shelf.download(guid)
        if file is None or not file.is_running:
            return
        # Chromium counts back to 0 while it tries an interrupted one again.
        file.size_bytes, file.total_bytes = received_bytes, total_bytes
        if self.shelf.is_over:
            self._refuse(file, "files_max_bytes")

    def download_ended(self, guid: str, size_bytes: int, *, is_complete: bool) -> None:
        file = self.shelf.download(guid)
        if file is None:
            return
        if not file.is_running:
            # It was refused; whatever came of it in the meantime is not wanted.
            self._soon(file_disk.forget_downloads, self.dirs, [file], with_notes=False)
        elif not is_complete:
            self._cancel(file, "canceled")
        else:
            self._complete(file, size_bytes)

    # --- What becomes of them -------------------------------------------------------------------------------

    def allow(self, browser: BrowserPort, context_id: str) -> None:
        """Pages of this context save files here from now on."""
        self.browser = browser
        self._contexts.add(context_id)
        browser.allow_downloads(context_id, str(self.dirs.downloads), self)

    async def forbid(self) -> None:
        """Its pages may live on, for somebody else: they save nothing more, and what was on its way has ended."""
        if (browser := self.browser) is not None:
            for context_id in sorted(self._contexts):
                await browser.forbid_downloads(context_id)
        self._contexts.clear()
        self.browser = None

    def browser_gone(self) -> None:
        """What was on its way died with the browser."""
        self.browser = None
        self._contexts.clear()
        for file in self.shelf:
            if file.is_running and file.source == "download":
                self._cancel(file, "browser_crashed")

    async def find_again(self) -> None:
        """Take up what an earlier life of this node left."""
        for file in await self.on_disk(file_disk.find_again, self.dirs):
            self.shelf.put_back(file)

    async def look(self) -> None:
        """Ask the disk about downloads of which no browser tells, because they began before this life of the node."""
        for file in [file for file in self.shelf if file.is_unheard]:
            so_far, whole = await self.on_disk(file_disk.sizes_of_download, self.dirs, file.disk_name)
            if not file.is_running:
                continue
            if whole is not None:
                self._complete(file, whole)
            elif so_far is not None:
                file.size_bytes = so_far
            else:
                self._cancel(file, "canceled")

    def new_upload(self) -> Incoming:
        """Where an upload goes while it comes in."""
        self._uploads += 1
        return Incoming(self.dirs, self._uploads)

    def drop(self, incoming: Incoming) -> None:
        """Leave nothing of an upload that failed, without anybody waiting for that."""
        self._spawn(self._drop(incoming))

    async def throw_away(self) -> None:
        """Nothing of the session's files stays. Idempotent."""
        self._is_gone = True
        async with self._disk:
            await remove(self.dirs.top)

    async def on_disk(self, work: Callable[..., T], *args: Any, **more: Any) -> T:
        """Run something that touches the directory in a thread, in its turn. Raises `FilesGone` after the end."""
        async with self._disk:
            if self._is_gone:
                raise FilesGone
            working = asyncio.ensure_future(asyncio.to_thread(work, *args, **more))
            try:
                return await asyncio.shield(working)
            finally:
                # A caller that leaves cannot call the thread back, and the next one must not work beside it.
                if not working.done():
                    await asyncio.wait([working])

    # --- Parts ----------------------------------------------------------------------------------------------

    def _complete(self, file: ShelfFile, size_bytes: int) -> None:
        file.size_bytes = size_bytes
        if self.shelf.is_over:
            self._cancel(file, "files_max_bytes")
            return
        self.shelf.complete(file, size_bytes)
        self._ended(self.session_id, file)

    def _refuse(self, file: ShelfFile, limit: str) -> None:
        log.info("a download is over a limit", sessionId=self.session_id, limit=limit, size_bytes=file.size_bytes)
        if self.browser is not None:
            self.browser.cancel_download(file.disk_name)
        self._cancel(file, limit)

    def _cancel(self, file: ShelfFile, reason: str) -> None:
        forgotten = self.shelf.cancel(file, reason)
        assert file.state is FileState.CANCELED
        self._soon(file_disk.forget_downloads, self.dirs, [file], with_notes=False)
        if forgotten:
            self._soon(file_disk.forget_downloads, self.dirs, forgotten, with_notes=True)
        self._ended(self.session_id, file)

    def _soon(self, work: Callable[..., None], *args: Any, **more: Any) -> None:
        """Have the disk follow, without anybody waiting for it."""
        self._spawn(self._follow(work, *args, **more))

    async def _drop(self, incoming: Incoming) -> None:
        """Also after the end: what is open must be closed, and nothing is made by this."""
        async with self._disk:
            try:
                await asyncio.to_thread(incoming.drop)
            except OSError as error:
                log.warning("an upload that failed is still there", sessionId=self.session_id, error=str(error))

    async def _follow(self, work: Callable[..., None], *args: Any, **more: Any) -> None:
        try:
            await self.on_disk(work, *args, **more)
        except FilesGone:
            return
        except OSError as error:
            # The session's pages go on; what cannot be kept is told when it is asked for.
            log.warning("files of a session could not be kept", sessionId=self.session_id, error=str(error))


async def remove(directory: Path) -> None:
    """Remove a directory with all that is in it. Where there is none, no thread is troubled."""
    if file_disk.has_any(directory):
        await asyncio.to_thread(file_disk.remove_tree, directory)
