"""What deploy/ says is true of this program: its settings, addresses, files and command lines exist."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
import yaml

from tabherd.cli.main import app
from tabherd.cli.serve import CLOSE_LIMIT_S
from tabherd.config import Config, Server
from tabherd.config_layers import layers_of
from tabherd.edge.routes import ROUTES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: Mapping[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
NODES = [name for name in COMPOSE["services"] if name.startswith("node-")]
UNIT = DEPLOY / "tabherd.service"
PORT = Server().port


def instructions(name: str) -> list[str]:
    """What follows that word in the Containerfile, with its lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text("utf-8"), flags=re.MULTILINE)
    return re.findall(rf"^{name} (.+)$", text.replace("\\\n", " "), re.MULTILINE)


def image_environment() -> dict[str, str]:
    (line,) = instructions("ENV")
    return dict(word.split("=", 1) for word in shlex.split(line))


def settings(environ: Mapping[str, str]) -> Config:
    """What a server makes of that environment; raises for a name that is no setting."""
    return layers_of(DEPLOY / "tabherd.toml", environ=environ).read()


def parse(words: list[str]) -> None:
    """Raises when that is no command line of ours."""
    command = typer.main.get_command(app)
    context = command.make_context("tabherd", list(words))
    name, found, rest = command.resolve_command(context, list(words))  # type: ignore[attr-defined]
    found.make_context(name, rest, parent=context)


def unit() -> dict[str, list[str]]:
    """The keys of the unit, and what they are set to, in turn."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text("utf-8").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


# --- The image ----------------------------------------------------------------------------------------------------


def test_everything_that_the_image_copies_exists() -> None:
    copied = [line.split() for line in instructions("COPY") if not line.startswith("--from")]
    assert copied
    assert [source for *sources, _ in copied for source in sources if not (ROOT / source).exists()] == []


def test_the_image_starts_the_server_with_a_command_line_that_there_is() -> None:
    (entry,), (words,) = instructions("ENTRYPOINT"), instructions("CMD")
    *_, program = msgspec.json.decode(entry)
    assert Path(program).name == "tabherd"
    parse(msgspec.json.decode(words))


def test_a_command_line_that_there_is_not_would_be_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["up", "--hots", "0.0.0.0"])


def test_the_image_knows_only_settings_that_there_are() -> None:
    assert settings(image_environment()).server.log_format == "json"


def test_the_image_installs_extras_that_there_are() -> None:
    (extra,) = re.findall(r'"\.\[(\w+)\]"', " ".join(instructions("RUN")))
    assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text("utf-8")


def test_the_image_runs_as_an_ordinary_user_with_a_directory_that_is_kept() -> None:
    assert instructions("USER") == ["tabherd"]
    assert instructions("VOLUME") == [image_environment()["TABHERD_STATE"]]


def test_the_image_is_asked_for_its_health_where_the_server_answers() -> None:
    (check,) = instructions("HEALTHCHECK")
    (port, path) = re.findall(r"127\.0\.0\.1:(\d+)(/\w+)", check)[0]
    assert instructions("EXPOSE") == [port] == [str(PORT)]
    assert path in {route.path for route in ROUTES}


@pytest.mark.parametrize("image", [*instructions("FROM"), *(each["image"] for each in COMPOSE["services"].values())])
def test_no_image_names_the_host_of_a_registry(image: str) -> None:
    assert "/" not in image


# --- Compose ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NODES)
def test_a_node_of_compose_is_a_member_of_a_cluster(name: str) -> None:
    assert settings(image_environment() | COMPOSE["services"][name]["environment"]).is_clustered


def test_no_two_nodes_of_compose_share_a_state_directory() -> None:
    places = [
        volume.split(":")[0] for name in NODES for volume in COMPOSE["services"][name]["volumes"] if ":/state" in volume
    ]
    assert len(NODES) == 2
    assert len(set(places)) == len(places) == len(NODES)


def test_everything_that_compose_mounts_is_there_or_declared() -> None:
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], source


def test_compose_gives_a_node_time_to_drain() -> None:
    for name in NODES:
        grace_s = int(COMPOSE["services"][name]["stop_grace_period"].removesuffix("s"))
        assert grace_s >= Server().drain_s + CLOSE_LIMIT_S


def test_compose_has_no_password_in_it() -> None:
    assert set(
        re.findall(r"(?<=PASSWORD: ).+|(?<=tabherd:)\S+(?=@)", (DEPLOY / "compose.yaml").read_text("utf-8"))
    ) == {"${POSTGRES_PASSWORD:?choose one}"}


@pytest.mark.parametrize("name", ["haproxy.cfg", "nginx.conf"])
def test_a_load_balancer_knows_every_node_of_compose_and_listens_on_the_port_that_is_published(name: str) -> None:
    text = (DEPLOY / name).read_text("utf-8")
    assert re.findall(r"^\s*server (?:node-\d )?(node-\d:\d+)", text, re.MULTILINE) == [
        f"{node}:{PORT}" for node in NODES
    ]
    assert re.findall(r"(?:bind :|listen )(\d+)", text) == [str(PORT)]
    assert COMPOSE["services"]["balancer"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]


# --- systemd ------------------------------------------------------------------------------------------------------


def test_the_unit_starts_the_server_with_a_command_line_that_there_is() -> None:
    (command,) = unit()["ExecStart"]
    program, *words = shlex.split(command)
    assert Path(program).name == "tabherd"
    parse(words)


def test_the_unit_knows_only_settings_that_there_are() -> None:
    environ = dict(value.split("=", 1) for value in unit()["Environment"])
    assert settings(environ).server.log_format == "json"
    assert environ["TABHERD_STATE"] == "%S/" + unit()["StateDirectory"][0]


def test_the_unit_gives_the_server_time_to_drain() -> None:
    assert int(unit()["TimeoutStopSec"][0]) >= Server().drain_s + CLOSE_LIMIT_S


def test_the_unit_leaves_chromium_what_its_sandbox_is_made_of() -> None:
    assert "RestrictNamespaces" not in unit()
    assert "@mount" not in unit()["SystemCallFilter"][0]
    assert "MemoryDenyWriteExecute" not in unit()


def test_the_unit_is_written_as_systemd_reads_it(tmp_path: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text("utf-8"))
    assert parser.sections() == ["Unit", "Service", "Install"]
    if (program := shutil.which("systemd-analyze")) is None:
        # Where there is no systemd nobody can ask it; the rest of this file holds everywhere.
        return
    copy = tmp_path / UNIT.name
    copy.write_text(
        UNIT.read_text("utf-8").replace("/opt/tabherd/bin/tabherd", str(Path(sys.executable).parent / "tabherd"))
    )
    done = subprocess.run(
        [program, "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    assert [line for line in done.stderr.splitlines() if UNIT.name in line] == []
