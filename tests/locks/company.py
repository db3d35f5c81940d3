"""Others who want the same lock: threads and processes that a test can wait for, by what they do."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tabherd.locks import LockRow, advisory_locks

# For what must happen; nothing here takes it unless it is broken.
LIMIT_S: Final = 60.0


def until(is_so: Callable[[], object]) -> None:
    """Wait for something that others do and nobody tells us about."""
    limit = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < limit, "it never happened"
        time.sleep(0.002)


def row_of(url: str, label: str) -> LockRow | None:
    """That lock, if it is held or waited for."""
    return next((row for row in advisory_locks(url) if row.label == label), None)


def is_awaited(url: str, label: str, by: int = 1) -> bool:
    row = row_of(url, label)
    return row is not None and len(row.waiters) >= by


def together(*works: Callable[[], Any]) -> list[Any]:
    """Do all of it at once, each in a thread; what each returned, or the exception that it raised."""
    results: list[Any] = [None] * len(works)

    def run(number: int) -> None:
        try:
            results[number] = works[number]()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "it does not end"
    return results


@contextmanager
def program(code: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program with these arguments, which is gone when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(LIMIT_S)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()


# Takes a lock (its namespace and key are arguments 2 and 3), says so, and keeps it until it is told to go on.
HOLDS: Final = """
import sys
from tabherd.locks import advisory_lock
with advisory_lock(int(sys.argv[2]), int(sys.argv[3]), url=sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
print("released", flush=True)
sys.stdin.readline()
"""


def says(process: subprocess.Popen[str]) -> str:
    """The next line that the program prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
