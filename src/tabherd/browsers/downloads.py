"""Has the files that pages save written to the directory of their session, and tells the session what becomes of them.

Invariants:
- A download is told to the session in whose directory Chromium writes it, and to no other.
- A listener hears of a download: begun, then how far it is, then its end; nothing before, nothing after.
- Until a context is told where, its pages save nothing.

Chromium tells of every context's downloads on this one connection, and names only the frame that caused each. The main
frame of a page has the page's own id, so the context is known at once. A download that an embedded frame caused, or a
context that a client made for itself, is filed as soon as the file shows up in a session's directory: that is where
Chromium itself was told to put it. What shows up nowhere was refused, and is told to nobody.

A setting holds until another one for the same context, or until the connection that made it closes, if it was the last
to do so; who takes over says it again. Whether events are sent is not a setting of the context but of the connection:
one call that does not ask for them ends them all.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from .cdp import CdpConnection
from .pages import in_context
from .port import CdpFailure, DownloadListener

# Downloads that are followed at once; beyond it the oldest is forgotten. Chromium asks a person after ten of a page.
RUNNING_MAX: Final = 10_000
# A download that has been cancelled ends at once; one that does not within this is not waited for.
END_LIMIT_S: Final = 10.0
# What Chromium appends while a file is not whole yet.
PARTIAL_SUFFIX: Final = ".crdownload"

# It becomes a file name, so it must be what Chromium makes of it.
_GUID: Final = re.compile(r"[0-9A-Za-z-]{1,64}")
_SET: Final = "Browser.setDownloadBehavior"


def is_guid(text: str) -> bool:
    """Whether this can be the name of a download, and so of its file."""
    return _GUID.fullmatch(text) is not None


async def forbid_downloads(connection: CdpConnection, context_id: str) -> None:
    """A page must not write files on this machine; the full build would, into the user's download directory.

    Empty: the browser's own profile. It holds while this connection lives, so whoever takes over says it again.
    """
    await connection.call(_SET, _denied(context_id))


class _Place(msgspec.Struct, frozen=True):
    """Where the files of a context go, and who hears of them."""

    directory: str
    listener: DownloadListener


class _Running(msgspec.Struct):
    """One download that has not ended."""

    url: str
    suggested_name: str
    # Absent when an embedded frame caused it.
    context_id: str | None
    # Who hears of it; None until it is known whose it is.
    listener: DownloadListener | None = None


class Downloads:
    """The downloads of one browser."""

    def __init__(self, connection: CdpConnection, context_of: Callable[[str], str | None]) -> None:
        self._connection = connection
        # The context of a page, by target id.
        self._context_of = context_of
        # By context id.
        self._places: dict[str, _Place] = {}
        # By Chromium's own id of the download, oldest first.
        self._running: dict[str, _Running] = {}
        # Who waits for the end of one.
        self._ending: dict[str, asyncio.Future[None]] = {}
        connection.listen(None, "Browser.downloadWillBegin", self._began)
        connection.listen(None, "Browser.downloadProgress", self._moved)

    def allow(self, context_id: str, directory: str, listener: DownloadListener) -> None:
        """Pages of this context save files there from now on."""
        assert context_id, "the browser's own profile is nobody's alone"
        self._places[context_id] = _Place(directory, listener)
        allowed = {"behavior": "allowAndName", "downloadPath": directory, "eventsEnabled": True}
        self._connection.post(_SET, {**allowed, **in_context(context_id)})

    async def forbid(self, context_id: str) -> None:
        """Pages of this context save nothing more, and what they had begun has ended, when this returns."""
        # Chromium takes one connection's calls in order, and tells in order, too: once it has answered this, nothing
        # begins, and of all that had begun it has told.
        await self._connection.call(_SET, _denied(context_id))
        if (place := self._places.get(context_id)) is not None:
            begun = [guid for guid, running in self._running.items() if running.listener is place.listener]
            await asyncio.gather(*map(self._end, begun))
        self.forget(context_id)

    def forget(self, context_id: str) -> None:
        """The context is gone, or will be; whatever it still does is of no interest."""
        place = self._places.pop(context_id, None)
        if place is not None and place.listener not in [other.listener for other in self._places.values()]:
            for guid in [guid for guid, running in self._running.items() if running.listener is place.listener]:
                del self._running[guid]

    def cancel(self, guid: str) -> None:
        """End a download. One that an embedded frame caused is looked for in each context of its session."""
        running = self._running.get(guid)
        if running is None:
            return
        known = [id for id, place in self._places.items() if place.listener is running.listener]
        for context_id in known if running.context_id is None else [running.context_id]:
            self._connection.post("Browser.cancelDownload", {"guid": guid, **in_context(context_id)})

    # --- What Chromium says -----------------------------------------------------------------------------------------

    def _began(self, event: Mapping[str, Any]) -> None:
        guid = event["guid"]
        if not is_guid(guid):
            return
        context_id = self._context_of(event.get("frameId", ""))
        running = _Running(event["url"], event["suggestedFilename"], context_id)
        self._running[guid] = running
        if len(self._running) > RUNNING_MAX:
            del self._running[next(iter(self._running))]
        place = None if context_id is None else self._places.get(context_id)
        if place is not None:
            self._file(guid, running, place)

    def _moved(self, event: Mapping[str, Any]) -> None:
        guid, state = event["guid"], event["state"]
        running = self._running.get(guid)
        if running is None:
            return
        if running.listener is None and (place := self._place_of(guid)) is not None:
            self._file(guid, running, place)
        if state != "inProgress":
            del self._running[guid]
            if (ending := self._ending.pop(guid, None)) is not None:
                ending.set_result(None)
        if (listener := running.listener) is None:
            return
        # Chromium counts in floating point, and a total that it does not know is 0 or negative.
        received, total = int(event["receivedBytes"]), max(0, int(event["totalBytes"]))
        if state == "inProgress":
            listener.download_moved(guid, received, total)
        else:
            listener.download_ended(guid, received, is_complete=state == "completed")

    # --- Parts ------------------------------------------------------------------------------------------------------

    async def _end(self, guid: str) -> None:
        """Cancel one, and see that it is over: until then Chromium may still write, and make directories for it."""
        ending = self._ending[guid] = asyncio.get_running_loop().create_future()
        self.cancel(guid)
        try:
            async with asyncio.timeout(END_LIMIT_S):
                await ending
        except TimeoutError:
            raise CdpFailure("Browser.cancelDownload", 0, "the download goes on") from None
        finally:
            self._ending.pop(guid, None)

    def _file(self, guid: str, running: _Running, place: _Place) -> None:
        running.listener = place.listener
        place.listener.download_began(guid, running.url, running.suggested_name)

    def _place_of(self, guid: str) -> _Place | None:
        """Where its file is. A few looks at directories that the kernel has in memory."""
        for place in self._places.values():
            whole = os.path.join(place.directory, guid)
            if os.path.lexists(whole + PARTIAL_SUFFIX) or os.path.lexists(whole):
                return place
        return None


def _denied(context_id: str) -> dict[str, Any]:
    return {"behavior": "deny", "eventsEnabled": True, **in_context(context_id)}
