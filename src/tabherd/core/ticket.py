"""What a tab's gate hands out and answers with: tickets, locks, holds, and the structs that report them."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the FIFO: of one command, or of a request for the tab lock."""

    id: str
    controller_id: str
    agent_id: str
    # What it is for, e.g. the command's kind; shown to those who wait behind it.
    label: str
    entered_at: int
    # End of the one end-to-end time limit; here it bounds the wait.
    deadline_at: int


class TabLock(msgspec.Struct, frozen=True, kw_only=True):
    """The gate held across several commands."""

    ticket: Ticket
    since: int
    lease_ms: int
    expires_at: int

    @property
    def controller_id(self) -> str:
        return self.ticket.controller_id


class Granted(msgspec.Struct, frozen=True):
    """The tab is yours: run the command, then `leave`."""

    ticket: Ticket
    # Set when what was granted is the tab lock.
    lock: TabLock | None = None


class Queued(msgspec.Struct, frozen=True):
    """Wait for the ticket to be granted, as the `position`-th grant from now, as things stand."""

    ticket: Ticket
    position: int


Entry: TypeAlias = Granted | Queued


class HoldReason(StrEnum):
    """What holds a tab, strongest first."""

    HANDOFF = "handoff"
    TAB_LOCK = "tab_lock"
    REBUILD = "rebuild"
    QUARANTINE = "quarantine"
    COMMAND = "command"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Why something on this tab must wait."""

    reason: HoldReason
    # The controller that has the tab; under a handoff the person; under a quarantine whose command timed out; nobody
    # while the page is rebuilt.
    holder: str
    since: int
    # When it ends at the latest; only known of a tab lock.
    expires_at: int | None = None


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """What time has ended, and who got in by that."""

    timed_out: list[Ticket]
    lock: TabLock | None
    granted: list[Ticket]


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """What a disconnect or a closed tab has ended, and who got in by that."""

    waiting: list[Ticket]
    lock: TabLock | None
    # Still on the tab after a disconnect: cancel it, and `leave` when it has stopped.
    running: Ticket | None
    granted: list[Ticket]


class WaiterView(msgspec.Struct, frozen=True, kw_only=True):
    """One who waits, and its place in the order of grants."""

    ticket: Ticket
    position: int
    wants_lock: bool


class GateView(msgspec.Struct, frozen=True, kw_only=True):
    """The gate as people and tools see it."""

    # The running command, and since when.
    holder: Ticket | None
    since: int | None
    lock: TabLock | None
    waiters: list[WaiterView]
    handoff: Hold | None
    quarantine: Hold | None
    # How long a newcomer may expect to wait; 0 when it would run at once.
    expected_wait_ms: int
