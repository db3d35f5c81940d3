"""The world of a history is a fair one: what could not happen outside does not happen in it."""

from __future__ import annotations

import pytest

from tabherd.broker.broker import Broker

from .clients import ConnectionLost
from .script import PACE
from .world import World


class Killed(World):
    """A history in which nothing happens but that the broker is killed, and asked for what it knows by heart."""

    async def _play(self) -> None:
        PACE.set(self.script.pace("world"))
        await self._start_life()
        self.life.kill()
        with pytest.raises(ConnectionLost):
            await self.call("ask", _from_memory)


async def _from_memory(broker: Broker) -> str:
    return "an answer without a step of the world"


def test_a_broker_that_was_killed_answers_nobody() -> None:
    Killed(0).run()
