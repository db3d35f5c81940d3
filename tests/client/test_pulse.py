"""Heartbeats: for every open session, whatever else hangs, and for none that is over, lost or forgotten."""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tabherd import errors
from tabherd.client.address import Address
from tabherd.client.beats import Beats, beat_call
from tabherd.client.pulse import FIRST_S, THREADS_MAX, Beating, Pulse, first_wait_s
from tabherd.client.task_pulse import TaskPulse

# Before it a beat that was expected counts as missing.
LIMIT_S = 60.0


class Owned:
    """A session as the pulse sees it, beaten for as often as may be."""

    fence = 1
    phase: str | None = None

    def __init__(self, name: str, heartbeat_s: float = 0.0) -> None:
        self.id = name
        self.heartbeat_s = heartbeat_s
        self.lost = threading.Event()

    def was_lost(self, error: errors.TabherdError) -> None:
        self.lost.set()


class Receiver:
    """Where beats arrive; they may be made to hang or be refused, by the session's id."""

    def __init__(self) -> None:
        self.beats: queue.Queue[str] = queue.Queue()
        self.threads: set[threading.Thread] = set()
        self.refusals: dict[str, errors.TabherdError] = {}
        self.hanging: set[str] = set()
        self.let_go = threading.Event()
        self.hung: queue.Queue[str] = queue.Queue()

    def send(self, session: Beating) -> None:
        self.threads.add(threading.current_thread())
        name = session.id
        # Not held while it hangs: that is the pulse's to decide.
        del session
        if name in self.hanging:
            self.hung.put(name)
            assert self.let_go.wait(LIMIT_S)
        self.beats.put(name)
        if name in self.refusals:
            raise self.refusals[name]

    def until(self, is_enough: Callable[[Counter[str]], bool]) -> Counter[str]:
        """Read beats until they are enough."""
        seen: Counter[str] = Counter()
        while not is_enough(seen):
            seen[self.beats.get(timeout=LIMIT_S)] += 1
        return seen

    def forget(self) -> None:
        """What has arrived so far does not count."""
        while not self.beats.empty():
            self.beats.get()


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def pulse(receiver: Receiver) -> Iterator[Pulse]:
    pulse = Pulse(receiver.send)
    yield pulse
    receiver.let_go.set()
    pulse.close()
    for thread in list(receiver.threads):
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def test_every_session_is_beaten_for_again_and_again(receiver: Receiver, pulse: Pulse) -> None:
    sessions = [Owned(name) for name in "abc"]
    for session in sessions:
        pulse.add(session)
    receiver.until(lambda seen: all(seen[name] >= 3 for name in "abc"))


def test_a_beat_that_hangs_holds_up_no_other(receiver: Receiver, pulse: Pulse) -> None:
    receiver.hanging = {"a", "b"}
    sessions = [Owned(name) for name in "abc"]
    for session in sessions:
        pulse.add(session)
    assert {receiver.hung.get(timeout=LIMIT_S) for _ in range(2)} == {"a", "b"}
    seen = receiver.until(lambda seen: seen["c"] >= 5)
    assert set(seen) == {"c"}


def test_how_many_threads_hang_is_bounded_and_afterwards_all_are_beaten_for(receiver: Receiver, pulse: Pulse) -> None:
    names = [f"s{n}" for n in range(2 * THREADS_MAX)]
    receiver.hanging = set(names)
    sessions = [Owned(name) for name in names]
    for session in sessions:
        pulse.add(session)
    for _ in range(THREADS_MAX):
        receiver.hung.get(timeout=LIMIT_S)
    with pytest.raises(queue.Empty):
        receiver.hung.get(timeout=0.3)
    assert len(receiver.threads) == THREADS_MAX
    receiver.let_go.set()
    receiver.until(lambda seen: len(seen) == len(names))


def test_after_a_session_is_given_back_it_is_not_beaten_for(receiver: Receiver, pulse: Pulse) -> None:
    one, other = Owned("one"), Owned("other")
    pulse.add(one)
    pulse.add(other)
    receiver.until(lambda seen: seen["one"] >= 1)
    pulse.remove(one)
    pulse.remove(one)
    receiver.forget()
    # One beat may have been on its way.
    assert receiver.until(lambda seen: seen["other"] >= 5)["one"] <= 1


def test_the_thread_ends_with_the_last_session_and_another_begins_with_the_next(
    receiver: Receiver, pulse: Pulse
) -> None:
    first = Owned("first")
    pulse.add(first)
    receiver.until(lambda seen: seen["first"] >= 1)
    pulse.remove(first)
    (thread,) = receiver.threads
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    second = Owned("second")
    pulse.add(second)
    receiver.until(lambda seen: seen["second"] >= 1)


def test_a_session_that_its_owner_forgot_is_not_beaten_for(receiver: Receiver, pulse: Pulse) -> None:
    forgotten, kept = Owned("forgotten"), Owned("kept")
    pulse.add(forgotten)
    pulse.add(kept)
    receiver.until(lambda seen: seen["forgotten"] >= 1)
    del forgotten
    gc.collect()
    receiver.forget()
    assert receiver.until(lambda seen: seen["kept"] >= 5)["forgotten"] <= 1


