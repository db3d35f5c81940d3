"""The person's side of `top`: keys and signals of the terminal.

Invariants: the terminal is as it was before, however this ends; what is typed is never shown by the terminal itself,
and what was typed for this program does not reach the shell.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from .top_keys import ESCAPE_S, KeyDecoder

# What one read of the keyboard may bring, and how many keys may wait to be taken.
READ_MAX_BYTES: Final = 1_024
KEYS_MAX: Final = 4_096


class Keyboard:
    """The keys that were pressed and not yet taken, and whether it is time to leave."""

    def __init__(self, changed: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        # Set when there are keys, or when it is time to leave.
        self._changed = changed
        self._decoder = KeyDecoder()
        self._keys: deque[str] = deque(maxlen=KEYS_MAX)
        # Until Escape alone is what was pressed.
        self._timer: asyncio.TimerHandle | None = None
        # The exit code, when it is time to leave.
        self.leaving: asyncio.Future[int] = loop.create_future()

    def take(self) -> list[str]:
        keys = list(self._keys)
        self._keys.clear()
        return keys

    def leave(self, code: int) -> None:
        if not self.leaving.done():
            self.leaving.set_result(code)
        self._changed.set()

    def read(self, fd: int) -> None:
        """There is something to read."""
        self.stop_waiting()
        data = os.read(fd, READ_MAX_BYTES)
        if not data:
            # The terminal is gone.
            self.leave(0)
            return
        self._add(self._decoder.feed(data))
        if self._decoder.is_waiting:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(ESCAPE_S, lambda: self._add(self._decoder.give_up()))

    def stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _add(self, keys: list[str]) -> None:
        self._keys += keys
        self._changed.set()


@contextmanager
def listening(changed: asyncio.Event) -> Iterator[Keyboard]:
    """Listen to the keyboard and to signals; `changed` is set when there is something to see to."""
    loop = asyncio.get_running_loop()
    keyboard = Keyboard(changed)
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd) if os.isatty(fd) else None
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, keyboard.leave, 128 + number)
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    # Stopped in the middle it would leave its screen behind; who wants the shell back leaves.
    stopping = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        if before is not None:
            tty.setcbreak(fd)
            loop.add_reader(fd, keyboard.read, fd)
        yield keyboard
    finally:
        keyboard.stop_waiting()
        if before is not None:
            loop.remove_reader(fd)
            # What was typed meanwhile was meant for this program, not for the shell.
            termios.tcsetattr(fd, termios.TCSAFLUSH, before)
        signal.signal(signal.SIGTSTP, stopping)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH):
            loop.remove_signal_handler(number)
