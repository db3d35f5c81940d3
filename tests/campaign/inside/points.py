"""The named points at which a campaign ends a server: between two steps that must not be torn apart.

Each names a function of the server and whether it dies before it begins or after it is done. A file `point.armed` with
the name of a point in it makes the server kill itself there, once.
"""

import importlib
import inspect
import os
import signal
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

# name: module, function, before or after. Both stores' commits have one name, since a server has only one of them.
POINTS: dict[str, list[tuple[str, str, str]]] = {
    "a commit is about to be written": [
        ("tabherd.store.sqlite", "SqliteStore._commit", "before"),
        ("tabherd.store.postgres_writer", "Writer._save", "before"),
    ],
    "a commit is durable and nobody has heard of it": [
        ("tabherd.store.sqlite", "SqliteStore._commit", "after"),
        ("tabherd.store.postgres_writer", "Writer._save", "after"),
    ],
    "a session is reserved": [("tabherd.broker.opening", "Opening._reserve", "after")],
    "a session has its page and is not recorded": [("tabherd.broker.opening", "Opening._record_bound", "before")],
    "a session is recorded and not acknowledged": [("tabherd.broker.opening", "Opening._record_bound", "after")],
    "a session is marked closing": [("tabherd.broker.leases", "Leases._mark_closing", "after")],
    "a context is disposed of and its session not closed": [("tabherd.broker.leases", "Leases.dispose", "after")],
    "a browser was started and nobody knows its pid": [("tabherd.browsers.process", "ChildGroup.__init__", "after")],
    "a command is marked and not sent": [("tabherd.broker.marks", "FileMarks.set", "after")],
    "a command has ended and is still marked": [("tabherd.broker.marks", "FileMarks.clear", "before")],
    "tasks are on disk and not acknowledged": [("tabherd.broker.task_log", "TaskLog._insert", "after")],
    "a task is about to be sent": [("tabherd.broker.scheduler", "Scheduler._sent", "before")],
    "a task has run and is not settled": [("tabherd.broker.scheduler", "Scheduler._settle", "before")],
    "ends of tasks are on disk": [("tabherd.broker.task_log", "TaskLog._save_together", "after")],
    "a lock is recorded and not granted": [("tabherd.broker.lock_rows", "LockRows.record", "after")],
    "a lock is about to be removed": [("tabherd.broker.lock_rows", "LockRows.remove", "before")],
    "a checkpoint is written": [("tabherd.broker.checkpoints", "Checkpoints._write", "after")],
    "a session is marked recovering": [("tabherd.broker.recovery", "Recovery._mark_recovering", "after")],
    "a recovered session is recorded": [("tabherd.broker.recovery", "Recovery._record", "after")],
    "the browsers of the last life are found": [("tabherd.broker.adoption", "Adoption._find_browsers", "after")],
    "a session of the last life is bound again": [("tabherd.broker.adoption", "Adoption._bind", "after")],
}
ARMED = "point.armed"


def install(place: Path) -> None:
    """Make every point one at which the file is looked for."""
    armed = place / ARMED
    for name, functions in POINTS.items():
        for module_name, path, when in functions:
            owner_name, _, function_name = path.rpartition(".")
            owner = getattr(importlib.import_module(module_name), owner_name)
            setattr(owner, function_name, _watched(getattr(owner, function_name), name, when == "before", armed))


def _watched(function: Callable[..., Any], name: str, is_before: bool, armed: Path) -> Callable[..., Any]:
    def look() -> None:
        try:
            is_due = armed.read_text() == name
        except FileNotFoundError:
            return
        if is_due:
            armed.unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def around(*args: Any, **named: Any) -> Any:
            if is_before:
                look()
            answer = await function(*args, **named)
            if not is_before:
                look()
            return answer
    else:

        @wraps(function)
        def around(*args: Any, **named: Any) -> Any:
            if is_before:
                look()
            answer = function(*args, **named)
            if not is_before:
                look()
            return answer

    return around
