"""The sessions of one client: the connection itself, what it is attached to, and what that is attached to in turn."""

from __future__ import annotations

from collections.abc import Iterator

from .rules import Kind


class Node:
    """One attached session, or the connection itself."""

    __slots__ = ("in_flight", "kind", "page_id", "parent_id", "session_bytes", "session_id", "target_id")

    def __init__(self, kind: Kind, session_id: str, parent_id: str, target_id: str, page_id: str) -> None:
        self.kind = kind
        # Empty: the connection itself.
        self.session_id = session_id
        self.session_bytes = session_id.encode()
        self.parent_id = parent_id
        self.target_id = target_id
        # The page in whose tree it is; empty for what belongs to no page.
        self.page_id = page_id
        # Commands that Chromium has not answered yet.
        self.in_flight = 0


class Tree:
    """Every session of one client, by its id."""

    def __init__(self, root: Node) -> None:
        # In both of the forms in which ids come; "" is the connection itself.
        self._nodes: dict[str, Node] = {}
        self._nodes_by_bytes: dict[bytes, Node] = {}
        # Found by a client's message, and by an answer of Chromium's.
        self.find = self._nodes.get
        self.find_by_bytes = self._nodes_by_bytes.get
        self.add(root)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._nodes.values()))

    def add(self, node: Node) -> None:
        self._nodes[node.session_id] = self._nodes_by_bytes[node.session_bytes] = node

    def remove(self, session_id: str) -> Node | None:
        """The session that is over, if it was one."""
        node = self._nodes.pop(session_id, None)
        if node is not None:
            del self._nodes_by_bytes[node.session_bytes]
        return node
