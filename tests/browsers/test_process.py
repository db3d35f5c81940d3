"""Processes: facts, exits and groups."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tabherd.browsers import process
from tabherd.browsers.process import ChildGroup, StrangerGroup


@asynccontextmanager
async def child(tmp_path: Path, *argv: str) -> AsyncIterator[ChildGroup]:
    """A program in its own group, ended also when the test fails."""
    group = ChildGroup(argv, log_path=tmp_path / "log", environ=os.environ)
    try:
        # The kernel shows no arguments for a moment while a program is being loaded.
        while not process.command_line(group.pid) and not group.has_exited:
            await asyncio.sleep(0.001)
        yield group
    finally:
        await group.end()


async def test_a_process_is_known_by_its_start_time_and_arguments(tmp_path: Path) -> None:
    async with child(tmp_path, "/bin/sleep", "1000") as group:
        assert group.pid_started == process.start_time(group.pid) > 0
        assert process.command_line(group.pid) == ("/bin/sleep", "1000")
        assert process.group_members(group.pid) == [group.pid]


async def test_a_process_that_does_not_exist_has_no_facts() -> None:
    pid_never_given = 2**22 + 1
    assert process.start_time(pid_never_given) == 0
    assert process.command_line(pid_never_given) == ()
    assert process.group_members(pid_never_given) == []


async def test_a_process_has_an_age_and_neither_its_threads_nor_what_is_left_of_it_have(tmp_path: Path) -> None:
    own_age_ms = process.age_ms(os.getpid())
    assert own_age_ms is not None
    async with child(tmp_path, "/bin/sleep", "1000") as group:
        age_ms = process.age_ms(group.pid)
        assert age_ms is not None
        assert 0 <= age_ms < own_age_ms
    assert process.age_ms(group.pid) is None
    numbers: list[int] = []
    is_over = threading.Event()

    def work() -> None:
        numbers.append(threading.get_native_id())
        is_over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    while not numbers:
        await asyncio.sleep(0.001)
    # The kernel takes signals for it, as for a process.
    os.kill(numbers[0], 0)
    assert process.age_ms(numbers[0]) is None
    is_over.set()
    thread.join()


async def test_a_zombie_has_no_age() -> None:
    ended = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    os.kill(ended.pid, 0)
    assert process.age_ms(ended.pid) is None
    ended.wait()


@pytest.mark.parametrize("has_pidfd", [True, False])
async def test_an_exit_is_told_with_its_reason_and_the_child_is_reaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_pidfd: bool
) -> None:
    if not has_pidfd:

        def missing(_: int) -> int:
            raise OSError("no such call")

        monkeypatch.setattr(os, "pidfd_open", missing)
    async with child(tmp_path, "/bin/sh", "-c", "exit 3") as group:
        heard: list[str] = []
        group.on_exit(heard.append)
        await group.wait_exited()
        group.on_exit(heard.append)
        assert heard == ["exited with status 3", "exited with status 3"]
        with pytest.raises(ChildProcessError):
            os.waitpid(group.pid, os.WNOHANG)


async def test_what_a_leader_leaves_in_its_group_is_killed_when_it_exits(tmp_path: Path) -> None:
    async with child(tmp_path, "/bin/sh", "-c", "sleep 30 & exit 0") as group:
        await group.wait_exited()
        await process.wait_vanished(group.pid)
        assert process.group_members(group.pid) == []


async def test_ending_a_group_takes_every_member_and_may_be_repeated(tmp_path: Path) -> None:
    async with child(tmp_path, "/bin/sh", "-c", "sleep 1000 & sleep 1000 & wait") as group:
        while len(process.group_members(group.pid)) < 3:
            await asyncio.sleep(0.005)
        await asyncio.gather(group.end(), group.end())
        await group.end()
        assert process.group_members(group.pid) == []
        assert group.exit_reason == "was killed by SIGKILL"


async def test_a_program_that_cannot_be_executed_raises(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        ChildGroup((str(tmp_path / "absent"),), log_path=tmp_path / "log", environ=os.environ)
    with pytest.raises(PermissionError):
        ChildGroup((str(tmp_path / "log"),), log_path=tmp_path / "log", environ=os.environ)


async def test_only_the_process_with_all_three_marks_is_ended(tmp_path: Path) -> None:
    mark = f"1000.{os.getpid()}"
    async with child(tmp_path, "/bin/sleep", mark) as group:
        assert process.with_argument(mark) == [group.pid]
        assert not await process.end_stranger(group.pid, group.pid_started + 1, mark)
        assert not await process.end_stranger(group.pid, group.pid_started, "1000.0")
        assert not await process.end_stranger(0, 0, mark)
        assert not group.has_exited
        assert await process.end_stranger(group.pid, group.pid_started, mark)


# --- Groups of an earlier life --------------------------------------------------------------------------------------


async def test_a_strangers_exit_is_told_and_what_it_leaves_in_its_group_is_killed(tmp_path: Path) -> None:
    async with child(tmp_path, "/bin/sh", "-c", "sleep 1000 & wait") as group:
        while len(process.group_members(group.pid)) < 2:
            await asyncio.sleep(0.001)
        stranger = StrangerGroup(group.pid, group.pid_started)
        heard: list[str] = []
        stranger.on_exit(heard.append)
        os.kill(group.pid, signal.SIGKILL)
        await stranger.wait_exited()
        stranger.on_exit(heard.append)
        assert heard == ["is gone", "is gone"]
        await stranger.end()
        assert process.group_members(group.pid) == []


async def test_a_stranger_is_ended_with_its_whole_group(tmp_path: Path) -> None:
    async with child(tmp_path, "/bin/sh", "-c", "sleep 1000 & sleep 1000 & wait") as group:
        stranger = StrangerGroup(group.pid, group.pid_started)
        await asyncio.gather(stranger.end(), stranger.end())
        assert process.group_members(group.pid) == []


async def test_a_stranger_that_was_let_go_runs_on(tmp_path: Path) -> None:
    async with child(tmp_path, "/bin/sleep", "1000") as group:
        stranger = StrangerGroup(group.pid, group.pid_started)
        stranger.let_go()
        stranger.let_go()
        assert process.is_running(group.pid)


async def test_a_process_that_only_has_the_same_pid_is_nobody_and_is_left_alone(tmp_path: Path) -> None:
    async with child(tmp_path, "/bin/sleep", "1000") as group:
        with pytest.raises(ProcessLookupError):
            StrangerGroup(group.pid, group.pid_started + 1)
        reused = StrangerGroup(group.pid, group.pid_started)
        reused.pid_started += 1
        reused._kill()
        assert process.is_running(group.pid)
        reused.let_go()


async def test_arguments_are_found_by_how_they_begin(tmp_path: Path) -> None:
    mark = f"1000.{os.getpid()}"
    async with child(tmp_path, "/bin/sleep", mark) as group:
        assert process.with_prefix(mark[:-1]) == [(group.pid, mark)]
        assert process.is_leader(group.pid)
