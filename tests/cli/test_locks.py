"""`tabherd lock run` and `tabherd locks`: a command that runs only while its lock is held, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from tests.cli.conftest import Tabherd
from tests.cli.running import call, environment
from tests.client.canned import CannedServer
from tests.client.living import until
from tests.server.conftest import Server, is_alive, with_settings

HELD = {"name": "a", "held": True, "holder": "ada/w", "acquiredAt": "2026-01-01T00:00:00.000Z", "waiters": 2}
FOREIGN = {"name": "b", "held": True, "waiters": 0}
LOCK = {"name": "a", "acquired": True, "holder": "ada", "fence": 7, "leaseMs": 30_000, "ticket": "t"}
# Soon over without its holder, and long enough for one that a busy machine keeps from renewing it.
LEASE = {"LOCKS__LEASE_MS": "10000"}
# Nobody here opens a page.
SETTINGS = LEASE | {"POOLS__DEFAULT__BROWSERS_MIN": "0", "POOLS__DEFAULT__WARM": "0"}


# --- With prepared answers --------------------------------------------------------------------------------------


def test_locks_are_listed_with_holder_and_waiters(tabherd: Tabherd, canned: CannedServer) -> None:
    canned.answer("GET", "/locks", {"locks": [HELD, FOREIGN]})
    lines = tabherd("locks").stdout.splitlines()
    assert lines[1].split() == ["a", "ada/w", "2026-01-01T00:00:00.000Z", "2"]
    assert lines[2].split() == ["b", "another", "agent"]


def test_programs_read_locks_as_json(tabherd: Tabherd, canned: CannedServer) -> None:
    canned.answer("GET", "/locks", {"locks": [HELD]})
    assert json.loads(tabherd("locks", "--json").stdout)["locks"][0]["holder"] == "ada/w"


def test_a_lock_is_bound_to_the_process_that_runs_the_command(tabherd: Tabherd, canned: CannedServer) -> None:
    canned.answer("POST", "/locks/a", LOCK)
    canned.answer("DELETE", "/locks/a", status=204)
    assert tabherd("lock", "run", "a", "--", "true").exit_code == 0
    assert canned.asked[0].body["owner"]["pid"] == os.getpid()
    assert canned.asked[-1].method == "DELETE"


def test_a_server_elsewhere_that_sees_no_such_process_gives_the_lock_for_its_lease(
    tabherd: Tabherd, canned: CannedServer
) -> None:
    unseen = {"code": "invalid_request", "message": "No such process.", "action": "", "details": {"field": "owner"}}
    canned.answer("POST", "/locks/a", unseen, 400)
    canned.answer("POST", "/locks/a", LOCK)
    canned.answer("DELETE", "/locks/a", status=204)
    assert tabherd("lock", "run", "a", "--", "true").exit_code == 0
    assert "owner" not in canned.asked[1].body


# --- With a server ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("lock-run") / "state", SETTINGS) as server:
        yield server


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


def locks(server: Server) -> list[dict[str, Any]]:
    with server.client() as admin:
        listed: list[dict[str, Any]] = admin.get("/locks").json()["locks"]
    return listed


# A command that says who it is, and that it was told to end.
TALKER = "trap 'echo told; exit 3' TERM; echo $$; while :; do sleep 0.2; done"


@pytest.mark.server
@pytest.mark.browser
class TestWithAServer:
    def test_the_exit_code_of_the_command_is_passed_on_and_the_lock_is_free(self, server: Server) -> None:
        done = call(server.state, "lock", "run", "a", "--", "sh", "-c", "echo $TABHERD_LOCK_FENCE; exit 7")
        assert (done.returncode, done.stdout.strip().isdigit()) == (7, True)
        assert locks(server) == []

    def test_a_command_that_does_not_exist_is_said_to_be_missing(self, server: Server) -> None:
        done = call(server.state, "lock", "run", "a", "--", "no-such-command")
        assert (done.returncode, "no-such-command: not found" in done.stderr) == (127, True)

    def test_a_command_that_a_signal_ended_is_told_apart(self, server: Server) -> None:
        done = call(server.state, "lock", "run", "a", "--", "sh", "-c", "kill -KILL $$")
        assert done.returncode == 128 + signal.SIGKILL

    def test_a_pipe_that_breaks_ends_the_command_as_ever(self, server: Server) -> None:
        done = call(server.state, "lock", "run", "a", "--", "sh", "-c", "kill -PIPE $$; echo alive")
        assert (done.returncode, done.stdout) == (128 + signal.SIGPIPE, "")

    def test_who_skips_runs_nothing_while_the_lock_is_held(self, server: Server) -> None:
        with running(server, "a", "--", "sh", "-c", "echo began; cat") as first:
            assert said(first) == "began"
            done = call(server.state, "lock", "run", "a", "--skip", "--", "echo", "ran")
            assert (done.returncode, done.stdout) == (75, "")

    def test_who_waited_in_vain_is_refused(self, server: Server) -> None:
        with running(server, "a", "--", "sh", "-c", "echo began; cat") as first:
            assert said(first) == "began"
            done = call(server.state, "lock", "run", "a", "--wait", "0.1", "--", "echo", "ran")
            assert (done.returncode, done.stdout, "lock_timed_out" in done.stderr) == (1, "", True)

    def test_who_waits_runs_when_the_lock_is_given_back(self, server: Server) -> None:
        with running(server, "a", "--", "sh", "-c", "echo began; cat") as first:
            assert said(first) == "began"
            with running(server, "a", "--wait", "60", "--", "echo", "ran") as second:
                until(lambda: any(lock["waiters"] for lock in locks(server)))
                assert first.stdin is not None
                first.stdin.close()
                assert said(second) == "ran"

    def test_signals_are_the_commands(self, server: Server) -> None:
        with running(server, "a", "--", "sh", "-c", TALKER) as process:
            assert said(process).isdigit()
            process.send_signal(signal.SIGTERM)
            assert (said(process), process.wait(60)) == ("told", 3)

    def test_kill_9_frees_the_lock_and_ends_the_command(self, server: Server) -> None:
        with running(server, "a", "--", "sh", "-c", TALKER) as process:
            command = psutil.Process(int(said(process)))
            process.kill()
            until(lambda: locks(server) == [])
            until(lambda: not is_alive(command))

    def test_a_command_whose_lock_is_lost_is_told_to_end(self, server: Server) -> None:
        with running(server, "a", "--", "sh", "-c", TALKER) as process:
            assert said(process).isdigit()
            server.kill()
            # Nobody renews it any more, so that it is lost when its lease is over.
            try:
                assert said(process) == "told"
                assert process.wait(60) == 76
                assert process.stderr is not None
                assert "lost" in process.stderr.read()
            finally:
                server.start(SETTINGS)
