"""A crowd that wants one lock: how long it takes from one holder to the next, and how even the shares are.

Each contender takes the lock, notes how long ago it was let go of, and lets go of it in turn, again and again. Threads
and processes write into the same memory, which only who has the lock may touch.
"""

from __future__ import annotations

import mmap
import multiprocessing
import struct
import threading
import time
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from tabherd.locks import advisory_lock

# When the lock was last let go of, and how many handovers were noted, at the beginning of the memory.
HEAD: Final = struct.Struct("qq")
NUMBER: Final = struct.Struct("q")
# Handovers that are noted at the most.
NOTES_MAX: Final = 200_000
# How long a contender would wait: longer than the benchmark takes.
WAIT_S: Final = 60.0
# How long the crowd may take to end after its time.
END_S: Final = 60.0

Start: TypeAlias = Callable[[Callable[[], None]], "threading.Thread | multiprocessing.process.BaseProcess"]


class Contention(msgspec.Struct, frozen=True):
    """What was found."""

    # From one holder to the next.
    handovers_ms: list[float]
    # How often each had the lock.
    shares: list[int]

    @property
    def furthest_from_fair(self) -> float:
        """By which factor the share of the one that got least, or most, differs from an equal one."""
        fair = sum(self.shares) / len(self.shares)
        return max(fair / max(min(self.shares), 1), max(self.shares) / fair)


def contend(url: str, contenders: int, seconds: float, *, are_processes: bool) -> Contention:
    """Let so many compete for one lock for so long."""
    start = _process if are_processes else _thread
    with mmap.mmap(-1, HEAD.size + NUMBER.size * (contenders + NOTES_MAX)) as memory:
        begins = time.monotonic_ns() + int(0.02e9 * contenders)
        ends = begins + int(seconds * 1e9)
        started = [
            start(lambda number=number: _compete(url, memory, number, contenders, begins, ends))  # type: ignore[misc]
            for number in range(contenders)
        ]
        for each in started:
            each.join(seconds + END_S)
            assert not each.is_alive(), "a contender does not end"
        _, noted = HEAD.unpack_from(memory)
        shares = [NUMBER.unpack_from(memory, HEAD.size + NUMBER.size * number)[0] for number in range(contenders)]
        first = HEAD.size + NUMBER.size * contenders
        gaps = [NUMBER.unpack_from(memory, first + NUMBER.size * note)[0] / 1e6 for note in range(noted)]
    return Contention(gaps, shares)


def _compete(url: str, memory: mmap.mmap, number: int, contenders: int, begins: int, ends: int) -> None:
    share_at, first = HEAD.size + NUMBER.size * number, HEAD.size + NUMBER.size * contenders
    time.sleep(max(begins - time.monotonic_ns(), 0) / 1e9)
    is_over = False
    # Once at least, also for one that was started late.
    while not is_over:
        with advisory_lock("bench", "contended", timeout=WAIT_S, url=url):
            now = time.monotonic_ns()
            let_go_at, noted = HEAD.unpack_from(memory)
            if let_go_at and noted < NOTES_MAX:
                NUMBER.pack_into(memory, first + NUMBER.size * noted, now - let_go_at)
                noted += 1
            NUMBER.pack_into(memory, share_at, NUMBER.unpack_from(memory, share_at)[0] + 1)
            HEAD.pack_into(memory, 0, time.monotonic_ns(), noted)
        is_over = time.monotonic_ns() >= ends


def _thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def _process(work: Callable[[], None]) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=work, daemon=True)
    process.start()
    return process
