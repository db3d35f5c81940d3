"""What a user installs: a wheel that has everything in it, and that works in an environment with nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.running import environment

from tabherd import __version__

pytestmark = pytest.mark.release

ROOT = Path(__file__).parents[2]
# Long enough for a slow network: packages are fetched once and then come from pip's cache.
LIMIT_S = 300


def run(*words: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """What it printed; a command that fails fails the test with what it said."""
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=LIMIT_S, check=False, env=env, cwd=cwd
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(*words: str | Path) -> None:
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *words)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that what building leaves behind is not left in the checkout."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "src" / "tabherd", source / "src" / "tabherd", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", source / "dist", source)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` directory of an environment that has the wheel, what it depends on, and nothing else."""
    place = tmp_path_factory.mktemp("empty") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", place)
    # What is used is compiled when it is used, which is a small part of all that is installed.
    pip("--python", place / "bin" / "python", "install", "--no-compile", "-c", ROOT / "constraints.txt", wheel)
    return place / "bin"


@pytest.fixture(scope="module")
def server(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment variables of whoever uses a server that the installed command started."""
    place = tmp_path_factory.mktemp("server")
    env = environment(place / "state") | {"TABHERD_POOLS__DEFAULT__WARM": "0"}
    # Nothing of the checkout may help.
    env.pop("PYTHONPATH", None)
    try:
        run(installed / "tabherd", "up", "--detach", env=env, cwd=place)
        yield env
    finally:
        run(installed / "tabherd", "down", env=env, cwd=place)


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    package = ROOT / "src" / "tabherd"
    wanted = {
        f"tabherd/{path.relative_to(package)}"
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {"tabherd/py.typed", "tabherd/store/schema/sqlite/0001_rows.sql"} <= wanted
    assert wanted - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_the_wheel_says_its_version_and_licence(wheel: Path, installed: Path) -> None:
    assert run(installed / "tabherd", "--version") == f"tabherd {__version__}\n"
    assert wheel.name.startswith(f"tabherd-{__version__}-py3")
    assert any(name.endswith("licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())


@pytest.mark.server
def test_what_was_installed_leases_a_page(installed: Path, server: dict[str, str], tmp_path: Path) -> None:
    example = (
        "from tabherd import Tabherd\n"
        "with Tabherd() as herd, herd.session(agent='ada', url='data:text/html,<h1>Hello') as session:\n"
        "    print(session.tab.text())\n"
    )
    assert run(installed / "python", "-c", example, env=server, cwd=tmp_path) == "Hello\n"
    assert json.loads(run(installed / "tabherd", "status", "--json", env=server, cwd=tmp_path))["ready"] is True


@pytest.mark.server
def test_what_was_installed_shows_the_demo(installed: Path, tmp_path: Path) -> None:
    words = ("demo", "--agents", "4", "--tabs", "2", "--seconds", "2", "--json")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = json.loads(run(installed / "tabherd", *words, env=env, cwd=tmp_path))
    assert told["held"] is True


@pytest.mark.server
def test_what_was_not_installed_is_named_with_how_to_get_it(installed: Path, server: dict[str, str]) -> None:
    done = subprocess.run(
        [installed / "tabherd", "mcp"],
        env=server,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'tabherd[mcp]'" in done.stderr
