"""Runs situations many times and several at once, and collects every run that did not end as it should.

Each situation is first played by both sides, which settles what is wanted; its repetitions are ours alone unless
Playwright is asked for as well. One browser serves all pages of a side, as it does for a crowd of agents. A page of our
side is used for some repetitions before there is a fresh one: to start a renderer takes longer than to play.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, Error, Page
from tests.browsers.real import blank_tab, launched

from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import TabherdError

from .ours import Stage, our_outcome, our_outcome_on, staged
from .situation import Outcome, Situation
from .theirs import connected, fresh_page, their_outcome, their_outcome_on

# Repetitions, or situations, on one page.
STINT: Final = 25


@dataclass(frozen=True, kw_only=True)
class Sides:
    """A browser for each side."""

    ours: ChromiumBrowser
    theirs: Browser


@asynccontextmanager
async def sides() -> AsyncIterator[Sides]:
    with tempfile.TemporaryDirectory() as profiles:
        async with (
            launched(Path(profiles) / "ours") as browser,
            launched(Path(profiles) / "theirs") as other,
            connected(other) as client,
        ):
            yield Sides(ours=browser, theirs=client)


async def both(sides: Sides, situation: Situation) -> tuple[Outcome, Outcome]:
    return await asyncio.gather(our_outcome(sides.ours, situation), their_outcome(sides.theirs, situation))


class Pair:
    """A page on each side, on which one situation after the other is played: to start renderers takes longer."""

    def __init__(self, sides: Sides, ours: ChromiumTab, theirs: Page) -> None:
        self._sides = sides
        self._ours = ours
        self._theirs = theirs
        # How many situations.
        self.played = 0

    async def play(self, situation: Situation) -> tuple[Outcome, Outcome]:
        self.played += 1
        return await asyncio.gather(our_outcome_on(self._ours, situation), their_outcome_on(self._theirs, situation))

    async def close(self) -> None:
        await self._theirs.context.close()
        await self._sides.ours.close_tab(self._ours.target_id)


async def fresh_pair(sides: Sides) -> Pair:
    return Pair(sides, await blank_tab(sides.ours), await fresh_page(sides.theirs))


class Campaign:
    """Which outcome each situation should have, and how many runs had another."""

    def __init__(self, sides: Sides, tell: Callable[[str], None]) -> None:
        self._sides = sides
        # Hears of each deviation.
        self._tell = tell
        # By name, of our side; settled by the first run.
        self._wanted: dict[str, Outcome] = {}
        self.deviations = 0

    async def first(self, situation: Situation) -> None:
        """Both sides, once."""
        try:
            ours, theirs = await both(self._sides, situation)
        except (TabherdError, Error) as error:
            raise RuntimeError(f"{situation.name} cannot be played") from error
        if wrong := situation.verdict(ours, theirs):
            self._deviates(1, wrong)
        # What Playwright's page saw is the measure where they agree, so a first run of ours that went wrong is not.
        self._wanted[situation.name] = situation.ours_pinned or Outcome(end=situation.end, seen=theirs.seen)

    async def again(self, situation: Situation, numbers: Iterable[int]) -> None:
        """Our side, so many times."""
        left = deque(numbers)
        while left:
            async with staged(self._sides.ours, situation) as stage:
                await self._on_one_page(stage, situation, left)

    async def _on_one_page(self, stage: Stage, situation: Situation, left: deque[int]) -> None:
        """For as long as it goes well: what went wrong in a page must not spoil the next run."""
        wanted = self._wanted[situation.name]
        while left:
            number = left.popleft()
            try:
                outcome: Outcome | TabherdError = await stage.play()
            except TabherdError as error:
                outcome = error
            if outcome != wanted:
                self._deviates(number, f"{situation.name}:\n  ours   {outcome!r}\n  wanted {wanted}")
                return
            await stage.clear()

    async def both_again(self, situation: Situation, number: int) -> None:
        if wrong := situation.verdict(*await both(self._sides, situation)):
            self._deviates(number, wrong)

    def _deviates(self, number: int, what: str) -> None:
        self.deviations += 1
        self._tell(f"repetition {number}: {what}")


async def play(
    situations: Sequence[Situation], *, times: int, jobs: int, is_ours_only: bool, tell: Callable[[str], None]
) -> int:
    """How many runs deviated; each is told."""
    async with sides() as live:
        campaign = Campaign(live, tell)
        await _side_by_side(jobs, (campaign.first(each) for each in situations))
        if is_ours_only:
            await _side_by_side(jobs, _stints(campaign, situations, times))
        else:
            rounds = ((each, number) for number in range(2, times + 1) for each in situations)
            await _side_by_side(jobs, (campaign.both_again(each, number) for each, number in rounds))
    return campaign.deviations


def _stints(campaign: Campaign, situations: Sequence[Situation], times: int) -> Iterator[Coroutine[Any, Any, None]]:
    """Some repetitions of each situation, then some more."""
    for start in range(2, times + 1, STINT):
        for situation in situations:
            yield campaign.again(situation, range(start, min(start + STINT, times + 1)))


async def _side_by_side(jobs: int, runs: Iterator[Coroutine[Any, Any, None]]) -> None:
    """All of them, so many at a time."""

    async def worker() -> None:
        for run in runs:
            await run

    async with asyncio.TaskGroup() as group:
        for _ in range(jobs):
            group.create_task(worker())
