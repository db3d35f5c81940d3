"""`AsyncLock`: a named lock as a context manager, kept alive while it is held.

Invariants:
- From when it is had to when it is given back it is renewed by the client's pulse, whatever this program is busy with;
  one that is forgotten is renewed no more, and is free when its lease ends.
- The holder knows first: when no renewal got through for as long as the lease lasts, the lock counts as lost here
  before the server can give it to anybody else.
- An acquisition whose answer was lost is repeated with the same ticket, so it is never had twice, nor by nobody.
"""

from __future__ import annotations

from contextlib import suppress
from math import ceil
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import msgspec

from ... import wire
from ...errors import LockLost, LockNotFound, StateConflict, TabherdError
from ..beats import answer_limit_s
from ..call import MARGIN_S, Call, segment, wire_names
from .link import AsyncLink
from .seam import party

# Renewals that are sent in the time of one lease.
BEATS_PER_LEASE: Final = 3


class AsyncLock:
    """A named lock of one's own, until it is given back. Made by `AsyncTabherd.lock` and `AsyncTabherd.try_lock`.

    Its truth is whether it is had, which is not so only for one that was tried for and found busy.
    """

    def __init__(
        self, link: AsyncLink, name: str, *, timeout_s: float, is_skipping: bool, options: dict[str, Any]
    ) -> None:
        self._link = link
        # How long it is waited for; not at all by who skips.
        self._timeout_s = timeout_s
        self._is_skipping = is_skipping
        # Of POST /locks/{name}, in wire spelling.
        self._options = options
        # The secret that renews and releases it; ours, so that what was asked for twice is had once.
        self._ticket = f"sdk-{uuid4().hex}"
        # As it was granted; None before, and when it was found busy.
        self._view: wire.LockView | None = None
        # Its lease, and until when it is certain, on the monotonic clock: counted from before the request was sent.
        self._lease_s = 0.0
        self._until_s = 0.0
        # When the renewal that is under way was sent.
        self._sent_s = 0.0
        # Why it is ours no more; empty while it is.
        self._lost = ""
        # It was given back.
        self._is_over = False
        self.name = name
        # Sessions tell what their owner does; a lock has nothing to tell.
        self.phase: str | None = None

    def __bool__(self) -> bool:
        return self._view is not None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {'held' if self and not self.is_lost else 'not held'}>"

    async def __aenter__(self) -> Self:
        return await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except TabherdError:
            # It is free when its lease ends; what went wrong before is what its holder must hear.
            if error is None:
                raise

    # --- Its life -----------------------------------------------------------------------------------------------

    async def acquire(self) -> Self:
        """Have it, waiting in line if need be. `LockTimedOut` after the time; who only tries finds it false instead."""
        if self._view is not None or self._is_over:
            raise StateConflict("This lock was had before.", action="Make another one.")
        until_s = monotonic() + self._timeout_s
        fields = {**self._options, "controllerId": party(), "ticket": self._ticket, "skip": self._is_skipping}

        def body() -> bytes:
            # Made anew for each attempt: what was waited before counts.
            self._sent_s = monotonic()
            wait_ms = 0 if self._is_skipping else max(0, ceil((until_s - self._sent_s) * 1000))
            return msgspec.json.encode({**fields, "waitMs": wait_ms})

        call = Call(
            method="POST",
            path=self._path(),
            answer=wire.LockView,
            content=body,
            limit_s=self._timeout_s + MARGIN_S,
            # Who only tries waits a restart out, as every other call does, but no lock.
            patience_s=None if self._is_skipping else self._timeout_s,
            is_timed=not self._is_skipping,
            may_repeat=True,
        )
        view = await self._link.ask(call)
        if view.acquired:
            assert view.lease_ms is not None, "a lock that was had over HTTP has a lease"
            self._lease_s = view.lease_ms / 1000
            # The lease began at some moment of the wait, and only the server knows at which; so far it is certain only
            # from the first of them on.
            self._until_s = self._sent_s + self._lease_s
            if monotonic() + self._lease_s / 2 >= self._until_s:
                await self._make_certain(view)
            self._view = view
            self._link.pulse.add(self)
        return self

    async def _make_certain(self, view: wire.LockView) -> None:
        """Renew it before it is used: the answer may have been on its way for longer than the lease lasts."""
        try:
            await self._link.ask(self.renewal())
        except LockNotFound:
            why = "The lock was granted, and expired before its holder heard of it."
            raise LockLost(why, name=self.name, fence=view.fence) from None
        except TabherdError:
            # Otherwise it would be had until its lease ends by somebody who does not know of it.
            with suppress(TabherdError):
                await self._link.send_once(self._giving_back())
            raise
        self.was_renewed()

    async def release(self) -> None:
        """Give it back; `LockLost` if it had been lost before. Does nothing for one that is not had. Idempotent."""
        if self._view is None or self._is_over:
            return
        self._is_over = True
        self._link.pulse.remove(self)
        self.check()
        try:
            await self._link.send(self._giving_back())
        except LockNotFound:
            self._lost = "The lock had expired or was lost before it was given back."
            self.check()

    def check(self) -> None:
        """Return if it is still held, as far as can be known here, else raise `LockLost`. Asks nobody."""
        if self._view is None:
            raise LockLost("The lock is not held: it was busy.", name=self.name)
        if self._lost or monotonic() >= self._until_s:
            why = self._lost or "No renewal has got through for as long as the lease lasts."
            raise LockLost(why, name=self.name, fence=self._view.fence)

    # --- What is known ------------------------------------------------------------------------------------------

    @property
    def is_lost(self) -> bool:
        """Whether it was had and is so no more, though it was not given back."""
        return self._view is not None and (bool(self._lost) or (not self._is_over and monotonic() >= self._until_s))

    @property
    def fence(self) -> int:
        """Larger than that of every holder before: show it to what the lock protects."""
        fence = self.view.fence
        assert fence is not None, "a lock that was had has a fence"
        return fence

    @property
    def view(self) -> wire.LockView:
        """What the server said when it was granted."""
        if self._view is None:
            raise StateConflict("The lock is not held.", action="Look whether it was had, as in 'if got:'.")
        return self._view

    # --- For the pulse ------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """What it is called."""
        return self.name

    @property
    def heartbeat_s(self) -> float:
        """How often it is renewed."""
        return self._lease_s / BEATS_PER_LEASE

    def renewal(self) -> Call[wire.LockView]:
        """What renews it; to be sent at once."""
        self._sent_s = monotonic()
        return Call(
            method="POST",
            path=self._path("renew"),
            answer=wire.LockView,
            body=wire_names({"ticket": self._ticket}),
            limit_s=answer_limit_s(self.heartbeat_s),
            may_repeat=True,
        )

    def was_renewed(self) -> None:
        """The renewal that was sent last got through."""
        self._until_s = self._sent_s + self._lease_s

    def was_lost(self, error: TabherdError) -> None:
        """It is no longer this holder's."""
        self._lost = error.message
        self._link.pulse.remove(self)

    # --- Parts --------------------------------------------------------------------------------------------------

    def _giving_back(self) -> Call[bytes]:
        query = {"ticket": self._ticket}
        return Call(method="DELETE", path=self._path(), answer=bytes, query=query, may_repeat=True)

    def _path(self, *parts: str) -> str:
        return "/".join(["/locks", segment(self.name), *parts])
