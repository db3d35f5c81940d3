"""What a program shows on a terminal: run on one of its own, read as a terminal reads, and drawn.

Knows as much of a terminal as the programs here ask of one: cursor movements, erasing, and colours.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

READ_LIMIT_S: Final = 150.0
END_LIMIT_S: Final = 40.0
_PIECE: Final = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b[()=>].?|(\r)|(\n)|([^\x1b\r\n])", re.DOTALL)
_BLANK: Final = (" ", "")
THEME: Final = TerminalTheme(
    (18, 21, 20),
    (222, 230, 226),
    [(40, 46, 44), (255, 143, 133), (108, 215, 150), (240, 189, 91), (120, 170, 240), (200, 150, 230), (92, 199, 190),
     (200, 208, 204)],
    [(120, 132, 126), (255, 170, 160), (150, 235, 180), (255, 215, 130), (150, 195, 255), (225, 180, 250),
     (130, 225, 215), (255, 255, 255)],
)  # fmt: skip
PAGE: Final = """<!doctype html><meta charset=utf-8><style>
body {{ margin: 0; background: #121514 }} {stylesheet}
pre {{ margin: 0; padding: 16px 20px; display: inline-block; font: 14px/1.25 'DejaVu Sans Mono', monospace;
  color: {foreground}; background: #121514 }}
</style><pre>{code}</pre>"""


class Screen:
    """Rows of characters, each with the colours that were in force when it was written."""

    def __init__(self, columns: int, lines: int) -> None:
        self._columns = columns
        self._rows = [[_BLANK] * columns for _ in range(lines)]
        self._x = self._y = 0
        # The escape sequences since the last reset.
        self._colours = ""

    def write(self, text: str) -> None:
        for found in _PIECE.finditer(text):
            numbers, command, carriage, feed, letter = found.groups()
            if command is not None:
                self._obey(command, numbers)
            elif carriage:
                self._x = 0
            elif feed:
                self._feed()
            elif letter:
                self._put(letter)

    def html(self) -> str:
        """A page with the screen on it."""
        console = Console(record=True, width=self._columns, file=open(os.devnull, "w"), legacy_windows=False)  # noqa: SIM115
        try:
            for row in self._rows[: self._used()]:
                line = "".join(f"\x1b[0m{colours}{letter}" for letter, colours in row)
                console.print(Text.from_ansi(line.rstrip()), soft_wrap=True)
            return console.export_html(theme=THEME, code_format=PAGE)
        finally:
            console.file.close()

    @property
    def text(self) -> str:
        return "\n".join("".join(letter for letter, _ in row).rstrip() for row in self._rows)

    def _used(self) -> int:
        filled = [y for y, row in enumerate(self._rows) if any(letter != " " for letter, _ in row)]
        return (filled[-1] + 1) if filled else 1

    def _put(self, letter: str) -> None:
        if self._x >= self._columns:
            self._x = 0
            self._feed()
        self._rows[self._y][self._x] = (letter, self._colours)
        self._x += 1

    def _feed(self) -> None:
        if self._y < len(self._rows) - 1:
            self._y += 1
            return
        del self._rows[0]
        self._rows.append([_BLANK] * self._columns)

    def _obey(self, command: str, numbers: str) -> None:
        values = [int(value) for value in numbers.strip("?").split(";") if value]
        count = values[0] if values else 1
        match command:
            case "m":
                self._colours = "" if numbers in ("", "0") else f"{self._colours}\x1b[{numbers}m"
            case "A":
                self._y = max(0, self._y - count)
            case "B":
                self._y = min(len(self._rows) - 1, self._y + count)
            case "C":
                self._x = min(self._columns - 1, self._x + count)
            case "G":
                self._x = count - 1
            case "H":
                row, column = [*values, 1, 1][:2] if values else (1, 1)
                self._y, self._x = min(row, len(self._rows)) - 1, min(column, self._columns) - 1
            case "K":
                ends = {0: (self._x, self._columns), 1: (0, self._x + 1), 2: (0, self._columns)}
                start, end = ends[values[0] if values else 0]
                self._rows[self._y][start:end] = [_BLANK] * (end - start)
            case "J":
                first = 0 if values and values[0] >= 2 else self._y + 1
                if not values or values[0] == 0:
                    self._rows[self._y][self._x :] = [_BLANK] * (self._columns - self._x)
                for y in range(first, len(self._rows)):
                    self._rows[y] = [_BLANK] * self._columns
            case "h" if numbers == "?1049":
                self._rows = [[_BLANK] * self._columns for _ in self._rows]
                self._x = self._y = 0


class Terminal:
    """A program on a terminal."""

    def __init__(self, fd: int, process: subprocess.Popen[bytes], columns: int, lines: int) -> None:
        self._fd = fd
        self._process = process
        self.screen = Screen(columns, lines)
        # What came last and is not whole yet.
        self._rest = b""

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def read_for(self, seconds: float) -> bool:
        """What it shows in that time; false when it has ended."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            if not self._read(left_s):
                return False
        return True

    def read_until(self, wanted: str) -> None:
        until_s = time.monotonic() + READ_LIMIT_S
        while wanted not in self.screen.text:
            if time.monotonic() > until_s or not self._read(1.0):
                raise RuntimeError(f"{wanted!r} was never shown:\n{self.screen.text}")

    def read_to_end(self) -> None:
        until_s = time.monotonic() + READ_LIMIT_S
        while self._read(1.0):
            if time.monotonic() > until_s:
                raise RuntimeError(f"It did not end:\n{self.screen.text}")

    def _read(self, limit_s: float) -> bool:
        readable, _, _ = select.select([self._fd], [], [], limit_s)
        if not readable:
            return True
        try:
            piece = os.read(self._fd, 65_536)
        except OSError:
            # The last one on the other side has closed it.
            return False
        whole, self._rest = _whole(self._rest + piece)
        self.screen.write(whole)
        return bool(piece)


def _whole(data: bytes) -> tuple[str, bytes]:
    """What can be read of it by now; a letter or a sequence that is cut off is left for later."""
    cut = re.search(rb"(\x1b\[?[0-9;?]*|[\xc0-\xff][\x80-\xbf]{0,2})$", data)
    at = len(data)
    if cut is not None:
        lead = cut[0][0]
        needed = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2
        if lead == 0x1B or len(cut[0]) < needed:
            at = cut.start()
    return data[:at].decode(errors="replace"), data[at:]


@contextmanager
def on_terminal(words: list[str], env: Mapping[str, str], columns: int, lines: int) -> Iterator[Terminal]:
    """`tabherd` with these words; it is ended with the `with`, by asking first."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "tabherd", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={name: value for name, value in env.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")} | colours,
            start_new_session=True,
        )
    finally:
        os.close(theirs)
    try:
        yield Terminal(ours, process, columns, lines)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        os.close(ours)
