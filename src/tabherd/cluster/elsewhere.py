"""What a verb raises when the thing that it was asked for is on another node: the request belongs there."""

from __future__ import annotations


class Elsewhere(Exception):
    """The edge hands the whole request on to that node; nobody else ever sees this.

    `grant` names the place that the receiver keeps ready for this caller.
    """

    def __init__(self, node_id: str, grant: str = "") -> None:
        super().__init__(node_id)
        self.node_id = node_id
        self.grant = grant
