"""`tabherd` on a terminal of its own: what it shows there, what it makes of keys, and how it leaves the terminal."""

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
from pathlib import Path

from tests.cli.running import environment

# Longest that anything may take; only a failure waits for it.
LIMIT_S = 60.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """The person's side of it."""

    def __init__(self, fd: int, process: subprocess.Popen[bytes]) -> None:
        self._fd = fd
        self.process = process
        # Everything that was sent to the terminal.
        self.raw = ""
        # Its modes before anybody changed them.
        self.before = self.modes()

    @property
    def text(self) -> str:
        """The same without escape sequences."""
        return ESCAPES.sub("", self.raw).replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def read_until(self, wanted: str, after: int = 0) -> None:
        """Wait until that was shown, in what came after so many characters of `raw`."""
        deadline_s = time.monotonic() + LIMIT_S
        while wanted not in self.raw[after:]:
            assert time.monotonic() < deadline_s, f"{wanted!r} never came: {self.text[-2_000:]}"
            assert self._read(), f"it ended without {wanted!r}: {self.text[-2_000:]}"

    def wait(self) -> int:
        """Read to the end; the exit code, negative for a signal."""
        deadline_s = time.monotonic() + LIMIT_S
        while self._read():
            assert time.monotonic() < deadline_s, f"it did not end: {self.text[-2_000:]}"
        return self.process.wait(LIMIT_S)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def modes(self) -> list[object]:
        return termios.tcgetattr(self._fd)

    def _read(self) -> bool:
        readable, _, _ = select.select([self._fd], [], [], 1.0)
        if not readable:
            return True
        try:
            piece = os.read(self._fd, 65_536)
        except OSError:
            # The last one on the other side has closed it.
            return False
        self.raw += piece.decode(errors="replace")
        return bool(piece)


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def on_terminal(
    state: Path, *words: str, env: Mapping[str, str] | None = None, stdout: Path | None = None
) -> Iterator[Terminal]:
    """Run `tabherd` on a terminal of 80 columns and 24 lines; `stdout` is where its output goes instead."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    kept = {name: value for name, value in environment(state).items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    output = theirs if stdout is None else os.open(stdout, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "tabherd", *words],
            stdin=theirs,
            stdout=output,
            stderr=theirs,
            env=kept | {"TERM": "xterm-256color"} | dict(env or {}),
            start_new_session=True,
            # The terminal becomes that of the new session, so that Ctrl-C on it is a signal.
            preexec_fn=_own_terminal,
        )
    finally:
        for fd in {theirs, output}:
            os.close(fd)
    try:
        yield Terminal(ours, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)
