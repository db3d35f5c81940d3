"""Carrying out what was decided in `top`: one call to the server, and one line about how it went.

Invariants: one deed at a time; a refusal is an outcome like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import assert_never

from ..client.aio import AsyncTabherd
from ..errors import TabherdError
from .top_deeds import Act, Deed
from .top_model import Said


class Hand:
    """Does what it is told while the screen goes on."""

    def __init__(self, changed: asyncio.Event) -> None:
        # Set when there is an outcome.
        self._changed = changed
        self._task: asyncio.Task[Said] | None = None

    def begin(self, deed: Deed) -> None:
        assert self._task is None, "one deed is under way at a time"
        self._task = asyncio.create_task(carry_out(deed))
        self._task.add_done_callback(lambda _: self._changed.set())

    def outcome(self) -> Said | None:
        """How it went, once."""
        if self._task is None or not self._task.done():
            return None
        task, self._task = self._task, None
        return task.result()

    def let_go(self) -> None:
        """Who leaves does not wait for an answer; the request is on its way."""
        if self._task is not None:
            self._task.cancel()


@contextmanager
def a_hand(changed: asyncio.Event) -> Iterator[Hand]:
    hand = Hand(changed)
    try:
        yield hand
    finally:
        hand.let_go()


async def carry_out(deed: Deed) -> Said:
    """Do it; a refusal is said as the server says it, with the legitimate next step."""
    try:
        # Its own connection: the one that looks may be waiting for a server that is being restarted.
        async with AsyncTabherd(patience_s=0) as herd:
            await _call(herd, deed)
    except TabherdError as error:
        return Said(" ".join(filter(None, (error.message, error.action))), is_bad=True)
    return Said(deed.outcome)


async def _call(herd: AsyncTabherd, deed: Deed) -> None:
    match deed.act:
        case Act.RELEASE:
            await herd.end_session(deed.id, deed.fence)
        case Act.CANCEL_TASK:
            await herd.task(deed.id).cancel()
        case Act.CANCEL_COMMAND:
            await herd.cancel_command(deed.id)
        case Act.HAND_OFF:
            await herd.handoff_tab(deed.id)
        case Act.GIVE_BACK:
            await herd.resume_tab(deed.id)
        case Act.FREE_TAB:
            await herd.free_tab(deed.id, deed.holder)
        case Act.FREE_LOCK:
            await herd.free_lock(deed.id, deed.fence)
        case Act.RESTART:
            await herd.restart_browser(deed.id)
        case Act.DRAIN:
            await herd.drain_browser(deed.id)
        case _:
            assert_never(deed.act)
