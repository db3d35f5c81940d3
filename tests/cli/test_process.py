"""Only the process that really is the server of a state directory is taken for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tabherd.cli.process import find_server

# Holds the file it is given open, says so, and ends on SIGTERM or when its stdin closes.
HOLDER = "import sys; held = open(sys.argv[1], 'a'); print('ready', flush=True); sys.stdin.read()"


@contextmanager
def process(state: Path, *, name: str, holds: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with that word on its command line and that file open, recorded as the server."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(holds), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            record(state, child.pid)
            yield child
        finally:
            child.kill()


def record(state: Path, pid: int) -> None:
    (state / "lock").write_text(str(pid))
    (state / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": pid, "nodeId": "nod_1"}))


def test_a_tabherd_that_holds_a_file_of_the_directory_is_its_server(tmp_path: Path) -> None:
    with process(tmp_path, name="tabherd", holds=tmp_path / "lock") as child:
        server = find_server(tmp_path)
        assert server is not None
        with server:
            assert server.pid == child.pid
            assert server.record is not None
            assert server.record.url == "http://127.0.0.1:1"


def test_a_server_that_starts_or_stops_is_found_without_an_address(tmp_path: Path) -> None:
    with process(tmp_path, name="/opt/bin/tabherd", holds=tmp_path / "lock") as child:
        (tmp_path / "server.json").unlink()
        server = find_server(tmp_path)
        assert server is not None
        with server:
            assert (server.pid, server.record) == (child.pid, None)


def test_the_address_of_an_earlier_server_is_not_that_of_this_one(tmp_path: Path) -> None:
    with process(tmp_path, name="tabherd", holds=tmp_path / "lock") as child:
        record(tmp_path, 1)
        (tmp_path / "lock").write_text(str(child.pid))
        server = find_server(tmp_path)
        assert server is not None
        with server:
            assert server.record is None


def test_a_program_that_got_the_same_number_is_not_the_server(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with process(state, name="tabherd-notes.txt", holds=state / "lock"):
        assert find_server(state) is None


def test_the_server_of_another_directory_is_not_the_server_of_this_one(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with process(state, name="tabherd", holds=tmp_path / "lock"):
        assert find_server(state) is None


def test_a_process_that_has_ended_is_no_server(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    record(tmp_path, child.pid)
    assert find_server(tmp_path) is None


def test_a_number_that_is_no_pid_is_no_server(tmp_path: Path) -> None:
    for pid in (0, -1, 1 << 40):
        record(tmp_path, pid)
        assert find_server(tmp_path) is None


def test_without_a_record_there_is_no_server(tmp_path: Path) -> None:
    assert find_server(tmp_path) is None


def test_terminating_ends_the_process_and_waiting_sees_it(tmp_path: Path) -> None:
    with process(tmp_path, name="tabherd", holds=tmp_path / "lock"):
        server = find_server(tmp_path)
        assert server is not None
        with server:
            assert server.wait(0) is False
            server.terminate()
            assert server.wait(60) is True
            # Nothing left to signal, and that is fine.
            server.terminate()


def test_looking_leaves_no_descriptor_open(tmp_path: Path) -> None:
    record(tmp_path, os.getpid())
    before = len(os.listdir("/proc/self/fd"))
    find_server(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
