"""What a broker knows of the other nodes."""

from __future__ import annotations

import msgspec

from ..core.model import Node
from ..store.task_claims import TaskClaims
from .hints import Hints
from .membership import Membership


class Cluster(msgspec.Struct, frozen=True):
    """This node's place among others."""

    membership: Membership
    hints: Hints
    # Decides whose tasks of nobody are; None: each node keeps the tasks that it was given.
    claims: TaskClaims | None = None

    @property
    def node(self) -> Node:
        return self.membership.node
