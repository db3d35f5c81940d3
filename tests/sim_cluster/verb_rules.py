"""What must hold in a simulated cluster of the verbs that change a session besides commands: whoever asks has it.

It is looked at when it lands, on whichever node it is done, since the session may have changed hands while the verb was
on its way or waited for its turn. What is done in a context that no row names any more is nobody's concern.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
from tests.sim.lives import VERB
from tests.sim.verb_rules import ASKER, changed_by

from tabherd.core import lease
from tabherd.core.model import Session, Tab
from tabherd.store.base import Applied, Op, Outcome

if TYPE_CHECKING:
    from .world import World


class Asked(msgspec.Struct, frozen=True):
    """On behalf of whom something is done, and of which verb."""

    asker: str
    verb: str


def ask_as(asker: str, verb: str) -> None:
    """What is asked from now on is asked in that agent's name."""
    ASKER.set(asker)
    VERB.set(verb)


def asked_now() -> Asked:
    return Asked(ASKER.get(), VERB.get())


class VerbRules:
    """The judge of those verbs."""

    def __init__(self, world: World) -> None:
        self._world = world
        # Who has ever held a session, or one whose page it was given with consent.
        self._owners_of: defaultdict[str, set[str]] = defaultdict(set)
        # What is wrong with the transaction that is about to land.
        self._complaint = ""

    def owned(self, row: Session) -> None:
        """The session has another owner, or lease."""
        self._owners_of[row.id].add(row.agent_id)
        for other in self._world.database.rows(Session).values():
            is_page_kept = other.context_id == row.context_id and other.reuse == "same-agent"
            if row.context_id and is_page_kept and other.agent_id == row.agent_id:
                self._owners_of[row.id] |= self._owners_of[other.id]

    def owners_of(self, session_id: str) -> frozenset[str]:
        """Whose things may be in that session by now."""
        return frozenset(self._owners_of[session_id])

    def before(self, ops: tuple[Op, ...], asked: Asked) -> None:
        """These are about to be written, if nothing is in their way."""
        self._complaint = ""
        if not asked.asker:
            return
        tabs = self._world.database.rows(Tab)
        for op in ops:
            tab = changed_by(asked.verb, op, tabs)
            session = None if tab is None else self._world.database.row(Session, tab.session_id)
            if tab is not None and session is not None and session.agent_id != asked.asker:
                self._complaint = f"{asked.verb}: {asked.asker} does it to {tab.id} of {session.agent_id}"

    def wrote(self, outcome: Outcome) -> None:
        """That is what became of it."""
        if self._complaint and isinstance(outcome, Applied):
            self._world.violate(self._complaint)

    def check_cookies(self, context_id: str) -> None:
        """Cookies are about to be put into that context."""
        asked, rows = asked_now(), self._world.database.rows(Session).values()
        if not asked.asker or asked.verb != "put state":
            return
        holders = [row.agent_id for row in rows if row.context_id == context_id and row.state in lease.HELD_STATES]
        if holders and asked.asker not in holders:
            self._world.violate(f"put state: {asked.asker} does it to {context_id} of {holders}")

    def check_read(self, asker: str, session_id: str, names: set[str], owners: frozenset[str]) -> None:
        """Somebody has read these cookies of a session that was theirs when it was asked for."""
        if strangers := names - owners:
            self._world.violate(
                f"{asker} reads the cookies of {strangers} in {session_id}, which was {owners}' when it asked"
            )
