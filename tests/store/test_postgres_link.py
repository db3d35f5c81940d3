"""A connection that comes back by itself, beside others of the same database. What it connects to is made up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import pytest

from tabherd.errors import StoreUnavailable
from tabherd.store import postgres_link
from tabherd.store.postgres_database import PostgresConnection, PostgresDatabase
from tabherd.store.postgres_link import Link

Answer: TypeAlias = Callable[[], Awaitable[PostgresConnection]]


class Driver:
    """What is asked of the driver of a connection that nobody uses."""

    def is_closed(self) -> bool:
        return False

    async def close(self, timeout: float) -> None:
        pass


@pytest.fixture
def database() -> PostgresDatabase:
    return PostgresDatabase("postgresql://nowhere/none")


async def refused() -> PostgresConnection:
    raise ConnectionRefusedError


async def silent() -> PostgresConnection:
    await asyncio.Event().wait()
    raise AssertionError("never")


async def connected() -> PostgresConnection:
    return PostgresConnection(Driver())


def link_of(database: PostgresDatabase, attempts: Sequence[Answer]) -> Link:
    """A link whose attempts end like this, one after the other."""
    left = list(attempts)
    return Link(database, lambda: left.pop(0)())


async def until_refused(link: Link) -> None:
    with pytest.raises(StoreUnavailable):
        await link.connection()


async def test_a_link_in_a_pause_tries_at_once_when_another_is_back(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_link, "PAUSE_MIN_S", 10_000.0)
    late, early = link_of(database, [refused, connected]), link_of(database, [connected])
    await until_refused(late)
    await early.connection()
    # Not refused with what was true before.
    await late.connection()


async def test_a_link_that_waits_for_an_answer_which_was_lost_asks_again_when_another_is_back(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_link, "PAUSE_MIN_S", 0.0)
    late, early = link_of(database, [refused, silent, connected]), link_of(database, [connected])
    await until_refused(late)
    # The pause of no length is over, and the second attempt is under way.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await early.connection()
    await late.connection()


async def test_a_link_that_is_tried_already_is_not_tried_twice_when_more_are_back(database: PostgresDatabase) -> None:
    asked = 0

    async def slow() -> PostgresConnection:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return await connected()

    late = link_of(database, [refused, slow, slow])
    await until_refused(late)
    for _ in range(2):
        await link_of(database, [connected]).connection()
    await late.connection()
    assert asked == 1


async def test_a_link_that_was_closed_is_not_brought_back(database: PostgresDatabase) -> None:
    closed = link_of(database, [refused])
    await until_refused(closed)
    await closed.close()
    await closed.close()
    await link_of(database, [connected]).connection()
    with pytest.raises(StoreUnavailable) as refusal:
        await closed.connection()
    assert refusal.value.details["cause"] == "closed"
