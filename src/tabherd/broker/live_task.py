"""A task from its admission until its end is on disk: what memory alone knows of it."""

from __future__ import annotations

import asyncio

from ..core.lifecycle import TASK, TaskState, is_terminal
from ..core.model import Task
from .registry import LiveSession


class LiveTask:
    """A task that is not over, or not on disk as such."""

    __slots__ = (
        "arrival",
        "assigned_at",
        "ended",
        "entered_at",
        "has_begun",
        "is_being_updated",
        "is_cancelled",
        "is_late",
        "is_leasing",
        "is_leaving",
        "is_serial",
        "is_unwanted",
        "lane",
        "mark",
        "put_back",
        "row",
        "session",
        "state",
        "told",
        "unsent",
        "work",
        "written",
    )

    def __init__(self, row: Task, arrival: int) -> None:
        self.row = row
        self.state = row.state
        # What every event about it says.
        self.told = {"taskId": row.id, "agentId": row.agent_id}
        if row.tab_id:
            self.told["tabId"] = row.tab_id
        # Its number among all that were admitted: who came first goes first.
        self.arrival = arrival
        # Since when it waits here, or waits again.
        self.entered_at = 0
        # Where it runs, and whether that is a tab, which does one thing at a time.
        self.lane = ""
        self.is_serial = bool(row.tab_id or row.session_id)
        # The session that has work as long as this waits or runs.
        self.session: LiveSession | None = None
        # The worker's task while it is in flight, since when, and whether that has taken its first step.
        self.work: asyncio.Task[None] | None = None
        self.assigned_at = 0
        self.has_begun = False
        # That it is to be tried again is being written down.
        self.is_being_updated = False
        # Somebody wants it ended; its deadline has passed.
        self.is_cancelled = False
        self.is_late = False
        # It waits for a place in its pool, and no other task does.
        self.is_leasing = False
        # That it was sent to a page.
        self.mark: int | None = None
        # Its row before it was to be sent, while that is being written; None before, and once it is sent.
        self.unsent: Task | None = None
        # Settled when its row, as it was last changed, is on disk; None when nobody waits for that.
        self.written: asyncio.Future[None] | None = None
        # It is to be given back to the other nodes when its work here has ended; it is being given back.
        self.is_unwanted = False
        self.is_leaving = False
        # How often it was put back before it was sent.
        self.put_back = 0
        # Set with its end on disk, or when it is no longer this node's.
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        return is_terminal(TASK, self.state)

    @property
    def shown_state(self) -> TaskState:
        """What it is for others: its end is told when it is on disk."""
        return TaskState.RUNNING if self.is_over and not self.ended.done() else self.state
