"""`lock run` and `locks`: a command that runs while a named lock is held, and a look at the locks there are.

What `lock run` keeps:

- The command runs only while the lock is held: it is begun after the lock was had, and told to end (SIGTERM, after a
  while SIGKILL) as soon as it is lost. It does not outlive this process either: the kernel kills it then.
- Signals go to the command, and its exit code is ours. Whatever ends it, the lock is given back.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from .. import wire
from ..browsers.process import start_time
from ..client.sync import Lock, Tabherd
from ..errors import InvalidRequest, TabherdError
from .output import Voice, printable

# Exit codes besides the command's own. The first is that of temporary failure in sysexits.h.
SKIPPED: Final = 75
LOST: Final = 76
SIGNALLED: Final = 128
FENCE_VARIABLE: Final = "TABHERD_LOCK_FENCE"
# How long a server that is being restarted is waited for.
PATIENCE_S: Final = 60.0
# How often it is looked whether the lock is lost; renewals are sent meanwhile.
LOOK_EVERY_S: Final = 0.25
# What a command gets between SIGTERM and SIGKILL once the lock is lost.
GRACE_S: Final = 10.0
FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# What a terminal sends to everybody in front of it, so that the command has it already.
FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
HEADINGS: Final = ("lock", "holder", "since", "expires", "waiting")
# The command's process before it becomes the command: has the kernel end it with its parent, and looks whether that has
# happened already. A program of its own, because a process that has threads, as this one has, may not run Python
# between fork and exec.
LAUNCHER: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
if os.getppid() == int(sys.argv[1]):
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except FileNotFoundError:
        sys.stderr.write(sys.argv[2] + ": not found\\n")
        os._exit(127)
    except OSError as error:
        sys.stderr.write(sys.argv[2] + ": " + str(error.strerror) + "\\n")
        os._exit(126)
os._exit(1)
"""


def run(voice: Voice, name: str, command: Sequence[str], *, wait_s: float, skip: bool, agent: str | None) -> int:
    """Run the command while the lock is held; the exit code."""
    with Tabherd(patience_s=PATIENCE_S) as herd:
        with voice.progress(f"Waiting for the lock {printable(name)}"):
            lock = _acquired(herd, name, wait_s=wait_s, skip=skip, agent=agent)
        if not lock:
            print(f"The lock {printable(name)} is held: nothing was run.", file=sys.stderr)
            return SKIPPED
        try:
            return _run_holding(lock, command)
        finally:
            _give_back(lock)


def ls(voice: Voice) -> None:
    """One line per lock that is held through the server or waited for."""
    with Tabherd(patience_s=0) as herd:
        locks = herd.locks()
    voice.table(wire.LockPage(locks=locks), HEADINGS, [_row(each) for each in locks], empty="No locks.")


def _acquired(herd: Tabherd, name: str, *, wait_s: float, skip: bool, agent: str | None) -> Lock:
    """The lock, bound to this process where the server can see it; elsewhere it lives by its lease alone."""
    # With its start: a server on another machine may have another process under the same number.
    me = wire.Owner(pid=os.getpid(), start_time=start_time(os.getpid()))
    try:
        return _asked(herd, name, wait_s, skip, me, agent).acquire()
    except InvalidRequest as error:
        if error.details.get("field") != "owner":
            raise
    return _asked(herd, name, wait_s, skip, None, agent).acquire()


def _asked(herd: Tabherd, name: str, wait_s: float, skip: bool, owner: wire.Owner | None, agent: str | None) -> Lock:
    if skip:
        return herd.try_lock(name, owner=owner, agent=agent)
    return herd.lock(name, wait_s, owner=owner, agent=agent)


def _give_back(lock: Lock) -> None:
    try:
        lock.release()
    except TabherdError as error:
        # It is free with this process at the latest; how the command ended is what counts.
        print(f"The lock was not given back: {error.message}", file=sys.stderr)


def _run_holding(lock: Lock, command: Sequence[str]) -> int:
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), *command],
        env={**os.environ, FENCE_VARIABLE: str(lock.fence)},
    )
    try:
        with _forwarding(child):
            is_lost = _watch(lock, child)
    finally:
        if child.poll() is None:
            child.kill()
        code = child.wait()
    if is_lost:
        print("The lock was lost while the command ran; it was told to end.", file=sys.stderr)
        return LOST
    return SIGNALLED - code if code < 0 else code


def _watch(lock: Lock, child: subprocess.Popen[bytes]) -> bool:
    """Until the command has ended; whether the lock was lost before that."""
    ended = os.pidfd_open(child.pid)
    try:
        poller = select.poll()
        poller.register(ended, select.POLLIN)
        while not poller.poll(LOOK_EVERY_S * 1000):
            if lock.is_lost:
                child.terminate()
                if not poller.poll(GRACE_S * 1000):
                    child.kill()
                    poller.poll()
                return True
        return False
    finally:
        os.close(ended)


@contextmanager
def _forwarding(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Meanwhile signals are the command's."""

    def forward(number: int, _: FrameType | None) -> None:
        if not (number in FROM_TERMINAL and _is_in_front()):
            child.send_signal(number)

    before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {
        number: signal.signal(number, forward) for number in FORWARDED
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _is_in_front() -> bool:
    """Whether this process is in the foreground of its terminal, whose keys reach the command, too."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        # There is no terminal, or no stdin at all.
        return False


def _row(lock: wire.HeldLock) -> tuple[str, ...]:
    holder = lock.holder or ("another agent" if lock.held else "another program")
    return (
        printable(lock.name),
        printable(holder),
        lock.acquired_at or "",
        lock.expires_at or "",
        str(lock.waiters or ""),
    )
