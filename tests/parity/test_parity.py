"""Our engine and Playwright come to the same end, and the page notices the same of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
from tests.actions.unhurried import take_time

from .campaign import STINT, Pair, Sides, fresh_pair, sides
from .catalogue import BY_MODULE, sample_of
from .situation import Situation

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

# Most of a situation is waiting, so some are played side by side.
AT_ONCE = 4


class Stages:
    """Pairs of pages that are used for one situation after the other."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._free: list[Pair] = []

    async def play(self, situations: Sequence[Situation]) -> list[str]:
        """What is wrong with these situations."""
        turn = asyncio.Semaphore(AT_ONCE)

        async def played(situation: Situation) -> str:
            async with turn:
                return await self._played(situation)

        async with asyncio.TaskGroup() as group:
            verdicts = [group.create_task(played(situation)) for situation in situations]
        return [wrong for task in verdicts if (wrong := task.result())]

    async def _played(self, situation: Situation) -> str:
        pages = self._free.pop() if self._free else await fresh_pair(self._sides)
        wrong = "It was not played to its end."
        try:
            wrong = situation.verdict(*await pages.play(situation))
        finally:
            # What went wrong in a page must not spoil the next situation.
            if wrong or pages.played == STINT:
                await pages.close()
            else:
                self._free.append(pages)
        return wrong


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stages() -> AsyncIterator[Stages]:
    async with sides() as live:
        yield Stages(live)


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    take_time(monkeypatch)


@pytest.mark.parametrize("module", BY_MODULE)
async def test_both_come_to_the_same_end_in_one_situation_of_each_kind(module: str, stages: Stages) -> None:
    wrong = await stages.play(sample_of(module))
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
@pytest.mark.parametrize("module", BY_MODULE)
async def test_both_come_to_the_same_end_in_every_situation(module: str, stages: Stages) -> None:
    wrong = await stages.play(BY_MODULE[module])
    assert not wrong, "\n".join(wrong)
