"""Nodes as people see them."""

from __future__ import annotations

from .. import wire
from ..cluster.membership import Load, Membership
from ..core.lifecycle import NodeState
from ..core.model import Beat, Node
from .views import rfc3339


def lone_view(node: Node, load: Load) -> wire.NodeView:
    """A node that shares its store with nobody."""
    return _view(node, "draining" if load.is_draining else "up", load, None, is_self=True)


def node_views(membership: Membership, load: Load, now: int) -> list[wire.NodeView]:
    """All nodes as this one knows them; of itself it knows more than its last beat told."""
    views: list[wire.NodeView] = []
    for node, beat in membership.known.values():
        is_self = node.id == membership.node.id
        age_ms = None if beat is None else max(0, now - beat.at)
        seen = load if is_self else _load_of(beat)
        state = _state(node, seen, is_silent=membership.is_silent(node, beat, now))
        views.append(_view(node, state, seen, age_ms, is_self=is_self))
    return views


def _load_of(beat: Beat | None) -> Load:
    return Load() if beat is None else Load(beat.is_draining, beat.sessions, beat.free_seats)


def _state(node: Node, load: Load, *, is_silent: bool) -> str:
    if node.state is not NodeState.UP:
        return str(node.state)
    if is_silent:
        return "silent"
    return "draining" if load.is_draining else str(node.state)


def _view(node: Node, state: str, load: Load, beat_age_ms: int | None, *, is_self: bool) -> wire.NodeView:
    return wire.NodeView(
        node_id=node.id,
        url=node.url,
        state=state,
        epoch=node.epoch,
        is_self=is_self,
        started_at=rfc3339(node.started_at),
        beat_age_ms=beat_age_ms,
        sessions=load.sessions,
        free_seats=load.free_seats,
    )
