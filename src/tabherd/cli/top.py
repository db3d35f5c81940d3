"""`top`: the server, watched and seen to; on a terminal with keys, one document or one frame after the other elsewhere.

Invariants: the terminal is as it was before, however this ends; a server that is restarted is found again, and
meanwhile what is shown says that it is from before; a refusal is shown, and ends nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

import typer

from .output import PIPE_WIDTH, Voice, is_colourful
from .snapshot import Snapshot
from .top_watch import Watch

# Events that are kept: for a frame, and for a person who goes through them.
EVENTS_MAX: Final = 20
EVENTS_ON_SCREEN_MAX: Final = 200


def watch(voice: Voice, *, interval_s: float, once: bool) -> None:
    """Show the server until q or Ctrl-C, or once."""
    if once:
        _print(voice, asyncio.run(Watch(interval_s, EVENTS_MAX).once()))
    elif voice.width is None:
        asyncio.run(_stream(voice, interval_s))
    else:
        code = asyncio.run(_on_screen(interval_s))
        if code:
            raise typer.Exit(code)


def _print(voice: Voice, snapshot: Snapshot) -> None:
    if voice.as_json:
        voice.dump(snapshot)
        return
    from rich.console import Console

    from .frame import draw

    console = Console(
        width=voice.width or PIPE_WIDTH, color_system="auto" if is_colourful(sys.stdout) else None, highlight=False
    )
    with console.capture() as drawn:
        console.print(draw(snapshot, datetime.now(UTC), width=voice.width, height=None))
    # Rows are padded to the width; nobody needs the blanks at their ends.
    voice.say("\n".join(line.rstrip() for line in drawn.get().splitlines()))


async def _stream(voice: Voice, interval_s: float) -> None:
    """One frame after the other, for a pipe; ends with Ctrl-C or when nobody reads on."""
    watched = Watch(interval_s, EVENTS_MAX)
    async with _running(watched) as task:
        while True:
            await _next_frame(watched, task)
            _print(voice, watched.latest)


async def _on_screen(interval_s: float) -> int:
    """Redraw in place, and do what the keys say, until told to leave; the exit code."""
    from rich.console import Console
    from rich.live import Live

    from .frame_screen import room, screen
    from .top_doing import a_hand
    from .top_model import State, carried_out, press, settle
    from .top_terminal import listening

    watched = Watch(interval_s, EVENTS_ON_SCREEN_MAX)
    console = Console(color_system="auto" if is_colourful(sys.stdout) else None, highlight=False)
    state = State()
    async with _running(watched) as task:
        # A server that cannot be reached at all is said on the ordinary screen.
        await _next_frame(watched, task)
        with (
            a_hand(watched.changed) as hand,
            listening(watched.changed) as keyboard,
            Live(
                console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            ) as live,
        ):
            while not keyboard.leaving.done():
                snapshot, now, (width, height) = watched.latest, datetime.now(UTC), console.size
                if (said := hand.outcome()) is not None:
                    state = carried_out(state, said)
                    watched.look_soon()
                state = settle(state, snapshot)
                for key in keyboard.take():
                    state, deed = press(state, key, snapshot, room(state, snapshot, now, width, height))
                    if deed is not None:
                        hand.begin(deed)
                if state.is_leaving:
                    return 0
                live.update(screen(state, snapshot, now, width, height), refresh=True)
                await _next_frame(watched, task)
    return keyboard.leaving.result()


@asynccontextmanager
async def _running(watched: Watch) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(watched.run())
    # Its end, too, is something to be told.
    task.add_done_callback(lambda _: watched.changed.set())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _next_frame(watched: Watch, task: asyncio.Task[None]) -> None:
    """Wait until there is something to show; raises what the watching ended with."""
    await watched.changed.wait()
    watched.changed.clear()
    if task.done():
        task.result()
