"""`tabherd lock run` and `tabherd locks`: a command that runs only while its lock is held, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.cli.conftest import Tabherd
from tests.cli.running import environment
from tests.client.canned import CannedServer
from tests.client.living import until
from tests.server.conftest import Server, is_alive
from tests.shared_server import unique

HELD = {"name": "a", "held": True, "holder": "ada/w", "acquiredAt": "2026-01-01T00:00:00.000Z", "waiters": 2}
FOREIGN = {"name": "b", "held": True, "waiters": 0}
# A command that says who it is, and that it was told to end.
TALKER = "trap 'echo told; exit 3' TERM; echo $$; while :; do sleep 0.2; done"
LOCK = {"name": "a", "acquired": True, "holder": "ada", "fence": 7, "leaseMs": 30_000, "ticket": "t"}


# --- With prepared answers --------------------------------------------------------------------------------------


def test_locks_are_listed_with_holder_and_waiters(tabherd: Tabherd, canned: CannedServer) -> None:
    canned.answer("GET", "/locks", {"locks": [HELD, FOREIGN]})
    lines = tabherd("locks").stdout.splitlines()
    assert lines[1].split() == ["a", "ada/w", "2026-01-01T00:00:00.000Z", "2"]
    assert lines[2].split() == ["b", "another", "agent"]


def test_programs_read_locks_as_json(tabherd: Tabherd, canned: CannedServer) -> None:
    canned.answer("GET", "/locks", {"locks": [HELD]})
    assert json.loads(tabherd("locks", "--json").stdout)["locks"][0]["holder"] == "ada/w"


@pytest.fixture
def free(canned: CannedServer) -> CannedServer:
    """A server that has the lock `a` to give."""
    canned.answer("POST", "/locks/a", LOCK)
    canned.answer("DELETE", "/locks/a", status=204)
    return canned


@pytest.mark.parametrize(
    ("command", "code", "out", "err"),
    [
        (["sh", "-c", "echo $TABHERD_LOCK_FENCE; exit 7"], 7, "7\n", ""),
        (["no-such-command"], 127, "", "no-such-command: not found\n"),
        # A pipe that breaks ends the command as ever.
        (["sh", "-c", "kill -PIPE $$; echo alive"], 128 + signal.SIGPIPE, "", ""),
    ],
)
def test_the_command_has_the_fence_and_its_end_is_passed_on_after_the_lock_was_given_back(
    tabherd: Tabherd,
    free: CannedServer,
    capfd: pytest.CaptureFixture[str],
    command: list[str],
    code: int,
    out: str,
    err: str,
) -> None:
    assert tabherd("lock", "run", "a", "--", *command).exit_code == code
    assert capfd.readouterr() == (out, err)
    # The lock is bound to the process that runs the command.
    assert free.asked[0].body["owner"]["pid"] == os.getpid()
    assert free.asked[-1].method == "DELETE"


def test_a_server_elsewhere_that_sees_no_such_process_gives_the_lock_for_its_lease(
    tabherd: Tabherd, canned: CannedServer
) -> None:
    unseen = {"code": "invalid_request", "message": "No such process.", "action": "", "details": {"field": "owner"}}
    canned.answer("POST", "/locks/a", unseen, 400)
    canned.answer("POST", "/locks/a", LOCK)
    canned.answer("DELETE", "/locks/a", status=204)
    assert tabherd("lock", "run", "a", "--", "true").exit_code == 0
    assert "owner" not in canned.asked[1].body


def test_a_command_whose_lock_is_lost_is_told_to_end(
    tabherd: Tabherd, canned: CannedServer, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    began = tmp_path / "began"
    held = LOCK | {"leaseMs": 6_000}
    gone = {"code": "lock_not_found", "message": "Another has it.", "action": "", "details": {}}
    canned.answer("POST", "/locks/a", held)
    canned.answer("POST", "/locks/a/renew", held)
    canned.answer("DELETE", "/locks/a", gone, 404)

    def take_it_away() -> None:
        until(began.exists)
        canned.answer("POST", "/locks/a/renew", gone, 404)
        canned.answer("POST", "/locks/a/renew", gone, 404)

    with ThreadPoolExecutor(1) as threads:
        taking = threads.submit(take_it_away)
        command = f"trap 'echo told; exit 3' TERM; touch {began}; while :; do sleep 0.1; done"
        assert tabherd("lock", "run", "a", "--", "sh", "-c", command).exit_code == 76
        taking.result()
    assert capfd.readouterr().out == "told\n"


# --- With a server ----------------------------------------------------------------------------------------------


@contextmanager
def running(server: Server, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`tabherd lock run`, whose command has begun and said so; it is gone afterwards."""
    with subprocess.Popen(
        [sys.executable, "-m", "tabherd", "lock", "run", *words],
        env=environment(server.state),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def locks(server: Server, name: str) -> list[dict[str, Any]]:
    with server.client() as admin:
        listed: list[dict[str, Any]] = admin.get("/locks").json()["locks"]
    return [lock for lock in listed if lock["name"] == name]


@pytest.mark.server
class TestWithAServer:
    def test_a_lock_that_is_held_is_skipped_waited_for_in_vain_or_had_when_it_is_given_back(
        self, shared_server: Server, real: Tabherd
    ) -> None:
        name = unique("turns")
        with running(shared_server, name, "--", "sh", "-c", "echo began; cat") as first:
            assert said(first) == "began"
            assert real("lock", "run", name, "--skip", "--", "echo", "ran").exit_code == 75
            refused = real("lock", "run", name, "--wait", "0.1", "--", "echo", "ran")
            assert (refused.exit_code, "lock_timed_out" in refused.stderr) == (1, True)
            with running(shared_server, name, "--wait", "60", "--", "echo", "ran") as second:
                until(lambda: any(lock["waiters"] for lock in locks(shared_server, name)))
                assert first.stdin is not None
                first.stdin.close()
                assert said(second) == "ran"

    def test_signals_are_the_commands_and_kill_9_ends_it_and_frees_the_lock(self, shared_server: Server) -> None:
        name = unique("killed")
        with running(shared_server, name, "--", "sh", "-c", TALKER) as process:
            assert said(process).isdigit()
            process.send_signal(signal.SIGTERM)
            assert (said(process), process.wait(60)) == ("told", 3)
        with running(shared_server, name, "--", "sh", "-c", TALKER) as process:
            command = psutil.Process(int(said(process)))
            process.kill()
            until(lambda: locks(shared_server, name) == [])
            until(lambda: not is_alive(command))
