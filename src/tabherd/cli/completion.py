"""What a shell proposes when Tab is pressed: kinds of actions, and what the running server has just now.

Invariants: an answer comes within a moment or not at all, and a failure proposes nothing; a person who presses Tab
must see neither a traceback nor a wait. So the server is asked once, by the plainest means, with a short limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import msgspec

# What is proposed, and what it is.
Proposal = tuple[str, str]
Answer = TypeVar("Answer", bound="msgspec.Struct")

LIMIT_S: Final = 1.0
# More than a person could choose from.
PROPOSALS_MAX: Final = 200


def one_of(*values: str) -> Callable[[str], list[Proposal]]:
    """Proposes these."""

    def propose(incomplete: str) -> list[Proposal]:
        return _starting(incomplete, [(value, "") for value in values])

    return propose


session_states = one_of("reserved", "active", "recovering", "pooled", "closing", "closed", "lost")

task_states = one_of("queued", "assigned", "running", "done", "failed", "cancelled", "rejected")


def kinds(incomplete: str) -> list[Proposal]:
    """Proposes the kinds of actions."""
    from ..wire import ACTION_KINDS

    return _starting(incomplete, [(kind, "") for kind in ACTION_KINDS])


def sessions(incomplete: str) -> list[Proposal]:
    """Proposes the sessions that are open."""
    from ..wire import SessionPage

    page = _ask("/sessions?state=active&limit=200", SessionPage)
    found = [] if page is None else page.sessions
    return _starting(incomplete, [(session.session_id, session.agent_id) for session in found])


def tabs(incomplete: str) -> list[Proposal]:
    """Proposes the tabs that are open."""
    from ..wire import TabList

    page = _ask("/tabs", TabList)
    found = [] if page is None else page.tabs
    return _starting(incomplete, [(tab.tab_id, f"{tab.agent_id} {tab.url}") for tab in found])


def tasks(incomplete: str) -> list[Proposal]:
    """Proposes the tasks that wait, run, or were over a short while ago."""
    from ..wire import TaskPage

    page = _ask("/tasks?limit=200", TaskPage)
    found = [] if page is None else page.tasks
    return _starting(incomplete, [(task.task_id, f"{task.agent_id} {task.action} {task.state}") for task in found])


def pools(incomplete: str) -> list[Proposal]:
    """Proposes the pools of the server."""
    from ..wire import Stats

    stats = _ask("/stats", Stats)
    found = {} if stats is None else stats.pools
    return _starting(incomplete, [(name, f"{pool.active} of {pool.capacity} taken") for name, pool in found.items()])


def _starting(incomplete: str, proposals: list[Proposal]) -> list[Proposal]:
    return [each for each in proposals if each[0].startswith(incomplete)][:PROPOSALS_MAX]


def _ask(path: str, answer: type[Answer]) -> Answer | None:
    """The server's answer, or None if there is none that could be used."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection
    from urllib.parse import urlsplit

    import msgspec

    from ..client.discovery import discover
    from ..errors import TabherdError

    try:
        endpoint = discover()
        address = urlsplit(endpoint.url)
        connect = HTTPSConnection if endpoint.is_https else HTTPConnection
        connection = connect(address.netloc, timeout=LIMIT_S)
        try:
            connection.request("GET", address.path + path, headers=endpoint.headers(None))
            return msgspec.json.decode(connection.getresponse().read(), type=answer)
        finally:
            connection.close()
    except (TabherdError, OSError, HTTPException, msgspec.DecodeError, ValueError):
        # No server, no right to ask, no answer in time, or none of ours: there is nothing to propose.
        return None
