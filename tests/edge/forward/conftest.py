"""What the tests of forwarding share: the server's own event loop, and links that end with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import uvloop

from tabherd.edge.forward import lines
from tabherd.edge.forward.links import Links

from .nodes import KEY, LIMIT_S, NOW_MS


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """The loop that the server has; its transports are not those of asyncio."""
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def links(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Links]:
    # A machine that stalls while a connection is made is no node that takes none.
    monkeypatch.setattr(lines, "CONNECT_LIMIT_S", LIMIT_S)
    links = Links("nod_a", 7, KEY, "boot-a", lambda: NOW_MS)
    yield links
    await links.close()
