"""Many who want the same lock, on files and on PostgreSQL: threads and processes, those that die, those that fork."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from tests.locks.company import HOLDS, LIMIT_S, is_awaited, program, row_of, says, together, until

from tabherd.errors import LockDeadlock, LockLost, LockTimedOut
from tabherd.locks import advisory_lock, advisory_lock_or_skip


def test_a_second_thread_waits_for_the_first(url: str, namespace: int) -> None:
    order: list[str] = []
    holds = threading.Event()

    def first() -> None:
        with advisory_lock(namespace, 1, url=url):
            holds.set()
            until(lambda: is_awaited(url, f"{namespace}:1"))
            order.append("first")

    def second() -> None:
        assert holds.wait(LIMIT_S)
        with advisory_lock(namespace, 1, url=url):
            order.append("second")

    assert together(first, second) == [None, None]
    assert order == ["first", "second"]


def test_two_threads_with_different_keys_do_not_wait_for_each_other(url: str, namespace: int) -> None:
    both = threading.Barrier(2, timeout=LIMIT_S)

    def use(key: int) -> Callable[[], None]:
        def work() -> None:
            with advisory_lock(namespace, key, url=url):
                both.wait()

        return work

    assert together(use(1), use(2)) == [None, None]


def test_threads_are_served_in_the_order_of_their_arrival(url: str, namespace: int) -> None:
    order: list[int] = []

    def use(number: int) -> Callable[[], None]:
        def work() -> None:
            with advisory_lock(namespace, 1, url=url):
                order.append(number)

        return work

    threads = []
    with advisory_lock(namespace, 1, url=url):
        for number in range(5):
            threads.append(threading.Thread(target=use(number)))
            threads[-1].start()
            until(lambda: is_awaited(url, f"{namespace}:1", by=len(threads)))
    for thread in threads:
        thread.join(LIMIT_S)
    assert order == [0, 1, 2, 3, 4]


def test_nobody_starves_among_threads_that_come_again_and_again(url: str, namespace: int) -> None:
    served: Counter[int] = Counter()
    everybody = threading.Event()

    def use(number: int) -> Callable[[], None]:
        def work() -> None:
            # Each goes on until all were served: one that is always overtaken would keep the test from ending.
            while not everybody.is_set():
                with advisory_lock(namespace, 1, timeout=LIMIT_S, url=url):
                    served[number] += 1
                if len(served) == 20 and min(served.values()) >= 3:
                    everybody.set()

        return work

    assert together(*(use(number) for number in range(20))) == [None] * 20


def test_a_counter_that_many_threads_read_and_write_is_exact(url: str, namespace: int) -> None:
    count = 0

    def add() -> None:
        nonlocal count
        for _ in range(20):
            with advisory_lock(namespace, 1, timeout=LIMIT_S, url=url):
                seen = count
                # Lets every other thread go first, if nothing holds them back.
                time.sleep(0)
                count = seen + 1

    together(*[add] * 10)
    assert count == 200


def test_a_background_job_skips_while_the_foreground_holds_the_lock(url: str, namespace: int) -> None:
    reaped: list[int] = []

    def reap(agent: int) -> None:
        with advisory_lock_or_skip(namespace, agent, url=url) as acquired:
            if acquired:
                reaped.append(agent)

    with advisory_lock(namespace, 1, url=url):
        together(lambda: [reap(agent) for agent in (1, 2)])
    assert reaped == [2]
    reap(1)
    assert reaped == [2, 1]


def test_an_exception_after_commits_in_the_block_releases_the_lock_and_keeps_them(url: str, namespace: int) -> None:
    committed: list[str] = []

    def work() -> None:
        with advisory_lock(namespace, 1, url=url):
            committed.append("first")
            committed.append("second")
            raise KeyError

    assert isinstance(together(work)[0], KeyError)
    with advisory_lock(namespace, 1, timeout=0, url=url):
        assert committed == ["first", "second"]


def test_two_who_take_two_locks_in_opposite_order_do_not_wait_for_ever(url: str, namespace: int) -> None:
    both = threading.Barrier(2, timeout=LIMIT_S)

    def use(first: int, second: int, timeout: float) -> Callable[[], None]:
        def work() -> None:
            with advisory_lock(namespace, first, url=url):
                both.wait()
                with advisory_lock(namespace, second, timeout=timeout, url=url):
                    pass

        return work

    # PostgreSQL finds the circle after a second; files know nothing of each other and end in the shorter timeout.
    results = together(use(1, 2, LIMIT_S), use(2, 1, LIMIT_S if url.startswith("postgresql") else 0.1))
    (error,) = [result for result in results if result is not None]
    assert isinstance(error, LockDeadlock if url.startswith("postgresql") else LockTimedOut)


def test_another_process_waits_and_is_served(url: str, namespace: int) -> None:
    with program(HOLDS, url, str(namespace), "1") as other:
        with advisory_lock(namespace, 1, url=url):
            until(lambda: is_awaited(url, f"{namespace}:1"))
        assert says(other) == "held"
        row = row_of(url, f"{namespace}:1")
        assert row is not None
        assert row.holder is not None
        assert row.holder.pid == other.pid


def test_the_lock_of_a_killed_process_is_free_at_once(url: str, namespace: int) -> None:
    with program(HOLDS, url, str(namespace), "1") as other:
        assert says(other) == "held"
        with advisory_lock_or_skip(namespace, 1, url=url) as acquired:
            assert not acquired
        other.kill()
        with advisory_lock(namespace, 1, timeout=LIMIT_S, url=url):
            pass


def test_a_stopped_process_keeps_its_lock(url: str, namespace: int) -> None:
    with program(HOLDS, url, str(namespace), "1") as other:
        assert says(other) == "held"
        other.send_signal(signal.SIGSTOP)
        with advisory_lock_or_skip(namespace, 1, url=url) as acquired:
            assert not acquired
        with pytest.raises(LockTimedOut), advisory_lock(namespace, 1, timeout=0.05, url=url):
            pass


# Takes the lock and forks: the child lives on after the parent is killed, and tells what it believes.
FORKS: str = """
import os, sys, time
from tabherd.locks import advisory_lock, advisory_lock_or_skip
from tabherd.errors import LockLost
def say(line):
    # In one piece, since both write to the same pipe.
    os.write(1, line.encode() + b"\\n")
