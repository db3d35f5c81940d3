"""Ending what a server that was killed left running: no browser survives `down`, also when its server did not.

The state directory is owned meanwhile, so that no server starts in between. The rows stay: the next start finds the
browsers gone and settles their sessions.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from ..browsers.adopt import reap_strays
from ..errors import StateDirInUse
from .state import NODE_FILE, PROFILES_DIR, Identity, owned


def end_leftovers(state: Path) -> int:
    """End the browsers and remove the profiles of the server that had this directory; how many there were."""
    node = state / NODE_FILE
    if not node.exists():
        return 0
    try:
        with owned(state):
            node_id = msgspec.json.decode(node.read_bytes(), type=Identity).node_id
            return asyncio.run(reap_strays(state / PROFILES_DIR, node_id, known=()))
    except StateDirInUse:
        # Somebody has just started a server here: what is left is its to adopt.
        return 0
