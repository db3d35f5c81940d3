"""The application over a fake broker, called in process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from tabherd.broker.events import EventBus
from tabherd.config import Config, parse
from tabherd.edge.http import App, create_app
from tabherd.metrics import Metrics

from .fake_broker import FakeBroker

HOST = "127.0.0.1:7722"


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def events() -> EventBus:
    return EventBus(epoch=3, ring=16)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def make_app(broker: FakeBroker, events: EventBus, metrics: Metrics) -> Callable[..., App]:
    def make(settings: dict[str, Any] | None = None, port: int = 7722, **more: Any) -> App:
        config: Config = parse(settings or {})
        return create_app(
            config=config,
            broker=broker,
            events=events,
            metrics=metrics,
            node_id="nod_test",
            version="9.9",
            port=port,
            **more,
        )

    return make


@pytest.fixture
async def admin_token(broker: FakeBroker) -> str:
    token, _ = await broker.credentials.create("root", ["admin"])
    return token


@pytest.fixture
async def alice_token(broker: FakeBroker) -> str:
    token, _ = await broker.credentials.create("alice", ["browse", "evaluate"])
    return token


def client_of(app: App, token: str | None = None, **headers: str) -> httpx.AsyncClient:
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{HOST}", headers=headers)


@pytest.fixture
async def alice(make_app: Callable[..., App], alice_token: str) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_app(), alice_token) as client:
        yield client


@pytest.fixture
async def admin(make_app: Callable[..., App], admin_token: str) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_app(), admin_token) as client:
        yield client


@pytest.fixture
async def anybody(make_app: Callable[..., App]) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_app()) as client:
        yield client
