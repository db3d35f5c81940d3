"""The application over a fake broker, its clock, and MCP spoken to it by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from tests.edge.conftest import admin_token, alice_token, broker, events, make_app, metrics

from tabherd.edge.http import App

from .speaker import Speaker

__all__ = ["admin_token", "alice_token", "broker", "events", "make_app", "metrics"]


class Clock:
    """Moves when told to."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def app(make_app: Callable[..., App], clock: Clock) -> AsyncIterator[App]:
    app = make_app({"server": {"mcp_sessions_per_credential": 2, "mcp_sessions_max": 3}}, clock=clock)
    yield app
    await app.close()


@pytest.fixture
def alice(app: App, alice_token: str) -> Speaker:
    return Speaker(app, alice_token)


@pytest.fixture
def root(app: App, admin_token: str) -> Speaker:
    return Speaker(app, admin_token)
