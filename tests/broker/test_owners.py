"""Named owner processes, with real ones: proof of death, pids that changed hands, stopped and unreaped processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tabherd.broker.owners import Owners
from tabherd.browsers import process
from tabherd.core.lease import OwnerProcess
from tabherd.errors import InvalidRequest

NOW = 1_700_000_000_000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Far more than anything here takes: only a broken watch gets that far.
GIVE_UP_S = 60


@pytest.fixture
def start() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts processes that wait to be killed, and ends them."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "1000"]))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


Start = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture(params=["pidfd", "polling"])
async def owners(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Owners]:
    """With and without pidfds."""
    if request.param == "polling":

        def refuse(pid: int) -> int:
            raise OSError("no such call")

        monkeypatch.setattr(os, "pidfd_open", refuse)
    owners = Owners(lambda: NOW)
    yield owners
    owners.close()


class Bell:
    """Rung by a proven death; counts."""

    def __init__(self) -> None:
        self.count = 0
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self.count += 1
        self._rung.set()

    async def wait(self) -> None:
        async with asyncio.timeout(GIVE_UP_S):
            await self._rung.wait()


def exited(child: subprocess.Popen[bytes]) -> None:
    """Returns when the child has exited; it stays a zombie."""
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


async def settled() -> None:
    """Everything that was ready has run, descriptors included."""
    for _ in range(3):
        await asyncio.sleep(0)


# --- Who is meant -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unit",
    [
        lambda pid: None,
        lambda pid: process.start_time(pid),
        lambda pid: psutil.Process(pid).create_time(),
        lambda pid: psutil.Process(pid).create_time() * 1_000,
        lambda pid: int(psutil.Process(pid).create_time()),
        lambda pid: time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + process.start_time(pid) / TICKS_PER_S,
    ],
    ids=["unsaid", "ticks", "seconds", "milliseconds", "whole seconds", "exact seconds"],
)
def test_a_process_is_identified_by_its_start_in_any_unit(unit: Callable[[int], float | None]) -> None:
    pid = os.getpid()
    assert Owners(lambda: NOW).identify(pid, unit(pid)) == process.start_time(pid)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda pid: process.start_time(pid) + 1,
        lambda pid: psutil.Process(pid).create_time() + 3,
        lambda pid: psutil.Process(pid).create_time() * 1_000 - 3_000,
        lambda pid: 0,
        lambda pid: float("nan"),
    ],
    ids=["ticks", "seconds", "milliseconds", "zero", "not a number"],
)
def test_a_process_that_started_at_another_time_is_refused_by_field(wrong: Callable[[int], float]) -> None:
    with pytest.raises(InvalidRequest, match="another has its pid") as caught:
        Owners(lambda: NOW).identify(os.getpid(), wrong(os.getpid()))
    assert caught.value.details["field"] == "owner"


def test_a_process_that_does_not_run_is_refused_by_field(start: Start) -> None:
    child = start()
    child.kill()
    child.wait()
    with pytest.raises(InvalidRequest, match="sees no process") as caught:
        Owners(lambda: NOW).identify(child.pid, None)
    assert caught.value.details["field"] == "owner"


def test_a_zombie_is_no_owner(start: Start) -> None:
    child = start()
    child.kill()
    exited(child)
    with pytest.raises(InvalidRequest):
        Owners(lambda: NOW).identify(child.pid, process.start_time(child.pid))


def test_a_process_that_the_system_hides_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def hide(self: Path, **options: object) -> str:
        raise PermissionError(1, "hidden")

    monkeypatch.setattr(Path, "read_text", hide)
    with pytest.raises(InvalidRequest):
        Owners(lambda: NOW).identify(os.getpid(), None)


# --- Whether it lives ---------------------------------------------------------------------------------------------


async def test_a_session_without_a_named_process_has_no_evidence_from_one(owners: Owners) -> None:
    assert (owners.state("ses_1"), owners.died_at("ses_1")) == (OwnerProcess.NONE, 0)


async def test_a_running_process_is_alive(owners: Owners, start: Start) -> None:
    child, bell = start(), Bell()
    owners.watch("ses_1", child.pid, owners.identify(child.pid, None), bell.ring)
    await settled()
    assert (owners.state("ses_1"), owners.died_at("ses_1"), bell.count) == (OwnerProcess.ALIVE, 0, 0)


async def test_a_stopped_process_is_alive(owners: Owners, start: Start) -> None:
    child, bell = start(), Bell()
    owners.watch("ses_1", child.pid, owners.identify(child.pid, None), bell.ring)
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    await settled()
    assert (owners.state("ses_1"), bell.count) == (OwnerProcess.ALIVE, 0)


async def test_a_stopped_process_can_be_named(owners: Owners, start: Start) -> None:
    child = start()
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    owners.watch("ses_1", child.pid, owners.identify(child.pid, None), Bell().ring)
    assert owners.state("ses_1") is OwnerProcess.ALIVE


async def test_a_killed_process_is_dead_before_its_parent_looks(owners: Owners, start: Start) -> None:
    child, bell = start(), Bell()
    owners.watch("ses_1", child.pid, owners.identify(child.pid, None), bell.ring)
    child.kill()
    exited(child)
    await settled()
    assert (owners.state("ses_1"), owners.died_at("ses_1")) == (OwnerProcess.DEAD, NOW)
    await settled()
    assert bell.count == 1


async def test_a_killed_process_is_dead_after_its_parent_looked(owners: Owners, start: Start) -> None:
    child = start()
    owners.watch("ses_1", child.pid, owners.identify(child.pid, None), Bell().ring)
    child.kill()
    child.wait()
    await settled()
    assert owners.state("ses_1") is OwnerProcess.DEAD


async def test_death_is_told_without_anybody_asking(start: Start) -> None:
    owners, child, bell = Owners(lambda: NOW), start(), Bell()
    owners.watch("ses_1", child.pid, owners.identify(child.pid, None), bell.ring)
    child.kill()
    await bell.wait()
    assert owners.died_at("ses_1") == NOW
    owners.close()


async def test_a_process_that_exited_before_the_watch_is_dead_at_once_and_told_later(
    owners: Owners, start: Start
) -> None:
    child, bell = start(), Bell()
    started_ticks = owners.identify(child.pid, None)
    child.kill()
    child.wait()
    owners.watch("ses_1", child.pid, started_ticks, bell.ring)
    assert (owners.state("ses_1"), owners.died_at("ses_1"), bell.count) == (OwnerProcess.DEAD, NOW, 0)
    await bell.wait()


async def test_a_zombie_before_the_watch_is_dead_at_once(owners: Owners, start: Start) -> None:
    child = start()
    started_ticks = owners.identify(child.pid, None)
    child.kill()
    exited(child)
    owners.watch("ses_1", child.pid, started_ticks, Bell().ring)
    assert owners.state("ses_1") is OwnerProcess.DEAD


async def test_a_pid_that_belongs_to_another_process_now_proves_the_death(owners: Owners, start: Start) -> None:
    child, bell = start(), Bell()
    owners.watch("ses_1", child.pid, owners.identify(child.pid, None) - 1, bell.ring)
    assert owners.state("ses_1") is OwnerProcess.DEAD
    await bell.wait()


async def test_a_process_that_becomes_hidden_is_not_proven_dead(
    owners: Owners, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start()
    started_ticks = owners.identify(child.pid, None)

    def hide(self: Path, **options: object) -> str:
        raise PermissionError(1, "hidden")

    monkeypatch.setattr(Path, "read_text", hide)
    owners.watch("ses_1", child.pid, started_ticks, Bell().ring)
    assert owners.state("ses_1") is OwnerProcess.ALIVE


async def test_a_process_whose_first_thread_has_ended_is_alive_while_others_run() -> None:
    # /proc calls such a process a zombie; the descriptor knows better.
    program = (
        "import ctypes, threading, time; threading.Thread(target=lambda: time.sleep(1000)).start();"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    child = subprocess.Popen([sys.executable, "-c", program])
    owners = Owners(lambda: NOW)
    try:
        async with asyncio.timeout(GIVE_UP_S):
            while process.is_running(child.pid):
                await asyncio.sleep(0.001)
        owners.watch("ses_1", child.pid, process.start_time(child.pid), Bell().ring)
        await settled()
        assert owners.state("ses_1") is OwnerProcess.ALIVE
    finally:
        owners.close()
        child.kill()
        child.wait()


# --- Who is told --------------------------------------------------------------------------------------------------


async def test_all_sessions_of_one_process_hear_of_its_death_once(owners: Owners, start: Start) -> None:
    child, bells = start(), [Bell() for _ in range(5)]
    started_ticks = owners.identify(child.pid, None)
    for number, bell in enumerate(bells):
        owners.watch(f"ses_{number}", child.pid, started_ticks, bell.ring)
    child.kill()
    exited(child)
    for _ in range(2):
        await settled()
        assert {owners.state(f"ses_{number}") for number in range(5)} == {OwnerProcess.DEAD}
    assert [bell.count for bell in bells] == [1] * 5


async def test_whoever_is_forgotten_is_not_told(owners: Owners, start: Start) -> None:
    child, bell = start(), Bell()
    owners.watch("ses_1", child.pid, owners.identify(child.pid, None), bell.ring)
    owners.forget("ses_1")
    child.kill()
    exited(child)
    await settled()
    assert (owners.state("ses_1"), bell.count) == (OwnerProcess.NONE, 0)


async def test_forgetting_also_stops_what_is_about_to_be_told(owners: Owners) -> None:
    bell = Bell()
    owners.watch("ses_1", os.getpid(), 1, bell.ring)
    owners.forget("ses_1")
    await settled()
    assert bell.count == 0


async def test_a_later_watch_replaces_the_earlier_one(owners: Owners, start: Start) -> None:
    first, second, bell = start(), start(), Bell()
    owners.watch("ses_1", first.pid, owners.identify(first.pid, None), bell.ring)
    owners.watch("ses_1", second.pid, owners.identify(second.pid, None), bell.ring)
    first.kill()
    exited(first)
    await settled()
    assert (owners.state("ses_1"), bell.count) == (OwnerProcess.ALIVE, 0)


async def test_no_descriptor_is_left_behind(start: Start) -> None:
    owners, child, bell = Owners(lambda: NOW), start(), Bell()
    started_ticks = owners.identify(child.pid, None)

    def pidfds() -> list[str]:
        links = [Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        return [target for link in links if link.exists() and "pidfd" in (target := os.readlink(link))]

    before = len(pidfds())
    for number in range(10):
        owners.watch(f"ses_{number}", child.pid, started_ticks, bell.ring)
    owners.forget("ses_0")
    owners.forget("ses_0")
    child.kill()
    await bell.wait()
    await settled()
    owners.watch("ses_0", os.getpid(), process.start_time(os.getpid()), bell.ring)
    owners.close()
    assert len(pidfds()) == before
