"""tabherd: one door to your browsers for a crowd of agents.

from tabherd import Tabherd

with Tabherd() as herd, herd.session(agent="alice") as session:
    session.tab.goto("https://example.test")
    print(session.tab.snapshot())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import (
        AsyncLock,
        AsyncSession,
        AsyncTab,
        AsyncTabherd,
        AsyncTask,
        Lock,
        ServerEvent,
        Session,
        Tab,
        Tabherd,
        Task,
    )
    from .errors import TabherdError

__version__ = "0.1.0"

__all__ = [
    "AsyncLock",
    "AsyncSession",
    "AsyncTab",
    "AsyncTabherd",
    "AsyncTask",
    "Lock",
    "ServerEvent",
    "Session",
    "Tab",
    "Tabherd",
    "TabherdError",
    "Task",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first asked for: the command line and the server need none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'tabherd' has no attribute {name!r}")
    from . import client, errors

    return getattr(errors if name == "TabherdError" else client, name)
