"""Every example of the page on tasks runs as it stands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.running import environment, running_server
from tests.docs.test_examples import examples

pytestmark = [pytest.mark.server, pytest.mark.browser]

PAGE = "docs/how-to/tasks.md"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("tasks") / "state") as started:
        yield started.state


def run(words: list[str], state: Path) -> str:
    bin_dir = str(Path(sys.executable).parent)
    env = environment(state) | {"PATH": f"{bin_dir}:{os.environ['PATH']}"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("example", "said"),
    list(zip(examples(PAGE, "python"), ["Hello, task", "page 0\npage 1\npage 2\nUnknownAction("], strict=True)),
    ids=["one", "many"],
)
def test_the_python_example_says_what_it_should(state: Path, example: str, said: str) -> None:
    assert said in run([sys.executable, "-c", example], state)


def test_the_shell_examples_read_the_page_and_find_the_task(state: Path) -> None:
    shell, http = examples(PAGE, "sh")
    record = json.loads((state / "server.json").read_text())
    token = (state / "admin.token").read_text().strip()
    before = f"URL={record['url']}; AUTH='Authorization: Bearer {token}'"
    said = run(["bash", "-euo", "pipefail", "-c", f"{before}\n{shell}\n{http}"], state).splitlines()
    assert said[0] == "Hello, task"
    submitted, over = json.JSONDecoder().raw_decode(said[-1])
    assert set(submitted) >= {"taskId", "position"}
    assert json.loads(said[-1][over:])["result"] == "Hello, task"
