"""The simulated database keeps no lock of an attempt that was given up, nor of a connection closed in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tabherd.locks.base import AsyncHold, LockStoreUnavailable, named_key, this_process

from . import database
from .database import Line
from .lock_server import LockLink
from .machine_loop import Process
from .world import World

RED, ME = named_key("red"), this_process()


class Rig:
    """One node's way to the locks, in a world in which nothing else happens."""

    def __init__(self) -> None:
        self.world = World(0)
        process = Process(self.world.loop)
        self.line = Line(self.world, process)
        self.link = LockLink(self.world, SimpleNamespace(line=self.line, process=process), "nod_1/1")  # type: ignore[arg-type]

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        loop = self.world.loop
        loop.run_until_complete(loop.create_task(work, context=loop.outside.copy()))

    @property
    def is_held(self) -> bool:
        return RED in self.world.lock_server.holds


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.world.loop.close()


def acquire(link: LockLink) -> Coroutine[Any, Any, AsyncHold | None]:
    return link.acquire(RED, 5.0, ME)


def try_acquire(link: LockLink) -> Coroutine[Any, Any, AsyncHold | None]:
    return link.try_acquire(RED, ME)


Attempt = Callable[[LockLink], Coroutine[Any, Any, AsyncHold | None]]
either_way = pytest.mark.parametrize("attempt", [acquire, try_acquire])


@either_way
def test_an_attempt_that_is_given_up_before_it_arrives_leaves_no_lock(rig: Rig, attempt: Attempt) -> None:
    async def play() -> None:
        rig.world.database.slow_s = 1.0
        for _ in range(5):
            asking = asyncio.ensure_future(attempt(rig.link))
            await asyncio.sleep(0.001)
            asking.cancel()
            await asyncio.sleep(2)
            assert not rig.is_held

    rig.run(play())
    assert rig.world.lock_server.generations[RED], "it did arrive"


@either_way
def test_an_attempt_that_arrives_after_a_cut_leaves_no_lock(
    rig: Rig, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LATE_RATE", 1.0)

    async def play() -> None:
        rig.line.cut(is_silent=True)
        with pytest.raises(LockStoreUnavailable):
            await attempt(rig.link)
        await asyncio.sleep(1)
        rig.line.mend()
        await asyncio.sleep(1)

    rig.run(play())
    assert rig.world.lock_server.generations[RED], "it did arrive"
    assert not rig.is_held


def test_a_lock_whose_release_does_not_arrive_ends_with_its_connection(rig: Rig) -> None:
    async def play() -> None:
        hold = await rig.link.acquire(RED, 5.0, ME)
        rig.world.database.is_away = True
        with pytest.raises(LockStoreUnavailable):
            await hold.release()
        rig.world.database.is_away = False
        await asyncio.sleep(1)

    rig.run(play())
    assert not rig.is_held
