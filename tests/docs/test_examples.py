"""What the README, the quickstart and the pages on Python and on tasks tell people to type works, word for word.

The README's examples are run in every run of the tests, the others before a release.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.running import environment
from tests.server.conftest import Server

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(shared_server: Server) -> Path:
    return shared_server.state


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


@pytest.mark.release
@pytest.mark.server
def test_the_shell_examples_of_the_quickstart_work(server: Path, checkout: Path) -> None:
    up, cli, curl = examples("docs/quickstart.md", "sh")
    assert up == "make up\n"
    said = run(["bash", "-euo", "pipefail", "-c", cli], server, checkout)
    assert "Hello, herd" in said
    assert (checkout / "hello.png").read_bytes().startswith(b"\x89PNG")
    assert '"sessionId"' in run(["bash", "-euo", "pipefail", "-c", curl], server, checkout)


@pytest.mark.release
@pytest.mark.server
def test_the_python_example_of_the_quickstart_works(server: Path, tmp_path: Path) -> None:
    (example,) = examples("docs/quickstart.md", "python")
    assert run([sys.executable, "-c", example], server, tmp_path) == "Hello, herd\n"


# --- The page on Python -----------------------------------------------------------------------------------------

PYTHON = examples("docs/how-to/python.md", "python")
# A word of what each prints, in the order of the page.
PYTHON_SAID = ["Hello, herd", "", "text=Sign in", "tabherd", "['alice', 'bob']", "Hello from Playwright", "table.csv"]


@pytest.mark.release
@pytest.mark.server
@pytest.mark.browser
@pytest.mark.parametrize(("example", "said"), list(zip(PYTHON, PYTHON_SAID, strict=True)), ids=range(len(PYTHON_SAID)))
def test_the_example_runs_and_says_what_it_should(server: Path, tmp_path: Path, example: str, said: str) -> None:
    assert said in run([sys.executable, "-c", example], server, tmp_path)


# --- The page on tasks ------------------------------------------------------------------------------------------

TASKS = "docs/how-to/tasks.md"


@pytest.mark.release
@pytest.mark.server
@pytest.mark.browser
@pytest.mark.parametrize(
    ("example", "said"),
    list(zip(examples(TASKS, "python"), ["Hello, task", "page 0\npage 1\npage 2\nUnknownAction("], strict=True)),
    ids=["one", "many"],
)
def test_the_python_example_of_tasks_says_what_it_should(server: Path, tmp_path: Path, example: str, said: str) -> None:
    assert said in run([sys.executable, "-c", example], server, tmp_path)


@pytest.mark.release
@pytest.mark.server
@pytest.mark.browser
def test_the_shell_examples_of_tasks_read_the_page_and_find_the_task(server: Path, tmp_path: Path) -> None:
    shell, http = examples(TASKS, "sh")
    record = json.loads((server / "server.json").read_text())
    token = (server / "admin.token").read_text().strip()
    before = f"URL={record['url']}; AUTH='Authorization: Bearer {token}'; PATH={Path(sys.executable).parent}:$PATH"
    said = run(["bash", "-euo", "pipefail", "-c", f"{before}\n{shell}\n{http}"], server, tmp_path).splitlines()
    assert said[0] == "Hello, task"
    submitted, over = json.JSONDecoder().raw_decode(said[-1])
    assert set(submitted) >= {"taskId", "position"}
    assert json.loads(said[-1][over:])["result"] == "Hello, task"


# --- What needs no server ---------------------------------------------------------------------------------------


def test_make_alone_lists_every_command() -> None:
    done = subprocess.run(
        ["make", "-s"], cwd=ROOT, env=os.environ | {"MAKEFLAGS": ""}, capture_output=True, text=True, check=True
    )
    listed = re.findall(r"^  make (\w+)", done.stdout, re.MULTILINE)
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert listed == phony[1].split()
