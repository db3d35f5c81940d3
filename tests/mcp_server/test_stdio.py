"""`tabherd mcp`: a process on stdin and stdout, and what becomes of its leases."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest
from tests.cli.running import running_server
from tests.server.conftest import Server, environment_of
from tests.shared_server import unique
from typer.testing import CliRunner

from tabherd.cli.main import app
from tabherd.mcp import extra
from tabherd.mcp.stdio import made_name

from .clients import FEW_WARM, error, over_http, over_stdio, sessions, text

real = [pytest.mark.server, pytest.mark.browser]


class TestWithAServer:
    pytestmark = real

    async def test_a_page_is_driven_for_the_agent_of_the_token_and_the_leases_end_with_stdin(
        self, shared_server: Server
    ) -> None:
        name = unique("cyd")
        async with over_stdio(shared_server, TABHERD_TOKEN=shared_server.token_of(name)) as client:
            await text(client, "browser_navigate", url="data:text/html,<title>T</title><a href='%23'>Go</a>")
            assert (await text(client, "browser_snapshot")).startswith('link "Go" [ref=')
            assert [session["agentId"] for session in sessions(shared_server)] == [name]
        # The SDK waits two seconds for a process to end, and no longer.
        async with asyncio.timeout(60):
            while sessions(shared_server):
                await asyncio.sleep(0.01)

    async def test_the_lease_of_a_killed_process_goes_to_the_next_in_the_queue(self, shared_server: Server) -> None:
        wanted = {"pool": "keyed", "key": unique("key")}
        async with over_stdio(shared_server) as victim, over_http(shared_server) as heir, asyncio.timeout(60):
            await text(victim, "browser_lease", **wanted)
            (session,) = sessions(shared_server)
            waiting = asyncio.ensure_future(text(heir, "browser_lease", waitMs=60_000, **wanted))
            while not _waiting(shared_server):
                await asyncio.sleep(0.01)
            # Its number is in the name that it has given its agent.
            os.kill(int(session["agentId"].rpartition("-")[2]), signal.SIGKILL)
            await waiting

    async def test_a_process_that_is_told_to_terminate_gives_back_first(self, shared_server: Server) -> None:
        name = unique("bob")
        async with over_stdio(shared_server, TABHERD_AGENT=name) as client, asyncio.timeout(60):
            await text(client, "browser_lease")
            assert [session["agentId"] for session in sessions(shared_server)] == [name]
            (process,) = [one for one in psutil.Process().children() if one.cmdline()[-2:] == ["tabherd", "mcp"]]
            process.terminate()
            while sessions(shared_server):
                await asyncio.sleep(0.01)
        with shared_server.client() as admin:
            ended = admin.get("/sessions", params={"state": "closed", "limit": 1000}).json()["sessions"]
        assert [one["endReason"] for one in ended if one["agentId"] == name] == ["released"]


class TestWithoutAServer:
    pytestmark = real

    async def test_the_server_may_start_after_its_client_and_a_server_that_stops_ends_what_was_leased(
        self, tmp_path: Path
    ) -> None:
        server = Server(tmp_path / "state")
        async with over_stdio(server, "--agent", "ada", TABHERD_AGENT="bob") as client:
            refused, said = await error(client, "browser_navigate", url="about:blank")
            assert (refused["code"], "tabherd up" in said) == ("node_unreachable", True)
            with running_server(server.state, environment_of(FEW_WARM)) as started:
                await text(client, "browser_navigate", url="about:blank")
                assert [session["agentId"] for session in sessions(server)] == ["ada"]
                async with over_http(server) as other:
                    await text(other, "browser_lease")
                    await asyncio.to_thread(started.stop)
        log = (server.state / "server.log").read_text()
        assert "stopped" in log
        assert "exception" not in log


def _waiting(server: Server) -> int:
    with server.client() as admin:
        return admin.get("/stats").json()["pools"]["keyed"]["waiting"]


def test_a_made_up_name_is_one_that_agents_can_have() -> None:
    assert made_name("Claude Code (IDE)", 7) == "Claude-Code-IDE-7"
    assert made_name("", 7) == made_name("…", 7) == "mcp-7"


def test_a_name_that_no_agent_can_have_is_refused_before_anything_is_served() -> None:
    done = CliRunner().invoke(app, ["mcp", "--agent", "not a name"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "'not a name' is not a name an agent can have." in done.stderr


def test_without_the_sdk_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["mcp"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "pip install 'tabherd[mcp]'" in done.stderr
