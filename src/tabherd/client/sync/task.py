# Written by tools/twin.py from client/aio; change that and run 'make docs'.
"""`Task`: a task that was submitted, wherever and whenever it runs. Nothing here keeps it alive; it needs nobody.

A handle is an id and a way to the server: it may be made anew from the id in another process, or days later.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from ... import wire
from ...errors import StateConflict
from ..call import MARGIN_S, Call, segment
from ..submission import OVER, POLL_MAX_S, result_of
from .link import Link


class Task:
    """One task. Made by `Tabherd.submit`, and by `Tabherd.task` from its id."""

    def __init__(self, link: Link, task_id: str) -> None:
        self._link = link
        self.id = task_id
        # As it was when it was seen to be over; nothing changes then, but for the delivery of its webhook.
        self._end: wire.TaskView | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def result(self, timeout: float | None = None) -> Any:
        """Wait until it is over, and answer with its result: bytes for a screenshot or a PDF, a list for steps.

        A task that failed raises its typed error, `DeadlineExceeded` if its own deadline passed, and one that was
        cancelled `StateConflict`. After `timeout` seconds `TimeoutError` is raised, or `NodeUnreachable` if the server
        is away by then; the task goes on.
        """
        until_s = None if timeout is None else monotonic() + timeout
        while self._end is None:
            left_s = None if until_s is None else max(0.0, until_s - monotonic())
            view = self._look(POLL_MAX_S if left_s is None else min(POLL_MAX_S, left_s), left_s)
            if self._end is None and until_s is not None and monotonic() >= until_s:
                raise TimeoutError(f"After {timeout} s {self.id} is {view.state}; it goes on.")
        return result_of(self._end)

    def status(self, wait_s: float = 0.0) -> wire.TaskView:
        """The task as it is now: its state, its place in the queue, its result; as soon as it is over with a time."""
        return self._look(min(wait_s, POLL_MAX_S), None)

    def done(self) -> bool:
        """Whether it is over, well or not; asks the server until it is."""
        return self._end is not None or (self.status()).state in OVER

    def cancel(self) -> wire.TaskView:
        """End it, whether it waits or runs; one that has ended otherwise is `StateConflict`. Idempotent."""
        call = Call(method="POST", path=self._path("cancel"), answer=wire.TaskView, may_repeat=True)
        try:
            return self._seen(self._link.ask(call))
        except StateConflict as error:
            if error.details.get("state") != "cancelled":
                raise
        return self.status()

    # --- Parts --------------------------------------------------------------------------------------------------

    def _look(self, wait_s: float, patience_s: float | None) -> wire.TaskView:
        call = Call(
            method="GET",
            path=self._path(),
            answer=wire.TaskView,
            query={"waitMs": int(wait_s * 1000)} if wait_s else {},
            limit_s=wait_s + MARGIN_S,
            patience_s=patience_s,
            is_timed=patience_s is not None,
            may_repeat=True,
        )
        return self._seen(self._link.ask(call))

    def _seen(self, view: wire.TaskView) -> wire.TaskView:
        if view.state in OVER:
            self._end = view
        return view

    def _path(self, *parts: str) -> str:
        return "/".join(["/tasks", segment(self.id), *parts])
