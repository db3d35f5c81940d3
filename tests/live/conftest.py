"""One server for each file of tests; each test has screencasts and tabs of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from .stage import Stage, staged


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_stage() -> AsyncIterator[Stage]:
    async with staged() as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def stage(shared_stage: Stage) -> Stage:
    # Those of the test before may still be closing.
    shared_stage.casts = []
    return shared_stage
