"""Clients of the HTTP API: `Tabherd` waits for each answer, `AsyncTabherd` is for asyncio; both have the same verbs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aio import AsyncLock, AsyncSession, AsyncTab, AsyncTabherd, AsyncTask
    from .events import ServerEvent
    from .sync import Lock, Session, Tab, Tabherd, Task

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
    "Task",
]


def __getattr__(name: str) -> Any:
    """Each is imported when it is first asked for: who only looks for the server waits for no HTTP library."""
    if name not in __all__:
        raise AttributeError(f"module 'tabherd.client' has no attribute {name!r}")
    home = "events" if name == "ServerEvent" else "aio" if name.startswith("Async") else "sync"
    return getattr(import_module(f".{home}", __name__), name)
