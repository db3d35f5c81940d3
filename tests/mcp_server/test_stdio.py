"""`tabherd mcp`: a process on stdin and stdout, and what becomes of its leases."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client
from tests.cli.running import running_server
from tests.server.conftest import Server, environment_of, with_settings
from typer.testing import CliRunner

from tabherd.cli.main import app
from tabherd.mcp import extra
from tabherd.mcp.stdio import made_name

from .clients import FEW_WARM, error, over_http, over_stdio, released, sessions, text

browser = [pytest.mark.server, pytest.mark.browser]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # One place, so that whoever waits gets it only when the lease before has ended.
    settings = FEW_WARM | {"POOLS__DEFAULT__MAX_ACTIVE": "1", "POOLS__DEFAULT__OWNER_DEAD_GRACE_MS": "100"}
    with with_settings(tmp_path_factory.mktemp("stdio") / "state", settings) as server:
        yield server


@pytest.fixture
def room(server: Server) -> Iterator[None]:
    yield from released(server)


async def leased(client: Client, server: Server) -> int:
    """Leases, and finds the process in the name that it has given its agent."""
    await text(client, "browser_lease")
    (session,) = sessions(server)
    return int(session["agentId"].rpartition("-")[2])


@pytest.mark.usefixtures("room")
class TestWithAServer:
    pytestmark = browser

    async def test_a_page_is_driven_and_the_leases_end_with_stdin(self, server: Server) -> None:
        async with over_stdio(server) as client:
            await text(client, "browser_navigate", url="data:text/html,<title>T</title><a href='%23'>Go</a>")
            assert (await text(client, "browser_snapshot")).startswith('link "Go" [ref=')
            assert len(sessions(server)) == 1
        # The SDK waits two seconds for a process to end, and no longer.
        async with asyncio.timeout(60):
            while sessions(server):
                await asyncio.sleep(0.01)

    async def test_the_lease_of_a_killed_process_goes_to_the_next_in_the_queue(self, server: Server) -> None:
        async with over_stdio(server) as victim, over_http(server) as heir, asyncio.timeout(60):
            pid = await leased(victim, server)
            waiting = asyncio.ensure_future(text(heir, "browser_lease", waitMs=60_000))
            while not _waiting(server):
                await asyncio.sleep(0.01)
            os.kill(pid, signal.SIGKILL)
            await waiting

    async def test_a_process_that_is_told_to_terminate_gives_back_first(self, server: Server) -> None:
        async with over_stdio(server) as client, asyncio.timeout(60):
            os.kill(await leased(client, server), signal.SIGTERM)
            while sessions(server):
                await asyncio.sleep(0.01)
        with server.client() as admin:
            ended = admin.get("/sessions", params={"state": "closed", "limit": 1000}).json()["sessions"]
        assert ended[-1]["endReason"] == "released"

    async def test_the_agent_is_named_by_option_or_variable(self, server: Server) -> None:
        async with over_stdio(server, "--agent", "ada", TABHERD_AGENT="bob") as client:
            await text(client, "browser_lease")
            assert [session["agentId"] for session in sessions(server)] == ["ada"]
        async with over_stdio(server, TABHERD_AGENT="bob") as client:
            await text(client, "browser_lease")
            assert [session["agentId"] for session in sessions(server)] == ["bob"]

    async def test_the_token_of_an_agent_says_who_it_is(self, server: Server) -> None:
        async with over_stdio(server, TABHERD_TOKEN=server.token_of("cyd")) as client:
            await text(client, "browser_lease")
            assert [session["agentId"] for session in sessions(server)] == ["cyd"]

    async def test_a_name_that_the_token_does_not_allow_is_refused(self, server: Server) -> None:
        async with over_stdio(server, "--agent", "ada", TABHERD_TOKEN=server.token_of("cyd")) as client:
            refused, _ = await error(client, "browser_lease")
        assert (refused["code"], refused["details"]) == ("forbidden", {"field": "X-Agent-Id"})


class TestWithoutAServer:
    pytestmark = browser

    async def test_the_server_may_be_started_after_its_client(self, tmp_path: Path) -> None:
        server = Server(tmp_path / "state")
        async with over_stdio(server) as client:
            refused, said = await error(client, "browser_navigate", url="about:blank")
            assert (refused["code"], "tabherd up" in said) == ("node_unreachable", True)
            with running_server(server.state, environment_of(FEW_WARM)):
                await text(client, "browser_navigate", url="about:blank")


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


def _waiting(server: Server) -> int:
    with server.client() as admin:
        return admin.get("/stats").json()["pools"]["default"]["waiting"]
