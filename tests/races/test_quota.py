"""L6: two uploads into one session that each fit into what is left, and together do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.broker.house import ADA
from tests.broker.test_files import Office
from tests.races.scene import with_and_without

from tabherd import errors
from tabherd.broker.shelf import Shelf

# The least that a session may be given.
ROOM_BYTES = 1_024


def _is_over_for_one(self: Shelf) -> bool:
    """As if nobody else were at it: what is whole, and the larger one of those on their way."""
    whole = sum(file.claimed_bytes for file in self if not file.is_running)
    return whole + max(file.claimed_bytes for file in self if file.is_running) > self.max_bytes


@pytest.mark.parametrize("is_declared", [False, True], ids=["of unknown size", "of declared size"])
@with_and_without
async def test_l6_two_uploads_share_the_last_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_guarded: bool, is_declared: bool
) -> None:
    """What is on its way counts: the check and the claim are one step, which no upload can come between."""
    office = Office(tmp_path, files_max_bytes=ROOM_BYTES)
    if not is_guarded:
        monkeypatch.setattr(Shelf, "is_over", property(_is_over_for_one))
    begun: set[str] = set()
    have_both_begun = asyncio.Event()

    def begin(name: str) -> None:
        begun.add(name)
        if len(begun) == 2:
            have_both_begun.set()

    async def pieces(name: str) -> AsyncIterator[bytes]:
        yield b"x" * 300
        begin(name)
        await have_both_begun.wait()
        yield b"x" * 300

    async def upload(name: str) -> str:
        try:
            await office.files.upload(ADA, "ses_1", name, 600 if is_declared else 0, pieces(name))
        except errors.BodyTooLarge:
            # Perhaps before it had begun.
            begin(name)
            return "refused"
        return "whole"

    async with asyncio.timeout(30):
        answers = await asyncio.gather(upload("a"), upload("b"))
    await office.quiet()
    stored = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert sorted(answers) == (["refused", "whole"] if is_guarded else ["whole", "whole"])
    assert stored == (600 if is_guarded else 1_200)
