# Written by tools/twin.py from client/aio; change that and run 'make docs'.
"""`Session`: a lease as a context manager, kept alive while it is open.

Invariants:
- From `open()` to `close()` heartbeats are sent, whatever this program is busy with; a session that is forgotten gets
  none, and ends by itself on the server.
- Every command carries the fence of this lease: once the session is another's, nothing of ours touches it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar
from uuid import uuid4

import httpx
import msgspec

from ... import wire
from ...errors import LeaseLost, SessionNotFound, StateConflict, TabherdError
from ..beats import beat_call
from ..call import ANSWER_LIMIT_S, MARGIN_S, Call, decoded, get, segment, unreachable, wire_names
from ..storage import StorageState, plain_state
from .link import Link
from .seam import read_pieces, write_file, write_pieces
from .tab import Tab

Answer = TypeVar("Answer")

# Of a session that is nobody's any more, or about to be.
ENDED: Final = frozenset(("pooled", "closing", "closed", "lost"))


class Session:
    """An isolated browser of one's own, until it is given back. Made by `Tabherd.session`."""

    def __init__(self, link: Link, fields: Mapping[str, Any], disposition: Literal["close", "pool"] | None) -> None:
        self._link = link
        # Of POST /sessions, in wire spelling.
        self._fields = fields
        self._disposition = disposition
        # As it was last seen; replaced as a whole, since the pulse and other threads look at it, too.
        self._view: wire.SessionView | None = None
        self._is_opening = False
        # Why it can be used no more; empty while it can.
        self._lost = ""
        # What the owner is doing, for people who look: send, poll, watch, ...
        self.phase: str | None = None
        # As whom its commands take turns and hold tab locks, whichever connection they go over.
        self.controller_id = f"sdk-{uuid4().hex}"

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.close()
        except TabherdError:
            # The session ends by itself; what went wrong before is what its owner must hear.
            if error is None:
                raise

    # --- Its life -----------------------------------------------------------------------------------------------

    def open(self) -> Self:
        """Lease it, waiting for a place if need be."""
        if self._view is not None or self._is_opening:
            raise StateConflict("This session was leased before.", action="Make another one for another lease.")
        wait_ms = self._fields.get("waitMs")
        call = Call(
            method="POST",
            path="/sessions",
            answer=wire.SessionView,
            body=self._fields,
            limit_s=ANSWER_LIMIT_S if wait_ms is None else wait_ms / 1000 + ANSWER_LIMIT_S,
            patience_s=None if wait_ms is None else wait_ms / 1000,
            # If it was granted and the answer got lost, it gets no heartbeat and ends by itself.
            may_repeat=True,
        )
        self._is_opening = True
        try:
            self.join(self._link.ask(call))
        finally:
            self._is_opening = False
        return self

    def join(self, view: wire.SessionView) -> None:
        """Take up a session that is open; one that has ended is `LeaseLost`."""
        if view.state in ENDED:
            raise _ended(view)
        self._view = view
        self._link.pulse.add(self)

    def close(self, disposition: Literal["close", "pool"] | None = None) -> None:
        """Give it back. One that has ended already, or is another's now, is not touched. Idempotent."""
        if self._view is None or self._lost:
            return
        self._link.pulse.remove(self)
        query = wire_names({"fence": self.fence, "disposition": disposition or self._disposition})
        call = Call(method="DELETE", path=self._path(), answer=bytes, query=query, may_repeat=True)
        try:
            self._link.send(call)
        except (LeaseLost, SessionNotFound) as error:
            self.was_lost(error)
        else:
            self._lost = "This session was given back."

    def refresh(self) -> Self:
        """See which tabs it has now; pages open some by themselves."""
        view = self.ask(get(self._path(), wire.SessionView))
        if view.state in ENDED or view.fence != self.fence:
            # Never taken in: with the fence of somebody else's lease our commands would reach that.
            error = _ended(view)
            self.was_lost(error)
            raise error
        self._view = view
        return self

    def heartbeat(self) -> wire.HeartbeatAnswer:
        """Say now that its owner lives; it is said regularly anyway."""
        return self.ask(beat_call(self))

    # --- What it is ---------------------------------------------------------------------------------------------

    @property
    def view(self) -> wire.SessionView:
        """The session as it was last seen."""
        if self._view is None:
            raise StateConflict("This session is not leased yet.", action="Use it in 'with', or call open().")
        return self._view

    @property
    def id(self) -> str:
        return self.view.session_id

    @property
    def agent(self) -> str:
        return self.view.agent_id

    @property
    def asked_agent(self) -> str | None:
        """Whom this handle leased it for by name; absent when the credential alone says it."""
        return self._fields.get("agentId")

    @property
    def fence(self) -> int:
        return self.view.fence

    @property
    def heartbeat_s(self) -> float:
        """How often its owner is to say that it lives."""
        return self.view.heartbeat_ms / 1000

    @property
    def cdp_url(self) -> str:
        """For Playwright's `connect_over_cdp`; carries a credential for this session."""
        return self.view.cdp_url

    @property
    def ws_url(self) -> str:
        """For Puppeteer's `browserWSEndpoint` and other CDP clients; carries a credential for this session."""
        return self.view.web_socket_debugger_url

    @property
    def live_url(self) -> str:
        """For a person: its tab, live, in a browser where they log in. Empty while it has no tab."""
        return self.view.live_url

    @property
    def is_lost(self) -> bool:
        """Whether it is known to be over, or another's."""
        return bool(self._lost)

    # --- Tabs ---------------------------------------------------------------------------------------------------

    @property
    def tab(self) -> Tab:
        """Its first tab."""
        tabs = self.tabs
        if not tabs:
            raise StateConflict("This session has no tab.", action="Open one with new_tab().", sessionId=self.id)
        return tabs[0]

    @property
    def tabs(self) -> list[Tab]:
        """Its tabs as they were last seen, oldest first; `refresh()` looks again."""
        # Made anew each time: kept here they would keep the session alive, which must end with its last user.
        return [Tab(self, tab.tab_id) for tab in self.view.tabs]

    def new_tab(self, url: str | None = None, *, borrow: str | None = None) -> Tab:
        """Open one more tab, or borrow one that the browser's user has open."""
        body = wire_names({"url": url, "borrow": borrow})
        call = Call(method="POST", path=self._path("tabs"), answer=wire.TabView, body=body, is_command=True)
        opened = self.ask(call)
        self.refresh()
        return Tab(self, opened.tab_id)

    # --- State and files ----------------------------------------------------------------------------------------

    def storage_state(self, path: str | Path | None = None) -> dict[str, Any]:
        """Its cookies and localStorage, as Playwright has them; written to that file as JSON, too."""
        state = plain_state(self.ask(get(self._path("state"), wire.StorageState)))
        if path is not None:
            write_file(Path(path), msgspec.json.encode(state))
        return state

    def set_storage_state(self, state: StorageState) -> None:
        """Add cookies and localStorage; what has the same name is overwritten. Takes what Playwright writes, too."""
        body = plain_state(state)
        self.tell(Call(method="PUT", path=self._path("state"), answer=bytes, body=body, may_repeat=True))

    def files(self) -> list[wire.FileView]:
        """What its pages downloaded and what was uploaded for them, oldest first."""
        return (self.ask(get(self._path("files"), wire.FilePage))).files

    def upload(self, source: str | Path | bytes, name: str | None = None) -> wire.UploadedFile:
        """Put a file where its pages can be given it; `source` is a path, or the content itself."""
        path = None if isinstance(source, bytes) else Path(source)
        call = Call(
            method="POST",
            path=self._path("files"),
            answer=wire.UploadedFile,
            query={"name": name or ("file" if path is None else path.name)},
            content=lambda: source if path is None else read_pieces(path),
        )
        return self.ask(call)

    def download(self, name: str) -> bytes:
        """A file that its pages downloaded."""
        return self.tell(get(self._path("files", name), bytes))

    def download_to(self, name: str, path: str | Path) -> None:
        """The same, written to a file of this machine piece by piece."""
        self._refuse_if_lost()
        try:
            with self._link.stream(self._path("files", name), query={}, headers={}, silence_s=MARGIN_S) as answer:
                write_pieces(Path(path), answer.iter_bytes())
        except httpx.HTTPError as error:
            raise unreachable(self._link.url, error, retryable=True) from None

    # --- For the pulse and the tabs -----------------------------------------------------------------------------

    def was_lost(self, error: TabherdError) -> None:
        """The session is no longer this owner's."""
        self._lost = error.message
        self._link.pulse.remove(self)

    def ask(self, call: Call[Answer]) -> Answer:
        """Send what concerns this session or one of its tabs, and read the answer."""
        return decoded(self._link.url, call, self.tell(call))

    def tell(self, call: Call[Any]) -> bytes:
        """The same, with the answer as it came."""
        self._refuse_if_lost()
        try:
            return self._link.send(call)
        except LeaseLost as error:
            self.was_lost(error)
            raise

    # --- Parts --------------------------------------------------------------------------------------------------

    def _refuse_if_lost(self) -> None:
        if self._lost:
            raise LeaseLost(self._lost, sessionId=self.id)

    def _path(self, *parts: str) -> str:
        return "/".join(["/sessions", segment(self.id), *map(segment, parts)])


def _ended(view: wire.SessionView) -> LeaseLost:
    why = f"The session has ended: {view.end_reason or view.state}." if view.state in ENDED else "It changed hands."
    return LeaseLost(why, sessionId=view.session_id, reason=view.end_reason)
