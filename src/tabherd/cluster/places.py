"""Where things live: which node has a session, a tab, a browser or a command.

Rows decide. What was found is remembered, since every request asks; whoever finds that it has moved says so, and the
row is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, Literal, TypeAlias

from ..core.lifecycle import LEASE, LeaseState, is_terminal
from ..core.model import Browser, Node, Session, Tab
from ..errors import NodeUnreachable
from ..store.base import Store
from .membership import Membership

# What can be looked for.
Kind: TypeAlias = Literal["session", "tab", "browser", "command"]
# How many places are remembered; beyond it the oldest is looked up anew.
REMEMBERED_MAX: Final = 20_000
RETRY_AFTER_MS: Final = 500
# Sessions that somebody has.
HELD: Final = (LeaseState.ACTIVE, LeaseState.RECOVERING)


class Places:
    """Looks up where things are, for one node."""

    def __init__(
        self,
        *,
        node: Node,
        store: Store,
        membership: Membership,
        is_here: Callable[[Kind, str], bool],
        epoch_of: Callable[[str], int | None],
    ) -> None:
        self._node = node
        self._store = store
        self._membership = membership
        # Whether this node has it, as far as its own memory goes.
        self._is_here = is_here
        # The life of a node that a command's id tells of.
        self._epoch_of = epoch_of
        self._remembered: dict[tuple[Kind, str], str] = {}

    async def node_of(self, kind: Kind, id: str) -> str:
        """The node that has it. This one, also for what nobody has: then it is answered here, from the rows."""
        if self._is_here(kind, id):
            return self._node.id
        if kind == "command":
            return self._node_of_command(id)
        if (known := self._remembered.get((kind, id))) is not None:
            return known
        found, is_open = await self._look_up(kind, id)
        if found == self._node.id and is_open and not self._is_here(kind, id):
            # A session of a node that is over: its row is ours, and its pages soon will be.
            raise NodeUnreachable(
                "Its node is gone, and it is being recovered here.", retry_after_ms=RETRY_AFTER_MS, nodeId=found
            )
        if found != self._node.id:
            # What is this node's is known by itself, and what is nobody's may become somebody's.
            if len(self._remembered) >= REMEMBERED_MAX:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[kind, id] = found
        return found

    def forget(self, kind: Kind, id: str) -> None:
        """It was not there."""
        self._remembered.pop((kind, id), None)

    def keep_only(self, nodes: Container[str]) -> None:
        """Those are left: what others had is elsewhere soon."""
        self._remembered = {place: node for place, node in self._remembered.items() if node in nodes}

    def _node_of_command(self, id: str) -> str:
        epoch = self._epoch_of(id)
        for peer in self._membership.peers.values():
            if peer.epoch == epoch:
                return peer.node_id
        return self._node.id

    async def _look_up(self, kind: Kind, id: str) -> tuple[str, bool]:
        """Whose it is, and whether somebody may use it. What is nobody's can be answered by anybody: by this node."""
        match kind:
            case "session":
                session = await self._store.get(Session, id)
                if session is None or is_terminal(LEASE, session.state):
                    return self._node.id, False
                return session.node_id, session.state in HELD
            case "tab":
                tab = await self._store.get(Tab, id)
                return (self._node.id, False) if tab is None else (tab.node_id, True)
            case _:
                browser = await self._store.get(Browser, id)
                return self._node.id if browser is None else browser.node_id, False
