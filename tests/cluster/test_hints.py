"""Hints: heard by the others and not by the teller, told once, and never relied upon."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
from bench.rig.postgres import Postgres
from tests.store.postgres_proxy import line_to, pooler_to

from tabherd.cluster import postgres_hints
from tabherd.cluster.hints import LocalHub
from tabherd.cluster.postgres_hints import PostgresHints, _payloads

_schemas = itertools.count()


class Heard:
    """What a hearer was told, to be waited for."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._news = asyncio.Event()

    def __call__(self, text: str) -> None:
        self.texts.append(text)
        self._news.set()

    async def until(self, is_enough: Callable[[list[str]], bool]) -> list[str]:
        async with asyncio.timeout(60):
            while not is_enough(self.texts):
                self._news.clear()
                await self._news.wait()
        return self.texts


@pytest.fixture
def schema() -> str:
    """One that no other test uses: notifications are heard by all who listen to it."""
    return f"hints_{next(_schemas)}"


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def join(stack: AsyncExitStack, url: str, schema: str, node_id: str) -> tuple[PostgresHints, Heard]:
    """A node that is connected and listens to `tasks`."""
    hints, heard = PostgresHints(url, schema, node_id), Heard()
    hints.listen("tasks", heard)
    hints.start()
    stack.push_async_callback(hints.close)
    async with asyncio.timeout(60):
        await hints.is_connected.wait()
    assert set(await heard.until(bool)) == {""}
    heard.texts.clear()
    return hints, heard


async def test_others_hear_what_is_told_and_the_teller_does_not(
    postgres: Postgres, schema: str, stack: AsyncExitStack
) -> None:
    a, heard_by_a = await join(stack, postgres.tcp_url, schema, "nod_a")
    b, heard_by_b = await join(stack, postgres.tcp_url, schema, "nod_b")
    a.tell("tasks", "one")
    b.tell("tasks", "two")
    assert await heard_by_b.until(bool) == ["one"]
    assert await heard_by_a.until(bool) == ["two"]


async def test_only_its_topic_is_heard(postgres: Postgres, schema: str, stack: AsyncExitStack) -> None:
    a, _ = await join(stack, postgres.tcp_url, schema, "nod_a")
    _, heard = await join(stack, postgres.tcp_url, schema, "nod_b")
    a.tell("waiters", "default")
    a.tell("tasks", "last")
    assert await heard.until(bool) == ["last"]


async def test_another_schema_is_another_cluster(postgres: Postgres, schema: str, stack: AsyncExitStack) -> None:
    a, _ = await join(stack, postgres.tcp_url, schema, "nod_a")
    stranger, _ = await join(stack, postgres.tcp_url, f"{schema}_else", "nod_s")
    _, heard = await join(stack, postgres.tcp_url, schema, "nod_b")
    stranger.tell("tasks", "not for you")
    # The order of commits is the order of notifications: what came before has been dropped when this is heard.
    await asyncio.sleep(0)
    a.tell("tasks", "for you")
    assert await heard.until(bool) == ["for you"]


