"""`top`: the server, watched; redrawn on a terminal, one document or one frame after the other elsewhere.

Invariants: the terminal is as it was before, however this ends; a server that is restarted is found again, and
meanwhile what is shown says that it is from before.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import typer

from ..client.aio import AsyncTabherd
from ..errors import TabherdError
from .events import NOWHERE, shortly_before
from .output import PIPE_WIDTH, Voice, is_colourful
from .snapshot import Snapshot, look

# Events that are kept for the frame.
EVENTS_MAX: Final = 20
# What is kept is sent at once: after this much silence there is no more of it.
SILENCE_S: Final = 0.5
# However much happens, the server is asked no more often than this.
PAUSE_S: Final = 0.25
# What one read of the keyboard may bring.
KEYS_MAX_BYTES: Final = 1_024
LEAVE_KEYS: Final = (b"q", b"Q")


class Watch:
    """Looks at the server again and again and keeps what it last saw."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._latest: Snapshot | None = None
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS_MAX)
        # Something happened on the server: it is worth a look before the interval is over.
        self._hint = asyncio.Event()
        # There is something new to show.
        self.changed = asyncio.Event()

    @property
    def latest(self) -> Snapshot:
        assert self._latest is not None, "the first look comes before the first frame"
        return msgspec.structs.replace(self._latest, events=list(self._events))

    async def once(self) -> Snapshot:
        """One look, with what has happened lately."""
        async with AsyncTabherd(patience_s=0) as herd:
            self._latest = await look(herd)
            await self._listen(herd, silence_s=SILENCE_S)
        return self.latest

    async def run(self) -> None:
        """Go on for ever. The first look may fail; later ones that do are shown."""
        while True:
            try:
                # Anew each time: a server that was restarted may listen elsewhere.
                async with AsyncTabherd(patience_s=0) as herd:
                    listener = asyncio.create_task(self._listen_on(herd))
                    try:
                        await self._look_on(herd)
                    finally:
                        listener.cancel()
                        await asyncio.wait([listener])
            except TabherdError as error:
                if self._latest is None:
                    raise
                self._show(msgspec.structs.replace(self._latest, is_connected=False, problem=error.message))
            await asyncio.sleep(self._interval_s)

    async def _look_on(self, herd: AsyncTabherd) -> None:
        while True:
            self._hint.clear()
            self._show(await look(herd))
            await asyncio.sleep(PAUSE_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._interval_s - PAUSE_S)):
                    await self._hint.wait()

    def _show(self, snapshot: Snapshot) -> None:
        self._latest = snapshot
        self.changed.set()

    async def _listen_on(self, herd: AsyncTabherd) -> None:
        while True:
            # Why the stream broke is told by the looks, which need the same server.
            with suppress(TabherdError):
                await self._listen(herd, silence_s=None)
            await asyncio.sleep(self._interval_s)

    async def _listen(self, herd: AsyncTabherd, silence_s: float | None) -> None:
        newest = await anext(aiter(herd.events(after=NOWHERE, silence_s=silence_s)))
        self._events.clear()
        async for event in herd.events(after=shortly_before(newest.id, EVENTS_MAX), silence_s=silence_s):
            self._events.append(event.data)
            self._hint.set()
            if silence_s is not None and event.id == newest.id:
                return


def watch(voice: Voice, *, interval_s: float, once: bool) -> None:
    """Show the server until q or Ctrl-C, or once."""
    if once:
        _print(voice, asyncio.run(Watch(interval_s).once()))
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
        console.print(draw(snapshot, datetime.now(UTC), height=None, is_cut=voice.width is not None))
    # Rows are padded to the width; nobody needs the blanks at their ends.
    voice.say("\n".join(line.rstrip() for line in drawn.get().splitlines()))


async def _stream(voice: Voice, interval_s: float) -> None:
    """One frame after the other, for a pipe; ends with Ctrl-C or when nobody reads on."""
    watched = Watch(interval_s)
    async with _running(watched) as task:
        while True:
            await _next_frame(watched, task)
            _print(voice, watched.latest)


async def _on_screen(interval_s: float) -> int:
    """Redraw in place until told to leave; the exit code."""
    from rich.console import Console
    from rich.live import Live

    from .frame import draw

    watched = Watch(interval_s)
    console = Console(color_system="auto" if is_colourful(sys.stdout) else None, highlight=False)
    async with _running(watched) as task:
        # A server that cannot be reached at all is said on the ordinary screen.
        await _next_frame(watched, task)
        with (
            _keys(watched.changed) as leaving,
            Live(
                console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            ) as live,
        ):
            while not leaving.done():
                frame = draw(watched.latest, datetime.now(UTC), height=console.size.height, is_cut=True)
                live.update(frame, refresh=True)
                await _next_frame(watched, task)
    return leaving.result()


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


@contextmanager
def _keys(changed: asyncio.Event) -> Iterator[asyncio.Future[int]]:
    """Listen to the keyboard and to signals; yields what is set, to the exit code, when it is time to leave."""
    loop = asyncio.get_running_loop()
    leaving: asyncio.Future[int] = loop.create_future()

    def leave(code: int) -> None:
        if not leaving.done():
            leaving.set_result(code)
        changed.set()

    def pressed() -> None:
        keys = os.read(keyboard, KEYS_MAX_BYTES)
        # Nothing at all: the terminal is gone.
        if not keys or keys in LEAVE_KEYS:
            leave(0)

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard) if os.isatty(keyboard) else None
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, leave, 128 + number)
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    # Stopped in the middle it would leave its screen behind; who wants the shell back leaves.
    stopping = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        if before is not None:
            tty.setcbreak(keyboard)
            loop.add_reader(keyboard, pressed)
        yield leaving
    finally:
        if before is not None:
            loop.remove_reader(keyboard)
            # What was typed meanwhile was meant for this program, not for the shell.
            termios.tcsetattr(keyboard, termios.TCSAFLUSH, before)
        signal.signal(signal.SIGTSTP, stopping)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH):
            loop.remove_signal_handler(number)