@pytest.mark.parametrize(
    "error",
    [errors.LeaseLost("x"), errors.SessionNotFound("x"), errors.Unauthenticated("x")],
    ids=lambda error: error.code,
)
def test_a_session_that_is_refused_for_good_is_told_and_not_beaten_for(
    receiver: Receiver, pulse: Pulse, error: errors.TabherdError
) -> None:
    receiver.refusals["lost"] = error
    lost, kept = Owned("lost"), Owned("kept")
    pulse.add(lost)
    pulse.add(kept)
    assert lost.lost.wait(LIMIT_S)
    receiver.forget()
    assert receiver.until(lambda seen: seen["kept"] >= 5)["lost"] == 0
    assert not kept.lost.is_set()


def test_somebody_elses_shared_session_is_not_beaten_for_and_not_lost(receiver: Receiver, pulse: Pulse) -> None:
    receiver.refusals["shared"] = errors.NotOwner("x")
    shared, kept = Owned("shared"), Owned("kept")
    pulse.add(shared)
    pulse.add(kept)
    assert receiver.until(lambda seen: seen["kept"] >= 5 and seen["shared"])["shared"] == 1
    assert not shared.lost.is_set()


def test_while_no_server_answers_beats_go_on_sooner_than_usual(receiver: Receiver, pulse: Pulse) -> None:
    receiver.refusals["a"] = errors.NodeUnreachable("x")
    session = Owned("a", heartbeat_s=0.2)
    pulse.add(session)
    receiver.until(lambda seen: seen["a"] >= 3)
    assert not session.lost.is_set()


def test_the_first_beat_comes_soon_and_is_spared_to_the_shortest_sessions() -> None:
    assert first_wait_s(Owned("a", heartbeat_s=60.0)) == FIRST_S
    assert first_wait_s(Owned("a", heartbeat_s=0.5)) < 0.5


def test_a_session_that_is_lost_while_it_is_closed_leaves_the_pulse_in_order(receiver: Receiver, pulse: Pulse) -> None:
    receiver.hanging = {"a"}
    receiver.refusals["a"] = errors.LeaseLost("x")
    session, other = Owned("a"), Owned("other")
    pulse.add(session)
    pulse.add(other)
    receiver.hung.get(timeout=LIMIT_S)
    pulse.remove(session)
    receiver.let_go.set()
    receiver.until(lambda seen: seen["a"] == 1 and seen["other"] >= 3)


# --- On the wire ------------------------------------------------------------------------------------------------


def beats_to(listener: socket.socket) -> Beats:
    return Beats(Address(f"http://127.0.0.1:{listener.getsockname()[1]}", "secret", None, {}))


def test_a_beat_to_a_server_that_hangs_is_given_up(receiver: Receiver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        beats = beats_to(listener)
        with pytest.raises(errors.NodeUnreachable):
            beats.send(Owned("ses_1"))
        beats.close()


def test_closing_while_a_beat_is_on_its_way_is_no_crash() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        beats = beats_to(listener)
        sending = threads.submit(beats.send, Owned("ses_1"))
        connection, _ = listener.accept()
        with connection:
            connection.recv(1)
            beats.close()
            with pytest.raises(errors.NodeUnreachable):
                sending.result(LIMIT_S)
        with pytest.raises(errors.NodeUnreachable):
            beats.send(Owned("ses_1"))


def test_a_beat_waits_for_its_answer_only_as_long_as_the_session_can() -> None:
    assert beat_call(Owned("a", heartbeat_s=4.0)).limit_s == 2.0
    assert beat_call(Owned("a", heartbeat_s=60.0)).limit_s == 10.0


def test_a_beat_says_what_the_owner_is_doing() -> None:
    session = Owned("a")
    session.phase = "poll"
    assert beat_call(session).body == {"fence": 1, "phase": "poll"}


# --- Processes --------------------------------------------------------------------------------------------------

FORKED = """
import os, queue, sys
from tabherd.client.pulse import Pulse
class Owned:
    fence, phase, heartbeat_s = 1, None, 0.0
    def __init__(self, id): self.id = id
    def was_lost(self, error): raise error
beats = queue.Queue()
pulse = Pulse(lambda session: beats.put((os.getpid(), session.id)))
parents = Owned("parents")
pulse.add(parents)
beats.get(timeout=20)
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
# The queue was copied with what was in it.
childs = Owned("childs")
pulse.add(childs)
seen = []
while len(seen) < 10:
    pid, name = beats.get(timeout=20)
    if pid == os.getpid():
        seen.append(name)
print(sorted(set(seen)))
"""


def test_a_forked_child_beats_for_its_own_sessions_and_not_for_its_parents() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("['childs']\n", "")


def test_a_forked_child_opens_connections_of_its_own(monkeypatch: pytest.MonkeyPatch, script: Any) -> None:
    herd = script.herd()
    parents = herd._link._http
    assert herd._link._connections() is parents
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert herd._link._connections() is not parents


# --- From tasks -------------------------------------------------------------------------------------------------


async def test_a_task_beats_until_the_session_is_given_back_lost_or_forgotten() -> None:
    beats: asyncio.Queue[str] = asyncio.Queue()

    async def send(session: Beating) -> None:
        beats.put_nowait(session.id)
        if session.id == "lost":
            raise errors.LeaseLost("x")

    pulse = TaskPulse(send)
    sessions = {name: Owned(name) for name in ("kept", "closed", "lost", "forgotten")}
    for session in sessions.values():
        pulse.add(session)
    del session
    async with asyncio.timeout(LIMIT_S):
        assert {await beats.get() for _ in sessions} == set(sessions)
        pulse.remove(sessions["closed"])
        del sessions["forgotten"]
        gc.collect()
        assert [await beats.get() for _ in range(5)] == ["kept"] * 5
    assert sessions["lost"].lost.is_set()
    pulse.close()
