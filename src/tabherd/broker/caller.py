"""Who asks: the identity that the edge has established and every verb checks against."""

from __future__ import annotations

import msgspec

from ..errors import Forbidden

# What an agent token may do unless told otherwise; `admin` is never implied.
AGENT_SCOPES = frozenset({"browse", "evaluate", "tasks", "locks", "files"})


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """One authenticated controller."""

    # The agent it acts for. An admin names any agent; an agent token can only be itself.
    agent_id: str
    scopes: frozenset[str]
    # (credential, controllerId): what queues, locks and running commands are accounted to.
    controller_id: str

    @property
    def is_admin(self) -> bool:
        return "admin" in self.scopes

    def require(self, scope: str) -> None:
        """Raise `Forbidden` unless the credential has the scope."""
        if scope not in self.scopes and not self.is_admin:
            raise Forbidden(f"This credential lacks the scope '{scope}'.", scope=scope)

    def may_see(self, agent_id: str) -> bool:
        """Whether things of that agent exist for this caller at all."""
        return self.is_admin or agent_id == self.agent_id
