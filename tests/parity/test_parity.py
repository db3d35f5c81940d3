"""Our engine and Playwright come to the same end, and the page notices the same of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio
from tests.actions.unhurried import take_time

from .campaign import STINT, Pair, fresh_pair, sides
from .catalogue import SITUATIONS
from .situation import Situation

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

# Most of a situation is waiting, so some are played side by side.
AT_ONCE = 4


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def verdicts(request: pytest.FixtureRequest) -> AsyncIterator[Mapping[str, asyncio.Future[str]]]:
    """What is wrong with each situation that was chosen; they are played in the order of the tests."""
    mine = [item for item in request.session.items if item.path == request.path]
    chosen = [item.callspec.params["situation"] for item in mine if isinstance(item, pytest.Function)]
    turn = asyncio.Semaphore(AT_ONCE)
    free: list[Pair] = []

    async def played(situation: Situation) -> str:
        async with turn:
            pages = free.pop() if free else await fresh_pair(live)
            wrong = "It was not played to its end."
            try:
                wrong = situation.verdict(*await pages.play(situation))
            finally:
                # What went wrong in a page must not spoil the next situation.
                if wrong or pages.played == STINT:
                    await pages.close()
                else:
                    free.append(pages)
            return wrong

    with pytest.MonkeyPatch.context() as patch:
        take_time(patch)
        async with sides() as live:
            playing = {situation.name: asyncio.ensure_future(played(situation)) for situation in chosen}
            yield playing
            for task in playing.values():
                task.cancel()
            await asyncio.gather(*playing.values(), return_exceptions=True)
            for pages in free:
                await pages.close()


@pytest.mark.parametrize("situation", SITUATIONS, ids=[situation.name for situation in SITUATIONS])
async def test_both_come_to_the_same_end(situation: Situation, verdicts: Mapping[str, asyncio.Future[str]]) -> None:
    assert not (wrong := await verdicts[situation.name]), wrong
