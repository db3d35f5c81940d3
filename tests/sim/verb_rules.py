"""What must hold of the verbs that change a session besides commands: whoever asks for it has the session.

It is looked at when it is done, since the session may have changed hands while the verb waited for its turn. Other
things that are done in its name are not judged: a session that is recovered meanwhile is whoever's it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

from tabherd.broker.file_disk import Incoming
from tabherd.core import lease
from tabherd.core.lifecycle import TabState
from tabherd.core.model import Session, Tab
from tabherd.store.base import Delete, Insert, Op, Update

from .lives import VERB

if TYPE_CHECKING:
    from .world import World

# The agent in whose name something is asked of the broker; empty where that is not judged here.
ASKER: ContextVar[str] = ContextVar("asker", default="")
# What a tab is before and after its state is changed by a verb.
_MOVES = {"hand off": (TabState.READY, TabState.PAUSED), "resume tab": (TabState.PAUSED, TabState.READY)}


class VerbRules:
    """The judge of those verbs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sessions, self._tabs = world.disk.rows(Session), world.disk.rows(Tab)

    def check_write(self, ops: Sequence[Op]) -> None:
        """These are about to be written."""
        if asker := ASKER.get():
            verb = VERB.get()
            for op in ops:
                tab = changed_by(verb, op, self._tabs)
                if tab is not None and (holder := self._sessions[tab.session_id].agent_id) != asker:
                    self._world.violate(f"{verb}: {asker} does it to {tab.id} of {holder}")

    def check_cookies(self, context_id: str) -> None:
        """Cookies are about to be put into that context."""
        if (asker := ASKER.get()) and VERB.get() == "put state":
            rows = self._sessions.values()
            holders = [row.agent_id for row in rows if row.context_id == context_id and row.state in lease.HELD_STATES]
            if asker not in holders:
                self._world.violate(f"put state: {asker} does it to {context_id} of {holders}")

    def check_thread(self, work: Callable[..., Any]) -> None:
        """A thread is about to do that; what it may be is that a file becomes a session's."""
        match work:
            case partial(args=(MethodType(__self__=Incoming() as incoming, __name__="finish"), *_)) if ASKER.get():
                session = self._sessions[incoming._dirs.top.name]
                if session.agent_id != ASKER.get():
                    self._world.violate(f"{VERB.get()}: {ASKER.get()} does it to {session.id} of {session.agent_id}")
            case _:
                pass


def changed_by(verb: str, op: Op, tabs: Mapping[str, Tab]) -> Tab | None:
    """The tab to which the verb does what it is for, with that write."""
    match op:
        case Insert(row=Tab() as new) if verb == "open tab":
            return new
        case Delete(table=table, id=id) if verb == "close tab" and table is Tab:
            return tabs.get(id)
        case Update(row=Tab() as new) if verb in _MOVES:
            old = tabs.get(new.id)
            return new if old is not None and (old.state, new.state) == _MOVES[verb] else None
        case _:
            return None
