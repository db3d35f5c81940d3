"""The names a person can type, and how wrong ones end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tabherd import __version__
from tabherd.cli.main import app

COMMANDS = (
    *("up", "down", "status", "top", "bench", "drain", "doctor", "install-browser", "act", "events"),
    *("session new", "session ls", "session end", "token new"),
    *("task submit", "task ls", "task show", "task cancel", "task wait"),
)


def test_every_command_has_help_and_speaks_json() -> None:
    for words in COMMANDS:
        result = CliRunner().invoke(app, [*words.split(), "--help"])
        assert (result.exit_code, "--json" in result.stdout) == (0, True), words


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"tabherd {__version__}\n"


@pytest.mark.parametrize(
    "words", [["juggle"], ["up", "--no-such"], ["act"], ["up", "--port", "many"], ["up", "--pool-size", "0"]]
)
def test_a_wrong_command_line_ends_with_exit_code_2(words: list[str]) -> None:
    assert CliRunner().invoke(app, words).exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["juggle", "--json"], "juggle"),
        (["act", "--json"], "TAB"),
        (["up", "--json", "--port", "many"], "--port"),
        (["session", "new", "--json", "--viewport", "big"], "big"),
        (["act", "tab_1", "text", "novalue", "--json"], "novalue"),
        (["top", "--json", "--interval", "0"], "--interval"),
        (["bench", "--tabs", "0", "--json"], "--tabs"),
    ],
)
def test_with_json_a_wrong_command_line_is_a_typed_refusal(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, words)
    told = json.loads(result.stdout)
    assert (result.exit_code, told["code"], result.stderr) == (2, "invalid_request", "")
    assert said in told["message"]
    assert "--help" in told["action"]


def test_help_is_given_although_json_is_wanted() -> None:
    result = CliRunner().invoke(app, ["session", "ls", "--help", "--json"])
    assert (result.exit_code, result.stdout.startswith("Usage: ")) == (0, True)


def test_a_wrong_setting_is_said_in_one_sentence(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABHERD_SERVER__PROT", "1")
    result = CliRunner().invoke(app, ["up", "--detach"])
    assert result.exit_code == 1
    assert "unknown key 'server.prot'; did you mean 'server.port'?" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_configuration_file_that_is_missing_is_said_in_one_sentence(state: Path) -> None:
    result = CliRunner().invoke(app, ["up", "--config", "/nowhere/tabherd.toml", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["code"] == "invalid_request"


def test_no_server_is_a_typed_refusal(state: Path) -> None:
    result = CliRunner().invoke(app, ["status", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["code"] == "node_unreachable"


def test_the_help_loads_neither_server_nor_client_and_the_client_nothing_that_draws_colours() -> None:
    watched = "httpx", "starlette", "uvicorn", "rich", "msgspec", "asyncio", "tabherd.client", "tabherd.config"
    code = f"import sys, tabherd.cli.main; print([name for name in {watched!r} if name in sys.modules])"
    then = "import tabherd.client, httpx; print(httpx.Client, 'pygments' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"{code}; {then}"], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n<class 'httpx.Client'> False\n"