async def test_what_is_told_in_one_moment_is_one_statement_and_each_hint_once(
    postgres: Postgres, schema: str, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[list[str]] = []

    def noted(node_id: str, told: dict[tuple[str, str], None]) -> list[str]:
        sent.append(list(_payloads(node_id, told)))
        return sent[-1]

    monkeypatch.setattr(postgres_hints, "_payloads", noted)
    a, _ = await join(stack, postgres.tcp_url, schema, "nod_a")
    _, heard = await join(stack, postgres.tcp_url, schema, "nod_b")
    for text in ("x", "y", "x", "x", "z"):
        a.tell("tasks", text)
    assert await heard.until(lambda texts: len(texts) == 3) == ["x", "y", "z"]
    assert len(sent) == 1


async def test_too_much_to_tell_becomes_one_hint_to_look(
    postgres: Postgres, schema: str, stack: AsyncExitStack
) -> None:
    a, _ = await join(stack, postgres.tcp_url, schema, "nod_a")
    _, heard = await join(stack, postgres.tcp_url, schema, "nod_b")
    for number in range(postgres_hints.WAITING_MAX + 1):
        a.tell("tasks", str(number))
    assert await heard.until(bool) == [""]


async def test_a_text_that_is_too_long_becomes_a_hint_to_look(
    postgres: Postgres, schema: str, stack: AsyncExitStack
) -> None:
    a, _ = await join(stack, postgres.tcp_url, schema, "nod_a")
    _, heard = await join(stack, postgres.tcp_url, schema, "nod_b")
    a.tell("tasks", "é" * postgres_hints.TEXT_MAX_BYTES)
    assert await heard.until(bool) == [""]


@pytest.mark.parametrize("text", ["x", "é" * 100, "\0'\"\\", "\ud800"])
def test_no_notification_is_longer_than_postgres_takes_and_nothing_is_left_out(text: str) -> None:
    told = {("tasks", f"{number}{text}"): None for number in range(postgres_hints.WAITING_MAX)}
    payloads = list(_payloads("nod_a", told))
    assert max(map(len, payloads)) < 8_000
    assert all(payload.isascii() for payload in payloads)
    assert sum(payload.count('["tasks", ') for payload in payloads) == len(told)


async def test_after_a_lost_connection_everybody_is_told_to_look_and_hears_again(
    postgres: Postgres, schema: str, stack: AsyncExitStack
) -> None:
    line = await stack.enter_async_context(line_to(postgres.port))
    a, _ = await join(stack, postgres.tcp_url, schema, "nod_a")
    _, heard = await join(stack, postgres.url_through(line.port), schema, "nod_b")
    line.cut()
    assert await heard.until(bool) == [""]
    a.tell("tasks", "again")
    assert await heard.until(lambda texts: len(texts) == 2) == ["", "again"]


async def test_a_connection_that_has_gone_silent_is_noticed(
    postgres: Postgres, schema: str, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_hints, "PROBE_S", 0.05)
    line = await stack.enter_async_context(line_to(postgres.port))
    hints, heard = await join(stack, postgres.url_through(line.port), schema, "nod_b")
    monkeypatch.setattr(postgres_hints, "STATEMENT_LIMIT_S", 0.2)
    line.deafen()
    async with asyncio.timeout(60):
        while hints.is_connected.is_set():
            await asyncio.sleep(0.01)
    monkeypatch.setattr(postgres_hints, "STATEMENT_LIMIT_S", 30.0)
    line.cut()
    assert await heard.until(bool) == [""]


async def test_telling_without_a_database_does_nothing_and_stays_small() -> None:
    hints = PostgresHints("postgresql://nobody@127.0.0.1:1/none", "tabherd", "nod_a")
    hints.start()
    for number in range(10 * postgres_hints.WAITING_MAX):
        hints.tell("tasks", str(number))
        hints.tell("waiters", str(number))
    assert len(hints._waiting) <= postgres_hints.WAITING_MAX + 1
    await hints.close()


async def test_behind_a_pooler_everybody_looks_again_and_again(
    postgres: Postgres, schema: str, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_hints, "LOOK_S", 0.01)
    pooler = await stack.enter_async_context(pooler_to(postgres.port))
    _, heard = await join(stack, postgres.url_through(pooler.port), schema, "nod_p")
    assert set(await heard.until(lambda texts: len(texts) >= 3)) == {""}


async def test_telling_works_through_a_pooler(postgres: Postgres, schema: str, stack: AsyncExitStack) -> None:
    pooler = await stack.enter_async_context(pooler_to(postgres.port))
    teller, _ = await join(stack, postgres.url_through(pooler.port), schema, "nod_p")
    _, heard = await join(stack, postgres.tcp_url, schema, "nod_b")
    teller.tell("tasks", "through")
    assert await heard.until(bool) == ["through"]


async def test_what_a_stranger_notifies_is_ignored(postgres: Postgres, schema: str, stack: AsyncExitStack) -> None:
    a, _ = await join(stack, postgres.tcp_url, schema, "nod_a")
    _, heard = await join(stack, postgres.tcp_url, schema, "nod_b")
    with postgres.connect() as connection:
        for payload in ("", "{}", "[1]", '["nod_x", [["tasks"]]]', "\u00e9"):
            connection.execute("SELECT pg_notify(%s, %s)", (schema, payload))
    a.tell("tasks", "good")
    assert await heard.until(bool) == ["good"]


# --- In one process ---------------------------------------------------------------------------------------------


async def test_a_local_hub_tells_all_but_the_teller() -> None:
    hub = LocalHub()
    a, b, c = hub.join(), hub.join(), hub.join()
    heard: dict[str, Heard] = {}
    for name, node in (("a", a), ("b", b), ("c", c)):
        heard[name] = Heard()
        node.listen("tasks", heard[name])
    a.tell("tasks", "x")
    assert await heard["b"].until(bool) == ["x"]
    assert await heard["c"].until(bool) == ["x"]
    assert heard["a"].texts == []


async def test_a_local_hub_can_lose_hints() -> None:
    hub = LocalHub()
    a, b, heard = hub.join(), hub.join(), Heard()
    b.listen("tasks", heard)
    hub.is_losing = True
    a.tell("tasks", "lost")
    hub.is_losing = False
    a.tell("tasks", "kept")
    assert await heard.until(bool) == ["kept"]


async def test_a_hearer_that_fails_costs_the_others_nothing() -> None:
    hub = LocalHub()
    a, b, heard = hub.join(), hub.join(), Heard()

    def fail(_: str) -> None:
        raise RuntimeError

    b.listen("tasks", fail)
    b.listen("tasks", heard)
    a.tell("tasks", "x")
    assert await heard.until(bool) == ["x"]
