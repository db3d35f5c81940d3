"""What the README and the quickstart tell people to type works, word for word."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.running import environment, running_server

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("examples") / "state") as started:
        yield started.state


def examples(page: str, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def run(words: list[str], state: Path, cwd: Path) -> str:
    done = subprocess.run(
        words, env=environment(state), cwd=cwd, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory where `.venv/bin/tabherd` is this environment's, as in a checkout that was set up."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("tabherd", "python"):
        (tmp_path / ".venv" / "bin" / name).symlink_to(Path(sys.executable).parent / name)
    return tmp_path


@pytest.mark.server
def test_the_python_example_of_the_readme_prints_what_it_says(server: Path, tmp_path: Path) -> None:
    (example,) = examples("README.md", "python")
    assert run([sys.executable, "-c", example], server, tmp_path) == "Only alice sees this\nbob: tab_not_found\n"


@pytest.mark.server
def test_the_shell_example_of_the_readme_reads_the_page_it_opened(server: Path, checkout: Path) -> None:
    up, example = examples("README.md", "sh")
    assert up.startswith("make up ")
    assert run(["bash", "-euo", "pipefail", "-c", example], server, checkout).splitlines()[-1] == "Hello, herd"


@pytest.mark.server
def test_the_shell_examples_of_the_quickstart_work(server: Path, checkout: Path) -> None:
    up, cli, curl = examples("docs/quickstart.md", "sh")
    assert up == "make up\n"
    said = run(["bash", "-euo", "pipefail", "-c", cli], server, checkout)
    assert "Hello, herd" in said
    assert (checkout / "hello.png").read_bytes().startswith(b"\x89PNG")
    assert '"sessionId"' in run(["bash", "-euo", "pipefail", "-c", curl], server, checkout)


@pytest.mark.server
def test_the_python_example_of_the_quickstart_works(server: Path, tmp_path: Path) -> None:
    (example,) = examples("docs/quickstart.md", "python")
    assert run([sys.executable, "-c", example], server, tmp_path) == "Hello, herd\n"


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/errors.md", "docs/quickstart.md"])
def test_every_python_example_can_be_compiled(page: str) -> None:
    for example in examples(page, "python"):
        compile(example, page, "exec")


def test_make_alone_lists_every_command() -> None:
    done = subprocess.run(
        ["make", "-s"], cwd=ROOT, env=os.environ | {"MAKEFLAGS": ""}, capture_output=True, text=True, check=True
    )
    listed = re.findall(r"^  make (\w+)", done.stdout, re.MULTILINE)
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert listed == phony[1].split()