url, key = sys.argv[1], (int(sys.argv[2]), 1)
parent = os.getpid()
with advisory_lock(*key, url=url) as lock:
    if os.fork():
        say("held")
        sys.stdin.readline()
        os._exit(0)
    try:
        lock.check()
        say("child: mine")
    except LockLost:
        say("child: lost")
    with advisory_lock_or_skip(*key, url=url) as acquired:
        say("child: taken" if acquired else "child: skipped")
    while os.getppid() == parent:
        time.sleep(0.005)
    say("child: orphan")
    while True:
        time.sleep(1)
"""


def test_a_child_that_outlives_its_parent_keeps_no_lock_of_it_alive(url: str, namespace: int) -> None:
    with program(FORKS, url, str(namespace)) as parent:
        children: list[int] = []
        try:
            said = sorted(says(parent) for _ in range(3))
            children = _children(parent.pid)
            assert said == ["child: lost", "child: skipped", "held"]
            parent.kill()
            parent.wait(LIMIT_S)
            assert says(parent) == "child: orphan"
            with advisory_lock(namespace, 1, timeout=LIMIT_S, url=url):
                pass
            assert children
            os.kill(children[0], 0)
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as listed:
        return [int(child) for child in listed.read().split()]


# Takes the lock, starts another program, and goes on holding it; the program outlives it.
SPAWNS: str = """
import subprocess, sys
from tabherd.locks import advisory_lock
with advisory_lock(int(sys.argv[2]), 1, url=sys.argv[1]):
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    print(child.pid, flush=True)
    sys.stdin.readline()
"""


def test_a_program_that_the_holder_started_keeps_no_lock_alive(url: str, namespace: int) -> None:
    with program(SPAWNS, url, str(namespace)) as parent:
        child = int(says(parent))
        try:
            parent.kill()
            parent.wait(LIMIT_S)
            with advisory_lock(namespace, 1, timeout=LIMIT_S, url=url):
                os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_fork_that_leaves_the_block_does_not_release_the_parents_lock(url: str, namespace: int) -> None:
    with advisory_lock(namespace, 1, url=url) as lock:
        child = os.fork()
        if not child:
            try:
                lock.check()
            except LockLost:
                os._exit(42)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 42
        lock.check()
        assert together(lambda: _attempt(url, namespace)) == [False]


def _attempt(url: str, namespace: int) -> bool:
    with advisory_lock_or_skip(namespace, 1, url=url) as acquired:
        return acquired


def test_an_interrupted_wait_leaves_neither_a_lock_nor_a_waiter(url: str, namespace: int) -> None:
    def interrupt() -> None:
        until(lambda: is_awaited(url, f"{namespace}:1"))
        os.kill(os.getpid(), signal.SIGINT)

    with program(HOLDS, url, str(namespace), "1") as other:
        assert says(other) == "held"
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt), advisory_lock(namespace, 1, timeout=LIMIT_S, url=url):
            pass
        interrupter.join(LIMIT_S)
        until(lambda: not is_awaited(url, f"{namespace}:1"))
        assert other.stdin is not None
        other.stdin.write("go on\n")
        other.stdin.flush()
        assert says(other) == "released"
        until(lambda: row_of(url, f"{namespace}:1") is None)
